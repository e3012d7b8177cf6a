"""The explicit form: the caller says what runs once, and what for each batch."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch
from photo_list import Photos, of_many_sizes, of_one_size
from torchvision import transforms as v1
from torchvision.transforms import v2
from transform_examples import Make, examples

from gpupreload.catalog import RANDOM
from gpupreload.errors import FrozenAugmentationError, SizeError, TransformError
from gpupreload.settings import fingerprint
from gpupreload.source import ImageSpec
from gpupreload.steps import batched, live, once, split_explicit

RESIZE, CROP, FLIP = v2.Resize(24), v2.CenterCrop(20), v2.RandomHorizontalFlip()
NORMALIZE = v2.Normalize([0.5], [0.5])


def on_the_device(image: Any) -> Any:
    """A callable that cannot be tried on the CPU."""
    raise AssertionError("it was called")


def shaken(image: Any) -> Any:
    """A random callable of a caller's own."""
    return image.rotate(random.random())


def test_the_parts_are_as_the_caller_says() -> None:
    """All of `train_aug` runs for each batch, on floats, and none of it is tried."""
    steps = split_explicit([RESIZE, CROP], [v2.Pad(1), on_the_device, FLIP], of_many_sizes())
    assert str(steps) == TABLE
    assert steps.once == (RESIZE, CROP)
    assert [step.takes for step in steps.rows] == ["PIL", "PIL", "PIL", *["tensor"] * 3]
    assert [step.randomness for step in steps.rows[3:]] == ["deterministic", "unknown", "unknown"]


TABLE = """\
   step                         runs        why
-  ---------------------------  ----------  ---------------------------------------------------
1  Resize(24)                   once        deterministic, still uint8; sizes still differ
2  CenterCrop(20)               once        deterministic, still uint8 and one size
3  ToTensor()                   each batch  inserted: train_aug is given float pixels in [0, 1]
4  Pad(1)                       each batch  given as train_aug
5  on_the_device                each batch  given as train_aug
6  RandomHorizontalFlip(p=0.5)  each batch  given as train_aug
Stored: 3×20×20 uint8, 1,200 bytes an image."""


@pytest.mark.parametrize(
    ("deterministic", "train_aug", "names"),
    [
        # nothing to give floats to: uint8 comes out, as of torchvision
        (CROP, None, ["CenterCrop(20)"]),
        (None, None, []),
        (None, FLIP, ["ToTensor()", "RandomHorizontalFlip(p=0.5)"]),
        # a tensor is what the deterministic part gave, and stays as it is
        (
            [CROP, v2.PILToTensor()],
            FLIP,
            ["CenterCrop(20)", "PILToTensor()", "RandomHorizontalFlip(p=0.5)"],
        ),
        # floats are there already, from either part
        (
            [CROP, v1.ToTensor()],
            FLIP,
            ["CenterCrop(20)", "ToTensor()", "RandomHorizontalFlip(p=0.5)"],
        ),
        (
            CROP,
            [FLIP, v1.ToTensor()],
            ["CenterCrop(20)", "RandomHorizontalFlip(p=0.5)", "ToTensor()"],
        ),
    ],
)
def test_train_aug_is_given_floats(deterministic: Any, train_aug: Any, names: list[str]) -> None:
    """A step that makes floats is inserted where neither part makes a tensor or floats."""
    steps = split_explicit(deterministic, train_aug, of_one_size())
    assert [step.name for step in steps.rows] == names


def test_floats_at_the_end_move_to_each_batch() -> None:
    """The float steps of `deterministic_transform` do not cost four times the memory."""
    chain = [CROP, v1.ToTensor(), NORMALIZE]
    steps = split_explicit(chain, FLIP, of_many_sizes())
    assert steps.once == (CROP,)
    assert steps.each_batch == (*chain[1:], FLIP)
    assert steps.stored == ImageSpec("tensor", "uint8", 3, 20, 20)
    assert [step.reason for step in steps.rows[1:]] == [
        "deterministic, but turns pixels into floats: four times the memory, so it runs on the "
        "device",
        "deterministic, on float pixels, so it runs on the device",
        "given as train_aug",
    ]


MESSAGE = """\
step 3 of deterministic_transform, RandomHorizontalFlip(p=0.5), is random. Run once, its one draw \
would be frozen: every epoch would show the same picture. Divided correctly, the same steps are:

import torch
import gpupreload as gp
from torchvision import transforms as T
from torchvision.transforms import v2

gp.GPUPreloadDataset(
    data_root,
    deterministic_transform=v2.Compose([
        v2.Resize(24),
        v2.CenterCrop(20),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
    ]),
    train_aug=v2.Compose([
        v2.RandomHorizontalFlip(p=0.5),
        T.RandomApply([T.ColorJitter(brightness=(0.6, 1.4))], p=0.3),
        v2.Normalize(mean=[0.5], std=[0.5]),
        v2.RandomErasing(p=0.25),
    ]),
)

If the step is not random as it is set, wrap it in gp.once. To see on purpose what freezing does, \
pass allow_frozen=True."""


def test_a_random_step_is_refused_with_the_right_division() -> None:
    """The step is named with its place, and the same steps are shown well divided."""
    jitter = v1.RandomApply([v1.ColorJitter(0.4)], p=0.3)
    wrong = v2.Compose(
        [RESIZE, CROP, FLIP, jitter, v2.ToImage(), v2.ToDtype(torch.float32, scale=True), NORMALIZE]
    )
    with pytest.raises(FrozenAugmentationError) as caught:
        split_explicit(wrong, v2.RandomErasing(0.25), of_many_sizes())
    assert str(caught.value) == MESSAGE


MESSAGE_OF_A_CALLABLE = """\
the step of deterministic_transform, shaken, is random (Python's global generator moved). Run \
once, its one draw would be frozen: every epoch would show the same picture. Divided correctly, \
the same steps are:

import gpupreload as gp
from torchvision.transforms import v2

gp.GPUPreloadDataset(
    data_root,
    deterministic_transform=None,
    train_aug=v2.Compose([
        shaken,
        gp.batched(your_lambda),
    ]),
)

If the step is not random as it is set, wrap it in gp.once. To see on purpose what freezing does, \
pass allow_frozen=True."""


def test_a_random_callable_is_refused_with_what_showed_it() -> None:
    """A caller's own callable is tried, and how it was found random is said."""
    with pytest.raises(FrozenAugmentationError) as caught:
        split_explicit(shaken, batched(lambda images: images), of_one_size())
    assert str(caught.value) == MESSAGE_OF_A_CALLABLE


def test_the_division_shown_can_be_pasted() -> None:
    """The code in the message runs, and what it makes is accepted and holds the same steps."""
    given = [CROP, FLIP, v1.RandomCrop(9, padding=2), v1.ToTensor(), NORMALIZE]
    with pytest.raises(FrozenAugmentationError) as caught:
        split_explicit(given, None, of_many_sizes())
    code = str(caught.value).split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    made: dict[str, Any] = {}

    class Package:
        def GPUPreloadDataset(self, data_root: Any, **arguments: Any) -> None:  # noqa: N802
            made.update(arguments)

    lines = [line for line in code.splitlines() if line != "import gpupreload as gp"]
    exec("\n".join(lines), {"gp": Package(), "data_root": None})
    steps = split_explicit(made["deterministic_transform"], made["train_aug"], of_many_sizes())
    kept, moved = [CROP, given[3]], [FLIP, given[2], NORMALIZE]
    assert [fingerprint(step.transform) for step in steps.rows] == [
        fingerprint(step) for step in [*kept, *moved]
    ]


RANDOM_EXAMPLES = examples(RANDOM)


@pytest.mark.parametrize("make", RANDOM_EXAMPLES.values(), ids=RANDOM_EXAMPLES)
def test_no_random_class_passes(make: Make) -> None:
    """None of torchvision's random classes runs once."""
    with pytest.raises(FrozenAugmentationError):
        split_explicit([v2.Resize((28, 26)), make()], None, of_one_size("tensor"))


def test_allow_frozen_lets_it_through_with_a_warning() -> None:
    """For teaching, the mistake can be made, and the table says so."""
    chain = [CROP, FLIP, v1.ToTensor(), NORMALIZE]
    with pytest.warns(UserWarning, match="allow_frozen") as caught:
        steps = split_explicit(chain, None, of_many_sizes(), allow_frozen=True)
    assert [str(warning.message) for warning in caught] == [
        "step 2 of deterministic_transform, RandomHorizontalFlip(p=0.5), is random and runs once, "
        "because allow_frozen=True: every epoch will show the same picture."
    ]
    assert caught[0].filename == __file__
    assert steps.once == (CROP, FLIP)
    assert [step.reason for step in steps.rows] == [
        "deterministic, still uint8 and one size",
        "FROZEN: random, but run once because allow_frozen=True",
        "deterministic, but turns pixels into floats: four times the memory, so it runs on the "
        "device",
        "deterministic, on float pixels, so it runs on the device",
    ]


def test_a_frozen_step_after_the_floats_runs_once_all_the_same() -> None:
    """`RandomErasing` on floats is frozen too, at the price of storing floats."""
    chain = [CROP, v1.ToTensor(), v2.RandomErasing(1.0)]
    with pytest.warns(UserWarning, match="allow_frozen"):
        steps = split_explicit(chain, None, of_many_sizes(), allow_frozen=True)
    assert steps.once == tuple(chain)
    assert steps.stored == ImageSpec("tensor", "float32", 3, 20, 20)


def test_allow_frozen_says_nothing_without_a_random_step() -> None:
    """The warning is for random steps alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_explicit([CROP, once(shaken)], FLIP, of_one_size(), allow_frozen=True)


def test_once_overrules_what_is_found() -> None:
    """The caller may know better, and then nothing is refused."""
    steps = split_explicit([CROP, once(v2.GaussianBlur(3, 1.0))], FLIP, of_one_size())
    assert len(steps.once) == 2


@pytest.mark.parametrize(
    ("deterministic", "train_aug", "message"),
    [
        (
            [CROP, live(abs)],
            None,
            "step 2 of deterministic_transform, abs, is marked gp.live, to run each time, but "
            "deterministic_transform runs once. Move it to train_aug.",
        ),
        (
            batched(abs),
            None,
            "the step of deterministic_transform, abs, is marked gp.batched, to run each time, but "
            "deterministic_transform runs once. Move it to train_aug.",
        ),
        (
            CROP,
            [FLIP, once(abs)],
            "step 2 of train_aug, abs, is marked gp.once, but train_aug runs for each batch. "
            "Move it to deterministic_transform.",
        ),
        (
            CROP,
            [FLIP, v2.FiveCrop(9)],
            "step 2 of train_aug, FiveCrop(9), cannot be used here: it returns five images for "
            "one; choose one crop, such as v2.CenterCrop, instead.",
        ),
        (
            CROP,
            [FLIP, v2.RandomCrop(30)],
            "step 2 of train_aug, RandomCrop(30), raised ValueError on item 0 of Photos: Required "
            "crop size (30, 30) is larger than input image size (20, 20).\n"
            "Correct the step, or what comes before it: the steps run in the order given.",
        ),
    ],
)
def test_steps_in_the_wrong_part_are_refused(
    deterministic: Any, train_aug: Any, message: str
) -> None:
    """A mark against the argument, or a step that fails there, is named with its place."""
    with pytest.raises(TransformError) as caught:
        split_explicit(deterministic, train_aug, of_one_size(), allow_frozen=True)
    assert str(caught.value) == message


@pytest.mark.parametrize("train_aug", [None, FLIP, v2.RandomResizedCrop(9)])
def test_sizes_that_differ_are_a_matter_of_the_deterministic_part(train_aug: Any) -> None:
    """Whatever `train_aug` is, the step to add goes to the other part."""
    with pytest.raises(SizeError) as caught:
        split_explicit(v2.Pad(1), train_aug, of_many_sizes())
    assert str(caught.value) == (
        "images must have one size to be stored, but after Pad(1) item 0 of Photos is 42×32 RGB "
        "and item 1 of Photos is 32×42 RGB.\n"
        "Add steps that make one size, such as v2.Resize(128), v2.CenterCrop(112) to "
        "deterministic_transform."
    )


def test_frozen_sizes_are_seen_for_all_images() -> None:
    """A frozen random step is run on every size, for what it gives is stored."""
    data = Photos([(40, 30), (30, 40)])
    with pytest.warns(UserWarning, match="allow_frozen"), pytest.raises(SizeError):
        split_explicit(FLIP, None, data, allow_frozen=True)
