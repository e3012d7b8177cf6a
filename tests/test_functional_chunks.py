"""How kernels walk over a batch, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import chunks


@pytest.mark.parametrize("n_rows", [0, 1, 11, 12, 13, 30])
def test_spans_cover_all_rows_once_in_even_pieces(n_rows: int) -> None:
    """Pieces follow one another, none is over the limit, and none is much smaller than another."""
    images = torch.empty(0, 3, 112, 112, dtype=torch.uint8)
    spans = list(chunks.spans(images, n_rows))
    assert [i for start, stop in spans for i in range(start, stop)] == list(range(n_rows))
    sizes = {stop - start for start, stop in spans}
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(0 < size * 3 * 112 * 112 <= chunks._ELEMENTS_A_CHUNK for size in sizes)


def test_an_image_larger_than_a_chunk_is_a_chunk() -> None:
    """However large, one image at a time is worked on."""
    images = torch.empty(1, 1, 1, 1).expand(1, 3, 2000, 2000)
    assert list(chunks.spans(images, 3)) == [(0, 1), (1, 2), (2, 3)]


# rows of 8, 4, 2 and 1 bytes' multiples, in words of which they are written
@pytest.mark.parametrize("size", [(8, 8), (2, 2), (1, 2), (1, 1), (3, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_rows_are_taken_and_put_back_in_any_layout(
    layout: torch.memory_format, dtype: torch.dtype, size: tuple[int, int]
) -> None:
    """What is taken from rows and put into them is what indexing takes and puts."""
    images = torch.randint(0, 256, (6, 3, *size)).to(dtype).contiguous(memory_format=layout)
    rows = torch.tensor([4, 0, 3])
    taken = chunks.take_rows(images, rows)
    assert torch.equal(taken, images[rows])
    assert taken.is_contiguous(memory_format=layout)
    out = torch.zeros_like(images)
    chunks.put_rows(out, rows, taken)
    expected = torch.zeros_like(images)
    expected[rows] = images[rows]
    assert torch.equal(out, expected)


def test_rows_are_put_into_views_too() -> None:
    """A batch whose rows lie apart in memory is written where it lies."""
    whole = torch.zeros(4, 3, 6, 6)
    chunks.put_rows(whole[..., ::2], torch.tensor([2]), torch.ones(1, 1, 6, 3))
    assert whole[2, :, :, ::2].min() == 1
    assert whole.sum() == 3 * 6 * 3


def test_decimals_are_cut_off() -> None:
    """A float result becomes uint8 as a conversion does, not rounded."""
    values = torch.tensor([0.0, 0.99, 1.0, 254.999, 255.0])
    assert chunks.as_stored(values, torch.uint8).tolist() == [0, 0, 1, 254, 255]


REFUSED = [
    (
        torch.zeros(3, 4, 4, dtype=torch.uint8),
        "images must be a batch [N, C, H, W], got a torch.uint8 tensor of shape (3, 4, 4). "
        "Give a single image a batch dimension with images[None].",
    ),
    (
        torch.zeros(2, 3, 4, 4, dtype=torch.int64),
        "images must be uint8 (0 to 255) or floats (0 to 1), got a torch.int64 tensor of shape "
        "(2, 3, 4, 4). Convert them with images.to(torch.uint8).",
    ),
    (
        torch.zeros(2, 4, 4, 4),
        "images must have 1 or 3 channels, got a torch.float32 tensor of shape (2, 4, 4, 4). "
        "Convert them to RGB or to grayscale first.",
    ),
]


@pytest.mark.parametrize(("images", "message"), REFUSED)
def test_what_is_no_batch_of_images_is_refused(images: Tensor, message: str) -> None:
    """A single image, whole numbers of 64 bits, and four channels where colours are meant."""
    with pytest.raises(ArgumentError) as caught:
        chunks.check_batch(images, (1, 3))
    assert str(caught.value) == message


@pytest.mark.parametrize("values", [torch.tensor(1.5), torch.ones(3), torch.ones(1, 2)])
def test_parameters_have_one_row_an_image(values: Tensor) -> None:
    """One number for the whole batch is not spread over it silently."""
    with pytest.raises(ArgumentError) as caught:
        chunks.check_rows(torch.zeros(2, 3, 4, 4), mask=None, factor=values)
    assert str(caught.value) == (
        "factor must have one row for each of the 2 images, got a torch.float32 tensor of shape "
        f"{tuple(values.shape)}. Repeat a shared value with torch.full((2,), value)."
    )
