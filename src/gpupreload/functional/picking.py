"""Samples picked out of a store on the CPU, cropped and mirrored on the way."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpupreload import host
from gpupreload.functional.pieces import even_spans
from gpupreload.host import array_of

# moved at a time: it stays in cache from one step to the next
_BYTES = 3 << 20


_threads = threading.local()


@dataclass(frozen=True)
class Cut:
    """Windows of one size, at a place of its own in each padded image.

    Attributes:
        top: int64 [N] on the CPU, the first line, counted in the padded image.
        left: int64 [N] on the CPU, the first column, likewise.
        size: lines and columns of the windows.
        padding: pixels to the left, above, to the right and below.
        fill: the value of the padding.
    """

    top: Tensor
    left: Tensor
    size: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    fill: float = 0


class Picker:
    """Picks samples, cuts a window out of each, and mirrors some of them.

    It keeps a few MB in which it works, so it is for one thread.

    >>> store = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8).view(2, 1, 1, 3)
    >>> cut = Cut(torch.tensor([0, 0]), torch.tensor([1, 0]), (1, 2))
    >>> flip = torch.tensor([False, True])
    >>> out = torch.empty(2, 1, 1, 2, dtype=torch.uint8)
    >>> Picker()(store, torch.tensor([1, 0]), out, cut, [(-1, flip)]).flatten(1)
    tensor([[5, 6],
            [2, 1]], dtype=torch.uint8)
    """

    def __init__(self) -> None:
        self._picked = torch.empty(0, device="cpu")
        self._padded = torch.empty(0, device="cpu")
        self._around: Any = None

    def __call__(
        self,
        store: Tensor,
        indices: Tensor,
        out: Tensor,
        cut: Cut | None = None,
        flips: Sequence[tuple[int, Tensor]] = (),
    ) -> Tensor:
        """Fill `out`; row i is what torchvision's functions make of `store[indices[i]]`, exactly.

        Args:
            store: [M, C, H, W] on the CPU, contiguous, of any dtype; never written to.
            indices: int64 [N] on the CPU, 0 to M - 1.
            out: [N, C, height, width], contiguous, to be written to: the size of the windows, or
                of the images where nothing is cut.
            cut: the windows, none of which may go beyond its padded image; None for whole images.
            flips: pairs of a dimension, -1 for left to right and -2 for top to bottom, and bool
                [N]: which rows are mirrored after the cut, one flip after the other.

        Returns:
            `out`.
        """
        if not len(indices):
            return out
        spans = list(even_spans(len(indices), max(1, _BYTES // max(1, store[:1].nbytes))))
        read = self._reader(store, indices, cut, max(stop - start for start, stop in spans))
        for start, stop in spans:
            rows = slice(start, stop)
            read(rows, out[rows])
            for dim, flip in flips:
                _mirror(out[rows], flip[rows], dim)
        return out

    def _reader(
        self, store: Tensor, indices: Tensor, cut: Cut | None, at_once: int
    ) -> Callable[[slice, Tensor], object]:
        """What fills the rows of a slice, up to so many at once."""
        if cut is None:
            return lambda rows, out: torch.index_select(store, 0, indices[rows], out=out)
        if any(cut.padding):
            return self._padding_reader(store, indices, cut, at_once)
        lines = windows(store, cut.size)
        starts = indices * store[0].numel() + cut.top * store.shape[3] + cut.left
        return lambda rows, out: torch.index_select(lines, 0, starts[rows], out=out)

    def _padding_reader(
        self, store: Tensor, indices: Tensor, cut: Cut, at_once: int
    ) -> Callable[[slice, Tensor], None]:
        left, above, right, below = cut.padding
        _, channels, height, width = store.shape
        shape = channels, height + above + below, width + left + right
        self._make_room(store, shape, cut, at_once)
        lines = windows(self._padded, cut.size)
        inside = self._padded[:, :, above : above + height, left : left + width]
        starts = cut.top * shape[2] + cut.left
        images = torch.arange(at_once, device="cpu") * math.prod(shape)

        def read(rows: slice, out: Tensor) -> None:
            n_rows = len(out)
            picked = torch.index_select(store, 0, indices[rows], out=self._picked[:n_rows])
            inside[:n_rows].copy_(picked)
            torch.index_select(lines, 0, starts[rows] + images[:n_rows], out=out)

        return read

    def _make_room(self, store: Tensor, shape: tuple[int, ...], cut: Cut, n_rows: int) -> None:
        picked = self._picked
        is_other = picked.shape[1:] != store.shape[1:] or picked.dtype != store.dtype
        if len(picked) < n_rows or is_other:
            self._picked = host.empty((n_rows, *store.shape[1:]), store.dtype)
        around = shape, store.dtype, cut.padding, cut.fill
        if len(self._padded) < n_rows or self._around != around:
            # what lies around the images is written once: each piece fills the inside anew
            self._padded = host.empty((n_rows, *shape), store.dtype).fill_(cut.fill)
            self._around = around


def picker_of_this_thread() -> Picker:
    """The picker that this thread keeps."""
    if not hasattr(_threads, "picker"):
        _threads.picker = Picker()
    picker: Picker = _threads.picker
    return picker


def windows(images: Tensor, size: tuple[int, int]) -> Tensor:
    """See contiguous images as one long line on which every start is a window: [starts, C, *size].

    The window at line y and column x of image i starts at `(i * C * H + y) * W + x`.
    """
    _, channels, height, width = images.shape
    strides = (1, height * width, width, 1)
    last = (channels - 1) * strides[1] + (size[0] - 1) * width + size[1]
    return images.as_strided((images.numel() - last + 1, channels, *size), strides)


def _mirror(images: Tensor, chosen: Tensor, dim: int) -> None:
    # NumPy's picking and putting of whole rows take half as long as torch's
    rows, array = chosen.nonzero().squeeze(1).numpy(), array_of(images)
    array[rows] = torch.from_numpy(array[rows]).flip(dim).numpy()
