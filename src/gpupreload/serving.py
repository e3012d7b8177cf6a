"""`ResidentDataset`: a view of a store and the each-batch part, as a `torch.utils.data.Dataset`."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, get_worker_info

from gpupreload.clock import Clock, check_epoch
from gpupreload.errors import FreedError, LoadingError, TransformError
from gpupreload.fetched import Fetched, Item, check_readers
from gpupreload.floats import float_images
from gpupreload.functional.levels import mean_and_std
from gpupreload.per_sample import PerSample
from gpupreload.plan import once_identity
from gpupreload.selection import as_positions, in_range, parts_of
from gpupreload.source import Source, Transform, describe
from gpupreload.stages import Rows
from gpupreload.steps import Steps, split_transform
from gpupreload.store import Store
from gpupreload.view import View


class ResidentDataset(Dataset[tuple[Tensor, int]]):
    """What serves images that are on the device already; `GPUPreloadDataset` loads them.

    Attributes:
        classes: the class names, in order of their numbers.
        class_to_idx: the number of each class by name.
        samples: (path, label) of each image, or None where there are no paths.
        imgs: the same, as `ImageFolder` names it too.
        seed: of the random draws.
        is_seed_drawn: whether that was drawn, for none was given.
        steps: which step runs when, and why; a table.
    """

    classes: list[str]
    class_to_idx: dict[str, int]
    samples: list[tuple[str, int]] | None
    imgs: list[tuple[str, int]] | None
    seed: int
    is_seed_drawn: bool
    steps: Steps
    _view: View | None
    _source: Source | None
    _store_size: tuple[int, int] | None
    _transform: Any
    _each_batch: PerSample
    _clock: Clock

    def _use(self, steps: Steps, transform: Any) -> None:
        self.steps, self._transform = steps, transform
        self._each_batch = PerSample(steps.each_batch_steps, seed=self.seed)

    # --- what is there

    def __len__(self) -> int:
        return len(self.view)

    @property
    def view(self) -> View:
        """Which rows of which store these are; a `FreedError` where they were given back."""
        if self._view is None:
            raise FreedError(
                "this dataset's memory was given back with free(); preload the data again."
            )
        return self._view

    @property
    def store(self) -> Store:
        """What the images are kept in, with subsets; a `FreedError` where it was given back."""
        return self.view.store

    @property
    def images(self) -> Tensor:
        """The store itself, to be read: the pixels [N, C, H, W], as and where they are kept.

        uint8, or a float type where the once-part cannot be kept in uint8. Writing here would
        change every later batch. They are on `device`; with placement="host" or "disk" in a tensor
        on the CPU; with "mixed" in no one tensor, which is a `LoadingError`. Of a subset it is a
        copy of its images, made at each access.
        """
        return self.view.images

    @property
    def labels(self) -> Tensor:
        """The labels, int64 [N] on `device`, in the order of the images; to be read."""
        return self.view.labels

    @property
    def indices(self) -> Tensor:
        """The number of each sample in the whole dataset, int64 [N] on the CPU; to be read.

        By this number a sample draws, so that it looks the same in a subset.
        """
        return self.view.numbers

    @cached_property
    def targets(self) -> list[int]:
        """The labels as a list, as `ImageFolder` keeps them."""
        targets: list[int] = self.view.labels_on_cpu.tolist()
        return targets

    @property
    def device(self) -> torch.device:
        """Where the images are served."""
        return self.view.store.device

    @property
    def each_batch(self) -> PerSample:
        """The each-batch part: a module (images, indices=, epoch=, seed=) -> images."""
        return self._each_batch

    @property
    def normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """The mean and std of the transform's last `Normalize`, or None; for drawing pictures."""
        return mean_and_std([step.transform for step in self.steps.rows])

    @property
    def transform(self) -> Any:
        """The transform as given. Assigning another splits it again, over the same store.

        Raises:
            TransformError: its once-part is another one, so the pixels must be loaded again.
        """
        return self._transform

    @transform.setter
    def transform(self, transform: Transform | None) -> None:
        if self._source is None:
            raise TransformError(
                "this dataset was copied or sent to another process, where it has no link to its "
                "files, so its transform cannot be split again. Assign it to the original."
            )
        steps = split_transform(transform, self._source, store_size=self._store_size)
        if once_identity(steps) != once_identity(self.steps):
            raise TransformError(
                "this transform has another once-part than the images were loaded with, so they "
                "must be loaded again: gpupreload.preload(data, transform).\n"
                f"loaded with: {self.steps.names('once')}\nasked for:   {steps.names('once')}"
            )
        self._use(steps, transform)

    # --- parts of it, and with other transforms, over one store

    def subset(self, indices: Any) -> Self:
        """Some of the samples, as a dataset of the same kind over the same memory.

        Samples, targets and draws follow: a sample looks in the subset, at any epoch, as it does
        in the whole dataset.

        Args:
            indices: sample numbers in this dataset, in any order, also more than once; a slice; or
                a mask, bool [N], such as `dataset.labels == 3`.

        Raises:
            ArgumentError: `indices` is nothing of that, or names no sample.
            IndexError: one is out of range.
        """
        positions = as_positions(indices, len(self))
        part = self._sharing(self.view.picked(positions))
        if self.samples is not None:
            part.samples = part.imgs = [self.samples[i] for i in positions.tolist()]
        return part

    def split(self, sizes: Sequence[float], *, seed: int = 0, stratify: bool = True) -> list[Self]:
        """Divide the samples at random into subsets that share none.

        Args:
            sizes: fractions that sum to 1, or numbers of samples that sum to `len(dataset)`.
            seed: of the division, which depends on nothing else.
            stratify: whether each part gets its share of every class, to within a sample or two.

        Returns:
            The subsets, each in the order of this dataset.

        Raises:
            ArgumentError: `sizes` do not sum up, or leave a part empty.
        """
        labels = self.view.labels_on_cpu
        return [self.subset(part) for part in parts_of(labels, sizes, seed, stratify=stratify)]

    def with_transform(self, transform: Transform | None) -> Self:
        """The same samples with another transform, over the same memory.

        Args:
            transform: any with the same once-part. None leaves the augmentation out: it keeps the
                deterministic steps of the present one, such as ToTensor and Normalize, and drops
                those that are random, or may be.

        Raises:
            TransformError: its once-part is another one, so the pixels must be loaded again.
        """
        twin = self._sharing(self.view)
        if transform is None:
            twin._use(self.steps.without_random(), None)
        else:
            twin.transform = transform
        return twin

    def _sharing(self, view: View) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.__dict__.pop("targets", None)
        twin._view, twin._clock = view, self._clock.another()
        view.store.hold(twin)
        return twin

    # --- reading

    @property
    def epoch(self) -> int | None:
        """The epoch that was set with `set_epoch`; None while every reading draws anew."""
        return self._clock.epoch

    def set_epoch(self, epoch: int | None) -> None:
        """Fix the epoch that `ds[i]` and a `DataLoader` draw for; None goes back to fresh draws.

        Until this is called, every reading draws anew. A subset has an epoch of its own. A sample
        that is read again in an epoch looks as before, but for copies in one batch: a reading is a
        function of the epoch, and a dataset is not told which readings are an epoch's. A `Loader`
        knows, and draws anew for a sample that it serves again.
        """
        self._clock.set(epoch)

    def __getitem__(self, index: int) -> Item:
        """Return (image, label): the image [C, H, W] on `device`, after the whole transform."""
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"the index is {describe(index)}; expected an int. "
                "For several images, use torch.utils.data.Subset(dataset, indices)."
            ) from None
        check_readers(sys._getframe(1))
        return self._fetched([number])[0]

    def __getitems__(self, indices: Sequence[int]) -> Fetched:
        """Read many at once, with one gather: what a `DataLoader` calls for each batch."""
        check_readers(sys._getframe(1))
        return self._fetched(indices)

    def _fetched(self, indices: Sequence[int]) -> Fetched:
        self._check_worker()
        wanted = torch.as_tensor(indices, dtype=torch.int64, device="cpu")
        wanted = in_range(wanted, len(self))
        store, rows = self.view.store, self.view.rows_of(wanted)
        labels = labels_on_cpu = store.labels_on_cpu.index_select(0, rows)
        on_device = rows if store.device.type == "cpu" else rows.to(store.device)
        if on_device is not rows:
            labels = store.labels.index_select(0, on_device)
        drawn_for = Rows(self.seed, 0, rows)
        if self._each_batch.draws:
            drawn_for = self._clock.rows(self.seed, self.view.numbers_of(wanted))
        if store.rung == "device":
            images = self._each_batch.run_on_rows(store.images, on_device, drawn_for)
        else:
            images = self._each_batch.run(store.take(rows), drawn_for)
        return Fetched(images, labels, labels_on_cpu)

    def stored(self, indices: Any) -> Tensor:
        """Some images as they are kept: a copy [N, C, H, W] on `device`.

        Args:
            indices: as for `subset`.
        """
        positions = as_positions(indices, len(self))
        return self.view.store.take(self.view.rows_of(positions))

    def replay(
        self, epoch: int, indices: Any, *, seed: int | None = None, occurrence: int | Tensor = 0
    ) -> Tensor:
        """Make the very images again that a `Loader` served in an epoch.

        Args:
            epoch: number of the epoch.
            indices: sample numbers in this dataset, as for `subset`.
            seed: of the loader; None takes the dataset's.
            occurrence: how often each sample came before in that epoch, one int or int64 [N];
                above 0 only where samples come more than once, as by weights.

        Returns:
            [N, C, H, W] on `device`, in the order of `indices`, before any mixing. A loader with
            another dtype or memory format served these, rounded.

        Raises:
            ArgumentError: an argument cannot be used.
            IndexError: an index is out of range.
        """
        epoch = check_epoch(epoch)
        positions = as_positions(indices, len(self))
        numbers = self.view.numbers_of(positions)
        rows = Rows(self.seed if seed is None else seed, epoch, numbers, occurrence)
        return self._each_batch.run(self.stored(positions), rows)

    def _check_worker(self) -> None:
        if self.device.type != "cpu" and get_worker_info() is not None:
            raise LoadingError(
                f"the images are on {self.device}, which a DataLoader's worker processes cannot "
                "read from, and need not: use DataLoader(dataset, batch_size, num_workers=0, "
                "pin_memory=False) or gpupreload.Loader(dataset, batch_size)."
            )

    def as_tensor_dataset(self) -> TensorDataset:
        """Return a plain `TensorDataset` of float images and labels on the device.

        The images are float32 [N, C, H, W] (or what float type the steps make), four times the
        store's size, after every deterministic step up to the first random one; without a step
        that makes floats they are in [0, 1]. Random steps are left out, for they would be frozen.
        """
        return TensorDataset(float_images(self.view, self.steps), self.labels.clone())

    # --- giving back

    def free(self) -> int:
        """Give the memory back; using the dataset afterwards is a `FreedError`.

        Returns:
            The bytes given back; 0 where another dataset that shares the store still holds it, such
            as a subset.
        """
        view, self._view = self._view, None
        return 0 if view is None else view.store.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.free()

    def __getstate__(self) -> dict[str, Any]:
        # a source may hold what no other process can use (locks, open files, functions)
        return {**self.__dict__, "_source": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._view is not None:
            self._view.store.hold(self)

    def __repr__(self) -> str:
        if self._view is None:
            return "GPUPreloadDataset: freed"
        what, memory = self._view.facts()
        lines = [
            f"GPUPreloadDataset: {what}, {len(self.classes):,} classes",
            f"  {self._view.store.where}: {memory}",
            f"  once: {self.steps.names('once')}",
            f"  each batch: {self.steps.names('each batch')}",
        ]
        if self._each_batch.slow_steps:
            lines.append(f"  slow, sample by sample: {', '.join(self._each_batch.slow_steps)}")
        return "\n".join(lines)
