"""Image files in class folders as a source."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, Self

from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import default_loader, pil_loader

from gpupreload import decode, folder
from gpupreload.errors import DataError, UnreadableError
from gpupreload.remarks import Remark
from gpupreload.source.interface import MOST_CLASSES, Portable, Source, Transform, looked_at
from gpupreload.source.reading import Loader, Reading
from gpupreload.source.spec import ImageSpec
from gpupreload.tree import Facts, printable


@dataclass(frozen=True)
class Headers:
    """What the headers of image files say.

    Attributes:
        specs: of each file that can be read so far, by its index.
        unreadable: for each other one, the line that says why, by its index.
        remarks: the indices of the files of which there is something to remark, by what it is.
    """

    specs: dict[int, ImageSpec]
    unreadable: dict[int, str]
    remarks: dict[Remark, list[int]]

    def picked(self, kept: Sequence[int]) -> Headers:
        """The headers of some of the files, counted anew; unreadable ones are not among them."""
        new = {old: new for new, old in enumerate(kept)}
        specs = {new[i]: spec for i, spec in self.specs.items() if i in new}
        remarks = {k: [new[i] for i in found if i in new] for k, found in self.remarks.items()}
        return Headers(specs, {}, remarks)


class FolderSource(Source):
    """Image files in class folders, listed by our own scan or by an `ImageFolder`."""

    def __init__(
        self,
        name: str,
        samples: Iterable[tuple[str, int]],
        classes: Iterable[str],
        class_to_idx: Mapping[str, int],
        *,
        root: str = "",
        reading: Reading = Reading(),  # noqa: B008 frozen
        transform: Transform | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        self.name = name
        self._root = root
        self.samples: list[tuple[str, int]] = list(samples)
        self.classes = list(classes)
        self.class_to_idx = dict(class_to_idx)
        self.transform = transform
        self.reading = reading
        self.has_headers = reading.loader is None
        self.skips_unreadable = reading.skips_unreadable
        self.decoder = reading.decoder
        self.is_read_plainly = reading.loader is None and reading.options.mode == "RGB"
        self.turns_upright = reading.options.exif_orientation
        self._target_transform = target_transform

    @classmethod
    def from_path(cls, root: str | os.PathLike[str], reading: Reading, **listing: Any) -> Self:
        """List the class folders below `root`."""
        found = folder.scan(root, **listing)
        samples, numbers = found.samples, found.class_to_idx
        name, top = str(root), found.root
        self = cls(name, samples, found.classes, numbers, root=top, reading=reading)
        self.passed_over = found.passed_over
        self.notices = found.notices
        self._facts = found.facts
        return self

    @classmethod
    def from_dataset(cls, data: DatasetFolder, reading: Reading) -> Self:
        """Take the files and both transforms of an `ImageFolder`."""
        return cls(
            str(data.root),
            data.samples,
            data.classes,
            data.class_to_idx,
            root=str(data.root),
            reading=reading,
            transform=data.transform,
            target_transform=data.target_transform,
        )

    def picked(self, indices: Iterable[int], name: str = "") -> FolderSource:
        """Some of the files, as a source of their own: only their headers are read."""
        return FolderSource(
            name or f"subset of {self.name}",
            [self.samples[i] for i in indices],
            self.classes or (),
            self.class_to_idx or {},
            root=self._root,
            reading=self.reading,
            transform=self.transform,
            target_transform=self._target_transform,
        )

    def without(self, unreadable: Mapping[int, str]) -> FolderSource:
        """This source, less some files that cannot be read."""
        if not unreadable:
            return self
        kept = [i for i in range(len(self)) if i not in unreadable]
        rest = self.picked(kept, self.name)
        filled = {label for _, label in rest.samples}
        empty = [name for name, number in (rest.class_to_idx or {}).items() if number not in filled]
        rest.passed_over = self.passed_over
        rest.notices = folder.noticing_empty(self.notices, empty)
        paths = {self.samples[i][0]: why for i, why in unreadable.items()}
        rest.skipped = {**self.skipped, **paths}
        rest.headers = self.headers.picked(kept)
        return rest

    def readable(self) -> FolderSource:
        """This source, less the files that are to be skipped for their headers."""
        if not self.skips_unreadable:
            return self
        unreadable = self.headers.unreadable
        if len(unreadable) == len(self) > 0:
            raise UnreadableError(list_of_unreadable(list(unreadable.values()), len(self)))
        return self.without(unreadable)

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[Any, int]:
        """Read one file as the `ImageFolder` would: by default, an RGB image."""
        path, _ = self.samples[index]
        if self.reading.loader is None:
            image = decode.read(path, options=self.reading.options)
        else:
            image = _loaded(path, self.reading.loader)
        return image, self.targets[index]

    def ahead(self, indices: range) -> Callable[[int], tuple[Any, int]]:
        """Return `read` for these files; what the small ones hold is read now, one by one."""
        if self.reading.loader is not None:
            return self.read
        held = {i: decode.small_file(self.samples[i][0]) for i in indices}

        def read(index: int) -> tuple[Any, int]:
            path, _ = self.samples[index]
            image = decode.read(path, options=self.reading.options, data=held.pop(index))
            return image, self.targets[index]

        return read

    def where(self, index: int) -> str:
        """The file's path."""
        return printable(self.samples[index][0])

    @cached_property
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
        """The spec of every file from its header; of a few, where a loader must decode.

        Raises:
            UnreadableError: files whose headers cannot be read, all of them.
        """
        headers = self.headers
        if headers.unreadable and (self.has_headers or not headers.specs):
            raise UnreadableError(list_of_unreadable(list(headers.unreadable.values()), len(self)))
        return headers.specs

    @property
    def specs_found(self) -> dict[int, ImageSpec]:
        """The specs of the files whose headers can be read."""
        return self.headers.specs

    @property
    def remarks(self) -> dict[Remark, list[int]]:
        """What may surprise in the files' headers; empty where a loader reads them."""
        return self.headers.remarks

    @cached_property
    def headers(self) -> Headers:
        """What the headers say; of a few files only, where a loader must decode."""
        return self._read_headers() if self.has_headers else self._looked_at()

    def _read_headers(self) -> Headers:
        specs, unreadable = {}, {}
        remarks: dict[Remark, list[int]] = {}
        mode = self.reading.options.mode
        # photos share few sizes: one object a size keeps a million files small
        by_size: dict[tuple[int, int], ImageSpec] = {}
        for i, (path, _) in enumerate(self.samples):
            try:
                look = decode.look(path, options=self.reading.options)
            except UnreadableError as error:
                unreadable[i] = str(error)
                continue
            if look.size not in by_size:
                by_size[look.size] = ImageSpec("PIL", mode, len(mode), *reversed(look.size))
            specs[i] = by_size[look.size]
            for remark in look.remarks:
                remarks.setdefault(remark, []).append(i)
        return Headers(specs, unreadable, remarks)

    def _looked_at(self) -> Headers:
        """Decode a few files; where files are skipped, go on from those that cannot be read."""
        specs: dict[int, ImageSpec] = {}
        unreadable: dict[int, str] = {}
        for i in looked_at(len(self)):
            try:
                specs[i] = self._spec_of_item(i)
            except UnreadableError as error:
                if not self.skips_unreadable:
                    raise
                unreadable[i] = str(error)
        return Headers(specs, unreadable, {})

    @cached_property
    def _facts(self) -> Sequence[Facts]:
        """What the system says of each file."""
        return [Facts.of(path) for path, _ in self.samples]

    def identity(self) -> tuple[Any, ...]:
        """The files themselves, with size and time of change, and what is done to read them."""
        facts = tuple(self._facts)
        return facts, tuple(self.targets), tuple(self.classes or ()), self.reading

    def portable(self) -> Portable:
        """The files by their paths below the folder, and how they are read."""
        start = os.path.join(self._root, "")  # noqa: PTH118 a path is text here
        files = "\0".join(
            f"{path.removeprefix(start)}\0{facts.n_bytes} {facts.changed} {label}"
            for (path, _), label, facts in zip(self.samples, self.targets, self._facts, strict=True)
        )
        options = self.reading.options
        how = (options.mode, options.exif_orientation, self.decoder)
        root = os.path.realpath(self._root)
        return Portable(files, how, root, self.skips_unreadable, self.reading.loader)

    def facts(self) -> dict[str, Any]:
        """The distinct specs, each with the first file that has it, and the remarks."""
        first: dict[ImageSpec, int] = {}
        for i, spec in self.headers.specs.items():
            first.setdefault(spec, i)
        specs = [[i, *astuple(spec)] for spec, i in first.items()]
        return {"specs": specs, "remarks": self.headers.remarks}

    def knowing(self, facts: dict[str, Any], skipped: Mapping[int, str]) -> FolderSource:
        """This source, less the skipped files; no header is read any more."""
        known = copy.copy(self)
        known.__dict__.pop("specs", None)
        specs = {i: ImageSpec(*spec) for i, *spec in facts["specs"]}
        known.headers = Headers(specs, {}, facts["remarks"])
        paths = {i: printable(self.samples[i][0]) for i in skipped}
        return known.without({i: f"{paths[i]}: {why}" for i, why in skipped.items()})

    def thinned(self) -> FolderSource:
        """This source, of whose specs only the extremes are kept: largest, widest, tallest."""
        known = copy.copy(self)
        by_area = sorted(self.specs.items(), key=lambda item: item[1].height * item[1].width)
        by_aspect = sorted(self.specs.items(), key=lambda item: item[1].height / item[1].width)
        extremes = dict([*by_area[:1], *by_area[-1:], *by_aspect[:1], *by_aspect[-1:]])
        known.headers = Headers(extremes, {}, self.headers.remarks)
        known.__dict__.pop("specs", None)
        return known


def own_loader(data: DatasetFolder) -> Loader | None:
    """Return the loader of an `ImageFolder`, None where it is torchvision's."""
    return None if data.loader in (default_loader, pil_loader) else data.loader


def _loaded(path: str, loader: Loader) -> Any:
    try:
        return loader(path)
    except Exception as error:
        text = " ".join(f"the loader raised {type(error).__name__}: {error}".split())
        raise UnreadableError(f"{printable(path)}: {text}") from error


def list_of_unreadable(reasons: list[str], n_files: int) -> str:
    """Write the message for files that cannot be read: how many, and the first ten with reasons."""
    count = f"{len(reasons):,} of {n_files:,} files cannot be read:"
    more = [f"  and {len(reasons) - 10:,} more"] if len(reasons) > 10 else []
    way_on = "Repair these files, move them out of the folder, or leave them out: on_error='skip'."
    if len(reasons) == n_files:
        way_on = "Repair them: there is nothing else to load."
    return "\n".join([count, *(f"  {reason}" for reason in reasons[:10]), *more, way_on])
