"""Brightness, contrast, saturation, hue, grayscale, channel order: beyond the law of the rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import color


def pixel(*values: int) -> Tensor:
    """A batch of one image of one pixel."""
    return torch.tensor(values, dtype=torch.uint8).view(1, -1, 1, 1)


def grid_of_colours(step: int) -> Tensor:
    """One image [1, 3, H, W] of all colours whose values are multiples of a step, and white."""
    levels = torch.tensor([*range(0, 255, step), 255], dtype=torch.uint8)
    return torch.cartesian_prod(levels, levels, levels).T.reshape(1, 3, len(levels), -1)


@pytest.mark.parametrize("turn", [-0.5, -1 / 3, -0.26, -1e-4, 0.1, 1 / 6, 0.25, 0.4999, 0.5])
def test_every_colour_is_turned_to_torchvisions_within_one_level(turn: float) -> None:
    """Of all colours in steps of 5, at most 2 values in 10,000 differ, by one level."""
    colours = grid_of_colours(5)
    found = color.adjust_hue(colours, torch.tensor([turn], dtype=torch.float64))
    apart = (found.int() - F.adjust_hue(colours, turn).int()).abs()
    assert apart.max() <= 1
    assert (apart > 0).float().mean() <= 2e-4


def test_torchvision_too_leaves_every_colour_where_the_turn_is_zero() -> None:
    """Rows with a turn of 0 come out as they were, which for uint8 is torchvision's result."""
    colours = grid_of_colours(3)
    assert torch.equal(F.adjust_hue(colours, 0.0), colours)
    assert torch.equal(color.adjust_hue(colours, torch.zeros(1)), colours)


def test_no_turn_leaves_floats_as_they_are_to_the_last_bit() -> None:
    """Where torchvision goes to HSV and back, a row with a turn of 0 is the input's."""
    images = torch.rand(2, 3, 9, 8)
    found = color.adjust_hue(images, torch.tensor([0.0, 0.3]))
    assert torch.equal(found[0], images[0])
    assert not torch.equal(found[1], images[1])


@pytest.mark.parametrize("change", [color.adjust_saturation, color.adjust_hue, color.grayscale])
def test_gray_images_have_no_colour_to_change(change: Callable[..., Tensor]) -> None:
    """Of one channel, a copy comes out."""
    images = torch.randint(0, 256, (2, 1, 9, 8), dtype=torch.uint8)
    found = change(images, torch.tensor([True, True]))
    assert torch.equal(found, images)
    assert found.data_ptr() != images.data_ptr()


def test_hues_at_a_half_turn_are_the_opposite_colours() -> None:
    """Half a turn takes red to cyan, and orange halfway between cyan and blue."""
    half = torch.tensor([0.5])
    assert torch.equal(color.adjust_hue(pixel(200, 0, 0), half), pixel(0, 200, 200))
    assert torch.equal(color.adjust_hue(pixel(200, 100, 0), half), pixel(0, 100, 200))


def test_hue_of_floats_stays_within_black_and_white() -> None:
    """No rounding error leads below 0 or above 1."""
    colours = (grid_of_colours(5).double() / 255).pow(3).float()
    for turn in (0.1, 0.25, 1 / 3, 0.49):
        found = color.adjust_hue(colours, torch.tensor([turn]))
        assert found.min() >= 0
        assert found.max() <= 1


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize(("channels", "gray"), [(1, 1), (1, 3), (3, 1), (3, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_grayscale_gives_as_many_channels_as_asked(
    layout: torch.memory_format, channels: int, gray: int, dtype: torch.dtype
) -> None:
    """Gray images of 1 or 3 channels are torchvision's, from 1 or 3 channels."""
    images = torch.randint(0, 256, (5, channels, 4, 7), dtype=torch.uint8)
    images = (images if dtype == torch.uint8 else images / 255).contiguous(memory_format=layout)
    found = color.grayscale(images, num_output_channels=gray)
    assert torch.equal(found, F.rgb_to_grayscale(images, gray))
    assert found.is_contiguous() or found.is_contiguous(memory_format=torch.channels_last)
    assert found.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()


def test_one_image_repeated_without_memory_is_a_batch() -> None:
    """A view that repeats one image gives as many results, each in memory of its own."""
    photo = torch.randint(0, 256, (1, 3, 6, 5), dtype=torch.uint8)
    factor = torch.tensor([0.5, 1.0, 1.5])
    found = color.adjust_contrast(photo.expand(3, -1, -1, -1), factor)
    assert torch.equal(found, color.adjust_contrast(photo.repeat(3, 1, 1, 1), factor))
    assert found.is_contiguous()


def test_windows_of_a_larger_batch_are_a_batch() -> None:
    """Strided views are read as they are, masks and permutations included."""
    window = torch.randint(0, 256, (4, 3, 12, 14), dtype=torch.uint8)[:, :, 2::2, 3:10]
    mask, order = torch.tensor([True, False, True, False]), torch.tensor([[2, 0, 1]] * 4)
    kept = window.clone()
    dark = color.adjust_brightness(window, torch.full((4,), 0.5), mask)
    assert torch.equal(dark, color.adjust_brightness(kept, torch.full((4,), 0.5), mask))
    assert torch.equal(color.permute_channels(window, order), kept[:, [2, 0, 1]])
    assert torch.equal(window, kept)


def test_parameters_may_be_float32() -> None:
    """A float32 parameter means the number that it holds."""
    images = grid_of_colours(25)
    factor = torch.tensor([1.3])
    found = color.adjust_saturation(images, factor)
    assert torch.equal(found, F.adjust_saturation(images, factor.item()))


def test_a_mask_and_another_number_of_channels_exclude_each_other() -> None:
    """Rows outside a mask keep their channels, so gray rows must have as many."""
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(ArgumentError) as caught:
        color.grayscale(images, torch.tensor([True, False]), num_output_channels=1)
    assert str(caught.value) == (
        "num_output_channels is 1 for images of 3 channels and a mask; expected 1 or 3, and with a "
        "mask the number that the images have, for the other rows keep theirs."
    )


def test_orders_of_channels_are_one_for_each_image() -> None:
    """The order is [N, C], not one permutation for all."""
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(ArgumentError) as caught:
        color.permute_channels(images, torch.tensor([2, 0]))
    assert str(caught.value) == (
        "order must be [N, C], here [2, 3], got shape (2,). "
        "Give each image one permutation of its channels."
    )
