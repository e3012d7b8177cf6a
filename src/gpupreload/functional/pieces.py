"""How the geometric kernels cut up a batch, and the layout in which they give it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

# a limit to the memory of grids, weights and float copies on an accelerator, about half a GiB
_ROOM_ON_AN_ACCELERATOR = 2**24


def pieces(
    images: Tensor, n_rows: int, size_each: int, room_a_thread: int
) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces that stay in cache on the CPU, and within bounds on an accelerator.

    Args:
        images: the batch, for its device.
        n_rows: how many rows there are.
        size_each: pixels (or bytes) worked on for one row.
        room_a_thread: how many a CPU thread has room for in its cache.

    Yields:
        The first row of each piece and the one after its last. Inside `torch.compile` it is one
        piece.
    """
    if torch.compiler.is_compiling():
        at_once = n_rows
    elif images.device.type == "cpu":
        at_once = torch.get_num_threads() * max(1, room_a_thread // max(1, size_each))
    else:
        at_once = _ROOM_ON_AN_ACCELERATOR // max(1, size_each)
    yield from even_spans(n_rows, max(1, at_once))


def even_spans(n_rows: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into as few pieces of at most so many as can be, none much smaller than another.

    >>> list(even_spans(7, 3))
    [(0, 2), (2, 4), (4, 7)]
    """
    n_pieces = -(-n_rows // most)
    for i in range(n_pieces):
        yield i * n_rows // n_pieces, (i + 1) * n_rows // n_pieces


def in_pieces(
    out: Tensor, work: Callable[[slice], Tensor], size_each: int, room_a_thread: int
) -> Tensor:
    """Fill a new batch piece by piece: `out[rows] = work(rows)`. The rest is as for `pieces`."""
    for start, stop in pieces(out, len(out), size_each, room_a_thread):
        rows = slice(start, stop)
        out[rows] = work(rows)
    return out


def new_batch(images: Tensor, size: tuple[int, int]) -> Tensor:
    """An empty batch of images of another size: same N, C, dtype, device and layout."""
    return torch.empty(
        (*images.shape[:2], *size),
        dtype=images.dtype,
        device=images.device,
        memory_format=layout(images),
    )


def layout(images: Tensor) -> torch.memory_format:
    """The memory format of a batch: channels_last where it is that and nothing else.

    >>> layout(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last))
    torch.channels_last
    """
    if images.is_contiguous() or not images.is_contiguous(memory_format=torch.channels_last):
        return torch.contiguous_format
    return torch.channels_last


def in_own_memory(result: Tensor, images: Tensor) -> Tensor:
    """What a function made of a batch, in memory that may be written to.

    It shares none with `images`, and no value stands for several pixels, as it does where
    torchvision's `Grayscale(3)` expands one channel to three.
    """
    if torch.compiler.is_compiling():
        return result.clone()
    if result.untyped_storage().data_ptr() == images.untyped_storage().data_ptr():
        return result.clone()
    return result.contiguous(memory_format=layout(result))
