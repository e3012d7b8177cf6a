"""Running a transform through on blank and on real images, to see what comes out of each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from photo_list import Photos, of_many_sizes, of_one_size
from PIL import Image
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

from gpupreload.cover import ResizeToCover
from gpupreload.errors import DataError, TransformError, UnreadableError
from gpupreload.leaves import flatten
from gpupreload.source import ImageSpec, Source, open_source
from gpupreload.trace import Form, follow


class Headers(Source):
    """Grey pictures whose sizes are known without decoding; some cannot be decoded."""

    name = "headers"
    classes = class_to_idx = samples = None
    has_headers = True

    def __init__(self, sizes: list[tuple[int, int]], broken: tuple[int, ...] = ()) -> None:
        self.sizes, self.broken = sizes, broken
        self.read_items: list[int] = []

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def specs(self) -> dict[int, ImageSpec]:  # type: ignore[override]
        """A spec for every item."""
        return {i: ImageSpec("PIL", "L", 1, h, w) for i, (w, h) in enumerate(self.sizes)}

    def read(self, index: int) -> tuple[Any, int]:
        """Read an item, unless it is broken."""
        self.read_items.append(index)
        if index in self.broken:
            raise UnreadableError(f"item {index} is broken")
        return Image.new("L", self.sizes[index]), 0

    def where(self, index: int) -> str:
        """The number of the item."""
        return f"item {index}"


SIZES = [(40, 30), (30, 40), (36, 36), (90, 30), (20, 20), (60, 60)]


def test_nothing_is_decoded_for_steps_of_torchvision() -> None:
    """Where sizes come from headers and steps from torchvision, no item is read."""
    source = Headers(SIZES)
    chain = [v2.Resize(20), v1.CenterCrop(16), v1.RandomRotation(3), v2.ToImage(), v2.RandAugment()]
    trace = follow(flatten(chain), source)
    assert source.read_items == []
    assert trace.n_decoded == 0
    assert [len(point.forms) for point in trace.points] == [6, 4, 1, 1, 1, 1]
    assert str(trace.points[2].one_form) == "16×16 L"


def test_a_callers_own_callable_is_tried_on_the_extremes() -> None:
    """Four items are read at most: the extremes of aspect and of size among them."""
    source = Headers([*SIZES, *[(40, 30)] * 20])
    trace = follow(flatten([v2.Pad(1), lambda image: image, v2.Pad(2)]), source)
    # widest, tallest, smallest, and largest
    assert sorted(source.read_items) == [1, 3, 4, 5]
    assert trace.n_decoded == 4
    assert {str(form) for form in trace.points[3].forms} == {
        "36×46 L",
        "96×36 L",
        "26×26 L",
        "66×66 L",
    }


def test_broken_items_are_passed_over_when_steps_are_tried() -> None:
    """A file that cannot be read is no matter of the transform, unless no other can."""
    source = Headers([(40, 30)] * 8, broken=(0, 1, 2))
    assert follow(flatten(abs_of_image), source).n_decoded == 4
    with pytest.raises(UnreadableError, match="item 0 is broken"):
        follow(flatten(abs_of_image), Headers([(40, 30)], broken=(0,)))


def abs_of_image(image: Any) -> Any:
    """A callable of a caller's own."""
    return image.copy()


def test_a_set_without_images_is_refused() -> None:
    """Nothing can be found out about no images."""
    with pytest.raises(DataError) as caught:
        follow([], Headers([]))
    assert str(caught.value) == "headers holds no images; expected at least one."


@pytest.mark.parametrize(
    ("image", "form"),
    [
        (Image.new("RGB", (4, 3)), Form("PIL", "RGB", (3, 3, 4), dtype=torch.uint8)),
        (Image.new("1", (4, 3)), Form("PIL", "1", (1, 3, 4))),
        (Image.new("I;16", (4, 3)), Form("PIL", "I;16", (1, 3, 4))),
        (torch.zeros(3, 3, 4), Form("tensor", "float32", (3, 3, 4), dtype=torch.float32)),
        (torch.zeros(1, 3, 4).half(), Form("tensor", "float16", (1, 3, 4), dtype=torch.float16)),
        (torch.zeros(3, 3, 4).long(), Form("tensor", "int64", (3, 3, 4))),
        (
            tv_tensors.Image(torch.zeros(3, 3, 4).byte()),
            Form("tensor", "uint8", (3, 3, 4), is_tv_image=True, dtype=torch.uint8),
        ),
        (np.zeros((3, 4, 2), np.uint8), Form("array", "uint8", (2, 3, 4), dtype=torch.uint8)),
        (np.zeros((3, 4), np.uint8), Form("array", "uint8", (1, 3, 4))),
        (np.zeros((3, 4, 3)), Form("array", "float64", (3, 3, 4))),
    ],
)
def test_forms_say_what_can_be_stored(image: Any, form: Form) -> None:
    """8-bit pixels and float tensors can be stored as they are; all else cannot."""
    assert Form.of(image) == form
    if image.__class__ is not np.ndarray or image.ndim == 3:
        assert Form.of(form.blank()) == form


def test_what_a_step_was_given_is_a_tv_image_where_it_was_in_the_callers_chain() -> None:
    """A dtype given for `tv_tensors.Image` alone has its effect on blank images too."""
    to_floats = v2.ToDtype({tv_tensors.Image: torch.float16, "others": None})
    trace = follow(flatten([v2.ToImage(), to_floats]), Headers(SIZES))
    assert {form.mode for form in trace.points[2].forms} == {"float16"}


STEPS = [
    v2.Resize(17),
    v1.Resize(17, v1.InterpolationMode.LANCZOS),
    v2.Resize(17, max_size=21),
    v2.Resize(None, max_size=19),
    v2.Resize((9, 13)),
    ResizeToCover((9, 31)),
    v2.CenterCrop((11, 40)),
    v1.Pad(2),
    v1.Grayscale(3),
    v1.ToTensor(),
    v2.ToImage(),
    v2.ToDtype(torch.float64),
    v1.ConvertImageDtype(torch.float16),
]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=2, max_size=6),
    chain=st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    mode=st.sampled_from(["RGB", "L", "tensor"]),
)
@settings(deadline=None, derandomize=True, max_examples=120)
def test_blank_images_tell_what_real_ones_give(
    sizes: list[tuple[int, int]], chain: list[Any], mode: str
) -> None:
    """The forms found on blank images are those of the real images after the real steps."""
    data = Photos(sizes, mode)
    try:
        expected = []
        for image in data.images:
            for step in chain:
                image = step(image)
            expected.append(Form.of(image))
    except (TypeError, ValueError, RuntimeError):
        with pytest.raises(TransformError):
            follow(flatten(chain), open_source(data))
        return
    assert set(follow(flatten(chain), open_source(data)).points[-1].forms) == set(expected)


def fail(image: Any) -> Any:
    """Raise an error."""
    raise ZeroDivisionError("no such thing")


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            [v2.Pad(1), v2.Normalize([0.5], [0.5])],
            "step 2, Normalize(mean=[0.5], std=[0.5]), raised TypeError on item 0 of Photos: "
            "Normalize() does not support PIL images.\n"
            "Correct the step, or what comes before it: the steps run in the order given.",
        ),
        (
            fail,
            "the step, fail, raised ZeroDivisionError on item 0 of Photos: no such thing\n"
            "Correct the step, or what comes before it: the steps run in the order given.",
        ),
        (
            lambda image: (image, image),
            "the step, <lambda>, returned tuple for item 0 of Photos; expected one image: "
            "a PIL image, a tensor [C, H, W] or an array [H, W, C].",
        ),
        (
            lambda image: torch.zeros(5, 3, 4, 4),
            "the step, <lambda>, returned a torch.float32 tensor of shape (5, 3, 4, 4) for item 0 "
            "of Photos; expected one image: a PIL image, a tensor [C, H, W] or an array [H, W, C].",
        ),
    ],
)
def test_a_step_that_fails_is_named(transform: Any, message: str) -> None:
    """An error tells the step, its settings, the item, and what the step raised or returned."""
    with pytest.raises(TransformError) as caught:
        follow(flatten(transform), open_source(of_one_size()))
    assert str(caught.value) == message


def test_the_cause_of_a_failure_is_kept() -> None:
    """The step's own error can be reached, with its traceback."""
    with pytest.raises(TransformError) as caught:
        follow(flatten(fail), open_source(of_one_size()))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_item_on_which_a_step_fails_is_named() -> None:
    """Of several images, the message names the one that the step cannot take."""

    def take_lying(image: Any) -> Any:
        assert image.width >= image.height, "standing"
        return image

    with pytest.raises(TransformError, match="raised AssertionError on item 1 of Photos: standing"):
        follow(flatten(take_lying), open_source(of_many_sizes()))


def test_each_call_of_a_step_is_given_a_fresh_copy() -> None:
    """A step that works in place meets the same pixels at every trial."""

    def erase(image: torch.Tensor) -> torch.Tensor:
        assert image.any(), "erased before"
        return image.zero_()

    data = of_many_sizes("tensor")
    before = [image.clone() for image in data.images]
    trace = follow(flatten([erase, v2.RandomErasing(1.0, inplace=True)]), open_source(data))
    assert trace.randomness == ("deterministic", "random")
    assert all(torch.equal(a, b) for a, b in zip(data.images, before, strict=True))


@pytest.mark.parametrize("size", [(20, 20), (20, 45), (45, 20), (1, 7)])
@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (33, 33), (100, 9)])
def test_covering_leaves_no_side_short_and_one_exact(
    size: tuple[int, int], shape: tuple[int, int]
) -> None:
    """The result covers the size, one side exactly, at the image's own aspect."""
    width, height = ResizeToCover(size)(Image.new("RGB", shape)).size
    assert height >= size[0]
    assert width >= size[1]
    assert height == size[0] or width == size[1]
    assert abs(width / height / (shape[0] / shape[1]) - 1) <= 1 / min(width, height)


@pytest.mark.parametrize("data", [of_many_sizes(), of_many_sizes("tensor")])
def test_covering_a_square_is_torchvisions_resize(data: Photos) -> None:
    """For a square it is, bit for bit, a `Resize` with one number."""
    for image in data.images:
        ours, theirs = ResizeToCover((20, 20))(image), v2.Resize(20)(image)
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))
