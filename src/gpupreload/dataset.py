"""`GPUPreloadDataset`: a resident store and the each-batch part, as a `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self, Unpack

import torch
from torch.utils.data import Subset

from gpupreload.arguments import Settings
from gpupreload import draws
from gpupreload.arguments import Settings, whole_number
from gpupreload.cache import Cache
from gpupreload.clock import Clock
from gpupreload.errors import ArgumentError
from gpupreload.let_go import letting_go
from gpupreload.plan import Plan, make_plan, own_transform
from gpupreload.probe import generators_kept
from gpupreload.ranks import Shard
from gpupreload.report import report_on, show
from gpupreload.serving import ResidentDataset
from gpupreload.source import FolderOptions, Source, open_source, picked
from gpupreload.steps import Steps, split_explicit, split_transform
from gpupreload.store import load
from gpupreload.view import View

Transform = Callable[[Any], Any]


class GPUPreloadDataset(ResidentDataset):
    """An `ImageFolder` whose pixels are on the device: the explicit form.

    The caller says what runs once and what runs at every reading. `preload` finds that out from
    one transform.

    Args:
        data_root: a folder of class folders, an `ImageFolder`, or any map-style dataset of (PIL
            image or uint8 tensor, int).
        deterministic_transform: run once for each image, on the CPU, as an `ImageFolder` would.
            Its last float steps (ToTensor, Normalize…) run on the device for each batch instead,
            with the same result, so that the pixels are kept as uint8.
        train_aug: called at every reading, with one image [C, H, W]: what the deterministic
            part gave where that is a tensor, else float32 in [0, 1].
        device: None means CUDA if there is one, else MPS, else the CPU.
        seed: of the random draws; None draws one number from torch's global generator.
        workers: number of decoding threads; None takes one for each CPU.
        progress: whether a bar is shown while loading.
        allow_frozen: whether a random step in `deterministic_transform` is let through, with a
            warning: every epoch then sees the same picture. For teaching.
        cache: as for `preload`.
        cache_key: as for `preload`.
        **folder: for the path of a folder: `classes`, `extensions`, `allow_empty`, `on_unknown`;
            for that or an `ImageFolder`: `mode`, `exif_orientation`, `decode`, `on_error`; see
            `gpupreload.source.FolderOptions`.

    Attributes:
        classes: the class names, in order of their numbers.
        class_to_idx: the number of each class by name.
        samples: (path, label) of each image, or None where there are no paths.
        imgs: the same, as `ImageFolder` names it too.
        seed: of the random draws.
        steps: which step runs when, and why; a table.
        report: what became of every file, a `LoadReport`. Where it has more to tell than samples
            and hidden files, and a progress bar is shown, it is shown after loading.

    Raises:
        FrozenAugmentationError: a random step stands in `deterministic_transform`.
        DoesNotFitError: the device has not the memory; before any image is decoded.
        FolderError, UnreadableError, SizeError, DataError, TransformError, DeviceError: the data,
            the transform or the device cannot be used.
    """

    def __init__(
        self,
        data_root: str | os.PathLike[str] | Any,
        deterministic_transform: Transform | None = None,
        train_aug: Transform | None = None,
        *,
        device: str | torch.device | None = None,
        seed: int | None = None,
        workers: int | None = None,
        progress: bool = True,
        allow_frozen: bool = False,
        cache: bool | str | os.PathLike[str] = False,
        cache_key: str | None = None,
        **folder: Unpack[FolderOptions],
    ) -> None:
        check_not_resident(data_root)
        settings = Settings.checked(device, seed, workers, progress, cache, cache_key)
        kept = Cache(settings.cache, open_source(data_root, **folder))
        first = own_transform(kept.source, deterministic_transform)

        def split(source: Source) -> Steps:
            return split_explicit(first, train_aug, source, allow_frozen=allow_frozen)

        with generators_kept():  # data of the caller's own may draw, or seed, while they are read
            steps = kept.divided(split)
            plan = make_plan(kept.source, steps, settings.device, allow_frozen=allow_frozen)
            self._load(kept, plan, settings)
        self._use(steps, [part for part in (first, train_aug) if part is not None])

    @classmethod
    def _preloaded(
        cls,
        source: Source,
        transform: Transform | None,
        store_size: tuple[int, int] | None,
        settings: Settings,
    ) -> Self:
        """Load with a transform that is still to be divided; see `preload`."""
        self = cls.__new__(cls)
        shard = None if settings.shard is None else Shard(*settings.shard, len(source))
        kept = Cache(settings.cache, source if shard is None else _dealt(source, shard))
        transform = own_transform(source, transform)

        def split(known: Source) -> Steps:
            # over all samples, so that each process divides it alike
            whole = known if shard is None else source
            return split_transform(transform, whole, store_size=store_size)

        with generators_kept():
            steps = kept.divided(split)
            self._load(kept, make_plan(kept.source, steps, settings.device), settings, shard)
        self._use(steps, transform)
        self._source = self._source if shard is None else source
        self._store_size = store_size
        return self

    def _load(
        self, kept: Cache, plan: Plan, settings: Settings, shard: Shard | None = None
    ) -> None:
        self.seed, self.is_seed_drawn = settings.seed, settings.is_seed_drawn
        workers, progress = settings.workers, settings.progress
        with letting_go(), kept.alone():
            store = load(kept.source, plan, workers=workers, progress=progress, cached=kept.read)
            store.hold(self)
            source = kept.source.without(store.skipped)
            kept.write(store.images, store.labels_on_cpu, source)
        self._view, self._clock = View(store, shard=shard), Clock()
        self.report = report_on(source, kept.outcome)
        if settings.progress and self.report.has_news:
            show(self.report)
        self._source = source
        self._store_size = None
        self.classes = source.classes or [str(i) for i in range(max(self.targets, default=-1) + 1)]
        self.class_to_idx = source.class_to_idx or {c: i for i, c in enumerate(self.classes)}
        self.samples = self.imgs = source.samples


def check_not_resident(data: Any) -> None:
    """Refuse data that are preloaded already."""
    # --- what is there

    def __len__(self) -> int:
        return len(self._held.labels)

    @property
    def images(self) -> Tensor:
        """The store itself, to be read: the pixels [N, C, H, W] on `device`, as they are kept.

        uint8, or a float type where the once-part cannot be kept in uint8. Writing here would
        change every later batch.
        """
        return self._held.images

    @property
    def labels(self) -> Tensor:
        """The labels, int64 [N] on `device`, in the order of the images; to be read."""
        return self._held.labels

    @cached_property
    def targets(self) -> list[int]:
        """The labels as a list, as `ImageFolder` keeps them."""
        targets: list[int] = self._held.labels_on_cpu.tolist()
        return targets

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self._held.device

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

    # --- reading

    @property
    def epoch(self) -> int | None:
        """The epoch that was set with `set_epoch`; None while every reading draws anew."""
        epoch = int(self._epoch)
        return None if epoch == _NO_EPOCH else epoch

    def set_epoch(self, epoch: int | None) -> None:
        """Fix the epoch that `ds[i]` and a `DataLoader` draw for; None goes back to fresh draws.

        Until this is called, every reading draws anew.
        """
        number = _NO_EPOCH if epoch is None else whole_number(epoch)
        if number is None or (epoch is not None and number < 0):
            raise ArgumentError(
                f"epoch is {epoch!r}; expected a whole number, 0 or more, or None for fresh draws."
            )
        self._epoch.fill_(number)

    def __getitem__(self, index: int) -> Item:
        """Return (image, label): the image [C, H, W] on `device`, after the whole transform."""
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"the index is {describe(index)}; expected an int. "
                "For several images, use torch.utils.data.Subset(dataset, indices)."
            ) from None
        return self.__getitems__([number])[0]

    def __getitems__(self, indices: Sequence[int]) -> Fetched:
        """Read many at once, with one gather: what a `DataLoader` calls for each batch."""
        self._check_worker()
        wanted = self._in_range(torch.as_tensor(indices, dtype=torch.int64, device="cpu"))
        on_device = wanted.to(self.device)
        images = self.images.index_select(0, on_device)
        labels = labels_on_cpu = self._held.labels_on_cpu.index_select(0, wanted)
        if self.device.type != "cpu":
            labels = self.labels.index_select(0, on_device)
        images = self._each_batch.run(images, self._rows(wanted))
        return Fetched(images, labels, labels_on_cpu)

    def _in_range(self, indices: Tensor) -> Tensor:
        """Count negative indices from the end; on a GPU one out of range would end the process."""
        n_images = len(self)
        low, high = map(int, indices.aminmax()) if len(indices) else (0, 0)
        if low < -n_images or high >= n_images:
            wrong = low if low < -n_images else high
            raise IndexError(f"index {wrong} is out of range for {n_images:,} images.")
        return indices % n_images if low < 0 else indices

    def _rows(self, indices: Tensor) -> Rows:
        epoch, seed = int(self._epoch), self.seed
        if epoch == _NO_EPOCH:
            worker = get_worker_info()
            # a DataLoader gives its workers another seed in each epoch, but the same dataset
            parts = (self.seed, self._n_reads, 0 if worker is None else worker.seed)
            seed, epoch, self._n_reads = draws.key_of(*parts), 0, self._n_reads + 1
        return Rows(seed, epoch, indices, occurrences(indices))

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
        steps = self.steps.each_batch_steps
        deterministic = takewhile(lambda step: step.randomness == "deterministic", steps)
        run = PerSample(deterministic).run
        numbers = torch.arange(len(self), device="cpu")
        out: Tensor | None = None
        for start in range(0, len(self), _CHUNK):
            rows = slice(start, start + _CHUNK)
            images = run(self.images[rows].clone(), Rows(0, 0, numbers[rows]))
            images = images if images.is_floating_point() else _as_floats(images)
            if out is None:
                out = images.new_empty((len(self), *images.shape[1:]))
            out[rows] = images
        assert out is not None  # a dataset holds at least one image
        return TensorDataset(out, self.labels.clone())

    # --- giving back

    def free(self) -> int:
        """Give the memory back; using the dataset afterwards is a `FreedError`.

        Returns:
            The bytes given back; 0 where another dataset that shares the store still holds it.
        """
        store, self._store = self._store, None
        return 0 if store is None else store.release(self)

    @property
    def _held(self) -> Store:
        if self._store is None:
            raise FreedError(
                "this dataset's memory was given back with free(); preload the data again."
            )
        return self._store

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
        self._epoch.share_memory_()
        if self._store is not None:
            self._store.hold(self)

    def __repr__(self) -> str:
        if self._store is None:
            return "GPUPreloadDataset: freed"
        shape = "×".join(str(side) for side in self.images.shape[1:])
        stored_as = str(self.images.dtype).removeprefix("torch.")
        lines = [
            f"GPUPreloadDataset: {len(self):,} images of {shape}, {len(self.classes):,} classes",
            f"  on {self.device}: {in_units(self._store.n_bytes)}, kept as {stored_as}",
            f"  once: {self.steps.names('once')}",
            f"  each batch: {self.steps.names('each batch')}",
        ]
        if self._each_batch.slow_steps:
            lines.append(f"  slow, sample by sample: {', '.join(self._each_batch.slow_steps)}")
        return "\n".join(lines)


def preload(
    data: str | os.PathLike[str] | Any,
    transform: Transform | None = None,
    *,
    device: str | torch.device | None = None,
    seed: int | None = None,
    workers: int | None = None,
    progress: bool = True,
    store_size: tuple[int, int] | None = None,
    cache: bool | str | os.PathLike[str] = False,
    cache_key: str | None = None,
    shard: bool | tuple[int, int] = False,
    **folder: Unpack[FolderOptions],
) -> GPUPreloadDataset:
    """Decode every image once, run the deterministic part once, and keep the pixels on the device.

    The transform is divided by `split_transform`: nothing random runs now and is kept.

    Args:
        data: a folder of class folders, an `ImageFolder` (its transforms, loader and file filter
            are honoured), or any map-style dataset of (PIL image or uint8 tensor, int).
        transform: a torchvision transform, unchanged; None takes the dataset's own. Its settings
            are read now: after changing one, assign `dataset.transform` again.
        device: None means CUDA if there is one, else MPS, else the CPU.
        seed: of the random draws; None draws one number from torch's global generator.
        workers: number of decoding threads; None takes one for each CPU.
        progress: whether a bar is shown while loading.
        store_size: (height, width) in pixels to which every image is resized and centre-cropped
            once, before a random crop that photos of different sizes cannot go without.
        cache: True, or the path of a folder, keeps the pixels in a file there, from which the
            next preload of the same files with the same once-part reads them; see the README for
            what "the same" means. `report.cache` says what came of it.
        cache_key: a text that stands for steps and loaders of your own, without which nothing is
            kept where there are such; change it whenever they change.
        shard: True where each process of `torch.distributed` is to decode and hold only its share
            of the samples, or the pair (rank, world_size). Samples are dealt out by a fixed
            permutation, the same in every run. A `Loader` then shuffles within the shard; a sample
            looks as it would in one process.
        **folder: for the path of a folder: `classes`, `extensions`, `allow_empty`, `on_unknown`;
            for that or an `ImageFolder`: `mode`, `exif_orientation`, `decode`, `on_error`; see
            `gpupreload.source.FolderOptions`.

    Returns:
        The dataset. Preloading the same files with the same once-part again, while it lives,
        shares its store and takes no time; changed files are loaded anew, and so is any dataset
        that is not made of files, for its contents cannot be compared.

    Raises:
        DoesNotFitError: the device has not the memory; before any image is decoded.
        FolderError, UnreadableError, SizeError, DataError, TransformError, DeviceError: the data,
            the transform or the device cannot be used.
    """
    _check_not_resident(data)
    settings = Settings.checked(device, seed, workers, progress, cache, cache_key, shard)
    source = open_source(data, **folder)
    return GPUPreloadDataset._preloaded(source, transform, store_size, settings)


def _dealt(source: Source, shard: Shard) -> Source:
    """The samples of a shard, as a source."""
    if len(source) < shard.world_size:
        raise ArgumentError(
            f"shard deals {len(source)} images out to {shard.world_size} processes; expected one "
            "or more for each. Preload without shard=: every process then holds them all."
        )
    if source.skips_unreadable:
        raise ArgumentError(
            "on_error is 'skip', but with shard= each process must know how many samples the "
            "others have. Leave unreadable files out of the folder, or preload without shard=."
        )
    name = f"shard {shard.rank} of {shard.world_size} of {source.name}"
    part = picked(source, shard.numbers.tolist(), name)
    part.passed_over, part.notices = source.passed_over, source.notices
    if part.classes is None and source.targets:  # a shard alone may lack the last class
        part.classes = [str(number) for number in range(max(source.targets) + 1)]
    return part


def _check_not_resident(data: Any) -> None:
    whole = data.dataset if isinstance(data, Subset) else data
    if isinstance(whole, GPUPreloadDataset):
        raise ArgumentError(
            "data is preloaded already. Serve it as it is, with a Loader or a DataLoader; for "
            "another transform, assign dataset.transform, or preload the files' folder again."
        )
