"""Reading an epoch in blocks of several batches: parameters drawn ahead, memory used again."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gpupreload import host
from gpupreload.functional.picking import Picker
from gpupreload.native.step import Params
from gpupreload.one_pass import of_rows
from gpupreload.per_sample import PerSample
from gpupreload.rows import Rows

# Batches are made several at a time where they are small, for then the calls to PyTorch cost more
# than the bytes. Blocks of 8 MiB stay in a CPU's last cache: measured best at 3×32×32, where they
# hold 10 batches of 64; at 3×112×112 one batch is larger already.
_BLOCK_BYTES = 8 << 20
# samples that parameters are drawn for at a time: the calls of some 40 small operations then cost
# nothing beside the images
_ROWS_DRAWN = 4096


class Drawing:
    """Draws the parameters of an epoch's samples, many blocks at a time.

    Args:
        module: the each-batch part, which draws.
        store: the images [M, C, H, W] that it will be given.
        rows: the samples of the epoch, in the order in which they will be served.
        n_rows: of a block.
    """

    def __init__(self, module: PerSample, store: Tensor, rows: Rows, n_rows: int) -> None:
        self._module, self._store, self._rows = module, store, rows
        self._n_at_once = n_rows * max(1, _ROWS_DRAWN // n_rows)
        self._start, self._drawn = 0, list[Params | None]()

    def of(self, block: slice) -> list[Params | None]:
        """The parameters of each stage for the rows of a block; blocks come in order."""
        if not block.start % self._n_at_once:
            self._start = block.start
            self._drawn = self._draw(slice(block.start, block.start + self._n_at_once))
        return of_rows(self._drawn, slice(block.start - self._start, block.stop - self._start))

    def _draw(self, window: slice) -> list[Params | None]:
        channels, height, width = self._store.shape[1:]
        rows = self._rows.part(window)
        return self._module.draw(rows, (channels, height, width), self._store.dtype)


class Blocks:
    """Reads several batches' rows at once, into memory that is reused as far as it may be.

    Args:
        dtype: of floats that come out.
        memory_format: of what comes out.
        reuse: whether what comes out is overwritten by the next block, whoever holds it.
    """

    def __init__(self, dtype: torch.dtype, memory_format: torch.memory_format, reuse: bool) -> None:
        self._dtype, self._format, self._reuse = dtype, memory_format, reuse
        self._gathered: Tensor | None = None
        self._out: Tensor | None = None
        self._pool = host.Pool()
        self._picker = Picker()

    def n_rows(self, module: PerSample, store: Tensor, batch_size: int) -> int:
        """How many rows to read at once: a multiple of the batch size."""
        if module.shows_batches:
            return batch_size
        n_bytes = store[0].numel() * self._dtype.itemsize
        return batch_size * max(1, _BLOCK_BYTES // (batch_size * n_bytes))

    def read(
        self,
        module: PerSample,
        store: Tensor,
        indices: Tensor,
        rows: Rows,
        drawn: list[Params | None],
    ) -> Tensor:
        """Gather rows from a store, and run the each-batch part on them.

        Args:
            module: the each-batch part.
            store: [M, C, H, W] on any device; never written to.
            indices: int64 [N] on that device: which rows of the store.
            rows: which samples they are.
            drawn: of these rows, by `Drawing`.
        """
        reuse = (module.copies_last or self._reuse) and not module.shows_batches
        allocate = partial(self._gathering, store, reuse)
        if store.device.type == "cpu" and not module.head.is_empty:
            images = module.pick(self._picker, store, indices, drawn, allocate)
            start = module.head.n_stages
        else:
            out = allocate((len(indices), *store.shape[1:]))
            images, start = torch.index_select(store, 0, indices, out=out), 0
        return self._as_asked(module.run(images, rows, self._allocate, drawn, start))

    def _gathering(self, store: Tensor, reuse: bool, shape: tuple[int, ...]) -> Tensor:
        if not reuse:
            return self._pool.empty(shape, store.dtype, store.device)
        kept = _rows_of(self._gathered, shape, store.dtype, store.device)
        if kept is None:
            kept = self._gathered = host.empty(shape, store.dtype, store.device)
        return kept

    def _allocate(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        if not self._reuse:
            return self._pool.empty(shape, self._dtype, device, self._format)
        out = _rows_of(self._out, shape, self._dtype, device)
        if out is None:
            out = self._out = host.empty(shape, self._dtype, device, self._format)
        return out

    def _as_asked(self, images: Tensor) -> Tensor:
        dtype = self._dtype if images.is_floating_point() else images.dtype
        return images.to(dtype, memory_format=self._format)


def _rows_of(
    buffer: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """The first rows of a buffer in this shape, or None where it cannot hold them."""
    if buffer is None or buffer.dtype != dtype or buffer.device != device:
        return None
    n_rows, *sides = shape
    return buffer[:n_rows] if len(buffer) >= n_rows and list(buffer.shape[1:]) == sides else None
