"""Invert, posterize, solarize, autocontrast and equalize, beyond the law of the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from gpupreload.functional import tone


def row(*values: float) -> Tensor:
    """A batch of one gray image of one line."""
    dtype = torch.uint8 if isinstance(values[0], int) else torch.float32
    return torch.tensor(values, dtype=dtype).view(1, 1, 1, -1)


def test_solarize_inverts_from_the_threshold_on() -> None:
    """A value equal to the threshold is inverted; a threshold between two levels is a threshold."""
    values = row(99, 100, 101)
    assert torch.equal(tone.solarize(values, torch.tensor([100])), row(99, 155, 154))
    assert torch.equal(tone.solarize(values, torch.tensor([100.5])), row(99, 100, 154))
    assert torch.equal(tone.solarize(row(0.25, 0.5), torch.tensor([0.5])), row(0.25, 0.5))


def test_solarize_compares_in_float32_as_torchvision() -> None:
    """A threshold that float32 rounds up to 128 is 128."""
    threshold = 128 - 1e-9
    found = tone.solarize(row(127, 128), torch.tensor([threshold], dtype=torch.float64))
    assert torch.equal(found, F.solarize(row(127, 128), threshold))


def test_no_value_reaches_a_threshold_above_white() -> None:
    """Above white there is nothing to invert; below black, everything is."""
    values = row(0, 255)
    assert torch.equal(tone.solarize(values, torch.tensor([255.5])), values)
    assert torch.equal(tone.solarize(values, torch.tensor([-3.0])), row(255, 0))


def test_floats_outside_black_and_white_are_posterized_to_the_outermost_levels() -> None:
    """Two bits leave the levels 0, 1/4, 1/2 and 3/4, whatever comes in."""
    found = tone.posterize(row(-0.5, 0.3, 1.0, 2.0), torch.tensor([2]))
    assert torch.equal(found, row(0.0, 0.25, 0.75, 0.75))


def test_a_channel_of_one_value_has_no_contrast_to_stretch() -> None:
    """It stays, while the other channels of the same image are stretched."""
    image = torch.tensor([[7, 7, 7], [10, 21, 32], [0, 255, 100]], dtype=torch.uint8)
    stretched = torch.tensor([[7, 7, 7], [0, 127, 255], [0, 255, 100]], dtype=torch.uint8)
    assert torch.equal(tone.autocontrast(image.view(1, 3, 1, 3)), stretched.view(1, 3, 1, 3))


PILLOW: list[tuple[Callable[..., Tensor], Callable[..., Image.Image], tuple[int, ...]]] = [
    (tone.invert, ImageOps.invert, ()),
    (tone.equalize, ImageOps.equalize, ()),
    (tone.posterize, ImageOps.posterize, (3,)),
    (tone.solarize, ImageOps.solarize, (100,)),
]


@pytest.mark.parametrize(("ours", "pillow", "params"), PILLOW)
def test_pillow_gives_the_same_levels(
    ours: Callable[..., Tensor], pillow: Callable[..., Image.Image], params: tuple[int, ...]
) -> None:
    """What torchvision took over from Pillow is equal to Pillow's, dull images included."""
    pixels = torch.randint(0, 256, (3, 31, 40, 3), dtype=torch.uint8)
    pixels[1] = pixels[1] // 3 + 50
    pixels[2, 1:] = 9
    found = ours(pixels.permute(0, 3, 1, 2), *(torch.full((3,), p) for p in params))
    for image, one in zip(pixels, found, strict=True):
        expected = np.asarray(pillow(Image.fromarray(image.numpy()), *params))
        assert np.array_equal(one.permute(1, 2, 0), expected)


def test_equalize_leaves_images_with_too_few_pixels_below_the_brightest() -> None:
    """Fewer than 255 pixels below the brightest level leave no step to spread the levels by."""
    few = torch.randint(0, 256, (1, 1, 15, 17), dtype=torch.uint8)
    assert torch.equal(tone.equalize(few), few)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_any_number_of_channels_is_taken_where_channels_stay_apart(dtype: torch.dtype) -> None:
    """RGBA images are inverted, posterized, solarized and equalized as torchvision does."""
    images = torch.randint(0, 256, (2, 4, 20, 17), dtype=torch.uint8)
    images = images if dtype == torch.uint8 else images / 255
    half = torch.full((2,), 128.0 if dtype == torch.uint8 else 0.5)
    assert torch.equal(tone.invert(images), F.invert(images))
    assert torch.equal(tone.posterize(images, torch.tensor([3, 3])), F.posterize(images, 3))
    assert torch.equal(tone.solarize(images, half), F.solarize(images, half[0].item()))
    assert torch.equal(tone.equalize(images), F.equalize(images))


def test_white_in_float16_stays_white() -> None:
    """Brought to 256 levels, white is 255 and does not wrap to black."""
    ramp = (torch.arange(300) % 256 / 255).to(torch.float16).view(1, 1, 1, 300)
    assert tone.equalize(ramp)[ramp == 1].min() == 1
