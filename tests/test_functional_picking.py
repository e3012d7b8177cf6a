"""Samples picked out of a store with a window and flips, against torchvision image by image."""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.functional import picking
from gpupreload.functional.picking import Cut, Picker

N_STORED, N_PICKED = 9, 30


def store_of(dtype: torch.dtype, channels: int) -> Tensor:
    """Random images of 7 x 5, the same at every call."""
    generator = torch.Generator().manual_seed(channels)
    images = torch.randint(0, 256, (N_STORED, channels, 7, 5), generator=generator)
    return images.to(torch.uint8) if dtype == torch.uint8 else (images / 255).to(dtype)


def numbers(below: int, seed: int) -> Tensor:
    """Random whole numbers, each of them and the first and last among them."""
    drawn = torch.randint(0, below, (N_PICKED,), generator=torch.Generator().manual_seed(seed))
    drawn[:2] = torch.tensor([0, below - 1])
    return drawn


INDICES, FLIP, OVER = numbers(N_STORED, 1), numbers(2, 2).bool(), numbers(2, 3).bool()


@pytest.fixture(params=[1, 400, 1 << 20], ids=["a row", "a few rows", "all"])
def _at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are moved one by one, a few at a time, or all at once."""
    monkeypatch.setattr(picking, "_BYTES", request.param)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 0, 0, 2), (3, 2, 1, 4)])
@pytest.mark.parametrize("size", [(7, 5), (1, 1), (4, 3)])
def test_each_row_is_cut_and_mirrored_by_itself(
    dtype: torch.dtype, channels: int, padding: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    """Row i equals torchvision's pad, crop and flips of image `indices[i]`; nothing is written."""
    store = store_of(dtype, channels)
    before = store.clone()
    left, above, right, below = padding
    top = numbers(7 + above + below - size[0] + 1, 4)
    start = numbers(5 + left + right - size[1] + 1, 5)
    cut = Cut(top, start, size, padding, fill=1)
    out = torch.empty(N_PICKED, channels, *size, dtype=dtype)
    Picker()(store, INDICES, out, cut, [(-1, FLIP), (-2, OVER)])
    for i, row in enumerate(out):
        image = F.pad(store[INDICES[i]], list(padding), fill=1)
        image = F.crop(image, int(top[i]), int(start[i]), *size)
        image = F.horizontal_flip(image) if FLIP[i] else image
        assert torch.equal(row, F.vertical_flip(image) if OVER[i] else image)
    assert torch.equal(store, before)


@pytest.mark.usefixtures("_at_once")
def test_without_a_cut_whole_images_are_picked() -> None:
    """Flips alone are made on the way, too."""
    store = store_of(torch.uint8, 3)
    out = Picker()(store, INDICES, torch.empty(N_PICKED, 3, 7, 5, dtype=torch.uint8))
    assert torch.equal(out, store[INDICES])
    Picker()(store, INDICES, out, flips=[(-1, FLIP)])
    assert torch.equal(out[FLIP], store[INDICES[FLIP]].flip(-1))
    assert torch.equal(out[~FLIP], store[INDICES[~FLIP]])


def test_one_picker_serves_different_crops() -> None:
    """What a picker keeps from one call, such as a white border, never shows in the next."""
    picker, zeros = Picker(), torch.zeros(N_PICKED, dtype=torch.int64)
    for dtype in (torch.uint8, torch.float32):
        for padding, fill in (((1, 1, 1, 1), 0), ((1, 1, 1, 1), 7), ((2, 0, 0, 1), 7)):
            store = store_of(dtype, 3)
            size = 7 + padding[1] + padding[3], 5 + padding[0] + padding[2]
            out = torch.empty(N_PICKED, 3, *size, dtype=dtype)
            picker(store, INDICES, out, Cut(zeros, zeros, size, padding, fill))
            assert torch.equal(out, F.pad(store[INDICES], list(padding), fill=fill))


def test_no_rows() -> None:
    """Nothing picked is no special case."""
    none = torch.empty(0, dtype=torch.int64)
    out = torch.empty(0, 3, 7, 5, dtype=torch.uint8)
    cut = Cut(none, none, (7, 5), (1, 1, 1, 1))
    assert Picker()(store_of(torch.uint8, 3), none, out, cut, [(-1, none.bool())]) is out
