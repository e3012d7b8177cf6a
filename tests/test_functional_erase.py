"""Rectangles erased with one place a sample, against torchvision image by image."""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.erase import erase, erase_

# top, left, height, width: inside, nothing (twice), all, over the edge
BOXES = torch.tensor([[1, 2, 3, 4], [2, 2, 0, 3], [2, 2, 3, 0], [0, 0, 9, 7], [6, 5, 9, 9]])


def batch(dtype: torch.dtype, channels: int) -> Tensor:
    """Five random images of 9 x 7, the same at every call."""
    generator = torch.Generator().manual_seed(channels)
    images = torch.randint(0, 256, (5, channels, 9, 7), generator=generator)
    return images.to(torch.uint8) if dtype == torch.uint8 else (images / 255).to(dtype)


def in_a_loop(images: Tensor, value: Tensor) -> Tensor:
    """What torchvision's erase makes of each image alone."""
    return torch.stack(
        [F.erase(image, *box, value) for image, box in zip(images, BOXES.tolist(), strict=True)]
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("in_one_piece", [False, True], ids=["on the CPU", "as elsewhere"])
def test_each_row_loses_a_rectangle_of_its_own(
    channels: int, dtype: torch.dtype, in_one_piece: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Erasing equals torchvision's, for a number, numbers for the channels and a tensor of them."""
    monkeypatch.setattr("gpupreload.functional.erase.in_one_piece", lambda _: in_one_piece)
    images = batch(dtype, channels)
    colour = [0.5 + 30 * (c + 1) for c in range(channels)]
    for value in (0, 1, 3.7, colour, torch.tensor(colour)):
        pixels = torch.as_tensor(value, dtype=torch.float32).view(-1, 1, 1)
        erased = erase(images, *BOXES.unbind(1), value)
        assert torch.equal(erased, in_a_loop(images, pixels))


def test_bfloat16_is_erased_too() -> None:
    """The dtype that NumPy has not is written as it is rounded."""
    images = batch(torch.bfloat16, 3)
    erased = erase(images, *BOXES.unbind(1), 0.3)
    assert torch.equal(erased, in_a_loop(images, torch.tensor([[[0.3]]])))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_erasing_in_place_writes_the_rectangles_alone(memory_format: torch.memory_format) -> None:
    """`erase_` changes the images that it is given, in their layout."""
    images = batch(torch.float32, 3).to(memory_format=memory_format)
    expected = in_a_loop(images, torch.tensor([[[0.5]]]))
    assert erase_(images, *BOXES.unbind(1), 0.5) is images
    assert torch.equal(images, expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_noise_lies_where_the_pixel_lies(dtype: torch.dtype) -> None:
    """A noise tensor's own pixels are written, cast as torchvision casts them."""
    images = batch(dtype, 3)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(1)) * 3
    erased = erase(images, *BOXES.unbind(1), noise)
    for i, (top, left, height, width) in enumerate(BOXES.tolist()):
        part = noise[i, :, top : top + height, left : left + width]
        assert torch.equal(erased[i], F.erase(images[i], top, left, height, width, part))


def test_a_value_of_another_shape_is_refused() -> None:
    """A value that does not broadcast to the images names both shapes."""
    with pytest.raises(ArgumentError) as caught:
        erase(batch(torch.uint8, 1), *BOXES.unbind(1), [1, 2, 3])
    assert str(caught.value) == (
        "value must be a number, 1 numbers (one for each channel) or a tensor that broadcasts to "
        "the images' shape (5, 1, 9, 7), got a torch.float32 tensor of shape (3, 1, 1)."
    )
    with pytest.raises(ArgumentError, match=r"got a torch.float32 tensor of shape \(5, 3, 9, 8\)"):
        erase(batch(torch.uint8, 3), *BOXES.unbind(1), torch.zeros(5, 3, 9, 8))
