"""`GPUPreloadDataset`: a resident store and the each-batch part, as a `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self, Unpack

import torch
from torch.utils.data import Subset

from gpupreload.arguments import Settings
from gpupreload.cache import Cache
from gpupreload.clock import Clock
from gpupreload.errors import ArgumentError
from gpupreload.let_go import letting_go
from gpupreload.plan import Plan, make_plan, own_transform
from gpupreload.probe import generators_kept
from gpupreload.report import report_on, show
from gpupreload.serving import ResidentDataset
from gpupreload.source import FolderOptions, Source, open_source
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
        kept: Cache,
        transform: Transform | None,
        store_size: tuple[int, int] | None,
        settings: Settings,
    ) -> Self:
        """Load with a transform that is still to be divided; see `preload`."""
        self = cls.__new__(cls)
        transform = own_transform(kept.source, transform)
        with generators_kept():
            steps = kept.divided(lambda s: split_transform(transform, s, store_size=store_size))
            self._load(kept, make_plan(kept.source, steps, settings.device), settings)
        self._use(steps, transform)
        self._store_size = store_size
        return self

    def _load(self, kept: Cache, plan: Plan, settings: Settings) -> None:
        self.seed, self.is_seed_drawn = settings.seed, settings.is_seed_drawn
        workers, progress = settings.workers, settings.progress
        with letting_go(), kept.alone():
            store = load(kept.source, plan, workers=workers, progress=progress, cached=kept.read)
            store.hold(self)
            source = kept.source.without(store.skipped)
            kept.write(store.images, store.labels_on_cpu, source)
        self._view, self._clock = View(store), Clock()
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
    whole = data.dataset if isinstance(data, Subset) else data
    if isinstance(whole, GPUPreloadDataset):
        raise ArgumentError(
            "data is preloaded already. Serve it as it is, with a Loader or a DataLoader; for "
            "another transform, assign dataset.transform, or preload the files' folder again."
        )
