"""`Loader`: a resident dataset as batches on its device, epoch after epoch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Never

import torch
from torch import Tensor
from torch.utils.data import Subset

from gpupreload import draws
from gpupreload.arguments import check_switches
from gpupreload.blocks import Blocks, Drawing
from gpupreload.clock import check_epoch
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError, FreedError
from gpupreload.keywords import check_keywords
from gpupreload.loader_arguments import (
    DATA_LOADER_ONLY,
    check_format,
    check_no_others,
    check_no_workers,
    checked_batch_size,
    checked_mix,
    resident,
)
from gpupreload.order import AsNumbered, BySampler, Order, check_no_rank, sampled
from gpupreload.per_sample import draw_mix
from gpupreload.progress import Progress, resumed, saved
from gpupreload.ranks import ALL, OfShard, Ranks, Share, Uneven, check_shard
from gpupreload.rows import Rows, occurrences
from gpupreload.table import counted


class Loader:
    """Batches (images, labels) of a `GPUPreloadDataset`, on its device, augmented for each sample.

    Every `iter(loader)` begins the next epoch, with its own order and its own draws: functions of
    (seed, epoch), so they are the same in every run, on every device. An epoch that is left early
    counts as begun; one that no batch was asked of, and whose iterator is gone, begins again.

    Args:
        dataset: a `GPUPreloadDataset`, or a `torch.utils.data.Subset` of one.
        batch_size: number of images in a batch, 1 or more.
        shuffle: whether each epoch has another order; otherwise it is the dataset's.
        drop_last: whether a last batch that is smaller is left out.
        sampler: a torch sampler of sample numbers, or another iterable of them that can be gone
            through again and again; it says what each epoch serves, in this process. One that has
            a `set_epoch` is told the epoch.
        weights: one number for each sample, 0 or more; or by the names of classes, as
            {"cat": 2}, the weight of each of their samples, 1 where a class is not named; or
            "balanced", by which every class is drawn as often. An epoch is then as many draws as
            there are samples, with replacement: some come several times, augmented anew each time,
            and others not at all.
        num_samples: how many draws by weights an epoch has; None takes one for each sample.
        seed: of order and draws; None takes the dataset's.
        rank, world_size: the number of this process, from 0, and how many there are; None takes
            them from `torch.distributed`, where that is initialised. Of each epoch's order, which
            is the same everywhere, a rank serves every `world_size`-th sample; 0 and 1 serve all of
            them here. (A sampler is taken to give what this process serves.)
        uneven: what becomes of samples that do not divide evenly among the ranks: "drop" leaves
            them out of this epoch, so that all have as many batches, as training needs; "exact"
            serves each sample once over all ranks. None takes "drop" with shuffle or weights,
            else "exact".
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
        **others: what else a `DataLoader` takes, with the value that asks for nothing, such as
            `collate_fn=None`; any other value is an error that says what to do instead.

    Attributes:
        dataset: as given; of a torch `Subset`, the subset that shares the dataset's memory.
        batch_size, shuffle, drop_last, seed, mix: as given.
        mix_step: `mix` as it was read, or None.

    Raises:
        ArgumentError: an argument has a value that cannot be used.
        TransformError: `mix` is a transform that does not mix, or a torch `Subset` has a transform.
        LoadingError: worker processes, or something else that only a `DataLoader` has, were asked
            for.
        TypeError: there is no such argument; the message says which may be meant.
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
        num_samples: int | None = None,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Uneven | None = None,
        mix: Any = None,
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
        with_indices: bool = False,
        reuse_buffers: bool = False,
        num_workers: int = 0,
        pin_memory: bool = False,
        **others: Never,
    ) -> None:
        check_no_others(others)
        check_keywords(Loader, [name for name in others if name not in DATA_LOADER_ONLY])
        check_switches(shuffle=shuffle, drop_last=drop_last)
        check_switches(with_indices=with_indices, reuse_buffers=reuse_buffers)
        check_format(dtype, memory_format)
        check_no_workers(num_workers, pin_memory)
        self.dataset, self.batch_size = resident(dataset), checked_batch_size(batch_size)
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = self.dataset.seed if seed is None else seed
        self._is_seed_drawn = seed is None and self.dataset.is_seed_drawn
        draws.key_of(self.seed, 0, 0)  # refuses a seed out of range
        self.mix = mix
        self.mix_step = None if mix is None else checked_mix(mix, self.dataset)
        classes = self.dataset.class_to_idx
        self._sampled = sampled(self.dataset.view, classes, shuffle, weights, sampler, num_samples)
        is_training = shuffle or weights is not None
        self._ranks = Ranks.checked(rank, world_size, uneven, is_training=is_training)
        check_no_rank(self._sampled, rank)
        check_shard(self._ranks, self.dataset.view.shard)
        self._with_indices = with_indices
        self._kind = dtype, memory_format, reuse_buffers
        self._spare: list[Blocks] = []
        self._next_epoch = 0
        self._progress: Progress | None = None
        self._resumed: Progress | None = None
        self._begun: Callable[[], Any] = _nothing
        self._check_seed()

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last; 0 before the first."""
        return max(0, self._next_epoch - 1) if self._resumed is None else self._resumed.epoch

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that the next `iter(loader)` begins, or goes on with."""
        progress = self._resumed or self._unused
        return self._next_epoch if progress is None else progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter(loader)` begin this epoch; the ones after it count on from there."""
        self._next_epoch, self._progress, self._resumed = check_epoch(epoch), None, None

    def __len__(self) -> int:
        """The number of batches in an epoch, in this process."""
        whole, rest = divmod(self._share.n_of(len(self._order)), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Begin the next epoch, or go on with the one that was resumed."""
        begun = Progress(self._next_epoch, self.batch_size)
        self._progress, self._resumed = self._resumed or self._unused or begun, None
        self._next_epoch = self._progress.epoch + 1
        batches = self._batches(self._progress)
        self._begun = weakref.ref(batches)
        return batches

    @property
    def _unused(self) -> Progress | None:
        """The epoch that was begun last, where its iterator went unused, as by a mere check."""
        progress = self._progress
        is_used = progress is None or progress.n_total is not None or self._begun() is not None
        return None if is_used else progress

    def __getstate__(self) -> dict[str, Any]:
        # an iterator stays in its process, and memory to be reused is no part of a loader
        return {**self.__dict__, "_begun": _nothing, "_spare": []}

    @property
    def _order(self) -> Order:
        if self._sampled is not None:
            return self._sampled
        return AsNumbered(len(self.dataset), shuffle=self.shuffle)

    @property
    def _share(self) -> Share | OfShard:
        # a sampler of the caller's own gives what this process serves
        if isinstance(self._sampled, BySampler):
            return ALL
        return self._ranks.share(self.dataset.view.shard)

    def _check_seed(self) -> None:
        depends = self.shuffle or self._sampled is not None or self.dataset.each_batch.n_drawing
        world_size = self._share.world_size
        if world_size > 1 and depends and self._is_seed_drawn:
            raise ArgumentError(
                f"seed is None, and each of the {world_size} processes drew another: their orders "
                "would not fit together. Pass the same seed= to gpupreload.Loader, or to "
                "gpupreload.preload, in all of them."
            )

    # --- stopping and going on

    def state_dict(self) -> dict[str, Any]:
        """How far this loader is: plain numbers and texts, to be saved with a model's state.

        Taken in the middle of an epoch it leads to the batches that come next, also where the epoch
        was left early: `set_epoch` before passes those over. Taken after the last batch it leads to
        the next epoch. Only the numbers that a sampler gave are part of it, as a tensor; every
        other order is a function of seed and epoch. Processes that have served as many batches have
        the same state, so that one of them can save it for all.
        """
        begun = Progress(self._next_epoch, self.batch_size)
        return saved(self._resumed or self._progress or begun, self.seed, self._settings)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter(loader)` go on where another loader was when `state` was taken.

        The batches left of that epoch are those that would have come, with their augmentation, and
        in the batch size that the epoch was begun with; later epochs follow this loader's settings.
        The state's seed is taken over.

        Raises:
            ArgumentError: `state` is no such thing, or was taken in the middle of an epoch of a
                loader over other samples, in another order, or in another number of processes.
        """
        progress = resumed(state, self._settings)
        self.set_epoch(progress.epoch)
        self.seed, self._is_seed_drawn = state["seed"], False
        self._resumed = progress if progress.n_batches else None

    @property
    def _settings(self) -> dict[str, Any]:
        """What must be the same for the rest of an epoch to be the same."""
        share = self._share
        return {
            "samples": self.dataset.view.name,
            "order": self._order.name,
            "drop_last": self.drop_last,
            "world_size": share.world_size,
            "uneven": share.uneven if share.world_size > 1 else None,
        }

    # --- batches

    def _batches(self, progress: Progress) -> Generator[tuple[Tensor, ...]]:
        # memory of its own for each epoch that is gone through at a time, in any thread
        try:
            blocks = self._spare.pop()
        except IndexError:
            blocks = Blocks(*self._kind)
        try:
            yield from self._batches_by(blocks, progress)
        finally:
            self._spare = [blocks]

    def _batches_by(self, blocks: Blocks, progress: Progress) -> Iterator[tuple[Tensor, ...]]:
        positions, rows = self._epoch_of(progress)
        size, module, view = progress.batch_size, self.dataset.each_batch, self.dataset.view
        store, in_store = view.store, view.rows_of(positions)
        on_device = positions.to(store.device, non_blocking=True)
        columns = [view.labels.on_device.index_select(0, on_device)]
        if self._with_indices:
            columns.append(positions.to(store.device, copy=True))
        n_rows = blocks.n_rows(module, store.form, size)
        drawing = Drawing(module, store.form, rows, n_rows)
        starts = range(0, len(positions), n_rows)
        for start, (held, indices) in zip(starts, store.blocks(in_store, n_rows), strict=True):
            _ = self.dataset.view  # a FreedError, where it was given back meanwhile
            block = slice(start, start + n_rows)
            of_block = rows.part(block)
            images = blocks.read(module, held, indices, of_block, drawing.of(block))
            parts = (images, *(column[block] for column in columns))
            batches = zip(*(part.split(size) for part in parts), strict=True)
            for batch in batches if self.mix_step is None else self._mixed(batches, of_block, size):
                progress.n_batches += 1
                yield batch

    def _epoch_of(self, progress: Progress) -> tuple[Tensor, Rows]:
        """The positions of the samples that are left of an epoch, and what they draw from."""
        self._check_seed()
        order, share, positions = self._order, self._share, progress.positions
        if positions is None:
            positions = order.of(self.seed, progress.epoch)
        if isinstance(order, BySampler):
            progress.positions = positions
        view = self.dataset.view
        numbers = view.numbers_of(positions)
        may_repeat = order.may_repeat or view.has_repeats
        # counted over all ranks, so that a picture does not depend on how many there are
        occurrence = occurrences(numbers) if may_repeat else 0
        if isinstance(occurrence, Tensor):
            occurrence = share.of(occurrence)
        rows = Rows(self.seed, progress.epoch, share.of(numbers), occurrence)
        left = progress.left(len(rows.indices), drop_last=self.drop_last)
        return share.of(positions)[left], rows.part(left)

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
            what = f"{counted(len(self), 'batch')} of {self.batch_size:,} on {self.dataset.device}"
        except FreedError:
            return "Loader: its dataset was freed"
        return f"Loader: {what}, shuffle={self.shuffle}, seed={self.seed}, epoch={self.epoch}"


def _nothing() -> None:
    """What a weak reference gives where there is nothing any more."""
