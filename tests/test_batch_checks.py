"""Bad input to gp.per_sample: each is refused before anything runs, with what to do next."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import transforms as v1

import gpupreload as gp
from gpupreload.settings import name_of

FLIP = v2.RandomHorizontalFlip()
UINT8 = torch.zeros(2, 3, 8, 9, dtype=torch.uint8)
FLOATS = torch.linspace(0, 1, 2 * 3 * 8 * 9).reshape(2, 3, 8, 9)
LABELS = torch.tensor([0, 4])
INDICES = "expected an int64 tensor of shape (2,), the sample number of each row of images."


def message(transform: Any, *args: Any, **kwargs: Any) -> str:
    """The text of the error that a call raises."""
    with pytest.raises((gp.ArgumentError, gp.TransformError)) as caught:
        gp.per_sample(transform)(*args, **kwargs)
    return str(caught.value)


BATCHES: list[tuple[Any, str]] = [
    (
        UINT8[0],
        "images is a torch.uint8 tensor of shape (3, 8, 9); expected a batch [N, C, H, W]. "
        "Give a single image a batch dimension with images[None].",
    ),
    (
        UINT8[None],
        "images is a torch.uint8 tensor of shape (1, 2, 3, 8, 9); expected a batch [N, C, H, W].",
    ),
    ([UINT8[0]], "images is list; expected a batch [N, C, H, W]."),
    (
        UINT8.long(),
        "images is a torch.int64 tensor of shape (2, 3, 8, 9); expected uint8 (0 to 255) or "
        "floats (0 to 1). Convert it with images.to(torch.uint8).",
    ),
    (
        UINT8.bool(),
        "images is a torch.bool tensor of shape (2, 3, 8, 9); expected uint8 (0 to 255) or "
        "floats (0 to 1). Convert it with images.to(torch.uint8).",
    ),
]

BATCHES += [
    (
        UINT8[:, :0],
        "images is a torch.uint8 tensor of shape (2, 0, 8, 9); expected images of one pixel or "
        "more, and one channel or more. Look at how the batch was cut.",
    ),
]


@pytest.mark.parametrize(("images", "expected"), BATCHES, ids=[m[:40] for _, m in BATCHES])
def test_what_is_no_batch_is_refused(images: Any, expected: str) -> None:
    """A batch is [N, C, H, W] of uint8 or floats."""
    assert message(FLIP, images) == expected


@pytest.mark.parametrize(
    ("indices", "what"),
    [
        (torch.arange(3), "a torch.int64 tensor of shape (3,)"),
        ([1], "a torch.int64 tensor of shape (1,)"),
        ([0.5, 1.0], "a torch.float32 tensor of shape (2,)"),
        (torch.arange(2)[None], "a torch.int64 tensor of shape (1, 2)"),
        (torch.arange(2, dtype=torch.int32), "a torch.int32 tensor of shape (2,)"),
    ],
)
def test_indices_go_with_the_images(indices: Any, what: str) -> None:
    """There is one int64 for each image."""
    assert message(FLIP, UINT8, indices=indices) == f"indices is {what}; {INDICES}"


def test_indices_may_be_a_list() -> None:
    """A list of numbers is as good as a tensor, and an empty one goes with an empty batch."""
    module = gp.per_sample(v2.RandomAffine(30), seed=0)
    as_tensor = module(FLOATS, indices=torch.tensor([7, 3]), epoch=0)
    assert torch.equal(module(FLOATS, indices=[7, 3], epoch=0), as_tensor)
    assert module(FLOATS[:0], indices=[]).shape == (0, 3, 8, 9)


EXPECT_0_TO_1 = [
    v2.ColorJitter(0.4),
    v1.RandomInvert(),
    v2.RandomPosterize(3),
    v2.RandomSolarize(0.5),
    v2.RandomEqualize(),
    v2.RandomAutocontrast(),
    v2.RandomAdjustSharpness(2),
    v2.RandomPhotometricDistort(),
    v2.GaussianNoise(),
    v2.RandAugment(),
    v2.TrivialAugmentWide(),
    v2.AutoAugment(),
    v2.AugMix(),
    v2.RandomApply([v2.Compose([v2.RandomOrder([v2.ColorJitter(0.4)])])]),
]


@pytest.mark.parametrize("step", EXPECT_0_TO_1, ids=lambda step: type(step).__name__)
def test_colours_lie_between_0_and_1(step: Any) -> None:
    """Floats outside 0 to 1 are refused by steps that take 0 for black and 1 for white."""
    name = repr(gp.per_sample(step)).splitlines()[1].strip().removesuffix(" (native)")
    assert message([v2.RandomCrop(8), step], FLOATS * 255) == (
        f"images run from 0 to 255, but {name} takes floats as colours from 0 to 1. "
        "Put it before Normalize; floats up to 255 are brought there by images / 255."
    )
    assert gp.per_sample(step)(FLOATS).shape == FLOATS.shape


@pytest.mark.parametrize("images", [FLOATS - 0.01, FLOATS * float("nan"), FLOATS * float("inf")])
def test_below_0_and_nan_are_outside(images: Tensor) -> None:
    """Both ends are held, and what is no number lies nowhere between them."""
    assert "takes floats as colours from 0 to 1" in message(v2.ColorJitter(0.4), images)


DO_NOT = [
    v2.RandomAffine(20),
    v2.RandomErasing(),
    v2.RandomGrayscale(),
    v2.GaussianBlur(3),
    v2.GaussianNoise(clip=False),
    [v2.Normalize([0.5], [0.5]), v2.ColorJitter(0.4)],
    [gp.batched(torch.sigmoid), v2.ColorJitter(0.4)],
]


@pytest.mark.parametrize("chain", DO_NOT, ids=str)
def test_other_steps_take_floats_of_any_range(chain: Any) -> None:
    """What only moves or averages values, and what follows a change of range, is not asked."""
    assert gp.per_sample(chain)(FLOATS * 9 - 4).shape == FLOATS.shape


@pytest.mark.parametrize("images", [FLOATS * 1.0005, UINT8 + 255, FLOATS[:0]])
def test_rounding_is_let_through(images: Tensor) -> None:
    """A resize of floats leaves 0 to 1 by its rounding, and uint8 has no range to leave."""
    assert gp.per_sample(v2.ColorJitter(0.4))(images).shape == images.shape


@pytest.mark.parametrize(
    ("crop", "expected"),
    [
        (
            v2.RandomCrop((9, 5)),
            "RandomCrop cuts out 9×5 pixels (height × width), but the images have 8×9. Pass "
            "padding=... or pad_if_needed=True to it, or put a Resize before it.",
        ),
        (
            v1.RandomCrop(12, padding=1),
            "RandomCrop cuts out 12×12 pixels (height × width), but the padded images have 10×11. "
            "Pass padding=... or pad_if_needed=True to it, or put a Resize before it.",
        ),
    ],
)
def test_a_crop_must_fit(crop: Any, expected: str) -> None:
    """A crop that is larger than the image, padding counted, is refused."""
    assert message(crop, UINT8) == expected


MIX = v2.MixUp(num_classes=4)
MIXED: list[tuple[Any, tuple[Any, ...], str]] = [
    (
        MIX,
        (FLOATS,),
        "labels is None, but MixUp(num_classes=4) mixes them with the images; expected (images, "
        "labels), with one label for each image.",
    ),
    (
        FLIP,
        (FLOATS, LABELS),
        "labels were given, but no step mixes them; expected images alone. Leave labels out, or "
        "put v2.MixUp or v2.CutMix at the end of the transform.",
    ),
    (
        MIX,
        (FLOATS, LABELS),
        "labels run from 0 to 4; expected 0 to 3, for num_classes is 4. Correct the labels or "
        "num_classes.",
    ),
    (
        MIX,
        (FLOATS, LABELS - 1),
        "labels run from -1 to 3; expected 0 to 3, for num_classes is 4. Correct the labels or "
        "num_classes.",
    ),
    (
        MIX,
        (FLOATS, LABELS[:1]),
        "labels is a torch.int64 tensor of shape (1,) for 2 images; expected a tensor with one "
        "label for each.",
    ),
    (
        v2.CutMix(),
        (FLOATS, LABELS),
        "num_classes is None and labels are numbers of classes; expected num_classes=<number of "
        "classes> in the transform, or labels as probabilities [N, num_classes].",
    ),
    (
        MIX,
        (UINT8, LABELS % 4),
        "images must be floats to be mixed, got a torch.uint8 tensor of shape (2, 3, 8, 9). "
        "Convert them before, with v2.ToDtype(torch.float32, scale=True).",
    ),
]


@pytest.mark.parametrize(("transform", "batch", "expected"), MIXED, ids=[m[:40] for *_, m in MIXED])
def test_labels_go_with_the_mixing(transform: Any, batch: tuple[Any, ...], expected: str) -> None:
    """Labels come where they are mixed and nowhere else, one class for each image."""
    assert message(transform, *batch) == expected


@pytest.mark.parametrize(
    ("name", "value", "range_"), [("seed", 2**64, "2**64"), ("epoch", 0.5, ""), ("seed", "a", "")]
)
def test_seed_and_epoch_are_whole_numbers(name: str, value: Any, range_: str) -> None:
    """A seed or an epoch that is none of 64 bits is refused."""
    assert message(FLIP, UINT8, **{name: value}) == (
        f"{name} is {value!r}; expected an int from -2**63 to 2**64 - 1. Any other number is "
        "brought into that range by int(...) % 2**64."
    )


def test_a_seed_is_refused_when_the_module_is_made() -> None:
    """A wrong seed is an error before the first batch."""
    with pytest.raises(gp.ArgumentError, match=r"^seed is 0\.5; expected an int"):
        gp.per_sample(FLIP, seed=0.5)


def test_images_that_require_a_gradient_are_refused() -> None:
    """A gradient is never lost in silence; where none is recorded, such images are taken."""
    images = FLOATS.clone().requires_grad_()
    assert message(v2.RandomResizedCrop(8), images) == (
        "images is a torch.float32 tensor of shape (2, 3, 8, 9) that requires a gradient; expected "
        "one that does not, for most steps pass none on. Give images.detach(), or call in "
        "torch.no_grad()."
    )
    with torch.no_grad():
        for step in (FLIP, v2.RandomErasing(1), v2.RandomRotation(9)):
            module = gp.per_sample(step, seed=0)
            assert torch.equal(module(images, epoch=0), module(FLOATS, epoch=0))


@pytest.mark.parametrize(
    ("indices", "what"),
    [((i for i in (0, 1)), "generator"), ({0, 1}, "set"), ("01", "str"), ([None, 0], "list")],
    ids=["generator", "set", "str", "list"],
)
def test_indices_that_are_no_numbers_are_refused(indices: Any, what: str) -> None:
    """What no tensor can be made of is named."""
    assert message(FLIP, UINT8, indices=indices) == (
        f"indices is {what}; expected the number of each sample, as an int64 tensor or a list of "
        "int. Of anything that yields numbers, pass list(...)."
    )


def test_a_fill_of_other_channels_is_refused() -> None:
    """A crop's border has one number, or one for each channel."""
    crop = v2.RandomCrop(8, padding=2, fill=(1, 2, 3))
    assert message(crop, UINT8[:, :1]) == (
        "fill is [1.0, 2.0, 3.0], of 3 values, but the images have 1 channels. Give one number, or "
        "one for each channel."
    )


FLOATING = v2.ToDtype(torch.float32, scale=True)
NOT_FOR_THESE = [
    (
        v2.Normalize([0.5], [0.2]),
        UINT8,
        "Normalize(mean=[0.5], std=[0.2]) got torch.uint8 images; expected floats. Put "
        "v2.ToDtype(torch.float32, scale=True) before it.",
    ),
    (
        [FLOATING, v1.Normalize((0.5, 0.4), (0.2, 0.2))],
        UINT8,
        "Normalize(mean=(0.5, 0.4), std=(0.2, 0.2)) has 2 numbers in mean, but the images have 3 "
        "channels. Give one number for each channel, or one for all.",
    ),
    (
        v1.Normalize([0.5] * 3, [0.2]),
        FLOATS[:, :1],
        "Normalize(mean=[0.5, 0.5, 0.5], std=[0.2]) has 3 numbers in mean, but the images have 1 "
        "channel. Give one number for each channel, or one for all.",
    ),
    (
        v2.RandomOrder([v2.Normalize([0.5], [0.2])]),
        UINT8,
        "Normalize(mean=[0.5], std=[0.2]) got torch.uint8 images; expected floats. Put "
        "v2.ToDtype(torch.float32, scale=True) before it.",
    ),
    (
        v2.RandomApply([v2.Normalize([0.5] * 3, [0.2] * 3)]),
        FLOATS[:, :1],
        "RandomApply gives some images the shape (3, 8, 9) and others (1, 8, 9); the images of a "
        "batch need one. Put a step at the end of each way that gives it, such as "
        "v2.CenterCrop(112).",
    ),
    (
        v2.ConvertImageDtype(torch.int32),
        FLOATS,
        "ConvertImageDtype(dtype=torch.int32) raised RuntimeError: The conversion from "
        "torch.float32 to torch.int32 cannot be performed safely.",
    ),
    (
        v2.RandomCrop(8, padding=1, fill=300),
        UINT8,
        "fill is 300.0, but the images are uint8; expected a colour from 0 to 255. Give another "
        "fill, or put the step after the one that makes floats.",
    ),
]


@pytest.mark.parametrize(
    ("transform", "images", "expected"), NOT_FOR_THESE, ids=lambda x: str(x)[:40]
)
def test_a_step_that_fails_with_these_images_is_named(
    transform: Any, images: Tensor, expected: str
) -> None:
    """What torchvision's own functions would fail with inside is said with the step's name."""
    assert message(transform, images) == expected


P = "expected a probability, from 0 to 1"
UNUSABLE = [
    (v1.RandomHorizontalFlip(p="often"), "has p='often'; expected a number"),
    (v1.RandomVerticalFlip(p=float("nan")), f"has p=nan; {P}"),
    (v2.RandomSolarize(None), "has threshold=None; expected a number"),
    (
        v1.RandomResizedCrop(3, scale=(0.1, 0.2, 0.3)),
        "has scale=(0.1, 0.2, 0.3); expected 2 numbers",
    ),
    (
        v2.RandomCrop(-1),
        "has size=(-1, -1); expected whole numbers of lines and columns, 1 or more",
    ),
    (v1.RandomRotation(3, center=("a", "b")), "has center=('a', 'b'); expected 2 numbers"),
    (v1.RandomAffine(3, fill="red"), "has fill='red'; expected a number, or one for each channel"),
    (
        v1.RandomErasing(value=(1, "a")),
        "has value=(1, 'a'); expected a number, or one for each channel",
    ),
    (
        v1.ElasticTransform(sigma=float("inf")),
        "has sigma=[inf, inf]; expected two finite numbers above 0, or two of 0",
    ),
    (v1.RandAugment(num_ops=2.5), "has num_ops=2.5; expected a whole number, 0 or more"),
    (v1.RandAugment(magnitude=31), "has magnitude=31; expected a whole number from -31 to 30"),
    (
        v2.TrivialAugmentWide(num_magnitude_bins="x"),
        "has num_magnitude_bins='x'; expected a whole number, 1 or more",
    ),
    (v2.AugMix(chain_depth=1.5), "has chain_depth=1.5; expected a whole number"),
    (v1.AugMix(alpha=0.0), "has alpha=0.0; expected a finite number above 0"),
    (
        v1.RandomChoice([FLIP, FLIP], p=[0, 0]),
        "has p=[0, 0]; expected finite numbers of 0 or more, and one above 0",
    ),
    (v1.RandomChoice([FLIP, FLIP], p=[1]), "has p=[1]; expected 2 numbers"),
    (v2.Normalize([], [1.0]), "has mean=[]; expected a number for each channel"),
    (
        v1.Normalize([0.5], [0.0]),
        "has std=[0.0]; expected a number for each channel, none of them 0",
    ),
    (v2.Normalize([0.5] * 3, [0.1] * 2), "has 3 means and 2 standard deviations; expected as many"),
    (
        v1.ConvertImageDtype("float32"),
        "has dtype='float32'; expected a dtype of images, such as torch.float32",
    ),
    (
        v2.RandomApply([v2.JPEG(50), v2.RandomPosterize(9)]),
        "holds RandomPosterize(9, p=0.5), which has bits=9; expected a whole number from 0 to 8",
    ),
]


@pytest.mark.parametrize(("transform", "reason"), UNUSABLE, ids=lambda x: str(x)[:40])
def test_settings_that_cannot_work_are_refused_at_once(transform: Any, reason: str) -> None:
    """What the settings alone tell is said before there is a batch, with the setting's name."""
    with pytest.raises(gp.TransformError) as caught:
        gp.per_sample([FLIP, transform])
    assert str(caught.value) == f"{name_of(transform)} cannot be used here: it {reason}."


def test_a_dataset_refuses_settings_before_it_loads() -> None:
    """What no batch could be drawn for is an error before the images are decoded."""
    calls = []

    class Photos(Dataset[tuple[Tensor, int]]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            calls.append(index)
            return UINT8[0], 0

    seldom = v2.RandomErasing(p=1e-9, value=(1, 2))
    with pytest.raises(gp.TransformError) as caught:
        gp.preload(Photos(), seldom, device="cpu", progress=False)
    assert "writes 2 values, but the images have 3 channels" in str(caught.value)
    assert len(calls) < 100


def test_a_device_without_memory_says_so_itself() -> None:
    """Who looks for a batch size that fits can catch torch's own error."""

    def fill_it(batch: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        gp.per_sample(gp.batched(fill_it))(UINT8)
