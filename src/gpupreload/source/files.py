"""Image files in class folders as a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack

from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import default_loader, pil_loader

from gpupreload import decode, folder
from gpupreload.errors import DataError, UnreadableError
from gpupreload.source.interface import MOST_CLASSES, Source, Transform
from gpupreload.source.spec import ImageSpec
from gpupreload.tree import printable


class FolderOptions(TypedDict, total=False):
    """How a folder given by its path is listed; all may be left out.

    Attributes:
        classes: the class names in the order of their numbers, or a dataset that has them: a
            validation set then takes the training set's numbering. A class that has no folder
            here keeps its number. Default: the names of the class folders, sorted.
        extensions: the suffixes of image files, in any case. Default: `ImageFolder`'s.
        allow_empty: whether a class folder may hold no image. Default: False.
        on_unknown: what to do with a class folder that is not in `classes`: "raise" an error, or
            "skip" it. Default: "raise".
    """

    classes: Any
    extensions: Iterable[str]
    allow_empty: bool
    on_unknown: Literal["raise", "skip"]


class FolderSource(Source):
    """Image files in class folders, listed by our own scan or by an `ImageFolder`."""

    def __init__(
        self,
        name: str,
        samples: Iterable[tuple[str, int]],
        classes: Iterable[str],
        class_to_idx: Mapping[str, int],
        *,
        loader: Callable[[str], Any] | None = None,
        transform: Transform | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        self.name = name
        self.samples: list[tuple[str, int]] = list(samples)
        self.classes = list(classes)
        self.class_to_idx = dict(class_to_idx)
        self.transform = transform
        self.has_headers = loader is None
        self._loader = loader
        self._target_transform = target_transform

    @classmethod
    def from_path(
        cls, root: str | os.PathLike[str], **options: Unpack[FolderOptions]
    ) -> FolderSource:
        """List the class folders below `root`."""
        listing = folder.scan(root, **options)
        self = cls(str(root), listing.samples, listing.classes, listing.class_to_idx)
        self.passed_over = listing.passed_over
        return self

    @classmethod
    def from_dataset(cls, data: DatasetFolder) -> FolderSource:
        """Take the files, the loader and both transforms of an `ImageFolder`."""
        loader = None if data.loader in (default_loader, pil_loader) else data.loader
        return cls(
            str(data.root),
            data.samples,
            data.classes,
            data.class_to_idx,
            loader=loader,
            transform=data.transform,
            target_transform=data.target_transform,
        )

    def picked(self, indices: Iterable[int]) -> FolderSource:
        """Some of the files, as a source of their own: only their headers are read."""
        return FolderSource(
            f"subset of {self.name}",
            [self.samples[i] for i in indices],
            self.classes or (),
            self.class_to_idx or {},
            loader=self._loader,
            transform=self.transform,
            target_transform=self._target_transform,
        )

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[Any, int]:
        """Read one file as the `ImageFolder` would: by default, an RGB image."""
        path, _ = self.samples[index]
        image = decode.read(path) if self._loader is None else self._loaded(path)
        return image, self.targets[index]

    def where(self, index: int) -> str:
        """The file's path."""
        return printable(self.samples[index][0])

    @property
    def n_labels(self) -> int:
        """Labels are below this number; what a `target_transform` makes of them is not known."""
        if self._target_transform is not None:
            return MOST_CLASSES
        return max((self.class_to_idx or {}).values(), default=-1) + 1

    @cached_property
    def targets(self) -> list[int]:
        """The labels in order, after the `target_transform`."""
        return [self.check_label(self._label(i), i) for i in range(len(self))]

    def _label(self, index: int) -> Any:
        _, label = self.samples[index]
        if self._target_transform is None:
            return label
        try:
            return self._target_transform(label)
        except Exception as error:
            raise DataError(
                f"{self.where(index)}: the target_transform raised {type(error).__name__} on the "
                f"label {label}: {error}"
            ) from error

    @cached_property
    def specs(self) -> dict[int, ImageSpec]:
        """The spec of each file from its header, or of a few files where a loader is given."""
        if not self.has_headers:
            return super().specs
        specs, unreadable = {}, []
        # photos share few sizes: one object a size keeps a million files small
        by_size: dict[tuple[int, int], ImageSpec] = {}
        for i, (path, _) in enumerate(self.samples):
            try:
                width, height = size = decode.size(path)
            except UnreadableError as error:
                unreadable.append(str(error))
            else:
                if size not in by_size:
                    by_size[size] = ImageSpec("PIL", "RGB", 3, height, width)
                specs[i] = by_size[size]
        if unreadable:
            raise UnreadableError(list_of_unreadable(unreadable, len(self)))
        return specs

    def identity(self) -> tuple[Any, ...]:
        """The files themselves, with size and time of change, and what is done to read them."""
        stats = [os.stat(path) for path, _ in self.samples]  # noqa: PTH116 faster
        files = tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats)
        return files, tuple(self.targets), tuple(self.classes or ()), self._loader

    def _loaded(self, path: str) -> Any:
        assert self._loader is not None  # for the type checker: it was asked before
        try:
            return self._loader(path)
        except Exception as error:
            text = " ".join(f"the loader raised {type(error).__name__}: {error}".split())
            raise UnreadableError(f"{printable(path)}: {text}") from error


def list_of_unreadable(reasons: list[str], n_files: int) -> str:
    """Write the message for files that cannot be read: how many, and the first ten with reasons."""
    count = f"{len(reasons):,} of {n_files:,} files cannot be read:"
    more = [f"  and {len(reasons) - 10:,} more"] if len(reasons) > 10 else []
    way_on = "Repair these files, or move them out of the folder."
    return "\n".join([count, *(f"  {reason}" for reason in reasons[:10]), *more, way_on])
