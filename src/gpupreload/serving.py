"""`ResidentDataset`: images that are held, after the each-batch part of a transform."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, get_worker_info

from gpupreload.clock import Clock, check_epoch
from gpupreload.errors import LoadingError, TransformError
from gpupreload.fetched import Fetched, Item, check_readers
from gpupreload.floats import float_images
from gpupreload.functional.levels import mean_and_std
from gpupreload.holding import HeldDataset
from gpupreload.per_sample import PerSample
from gpupreload.reuse import Explicit, steps_over
from gpupreload.rows import Rows
from gpupreload.selection import as_positions, in_range, parts_of
from gpupreload.source import Transform, describe
from gpupreload.steps import Steps
from gpupreload.table import counted
from gpupreload.unaugmented import without_augmentation
from gpupreload.view import View


class ResidentDataset(HeldDataset):
    """What serves images that are on the device already; `GPUPreloadDataset` loads them.

    Attributes:
        classes, class_to_idx, samples, imgs: as for `HeldDataset`.
        seed: of the random draws.
        is_seed_drawn: whether that was drawn, for none was given.
        steps: which step runs when, and why; a table.
    """

    seed: int
    is_seed_drawn: bool
    steps: Steps
    _explicit: Explicit | None
    _transform: Any
    _each_batch: PerSample
    _clock: Clock

    def _use(self, steps: Steps, transform: Any) -> None:
        self.steps, self._transform = steps, transform
        self._each_batch = PerSample(steps.each_batch_steps, seed=self.seed)

    # --- what is done to what it holds

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
        """The transform as given. Assigning another is what `with_transform` does, in place."""
        return self._transform

    @transform.setter
    def transform(self, transform: Transform | None) -> None:
        if transform is None:
            plain = without_augmentation(self.steps, lambda: self.stored([0]), self.seed)
            self._use(plain, None)
            return
        if self._source is None:
            raise TransformError(
                "this dataset was copied or sent to another process, where it has no link to its "
                "files, so its transform cannot be split again. Assign it to the original."
            )
        self._use(*steps_over(self.steps, transform, self._source, self._explicit))

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
            sizes: one for each part: fractions that sum to 1, or numbers of samples that sum to
                `len(dataset)`.
            seed: of the division, which depends on nothing else: it is the same each time, also
                where no seed is given.
            stratify: whether each part gets its share of every class. Of two parts, no class is
                off by a whole sample; of more, the first keeps to that, and in a later one a class
                may be off by more.

        Returns:
            The subsets, each in the order of this dataset.

        Raises:
            ArgumentError: `sizes` do not sum up, or leave a part empty; `stratify` is no bool.
        """
        labels = self.view.labels.on_cpu
        return [self.subset(part) for part in parts_of(labels, sizes, seed, stratify=stratify)]

    def with_transform(self, transform: Transform | None) -> Self:
        """The same samples with another transform, over the same memory.

        Args:
            transform: any that begins with the steps that ran once: the whole transform, from the
                files on. Its other deterministic steps run for each batch, with the result that
                they have on PIL images. Of a `GPUPreloadDataset(...)`, one that begins otherwise
                takes the place of `train_aug`. One that does nothing, as `lambda image: image`,
                gives the images as they are stored. None leaves the augmentation out: it keeps the
                deterministic steps of the present one, such as ToTensor and Normalize, also a
                class of torchvision's that is marked `gp.live`, and drops those that are random,
                or may be. Where images then have another size, which is tried on the first one, a
                warning names both, and after a random crop the transform that crops the centre.

        Raises:
            TransformError: it begins with other steps, so the pixels must be loaded again; or a
                later one, such as a Resize, gives other pixels on tensors than on PIL images, and
                is not marked `gp.live`.
        """
        twin = self._sharing(self.view)
        twin.transform = transform
        return twin

    def _sharing(self, view: View) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._view, twin._clock, twin._targets = view, self._clock.another(), None
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

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Read many at once, with one gather: what a `DataLoader` calls for each batch."""
        check_readers(sys._getframe(1))
        if type(self).__getitem__ is not ResidentDataset.__getitem__:  # a subclass's own reading
            return [self[index] for index in indices]
        return self._fetched(indices)

    def _fetched(self, indices: Sequence[int]) -> Fetched:
        self._check_worker()
        wanted = torch.as_tensor(indices, dtype=torch.int64, device="cpu")
        wanted = in_range(wanted, len(self))
        store, rows = self.view.store, self.view.rows_of(wanted)
        labels = labels_on_cpu = self.view.labels.on_cpu.index_select(0, wanted)
        on_device = rows if store.device.type == "cpu" else rows.to(store.device)
        if on_device is not rows:
            positions = on_device if rows is wanted else wanted.to(store.device)
            labels = self.view.labels.on_device.index_select(0, positions)
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

    def __repr__(self) -> str:
        if self._view is None:
            return "GPUPreloadDataset: freed"
        what, memory = self._view.facts()
        lines = [
            f"GPUPreloadDataset: {what}, {counted(len(self.classes), 'class')}",
            f"  {self._view.store.where}: {memory}",
            f"  once: {self.steps.names('once')}",
            f"  each batch: {self.steps.names('each batch')}",
        ]
        if self._each_batch.slow_steps:
            lines.append(f"  slow, sample by sample: {', '.join(self._each_batch.slow_steps)}")
        return "\n".join(lines)
