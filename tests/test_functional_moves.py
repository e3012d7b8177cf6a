"""Flips, padding and crops with one place a sample, against torchvision image by image."""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import moves
from gpupreload.functional.choose import choose

DTYPES = (torch.uint8, torch.float32, torch.float16, torch.float64)
SHAPES = ((6, 3, 13, 17), (6, 1, 20, 9), (5, 4, 7, 7), (1, 3, 8, 5))


def batch(dtype: torch.dtype, shape: tuple[int, ...], *, channels_last: bool = False) -> Tensor:
    """Random images, the same for the same shape."""
    generator = torch.Generator().manual_seed(sum(shape))
    images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    if dtype != torch.uint8:
        images = (images.double() / 255).to(dtype)
    return images.contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )


def places(n: int, low: int, high: int, seed: int) -> Tensor:
    """Random whole numbers [n] from low to high - 1."""
    return torch.randint(low, high, (n,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["horizontal_flip", "vertical_flip"])
def test_each_row_is_flipped_or_not_by_its_own_flag(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """A flip equals torchvision's flip in the rows that are flagged, and changes no other."""
    images = batch(dtype, shape)
    flip = places(len(images), 0, 2, seed=1).bool()
    flip[0] = True
    flipped = getattr(moves, name)(images, flip)
    for row, flag, image in zip(flipped, flip.tolist(), images, strict=True):
        assert torch.equal(row, getattr(F, name)(image) if flag else image)


@pytest.mark.parametrize("mode", moves.PADDING_MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("padding", [2, [3], [1, 4], [1, 2, 3, 4], [0, 5, 0, 0]])
def test_pad_equals_torchvision_in_every_mode(
    padding: int | list[int], dtype: torch.dtype, mode: str
) -> None:
    """Padding is torchvision's in all four modes and all ways to write it."""
    images = batch(dtype, (3, 3, 9, 7))
    assert torch.equal(
        moves.pad(images, padding, padding_mode=mode), F.pad(images, padding, padding_mode=mode)
    )


def test_pad_takes_a_fill_for_each_channel() -> None:
    """Constant padding takes a number or one number for each channel."""
    images = batch(torch.uint8, (2, 3, 4, 4))
    assert torch.equal(moves.pad(images, 1, fill=(9, 8, 7)), F.pad(images, 1, fill=[9, 8, 7]))
    assert torch.equal(moves.pad(images, 1, fill=250), F.pad(images, 1, fill=250))


def test_mirrors_reach_to_the_last_pixel() -> None:
    """Reflect stops one pixel short of the size, symmetric at the size, edge nowhere."""
    row = torch.tensor([1, 2, 3], dtype=torch.uint8).view(1, 1, 1, 3)
    pads = {"reflect": (2, "3 2 1 2 3 2 1"), "symmetric": (3, "3 2 1 1 2 3 3 2 1")}
    for mode, (most, written) in {**pads, "edge": (4, "1 1 1 1 1 2 3 3 3 3 3")}.items():
        padded = moves.pad(row, (most, 0), padding_mode=mode).flatten().tolist()
        assert padded == [int(number) for number in written.split()]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(5, 6), (7, 5), (16, 19)])
def test_each_row_is_cropped_at_its_own_place(
    size: tuple[int, int], shape: tuple[int, ...], dtype: torch.dtype, channels_last: bool
) -> None:
    """A crop equals torchvision's crop at each row's place, black outside the image."""
    images = batch(dtype, shape, channels_last=channels_last)
    top, left = places(len(images), -4, 9, seed=2), places(len(images), -4, 9, seed=3)
    expected = torch.stack(
        [
            F.crop(image, t, x, *size)
            for image, t, x in zip(images, top.tolist(), left.tolist(), strict=True)
        ]
    )
    for cut in (moves.crop, moves.crop_by_gather):
        assert torch.equal(cut(images, top, left, *size), expected)


@pytest.mark.parametrize("mode", moves.PADDING_MODES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_padded_crop_equals_pad_and_crop(dtype: torch.dtype, mode: str) -> None:
    """Crop with padding counts from the padded corner, as RandomCrop(padding=...) does."""
    images = batch(dtype, (6, 3, 13, 17))
    top, left = places(6, 0, 7, seed=4), places(6, 0, 5, seed=5)
    fill = 7 if mode == "constant" else 0
    padding = [2, 3, 2, 3]
    cropped = moves.crop(images, top, left, 13, 17, padding=padding, fill=fill, padding_mode=mode)
    for i, row in enumerate(cropped):
        padded = F.pad(images[i], padding, fill=fill, padding_mode=mode)
        assert torch.equal(row, F.crop(padded, int(top[i]), int(left[i]), 13, 17))


def test_a_large_padded_batch_is_cropped_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is padded in pieces comes out like one that is padded whole."""
    images = batch(torch.float32, (9, 3, 13, 17))
    arguments = images, places(9, 0, 7, seed=4), places(9, 0, 5, seed=5), 13, 17
    whole = moves.crop(*arguments, padding=3)
    monkeypatch.setattr(moves, "_BYTES_AT_ONCE", 0)
    monkeypatch.setattr(moves, "_BYTES_A_THREAD", 1)
    assert torch.equal(moves.crop(*arguments, padding=3), whole)


def test_a_window_far_outside_is_black_and_costs_no_memory() -> None:
    """A place a million pixels away gives black, without a border of that size."""
    images = torch.ones(2, 1, 4, 4)
    far, here = torch.tensor([10**6, -(10**6)]), torch.tensor([0, 0])
    assert not moves.crop(images, far, here, 3, 3).any()
    assert not moves.crop(images, here, far, 3, 3).any()


def test_a_part_of_a_batch_is_cropped_from_its_own_images() -> None:
    """A slice of a batch and an expanded image are read at the right place."""
    images = batch(torch.uint8, (6, 3, 13, 17))
    zero = torch.zeros(2, dtype=torch.int64)
    assert torch.equal(moves.crop(images[2:4], zero + 1, zero, 5, 5), images[2:4, :, 1:6, :5])
    copies = images[:1].expand(2, -1, -1, -1)
    assert torch.equal(moves.crop(copies, zero + 1, zero, 5, 5), copies[:, :, 1:6, :5])
    assert torch.equal(moves.horizontal_flip(copies, zero == 0), copies.flip(-1))


def test_choose_is_where() -> None:
    """Choose gives what torch.where gives, for bytes and for floats, with broadcasting."""
    condition = torch.tensor([True, False, True]).view(3, 1, 1)
    for dtype in (torch.uint8, torch.float32):
        yes, no = torch.tensor([5, 200]).to(dtype), torch.arange(30).view(3, 5, 2).to(dtype)
        assert torch.equal(choose(condition, yes, no), torch.where(condition, yes, no))


def test_too_much_padding_says_how_much_there_can_be() -> None:
    """A mirror wider than the image is refused with the widest possible."""
    images = batch(torch.uint8, (2, 1, 4, 6))
    with pytest.raises(ArgumentError) as caught:
        moves.pad(images, 6, padding_mode="reflect")
    assert str(caught.value) == (
        "padding of 6 and 6 pixels in mode 'reflect' does not go with images of 6 pixels; expected "
        "0 to 5. Use less, or padding_mode='edge'."
    )


def test_an_unknown_padding_names_the_known() -> None:
    """An unknown padding mode, or a strange number of sides, is refused."""
    images = batch(torch.uint8, (2, 1, 4, 6))
    with pytest.raises(ArgumentError) as caught:
        moves.pad(images, 1, padding_mode="wrap")
    assert str(caught.value) == (
        "padding_mode must be one of constant, edge, reflect, symmetric, got 'wrap'."
    )
    with pytest.raises(ArgumentError) as caught:
        moves.pad(images, (1, 2, 3))
    assert str(caught.value) == "padding must be 1, 2 or 4 numbers of pixels, got 3: (1, 2, 3)."
