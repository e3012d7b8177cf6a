"""Dividing a transform into what runs once and what runs for each batch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from photo_list import Photos, of_many_sizes, of_one_size
from PIL import Image
from torch import nn
from torchvision import models
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F
from transform_examples import Make, examples

from gpupreload.catalog import DETERMINISTIC, RANDOM
from gpupreload.errors import ArgumentError, SizeError, TransformError
from gpupreload.source import ImageSpec
from gpupreload.steps import Steps, batched, live, once, split_transform

NORMALIZE = v1.Normalize([0.5] * 3, [0.5] * 3)
FLOATS = v2.ToDtype(torch.float32, scale=True)


def own(image: Any) -> Any:
    """A deterministic callable of a caller's own."""
    return image


def crop_by_content(image: Image.Image) -> Image.Image:
    """Crop to a height that depends on a pixel."""
    return image.crop((0, 0, 9, 9 + image.getpixel((0, 0))[0] % 3))


def n_once(steps: Steps) -> int:
    """How many steps run once, after seeing that no other stands before them."""
    parts = [step.part for step in steps.rows]
    assert parts == sorted(parts, reverse=True)
    return len(steps.once)


def test_the_table_says_what_runs_where_and_why() -> None:
    """A usual recipe on photos of different sizes, as it is printed."""
    recipe = v2.Compose(
        [
            v2.Resize(24),
            v2.CenterCrop(20),
            v2.ToImage(),
            FLOATS,
            v2.RandomHorizontalFlip(),
            own,
            v2.Normalize([0.5], [0.5]),
            v2.RandomErasing(),
        ]
    )
    assert str(split_transform(recipe, of_many_sizes())) == TABLE


TABLE = """\
   step                                runs        why
-  ----------------------------------  ----------  --------------------------------------------------------------------------------------------
1  Resize(24)                          once        deterministic, still uint8; sizes still differ
2  CenterCrop(20)                      once        deterministic, still uint8 and one size
3  ToImage()                           once        deterministic, still uint8 and one size
4  ToDtype(torch.float32, scale=True)  each batch  deterministic, but turns pixels into floats: four times the memory, so it runs on the device
5  RandomHorizontalFlip(p=0.5)         each batch  random: drawn anew for each sample
6  own                                 each batch  after a random step
7  Normalize(mean=[0.5], std=[0.5])    each batch  after a random step
8  RandomErasing(p=0.5)                each batch  random: drawn anew for each sample
Stored: 3×20×20 uint8, 1,200 bytes an image. 4 images were decoded to find this out."""  # noqa: E501


def test_without_data_the_table_says_what_it_depends_on() -> None:
    """`Resize` with one number keeps the aspect, so files decide whether sizes agree."""
    steps = split_transform([v1.Resize(112), v1.ToTensor()])
    assert [step.reason for step in steps.rows] == [
        "deterministic, still uint8; one size only if all files have the same size",
        "deterministic, but turns pixels into floats: four times the memory, so it runs on the "
        "device",
    ]
    assert steps.note == (
        "Whether all images have one size depends on the files: "
        "split_transform(transform, data) tells."
    )
    assert steps.stored is None
    assert split_transform(v1.CenterCrop(112)).note == ""
    assert str(split_transform(None)) == steps.note


def test_html_shows_the_same_as_text() -> None:
    """Jupyter shows a table, with what looks like markup escaped."""
    html = split_transform([v2.Pad(1), lambda image: image], of_one_size())._repr_html_()
    assert html.count("<tr>") == 3
    assert "&lt;lambda&gt;" in html
    assert "3×32×42 uint8" in html


@pytest.mark.parametrize(
    ("transform", "data", "n", "stored"),
    [
        (None, of_one_size(), 0, "uint8 3 30 40"),
        (None, of_one_size("L"), 0, "uint8 1 30 40"),
        (None, of_one_size("tensor"), 0, "uint8 3 30 40"),
        (v1.ToTensor(), of_one_size("RGBA"), 0, "uint8 4 30 40"),
        ([v2.ToImage(), FLOATS], of_one_size(), 1, "uint8 3 30 40"),
        # the same size out of different ones, before and after the floats
        ([v2.Resize((9, 8)), v1.ToTensor(), NORMALIZE], of_many_sizes(), 1, "uint8 3 9 8"),
        ([v1.ToTensor(), v2.Resize((29, 40)), NORMALIZE], of_many_sizes(), 3, "float32 3 29 40"),
        # floats, but fewer bytes: 4 × 270 < 3,600; and not fewer: 4 × 1,200 > 3,600
        ([v1.ToTensor(), v2.Resize((10, 9)), NORMALIZE], of_one_size(), 3, "float32 3 10 9"),
        ([v1.ToTensor(), v2.Grayscale()], of_one_size(), 0, "uint8 3 30 40"),
        # back to 8 bits
        ([v1.ToTensor(), v2.ToPILImage(), v2.Pad(1), FLOATS], of_one_size(), 4, "uint8 3 32 42"),
        ([v2.Pad(1), v2.RandomCrop(9), v2.Pad(2)], of_one_size(), 1, "uint8 3 32 42"),
        ([v2.ToImage(), v2.ToDtype(torch.float16)], of_one_size(), 1, "uint8 3 30 40"),
        # palettes and single bits are numbers of something else than colours
        (v1.ToTensor(), of_one_size("P"), 1, "float32 1 30 40"),
        (v1.ToTensor(), of_one_size("1"), 1, "float32 1 30 40"),
        ([np.array, v1.ToTensor()], of_one_size(), 1, "uint8 3 30 40"),
        ([np.array, v1.ToTensor()], of_one_size("L"), 0, "uint8 1 30 40"),
        (nn.Sequential(v2.Pad(1), v2.Pad(2)), of_one_size("tensor"), 2, "uint8 3 36 46"),
    ],
)
def test_pixels_are_stored_where_they_are_last_small(
    transform: Any, data: Photos, n: int, stored: str
) -> None:
    """The once-part ends where pixels are last uint8 and of one size, or floats take less."""
    steps = split_transform(transform, data)
    mode, *shape = stored.split()
    assert n_once(steps) == n
    assert steps.stored == ImageSpec("tensor", mode, *map(int, shape))
    pixels = steps.run_once(data[0][0])
    assert pixels.shape == steps.stored.shape
    assert pixels.dtype == getattr(torch, mode)
    assert type(pixels) is torch.Tensor


@pytest.mark.parametrize(
    ("transform", "data", "reasons"),
    [
        (
            [v1.ToTensor(), v2.Resize((20, 20)), NORMALIZE],
            of_many_sizes(),
            [
                "deterministic, on the way to what is stored",
                "deterministic, on the way to what is stored",
                "deterministic; stored as floats, four times the memory of uint8: before it, "
                "sizes differ",
            ],
        ),
        (
            [v1.ToTensor(), v2.Resize((10, 9))],
            of_one_size(),
            [
                "deterministic, on the way to what is stored",
                "deterministic; stored as floats: 1,080 bytes an image, fewer than the 3,600 of "
                "uint8 before",
            ],
        ),
        (
            [v1.ToTensor(), once(own)],
            of_one_size(),
            [
                "deterministic, on the way to what is stored",
                "marked gp.once; stored as floats, four times the memory of uint8, because it is "
                "to run once",
            ],
        ),
        (
            v1.ToTensor(),
            of_one_size("P"),
            ["deterministic; stored as floats: the images are not of 8 bits"],
        ),
        (
            [own, v2.ToImage(), v2.ToDtype(torch.float64), own, NORMALIZE],
            of_one_size(),
            [
                "deterministic when tried, still uint8 and one size",
                "deterministic, still uint8 and one size",
                "deterministic, but turns pixels into float64: eight times the memory, so it runs "
                "on the device",
                "deterministic when tried, on float pixels, so it runs on the device",
                "deterministic, on float pixels, so it runs on the device",
            ],
        ),
        (
            [lambda image: image.rotate(random.random()), own, v2.RandomInvert()],
            of_one_size(),
            [
                "random: Python's global generator moved; drawn anew for each sample",
                "after a random step",
                "random: drawn anew for each sample",
            ],
        ),
        (
            [v2.ToImage(), live(v2.Pad(1)), batched(own), v2.Pad(1), v2.RandomInvert()],
            of_one_size(),
            [
                "deterministic, still uint8 and one size",
                "marked gp.live: called anew for each sample",
                "marked gp.batched: called on whole batches",
                "after Pad(1), which runs each time",
                "after Pad(1), which runs each time",
            ],
        ),
        (
            [crop_by_content, v2.RandomCrop(9)],
            Photos([(40, 30)] * 9),
            [
                "deterministic when tried, but images differ in size after it",
                "random: drawn anew for each sample",
            ],
        ),
    ],
)
def test_every_step_has_its_reason(transform: Any, data: Photos, reasons: list[str]) -> None:
    """One line says why a step runs where it runs."""
    assert [step.reason for step in split_transform(transform, data).rows] == reasons


RANDOM_EXAMPLES = examples(RANDOM)


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("make", RANDOM_EXAMPLES.values(), ids=RANDOM_EXAMPLES)
def test_nothing_from_a_random_step_on_runs_once(make: Make, position: int) -> None:
    """Whichever random step stands wherever, it and all after it run each time."""
    chain: list[Any] = [v2.Resize((28, 26)), v2.CenterCrop(24), v2.Pad(1)]
    chain.insert(position, make())
    steps = split_transform(chain, of_one_size("tensor"))
    assert list(steps.once) == chain[:position]
    assert list(steps.each_batch) == chain[position:]
    assert steps.rows[position].randomness == "random"


DETERMINISTIC_EXAMPLES = list(examples(DETERMINISTIC).values())


def by_hand(chain: Any, image: Any) -> Any:
    """Run the steps one after the other."""
    for step in chain:
        image = step(image)
    return image


def pixels_of(image: Any) -> torch.Tensor:
    """The pixels as torchvision gives them."""
    return F.pil_to_tensor(image) if isinstance(image, Image.Image) else image


def finished(steps: Steps, pixels: torch.Tensor) -> torch.Tensor:
    """Run what is left on stored pixels, handed over as what each step takes."""
    image: Any = pixels
    for step in steps.each_batch_steps:
        if step.takes == "PIL" and isinstance(image, torch.Tensor):
            image = F.to_pil_image(image)
        image = step.transform(image)
    return pixels_of(image)


@given(
    chain=st.lists(st.sampled_from(DETERMINISTIC_EXAMPLES), min_size=1, max_size=3),
    mode=st.sampled_from(["RGB", "L", "tensor"]),
    sizes=st.sampled_from([[(40, 30)] * 3, [(40, 30), (30, 40)]]),
)
@settings(deadline=None, derandomize=True, max_examples=120)
def test_deterministic_chains_give_the_same_bits(
    chain: list[Make], mode: str, sizes: list[tuple[int, int]]
) -> None:
    """Run once, then finished, a chain gives what torchvision gives in one go."""
    data, made = Photos(sizes, mode), [make() for make in chain]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = [pixels_of(by_hand(made, image)) for image in data.images]
            steps = split_transform(made, data)
        except SizeError:
            assert len({image.shape for image in expected}) > 1
            return
        except (TypeError, ValueError, RuntimeError, AttributeError):
            with pytest.raises((TransformError, SizeError)):
                split_transform(made, data)
            return
    n = n_once(steps)
    assert all(step.randomness == "deterministic" for step in steps.rows)
    for image, whole in zip(data.images, expected, strict=True):
        stored = steps.run_once(image)
        assert torch.equal(stored, pixels_of(by_hand(made[:n], image)))
        assert torch.equal(finished(steps, stored), whole)


@pytest.mark.parametrize("data", [of_many_sizes(), of_many_sizes("tensor")])
def test_the_transforms_of_weights_give_the_same_bits(data: Photos) -> None:
    """A model's own preset is known, and divided within."""
    preset = models.ResNet18_Weights.DEFAULT.transforms(crop_size=20, resize_size=24)
    steps = split_transform(preset, data)
    assert steps.stored == ImageSpec("tensor", "uint8", 3, 20, 20)
    for image in data.images:
        assert torch.equal(finished(steps, steps.run_once(image)), preset(image))


def test_steps_keep_the_callers_own_objects() -> None:
    """What is run is the object that was handed over, without its mark, and what it was given."""
    flip, gray = v2.RandomHorizontalFlip(), once(v2.Grayscale())
    rows = split_transform([gray, np.array, flip, batched(own), own], of_one_size("RGB")).rows
    assert [row.transform for row in rows] == [gray.fn, np.array, flip, own, own]
    assert [row.name for row in rows] == [
        "Grayscale()",
        "array",
        "RandomHorizontalFlip(p=0.5)",
        "own",
        "own",
    ]
    assert [row.call for row in rows] == ["image", "image", "image", "batch", "image"]
    assert [row.takes for row in rows] == ["PIL", "PIL", "array", "array", "tensor"]
    assert [row.randomness for row in rows] == [
        "deterministic",
        "deterministic",
        "random",
        "unknown",
        "unknown",
    ]


def test_marks_overrule_what_is_found() -> None:
    """`once` keeps a random step, `live` runs a deterministic one each time."""
    steps = split_transform([once(v2.RandomCrop(9)), live(v2.Pad(1)), v2.Pad(2)], of_one_size())
    assert [row.part for row in steps.rows] == ["once", "each batch", "each batch"]
    assert steps.stored == ImageSpec("tensor", "uint8", 3, 9, 9)


def test_a_step_marked_once_after_a_live_one_is_refused() -> None:
    """What runs once cannot wait for what runs each time."""
    with pytest.raises(TransformError) as caught:
        split_transform([v2.Pad(1), v2.RandomInvert(), once(own)], of_one_size())
    assert str(caught.value) == (
        "step 3, own, is marked gp.once, but comes after step 2, RandomInvert(p=0.5), which runs "
        "each time. Put it before that step, or take the mark off."
    )


@pytest.mark.parametrize(
    ("transform", "data", "message"),
    [
        (
            None,
            of_many_sizes(),
            "images must have one size to be stored, but item 0 of Photos is 40×30 RGB and item 1 "
            "of Photos is 30×40 RGB.\n"
            "Add steps that make one size, such as v2.Resize(128), v2.CenterCrop(112).",
        ),
        (
            [v2.Resize(24), v1.ToTensor(), NORMALIZE],
            of_many_sizes(),
            "images must have one size to be stored, but after Resize(24) item 0 of Photos is "
            "32×24 RGB and item 1 of Photos is 24×32 RGB.\n"
            "Resize(24) keeps each photo's aspect: add v2.CenterCrop(24) after it.",
        ),
        (
            [v2.RandomHorizontalFlip(), v2.Resize(24), v2.CenterCrop(20)],
            of_many_sizes(),
            "images must have one size to be stored, but item 0 of Photos is 40×30 RGB and item 1 "
            "of Photos is 30×40 RGB.\n"
            "Add steps that make one size, such as v2.Resize(128), v2.CenterCrop(112) before "
            "RandomHorizontalFlip(p=0.5), the first random step.",
        ),
        (
            [v2.Pad(1), v1.RandomResizedCrop(112), v1.ToTensor()],
            of_many_sizes(),
            "RandomResizedCrop(112) is random and cannot run once, and what comes before it must "
            "be stored in one size, but after Pad(1) item 0 of Photos is 42×32 RGB and item 1 of "
            "Photos is 32×42 RGB.\n"
            "There are two ways on:\n"
            "- put v2.Resize(128), v2.CenterCrop(128) before it, or other steps that make one "
            "size;\n"
            "- pass store_size=(128, 128), which does that for you.\n"
            "Both change something: the crops are then cut from the stored picture instead of the "
            "whole photo. What lies outside its centre is never seen, and small crops are enlarged "
            "from fewer pixels; a larger size keeps more.",
        ),
        (
            # an image too small for the crop is no reason for another message
            v2.RandomCrop((224, 112)),
            of_many_sizes(),
            "RandomCrop((224, 112)) is random and cannot run once, and what comes before it must "
            "be stored in one size, but item 0 of Photos is 40×30 RGB and item 1 of Photos is "
            "30×40 RGB.\n"
            "There are two ways on:\n"
            "- put v2.Resize(256), v2.CenterCrop((256, 128)) before it, or other steps that make "
            "one size;\n"
            "- pass store_size=(256, 128), which does that for you.\n"
            "Both change something: the crops are then cut from the stored picture instead of the "
            "whole photo. What lies outside its centre is never seen, and small crops are enlarged "
            "from fewer pixels; a larger size keeps more.",
        ),
        (
            # they could be stored, but never make a batch
            [v2.CenterCrop((30, 40)), crop_by_content],
            Photos([(40, 30)] * 4),
            "images must have one size to be stored, but after crop_by_content item 0 of Photos is "
            "9×11 RGB and item 3 of Photos is 9×10 RGB.\n"
            "Add steps that make one size, such as v2.Resize(128), v2.CenterCrop(112).",
        ),
        (
            v2.RandomInvert(),
            [(Image.new("RGB", (8, 9)), 0), (Image.new("L", (8, 9)), 0)],
            "images must agree in their number of channels to be stored, but item 0 of list is "
            "8×9 RGB and item 1 of list is 8×9 L.\n"
            "Add v2.RGB() before RandomInvert(p=0.5), the first random step.",
        ),
        (
            None,
            [(torch.zeros(3, 9, 8), 0), (torch.zeros(3, 9, 8).byte(), 0)],
            "images must agree in their dtype to be stored, but item 0 of list is 8×9 float32 and "
            "item 1 of list is 8×9 uint8.\n"
            "Add v2.ToDtype(torch.uint8, scale=True).",
        ),
    ],
)
def test_images_of_different_sizes_are_refused(transform: Any, data: Any, message: str) -> None:
    """Two images are named with their sizes, and what to add is shown."""
    with pytest.raises(SizeError) as caught:
        split_transform(transform, data)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("transform", "data", "message"),
    [
        (
            v2.Pad(1),
            of_one_size("P"),
            "after Pad(1) item 0 of Photos is 42×32 P (PIL), whose pixels cannot be stored; "
            "expected an 8-bit image, such as RGB or L, or a tensor of uint8 or of floats.\n"
            'Add v2.Lambda(lambda image: image.convert("RGB")) there.',
        ),
        (
            v2.PILToTensor(),
            of_one_size("I"),
            "after PILToTensor() item 0 of Photos is 40×30 int32 (tensor), whose pixels cannot be "
            "stored; expected an 8-bit image, such as RGB or L, or a tensor of uint8 or of "
            "floats.\nAdd v2.ToDtype(torch.float32) there.",
        ),
    ],
)
def test_pixels_that_cannot_be_stored_are_refused(
    transform: Any, data: Photos, message: str
) -> None:
    """Palettes and wide integers are named, and how to turn them into pixels is shown."""
    with pytest.raises(TransformError) as caught:
        split_transform(transform, data)
    assert str(caught.value) == message


def test_a_step_that_takes_no_made_up_image_is_named() -> None:
    """Without data too a wrong chain is found, and what it was tried on is said."""
    with pytest.raises(TransformError) as caught:
        split_transform([v2.Normalize([0.5], [0.5])])
    assert str(caught.value) == (
        "the step, Normalize(mean=[0.5], std=[0.5]), raised TypeError on a made-up RGB photo of "
        "480×360: Normalize() does not support PIL images.\n"
        "Correct the step, or what comes before it: the steps run in the order given.\n"
        "Without data, steps are tried on made-up images. Pass data, and they are tried on yours."
    )


@pytest.mark.parametrize(
    "transform",
    [
        v2.RandomErasing(),
        [lambda image: image.float() / 255, v2.RandomInvert()],
        lambda image: Image.merge("RGB", [image] * 3),
    ],
)
def test_without_data_the_kind_of_image_is_found(transform: Any) -> None:
    """Where steps take no RGB photo, a tensor or a grey photo is tried."""
    assert split_transform(transform).stored is None


@pytest.mark.parametrize("size", [(20, 20), (16, 24), [33, 12]])
@pytest.mark.parametrize("mode", ["RGB", "tensor"])
def test_store_size_makes_one_size_before_the_random_crop(mode: str, size: Any) -> None:
    """Photos are resized to cover the size and cropped in the middle, by shown steps."""
    data = of_many_sizes(mode)
    crop = v2.RandomResizedCrop(9)
    steps = split_transform([v2.Grayscale(), crop], data, store_size=size)
    height, width = size
    shown = width if height == width else (height, width)
    names = [step.name for step in steps.rows]
    assert names[:3] == [
        "Grayscale()",
        f"ResizeToCover(({height}, {width}))",
        f"CenterCrop({shown})",
    ]
    assert (
        steps.rows[1].reason
        == steps.rows[2].reason
        == ("inserted by store_size: what follows sees this picture, not the whole photo")
    )
    assert steps.stored == ImageSpec("tensor", "uint8", 1, height, width)
    assert steps.each_batch == (crop,)
    for image in data.images:
        assert steps.run_once(image).shape == (1, height, width)


def test_store_size_resizes_before_pixels_become_floats() -> None:
    """Where only conversions stand before the random crop, uint8 is stored all the same."""
    data = of_many_sizes()
    steps = split_transform([v1.ToTensor(), NORMALIZE, v2.RandomCrop(9)], data, store_size=(12, 12))
    assert steps.stored == ImageSpec("tensor", "uint8", 3, 12, 12)
    for image in data.images:
        by_torchvision = v2.CenterCrop(12)(v2.Resize(12)(image))
        assert torch.equal(steps.run_once(image), F.pil_to_tensor(by_torchvision))


def test_store_size_works_without_a_random_step() -> None:
    """It makes one size before the final conversions too."""
    steps = split_transform([v2.Pad(1), v1.ToTensor()], of_many_sizes(), store_size=(12, 9))
    assert n_once(steps) == 3
    assert steps.stored == ImageSpec("tensor", "uint8", 3, 12, 9)


@pytest.mark.parametrize("size", [20, (20,), (20, 0), (20, 20.0), (True, 5), "big", (1, 2, 3)])
def test_store_size_must_be_two_numbers(size: Any) -> None:
    """Anything but two positive whole numbers is shown and refused."""
    with pytest.raises(ArgumentError) as caught:
        split_transform(v2.RandomCrop(9), of_many_sizes(), store_size=size)
    assert str(caught.value) == (
        f"store_size is {size!r}; expected two numbers of pixels, (height, width), such as "
        "(128, 128)."
    )


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (
            [v1.ToTensor(), NORMALIZE, v2.ColorJitter(0.4)],
            "step 3, ColorJitter(brightness=(0.6, 1.4)), comes after step 2, "
            "Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]), but reads values as colours "
            "between 0 and 1, which Normalize has moved out of that range. Put it before "
            "Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]).",
        ),
        (
            [v1.ToTensor(), NORMALIZE, v2.Identity(), v2.RandomApply([v2.RandomGrayscale()])],
            "step 4, RandomApply([RandomGrayscale(p=0.1)], p=0.5), comes after step 2, "
            "Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]), but reads values as colours "
            "between 0 and 1, which Normalize has moved out of that range. Put it before "
            "Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]).",
        ),
    ],
)
def test_a_color_step_after_normalize_draws_a_warning(chain: list[Any], message: str) -> None:
    """Both steps are named, and the warning points at the line that called."""
    with pytest.warns(UserWarning, match="comes after") as caught:
        split_transform(chain, of_one_size())
    assert [str(warning.message) for warning in caught] == [message]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "chain",
    [
        [v2.ColorJitter(0.4), v1.ToTensor(), NORMALIZE],
        [v1.ToTensor(), NORMALIZE, v2.RandomErasing(), v2.GaussianBlur(3)],
    ],
)
def test_usual_chains_draw_no_warning(chain: list[Any]) -> None:
    """Colours before Normalize are right, and erasing or blurring after it is too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_transform(chain, of_one_size())


def test_splitting_leaves_generators_and_pictures_alone() -> None:
    """Whatever the steps draw or write, it leaves no trace."""

    def write(image: Image.Image) -> Image.Image:
        image.paste((random.randrange(256), int(np.random.randint(256)), 3), (0, 0, 9, 9))
        return image

    data = of_many_sizes()
    before = [image.tobytes() for image in data.images]

    def drawn() -> list[float]:
        return [random.random(), np.random.random(), torch.rand(1).item()]

    def seed() -> None:
        random.seed(5), np.random.seed(5), torch.manual_seed(5)

    seed()
    expected = drawn()
    seed()
    split_transform([v2.Resize((20, 20)), v2.RandAugment(), write, v1.RandomOrder([own])], data)
    assert drawn() == expected
    assert [image.tobytes() for image in data.images] == before


def test_images_decoded_are_counted() -> None:
    """What the caller's own callables cost in decoding is told, and is nothing without them."""
    assert split_transform(v2.Resize((9, 9)), of_many_sizes()).n_decoded == 0
    data = Photos([(40, 30)] * 50)
    steps = split_transform([v2.RandomInvert(), own, live(own)], data)
    assert steps.n_decoded == 4
    assert steps.note.endswith("4 images were decoded to find this out.")


@pytest.mark.parametrize(
    "fn",
    [lambda image: np.array(image)[:20, :18], lambda image: np.asarray(image)[20::-1, :18][:20]],
)
def test_arrays_are_stored_as_channels_first(fn: Callable[[Any], Any]) -> None:
    """An array [H, W, C] becomes [C, H, W], whatever its strides."""
    data = of_one_size()
    steps = split_transform(fn, data)
    expected = fn(data[0][0]).transpose(2, 0, 1)
    assert steps.stored == ImageSpec("tensor", "uint8", 3, 20, 18)
    assert np.array_equal(steps.run_once(data[0][0]).numpy(), expected)


def test_an_array_made_of_a_tensor_is_not_turned() -> None:
    """NumPy arrays are [H, W, C]; one that stayed [C, H, W] would be stored on its side."""

    def thicker(image: torch.Tensor) -> Any:
        return image.numpy() + 1

    with pytest.raises(TransformError) as error:
        split_transform([v2.PILToTensor(), thicker], of_one_size())
    assert str(error.value).startswith("step 2, thicker, was given a tensor [C, H, W] and returned")


def test_what_is_no_image_is_not_stored() -> None:
    """A callable that returns something else for a later image is told so."""
    answers = iter([Image.new("L", (4, 4))] * 200)
    steps = split_transform(lambda image: next(answers, 3), of_one_size())
    list(answers)
    with pytest.raises(TypeError, match=r"it returned int; expected one image\."):
        steps.run_once(Image.new("RGB", (4, 4)))


def test_nothing_stored_has_a_gradient() -> None:
    """A module with parameters may run once; only the pixels are kept."""
    data = of_one_size()
    steps = split_transform([v1.ToTensor(), once(nn.Conv2d(3, 2, 3))], data)
    assert steps.stored == ImageSpec("tensor", "float32", 2, 28, 38)
    assert not steps.run_once(data[0][0]).requires_grad
