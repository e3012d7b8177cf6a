"""`Loader`: a resident dataset as batches on its device, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from gpupreload import draws
from gpupreload.blocks import Blocks, Drawing
from gpupreload.chains import MixStep, read_mixing
from gpupreload.clock import check_epoch
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError, FreedError, LoadingError, TransformError
from gpupreload.fetched import IGNORED_TRANSFORM, has_ignored_transform
from gpupreload.order import AsNumbered, BySampler, Order, sampled
from gpupreload.per_sample import draw_mix
from gpupreload.progress import Progress
from gpupreload.source import describe
from gpupreload.stages import Rows, occurrences

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Loader:
    """Batches (images, labels) of a `GPUPreloadDataset`, on its device, augmented for each sample.

    Every `iter(loader)` begins the next epoch, with its own order and its own draws: functions of
    (seed, epoch), so they are the same in every run, on every device. An epoch that is left early
    counts as begun.

    Args:
        dataset: a `GPUPreloadDataset`, or a `torch.utils.data.Subset` of one.
        batch_size: number of images in a batch, 1 or more.
        shuffle: whether each epoch has another order; otherwise it is the dataset's.
        drop_last: whether a last batch that is smaller is left out.
        sampler: a torch sampler of sample numbers, or another iterable of them that can be gone
            through again and again; it says what each epoch serves, in this process. One that has
            a `set_epoch` is told the epoch.
        weights: one number for each sample, 0 or more: an epoch is as many draws as there are
            samples, with replacement, in proportion to these. "balanced" draws from every class as
            often. A sample that comes again in an epoch is augmented anew.
        seed: of order and draws; None takes the dataset's.
        mix: `v2.MixUp`, `v2.CutMix`, or a `RandomChoice` between such, run last, on the images that
            come together in a batch, each row with its own weight. Labels are then soft: float32
            [N, num_classes]. MixUp needs a transform that makes floats.
        dtype: of the batches, where the transform makes floats: float32, float16, bfloat16 or
            float64. They are computed as the transform says, and rounded once. Without a step
            that makes floats, uint8 comes out.
        memory_format: `torch.contiguous_format` or `torch.channels_last`.
        with_indices: whether batches are (images, labels, indices), the last int64 [N] on the
            device: sample numbers in `loader.dataset`.
        reuse_buffers: whether batches are written into the same memory again and again, where
            they end in steps such as ToDtype and Normalize: a batch then holds only until the next
            one is asked for, so clone what you keep. (Without it, memory is reused on a CPU as soon
            as nobody holds a tensor in it. Small batches are views of a block of up to 8 MiB:
            clone one that you keep for long, or save.)
        num_workers, pin_memory: as for a `DataLoader`; only 0 and False make sense here.

    Attributes:
        dataset: as given; of a torch `Subset`, the subset that shares the dataset's memory.
        batch_size, shuffle, drop_last, seed, mix: as given.
        mix_step: `mix` as it was read, or None.

    Raises:
        ArgumentError: an argument has a value that cannot be used.
        TransformError: `mix` is a transform that does not mix, or a torch `Subset` has a transform.
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
        dataset: GPUPreloadDataset | Subset[Any],
        batch_size: int = 64,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
        weights: Any = None,
        seed: int | None = None,
        mix: Any = None,
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
        with_indices: bool = False,
        reuse_buffers: bool = False,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        _check_batch_size(batch_size)
        _check_format(dtype, memory_format)
        _check_no_workers(num_workers, pin_memory)
        self.dataset, self.batch_size = _resident(dataset), batch_size
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = self.dataset.seed if seed is None else seed
        draws.key_of(self.seed, 0, 0)  # refuses a seed out of range
        self.mix = mix
        self.mix_step = None if mix is None else _checked_mix(mix, self.dataset)
        self._sampled = sampled(self.dataset.view, shuffle, weights, sampler)
        self._with_indices = with_indices
        self._blocks = Blocks(dtype, memory_format, reuse_buffers)
        self._next_epoch = 0
        self._progress: Progress | None = None
        self._resumed: Progress | None = None

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last; 0 before the first."""
        return max(0, self._next_epoch - 1) if self._resumed is None else self._resumed.epoch

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that the next `iter(loader)` begins, or goes on with."""
        return self._next_epoch if self._resumed is None else self._resumed.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter(loader)` begin this epoch; the ones after it count on from there."""
        check_epoch(epoch)
        self._next_epoch, self._progress, self._resumed = epoch, None, None

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        whole, rest = divmod(len(self._order), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Begin the next epoch, or go on with the one that was resumed."""
        begun = Progress(self._next_epoch, self.batch_size)
        self._progress, self._resumed = self._resumed or begun, None
        self._next_epoch = self._progress.epoch + 1
        return self._batches(self._progress)

    @property
    def _order(self) -> Order:
        if self._sampled is not None:
            return self._sampled
        return AsNumbered(len(self.dataset), shuffle=self.shuffle)

    # --- batches

    def _batches(self, progress: Progress) -> Iterator[tuple[Tensor, ...]]:
        positions, rows = self._epoch_of(progress)
        size, module, view = progress.batch_size, self.dataset.each_batch, self.dataset.view
        store = view.store.images
        on_device = view.rows_of(positions).to(store.device, non_blocking=True)
        columns = [view.store.labels.index_select(0, on_device)]
        if self._with_indices:
            columns.append(positions.to(store.device, copy=True))
        n_rows = self._blocks.n_rows(module, store, size)
        drawing = Drawing(module, store, rows, n_rows)
        for start in range(0, len(positions), n_rows):
            block = slice(start, start + n_rows)
            of_block = rows.part(block)
            images = self._blocks.read(module, store, on_device[block], of_block, drawing.of(block))
            parts = (images, *(column[block] for column in columns))
            batches = zip(*(part.split(size) for part in parts), strict=True)
            for batch in batches if self.mix_step is None else self._mixed(batches, of_block, size):
                progress.n_batches += 1
                yield batch

    def _epoch_of(self, progress: Progress) -> tuple[Tensor, Rows]:
        """The positions of the samples that are left of an epoch, and what they draw from."""
        positions, view = progress.positions, self.dataset.view
        order = self._order
        if positions is None:
            positions = order.of(self.seed, progress.epoch)
        if isinstance(order, BySampler):
            progress.positions = positions
        numbers = view.numbers_of(positions)
        may_repeat = order.may_repeat or view.has_repeats
        rows = Rows(self.seed, progress.epoch, numbers, occurrences(numbers) if may_repeat else 0)
        n_served = progress.n_batches * progress.batch_size
        end = len(positions)
        if self.drop_last:
            end -= end % progress.batch_size
        left = slice(min(n_served, end), end)
        return positions[left], rows.part(left)

    def _mixed(
        self, batches: Iterable[tuple[Tensor, ...]], rows: Rows, size: int
    ) -> Iterator[tuple[Tensor, ...]]:
        """Mix each batch of a block; its rows are the next ones of `rows`."""
        assert self.mix_step is not None  # for the type checker: _batches
        for number, (images, labels, *others) in enumerate(batches):
            of_batch = rows.part(slice(number * size, (number + 1) * size))
            params = draw_mix(self.mix_step, of_batch, self.dataset.each_batch.n_drawing, images)
            yield *self.mix_step.mixing.apply(images, labels, params), *others

    def __repr__(self) -> str:
        try:
            what = f"{len(self):,} batches of {self.batch_size:,} on {self.dataset.device}"
        except FreedError:
            return "Loader: its dataset was freed"
        return f"Loader: {what}, shuffle={self.shuffle}, seed={self.seed}, epoch={self.epoch}"


def _resident(dataset: Any) -> GPUPreloadDataset:
    """The dataset itself, or of a torch `Subset` of one the part of it, over the same memory."""
    if isinstance(dataset, GPUPreloadDataset):
        return dataset
    held = _within(dataset)
    if not isinstance(held, GPUPreloadDataset):
        raise ArgumentError(
            f"dataset is {describe(dataset)}; expected a GPUPreloadDataset, as "
            "gpupreload.preload(data, transform) returns. torch.utils.data.DataLoader takes others."
        )
    if type(dataset).__getitem__ is not Subset.__getitem__:
        raise ArgumentError(
            f"dataset is {describe(dataset)}, a Subset with a way of reading of its own, which a "
            "Loader would pass over. Pass dataset.subset(indices).with_transform(transform), or "
            "use torch.utils.data.DataLoader."
        )
    if has_ignored_transform(dataset):
        raise TransformError(IGNORED_TRANSFORM)
    return _resident(dataset.dataset).subset(dataset.indices)


def _within(dataset: Any) -> Any:
    """What a torch `Subset`, also one of another, is taken from."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


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
