"""`GPUPreloadDataset`: load images, to be served from the device."""

from __future__ import annotations

import os
from typing import Any, Self, Unpack

import torch

from gpupreload.arguments import Settings, check_decode
from gpupreload.cache import Cache
from gpupreload.class_names import class_names, class_numbers, noticed
from gpupreload.clock import Clock
from gpupreload.errors import ArgumentError
from gpupreload.keywords import check_keywords
from gpupreload.let_go import letting_go
from gpupreload.placement import Placement
from gpupreload.plan import make_plan, own_transform
from gpupreload.probe import generators_kept
from gpupreload.ranks import Shard
from gpupreload.report import report_on, show
from gpupreload.resident import check_not_preloaded
from gpupreload.reuse import Explicit
from gpupreload.rows import no_rows
from gpupreload.serving import ResidentDataset
from gpupreload.source import FolderOptions, Source, Transform, open_source, picked
from gpupreload.steps import Steps, split_explicit, split_transform
from gpupreload.store import load
from gpupreload.view import View

SERVED_ALREADY = (
    ". Serve it as it is, with a Loader or a DataLoader; for another transform, assign "
    "dataset.transform, or preload the files' folder again."
)


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
        placement: as for `preload`.
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
        TypeError: there is no such argument; the message says which may be meant.
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
        placement: Placement = "auto",
        **folder: Unpack[FolderOptions],
    ) -> None:
        check_keywords(GPUPreloadDataset, folder)
        check_not_preloaded(data_root, SERVED_ALREADY)
        settings = Settings.checked(
            device, seed, workers, progress, cache, cache_key, placement=placement
        )
        check_decode(folder.get("decode"), settings.device)
        self.seed, self.is_seed_drawn = settings.seed, settings.is_seed_drawn
        kept = Cache(settings.cache, open_source(data_root, **folder))
        first = own_transform(kept.source, deterministic_transform)

        def split(source: Source) -> Steps:
            return split_explicit(first, train_aug, source, allow_frozen=allow_frozen)

        with generators_kept():  # data of the caller's own may draw, or seed, while they are read
            steps = kept.divided(split)
            self._explicit = Explicit(first, allow_frozen)
            self._use(steps, self._explicit.with_train_aug(train_aug))
            self._load(kept, settings, allow_frozen=allow_frozen)

    @classmethod
    def _preloaded(
        cls,
        source: Source,
        transform: Transform | None,
        store_size: tuple[int, int] | None,
        settings: Settings,
    ) -> Self:
        self = cls.__new__(cls)
        self.seed, self.is_seed_drawn = settings.seed, settings.is_seed_drawn
        shard = None if settings.shard is None else Shard(*settings.shard, len(source))
        kept = Cache(settings.cache, source if shard is None else _dealt(source, shard))
        transform = own_transform(source, transform)

        def split(known: Source) -> Steps:
            # over all samples, so that each process divides it alike
            whole = known if shard is None else source
            return split_transform(transform, whole, store_size=store_size)

        with generators_kept():
            steps = kept.divided(split)
            self._explicit = None
            self._use(steps, transform)
            self._load(kept, settings, shard)
        self._source = self._source if shard is None else source
        return self

    def _load(
        self,
        kept: Cache,
        settings: Settings,
        shard: Shard | None = None,
        *,
        allow_frozen: bool = False,
    ) -> None:
        workers, progress = settings.workers, settings.progress
        with letting_go(), kept.alone():
            plan = make_plan(
                kept.source,
                self.steps,
                settings.device,
                allow_frozen=allow_frozen,
                placement=settings.placement,
                folder=kept.folder,
                has_file=kept.has_file,
            )
            # refuses now what no batch could be drawn for
            self.each_batch.draw(no_rows(self.seed), plan.shape, plan.dtype)
            store = load(kept.source, plan, kept, workers=workers, progress=progress)
            store.hold(self)
            source = kept.source.without(store.skipped)
            kept.write(store.in_order, store.labels, source)
        self._view, self._clock = View(store, shard=shard), Clock()
        self.report = report_on(source, kept.outcome, self.targets)
        if settings.progress and self.report.has_news:
            show(self.report)
        self._source = source
        self.classes = class_names(source, self.targets)
        self.class_to_idx = class_numbers(source, self.targets)
        self.samples = self.imgs = source.samples


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
    part.passed_over, part.notices = source.passed_over, noticed(source, source.targets or ())
    if source.targets:  # a shard alone may lack the last class
        part.class_to_idx = class_numbers(source, source.targets)
        part.classes = class_names(source, source.targets)
    return part
