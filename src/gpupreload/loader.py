"""`Loader`: a resident dataset as batches on its device, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws, host
from gpupreload.chains import MixStep, read_mixing
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError, FreedError, LoadingError
from gpupreload.functional.picking import Picker
from gpupreload.native.step import Params
from gpupreload.one_pass import of_rows
from gpupreload.per_sample import draw_mix
from gpupreload.source import describe
from gpupreload.stages import Rows

# Batches are made several at a time where they are small, for then the calls to PyTorch cost more
# than the bytes. Blocks of 8 MiB stay in a CPU's last cache: measured best at 3×32×32, where they
# hold 10 batches of 64; at 3×112×112 one batch is larger already.
_BLOCK_BYTES = 8 << 20
# samples that parameters are drawn for at a time: the calls of some 40 small operations then cost
# nothing beside the images
_ROWS_DRAWN = 4096
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Loader:
    """Batches (images, labels) of a `GPUPreloadDataset`, on its device, augmented for each sample.

    Every `iter(loader)` begins the next epoch, with its own order and its own draws: functions of
    (seed, epoch), so they are the same in every run, on every device. An epoch that is left early
    counts as begun.

    Args:
        dataset: a `GPUPreloadDataset`.
        batch_size: number of images in a batch, 1 or more.
        shuffle: whether each epoch has another order; otherwise it is the dataset's.
        drop_last: whether a last batch that is smaller is left out.
        seed: of order and draws; None takes the dataset's.
        mix: `v2.MixUp`, `v2.CutMix`, or a `RandomChoice` between such, run last, on the images that
            come together in a batch, each row with its own weight. Labels are then soft: float32
            [N, num_classes]. MixUp needs a transform that makes floats.
        dtype: of the batches, where the transform makes floats: float32, float16, bfloat16 or
            float64. They are computed as the transform says, and rounded once. Without a step
            that makes floats, uint8 comes out.
        memory_format: `torch.contiguous_format` or `torch.channels_last`.
        reuse_buffers: whether batches are written into the same memory again and again, where
            they end in steps such as ToDtype and Normalize: a batch then holds only until the next
            one is asked for, so clone what you keep. (Without it, memory is reused on a CPU as soon
            as nobody holds a tensor in it. Small batches are views of a block of up to 8 MiB:
            clone one that you keep for long, or save.)
        num_workers, pin_memory: as for a `DataLoader`; only 0 and False make sense here.

    Attributes:
        dataset, batch_size, shuffle, drop_last, seed, mix: as given.
        mix_step: `mix` as it was read, or None.

    Raises:
        ArgumentError: an argument has a value that cannot be used.
        TransformError: `mix` is a transform that does not mix.
        LoadingError: worker processes or pinned memory were asked for.
        FreedError: while iterating, when the dataset was freed.

    >>> import torch, torchvision.transforms.v2 as v2
    >>> from torchvision.datasets import FakeData
    >>> from gpupreload.preloading import preload
    >>> train = preload(FakeData(10, (3, 8, 6), 2), v2.ToImage(), device="cpu", progress=False)
    >>> [tuple(images.shape) for images, labels in Loader(train, batch_size=4)]
    [(4, 3, 8, 6), (4, 3, 8, 6), (2, 3, 8, 6)]
    """

    def __init__(
        self,
        dataset: GPUPreloadDataset,
        batch_size: int = 64,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int | None = None,
        mix: Any = None,
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
        reuse_buffers: bool = False,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        _check_dataset(dataset)
        _check_batch_size(batch_size)
        _check_format(dtype, memory_format)
        _check_no_workers(num_workers, pin_memory)
        self.dataset, self.batch_size = dataset, batch_size
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = dataset.seed if seed is None else seed
        draws.key_of(self.seed, 0, 0)  # refuses a seed out of range
        self.mix = mix
        self.mix_step = None if mix is None else _checked_mix(mix, dataset)
        self._blocks = _Blocks(dtype, memory_format, reuse_buffers)
        self._next_epoch = 0

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last; 0 before the first."""
        return max(0, self._next_epoch - 1)

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter(loader)` begin this epoch; the ones after it count on from there."""
        if not isinstance(epoch, int) or epoch < 0:
            raise ArgumentError(f"epoch is {epoch!r}; expected a whole number, 0 or more.")
        self._next_epoch = epoch

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Begin the next epoch."""
        epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
        return self._batches(epoch)

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = self._order(epoch)
        on_device = order.to(self.dataset.device, non_blocking=True)
        labels = self.dataset.labels.index_select(0, on_device)
        n_rows = self._blocks.n_rows(self.dataset, self.batch_size)
        drawing = _Drawing(self.dataset, Rows(self.seed, epoch, order), n_rows)
        for start in range(0, len(order), n_rows):
            block = slice(start, start + n_rows)
            rows = Rows(self.seed, epoch, order[block])
            images = self._blocks.read(self.dataset, on_device[block], rows, drawing.of(block))
            batches = zip(
                images.split(self.batch_size), labels[block].split(self.batch_size), strict=True
            )
            yield from (
                batches if self.mix_step is None else self._mixed(batches, self.mix_step, rows)
            )

    def _mixed(
        self, batches: Iterable[tuple[Tensor, Tensor]], mix: MixStep, rows: Rows
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Mix each batch of a block; its rows are the next ones of `rows`."""
        numbers = rows.indices.split(self.batch_size)
        for (images, labels), indices in zip(batches, numbers, strict=True):
            of_batch = Rows(rows.seed, rows.epoch, indices)
            params = draw_mix(mix, of_batch, self.dataset.each_batch.n_drawing, images)
            yield mix.mixing.apply(images, labels, params)

    def _order(self, epoch: int) -> Tensor:
        n_images = len(self.dataset)
        order = (
            draws.permutation(self.seed, epoch, n_images)
            if self.shuffle
            else torch.arange(n_images, device="cpu")
        )
        return order[: len(self) * self.batch_size]

    def __repr__(self) -> str:
        try:
            what = f"{len(self):,} batches of {self.batch_size:,} on {self.dataset.device}"
        except FreedError:
            return "Loader: its dataset was freed"
        return f"Loader: {what}, shuffle={self.shuffle}, seed={self.seed}, epoch={self.epoch}"


class _Drawing:
    """Draws the parameters of an epoch's samples, many blocks at a time.

    Args:
        dataset: whose each-batch part draws.
        rows: the samples of the epoch, in the order in which they will be served.
        n_rows: of a block.
    """

    def __init__(self, dataset: GPUPreloadDataset, rows: Rows, n_rows: int) -> None:
        self._dataset, self._rows = dataset, rows
        self._n_at_once = n_rows * max(1, _ROWS_DRAWN // n_rows)
        self._start, self._drawn = 0, list[Params | None]()

    def of(self, block: slice) -> list[Params | None]:
        """The parameters of each stage for the rows of a block; blocks come in order."""
        if not block.start % self._n_at_once:
            self._start = block.start
            self._drawn = self._draw(slice(block.start, block.start + self._n_at_once))
        return of_rows(self._drawn, slice(block.start - self._start, block.stop - self._start))

    def _draw(self, window: slice) -> list[Params | None]:
        store = self._dataset.images
        channels, height, width = store.shape[1:]
        rows = replace(self._rows, indices=self._rows.indices[window])
        return self._dataset.each_batch.draw(rows, (channels, height, width), store.dtype)


class _Blocks:
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

    def n_rows(self, dataset: GPUPreloadDataset, batch_size: int) -> int:
        """How many rows to read at once: a multiple of the batch size."""
        module = dataset.each_batch
        if module.slow_steps or not module.is_row_wise:
            return batch_size
        n_bytes = dataset.images[0].numel() * self._dtype.itemsize
        return batch_size * max(1, _BLOCK_BYTES // (batch_size * n_bytes))

    def read(
        self, dataset: GPUPreloadDataset, indices: Tensor, rows: Rows, drawn: list[Params | None]
    ) -> Tensor:
        """Gather rows from the store, and run the each-batch part on them."""
        module, store = dataset.each_batch, dataset.images
        allocate = partial(self._gathering, store, module.copies_last or self._reuse)
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


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, GPUPreloadDataset):
        raise ArgumentError(
            f"dataset is {describe(dataset)}; expected a GPUPreloadDataset, as "
            "gpupreload.preload(data, transform) returns. torch.utils.data.DataLoader takes others."
        )


def _check_batch_size(batch_size: Any) -> None:
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise ArgumentError(
            f"batch_size is {batch_size!r}; expected the number of images in a batch, 1 or more."
        )


def _checked_mix(mix: Any, dataset: GPUPreloadDataset) -> MixStep:
    """Read what mixes; on an accelerator a label that is no class could only give NaN later."""
    step = read_mixing(mix)
    n_classes = step.mixing.num_classes
    if n_classes is None:
        raise ArgumentError(
            f"mix is {step.name}, whose num_classes is None; expected the number of classes, for "
            f"the labels are mixed too. Pass num_classes={len(dataset.classes)} to it."
        )
    if dataset.targets and max(dataset.targets) >= n_classes:
        raise ArgumentError(
            f"mix is {step.name}, but labels run up to {max(dataset.targets)}; expected "
            f"num_classes to be larger. Pass num_classes={len(dataset.classes)} to it."
        )
    return step


def _check_format(dtype: Any, memory_format: Any) -> None:
    if dtype not in _DTYPES:
        raise ArgumentError(
            f"dtype is {dtype!r}; expected torch.float32, float16, bfloat16 or float64. For uint8, "
            "leave the steps that make floats out of the transform."
        )
    if memory_format not in (torch.contiguous_format, torch.channels_last):
        raise ArgumentError(
            f"memory_format is {memory_format!r}; expected torch.contiguous_format or "
            "torch.channels_last."
        )


def _check_no_workers(num_workers: int, pin_memory: bool) -> None:
    if num_workers:
        raise LoadingError(
            f"num_workers is {num_workers}, but a Loader has no worker processes: the images are "
            "on the device already. Leave num_workers out."
        )
    if pin_memory:
        raise LoadingError(
            "pin_memory is True, but there is nothing to pin: the images are on the device "
            "already. Leave pin_memory out."
        )
