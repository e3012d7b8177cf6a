"""One view of a folder, an `ImageFolder` or any map-style dataset: labels, sizes, pixels."""

from __future__ import annotations

import copy
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, Subset
from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import default_loader, pil_loader
from torchvision.datasets.vision import StandardTransform

from gpupreload import decode, folder
from gpupreload.errors import ArgumentError, DataError, UnreadableError

Transform = Callable[[Any], Any]

_N_LOOKED_AT = 8
_EIGHT_BIT_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "RGBX": 4, "CMYK": 4, "YCbCr": 3}


@dataclass(frozen=True)
class ImageSpec:
    """What an image is, without its pixels: enough to make a blank one.

    Attributes:
        kind: "PIL" for a `PIL.Image.Image`, "tensor" for a `torch.Tensor` of shape [C, H, W].
        mode: Pillow's mode ("RGB"), or the tensor's dtype as torch names it ("uint8").
        channels: C.
        height: H, in pixels.
        width: W, in pixels.
    """

    kind: Literal["PIL", "tensor"]
    mode: str
    channels: int
    height: int
    width: int

    @classmethod
    def of(cls, image: Any) -> ImageSpec:
        """Return the spec of a PIL image or of a tensor [C, H, W]; a `DataError` for all else."""
        if isinstance(image, Image.Image):
            return cls("PIL", image.mode, len(image.getbands()), image.height, image.width)
        if isinstance(image, Tensor) and image.ndim == 3:
            channels, height, width = image.shape
            return cls("tensor", str(image.dtype).removeprefix("torch."), channels, height, width)
        raise DataError(f"expected a PIL image or a tensor [C, H, W], got {describe(image)}.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (C, H, W)."""
        return self.channels, self.height, self.width

    @property
    def is_uint8(self) -> bool:
        """Whether the pixels are whole numbers of 0 to 255, 8 bits a channel."""
        return self.mode in (_EIGHT_BIT_CHANNELS if self.kind == "PIL" else ("uint8",))

    def blank(self) -> Any:
        """Make a black image of this spec: a PIL image, or a CPU tensor of zeros."""
        if self.kind == "PIL":
            return Image.new(self.mode, (self.width, self.height))
        return torch.zeros(self.shape, dtype=getattr(torch, self.mode))

    def __str__(self) -> str:
        return f"{self.width}×{self.height} {self.mode}"


def describe(value: Any) -> str:
    """Say what a value is in a few words, for error messages: its type, and shape and dtype."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


class Source(ABC):
    """A set of images and labels, of known length, whose items can be read from several threads."""

    name: str
    classes: list[str] | None
    class_to_idx: dict[str, int] | None
    samples: list[tuple[str, int]] | None
    transform: Transform | None = None

    @abstractmethod
    def __len__(self) -> int:
        """The number of images."""

    @abstractmethod
    def read(self, index: int) -> tuple[Any, int]:
        """Read one item: a PIL image or a CPU tensor [C, H, W], and its label."""

    @abstractmethod
    def where(self, index: int) -> str:
        """Say where an item comes from, for error messages: a path, or "item 3 of CIFAR10"."""

    @cached_property
    def targets(self) -> list[int] | None:
        """The labels in order, or None where only reading the items would tell them."""
        return None

    @cached_property
    def specs(self) -> dict[int, ImageSpec]:
        """The spec of each item by its index, or of a few of them where `n_decoded` is not 0."""
        positions = range(0, len(self), max(1, len(self) // _N_LOOKED_AT))
        return {i: self._spec_of_item(i) for i in positions[:_N_LOOKED_AT]}

    @property
    def n_decoded(self) -> int:
        """How many items were decoded to find `specs`."""
        return len(self.specs)

    def identity(self) -> tuple[Any, ...] | None:
        """A value that is equal for equal contents, or None where contents cannot be told apart."""
        return None

    def check_label(self, label: Any, index: int) -> int:
        """Return a label as an int, or raise `DataError` when it is no class number."""
        if isinstance(label, Tensor) and label.ndim == 0:
            label = label.item()
        n_classes = len(self.classes) if self.classes is not None else None
        try:
            number = label.__index__()
        except (AttributeError, TypeError):
            raise DataError(
                f"{self.where(index)} has the label {label!r}, {describe(label)}; expected an int, "
                f"the number of a class. Turn labels into numbers with a target_transform."
            ) from None
        if number < 0 or (n_classes is not None and number >= n_classes):
            allowed = f"0 to {n_classes - 1}" if n_classes else "0 or more"
            count = f", for there are {n_classes} classes" if n_classes else ""
            raise DataError(
                f"{self.where(index)} has the label {number}; expected {allowed}{count}. "
                f"Correct the labels, or pass a target_transform that maps them."
            )
        return int(number)

    def _spec_of_item(self, index: int) -> ImageSpec:
        try:
            return ImageSpec.of(self.read(index)[0])
        except DataError as error:
            raise DataError(f"{self.where(index)}: {error}") from None


class FolderSource(Source):
    """Image files in class folders, listed by our own scan or by an `ImageFolder`."""

    def __init__(
        self,
        name: str,
        samples: Iterable[tuple[str, int]],
        classes: Iterable[str],
        *,
        loader: Callable[[str], Any] | None = None,
        transform: Transform | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        self.name = name
        self.samples = list(samples)
        self.classes = list(classes)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.transform = transform
        self._loader = loader
        self._target_transform = target_transform

    @classmethod
    def from_path(cls, root: str | os.PathLike[str]) -> FolderSource:
        """List the class folders below `root`."""
        listing = folder.scan(root)
        return cls(str(root), listing.samples, listing.classes)

    @classmethod
    def from_dataset(cls, data: DatasetFolder) -> FolderSource:
        """Take the files, the loader and both transforms of an `ImageFolder`."""
        loader = None if data.loader in (default_loader, pil_loader) else data.loader
        return cls(
            str(data.root),
            data.samples,
            data.classes,
            loader=loader,
            transform=data.transform,
            target_transform=data.target_transform,
        )

    def __len__(self) -> int:
        return len(self.samples or ())

    def read(self, index: int) -> tuple[Any, int]:
        """Read one file as the `ImageFolder` would: by default, an RGB image."""
        path = self._path(index)
        image = decode.read(path) if self._loader is None else self._loader(path)
        return image, (self.targets or [])[index]

    def where(self, index: int) -> str:
        """The file's path."""
        return self._path(index)

    @cached_property
    def targets(self) -> list[int]:
        """The labels in order, after the `target_transform`."""
        given = [label for _, label in self.samples or ()]
        if self._target_transform is None:
            return given
        # after a target_transform, class numbers are what that function makes them
        checked = copy.copy(self)
        checked.classes = None
        return [
            checked.check_label(self._target_transform(label), i) for i, label in enumerate(given)
        ]

    @cached_property
    def specs(self) -> dict[int, ImageSpec]:
        """The spec of each file from its header, or of a few files where a loader is given."""
        if self._loader is not None:
            return super().specs
        specs, unreadable = {}, []
        for i in range(len(self)):
            try:
                width, height = decode.size(self._path(i))
            except UnreadableError as error:
                unreadable.append(str(error))
            else:
                specs[i] = ImageSpec("PIL", "RGB", 3, height, width)
        if unreadable:
            raise UnreadableError(list_of_unreadable(unreadable, len(self)))
        return specs

    @property
    def n_decoded(self) -> int:
        """0: headers tell the sizes, unless a loader of the caller's own must be run."""
        return 0 if self._loader is None else len(self.specs)

    def identity(self) -> tuple[Any, ...]:
        """The files by path, size and time of change, and what is done to read them."""
        stats = ((path, os.stat(path)) for path, _ in self.samples or ())  # noqa: PTH116 faster
        files = tuple((os.path.realpath(p), s.st_size, s.st_mtime_ns) for p, s in stats)
        return files, tuple(self.targets), tuple(self.classes or ()), self._loader

    def _path(self, index: int) -> str:
        return (self.samples or [])[index][0]


def list_of_unreadable(reasons: list[str], n_files: int) -> str:
    """Write the message for files that cannot be read: how many, and the first ten with reasons."""
    count = f"{len(reasons):,} of {n_files:,} files cannot be read:"
    more = [f"  and {len(reasons) - 10:,} more"] if len(reasons) > 10 else []
    way_on = "Repair these files, or move them out of the folder."
    return "\n".join([count, *(f"  {reason}" for reason in reasons[:10]), *more, way_on])


class DatasetSource(Source):
    """Any map-style dataset of (PIL image or uint8 tensor, int), such as torchvision's CIFAR10."""

    def __init__(self, data: Any) -> None:
        self.name = type(data).__name__
        self.transform = getattr(data, "transform", None)
        self._data = _without_transform(data)
        self._lock = threading.Lock()
        self.classes = _names(getattr(data, "classes", None))
        self.class_to_idx = getattr(data, "class_to_idx", None)
        self.samples = getattr(data, "samples", None)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, index: int) -> tuple[Any, int]:
        """Read one item of the dataset."""
        with self._lock:  # a dataset of unknown making may not bear several threads
            item = self._data[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"{self.where(index)} is {describe(item)}; expected a pair (image, label)."
            )
        image, label = item
        return image, self.check_label(label, index)

    @cached_property
    def targets(self) -> list[int] | None:
        """The dataset's own `targets`, where it has them and changes them no more."""
        targets = getattr(self._data, "targets", None)
        if targets is None or getattr(self._data, "target_transform", None) is not None:
            return None
        if isinstance(targets, Tensor):
            targets = targets.tolist()
        return [self.check_label(label, i) for i, label in enumerate(targets)]

    def where(self, index: int) -> str:
        """The item's number and the dataset's type."""
        return f"item {index} of {self.name}"


class SubsetSource(Source):
    """Some items of another source, as `torch.utils.data.Subset` picks them."""

    def __init__(self, source: Source, indices: Iterable[int]) -> None:
        self._source = source
        self._indices = [int(i) for i in indices]
        self.name = f"subset of {source.name}"
        self.classes, self.class_to_idx = source.classes, source.class_to_idx
        self.transform = source.transform
        self.samples = source.samples and [source.samples[i] for i in self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, index: int) -> tuple[Any, int]:
        """Read the item of the whole set that stands at `index` in the subset."""
        return self._source.read(self._indices[index])

    def where(self, index: int) -> str:
        """Where the whole set says it comes from."""
        return self._source.where(self._indices[index])

    @cached_property
    def targets(self) -> list[int] | None:
        """The labels in order, or None where only reading the items would tell them."""
        targets = self._source.targets
        return None if targets is None else [targets[i] for i in self._indices]

    @cached_property
    def specs(self) -> dict[int, ImageSpec]:
        """The spec of each item, where the whole set knows it without decoding."""
        if self._source.n_decoded:
            return super().specs
        return {k: self._source.specs[i] for k, i in enumerate(self._indices)}

    @property
    def n_decoded(self) -> int:
        """How many items were decoded to find `specs`."""
        return len(self.specs) if self._source.n_decoded else 0

    def identity(self) -> tuple[Any, ...] | None:
        """The whole set's identity and the indices."""
        whole = self._source.identity()
        return None if whole is None else (whole, tuple(self._indices))


def open_source(data: Any) -> Source:
    """Return the one view of whatever the caller gave as `data`.

    Args:
        data: the path of a folder of class folders, an `ImageFolder`, a `Subset`, or any map-style
            dataset of (PIL image or uint8 tensor, int).

    Raises:
        FolderError: the folder is missing, or is no folder of class folders.
        ArgumentError: `data` is none of these.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | Path | os.PathLike):
        return FolderSource.from_path(data)
    if isinstance(data, DatasetFolder) and _reads_like_imagefolder(data):
        return FolderSource.from_dataset(data)
    if isinstance(data, Subset):
        return SubsetSource(open_source(data.dataset), data.indices)
    if hasattr(data, "__getitem__") and isinstance(data, Sized | Dataset):
        return DatasetSource(data)
    raise ArgumentError(
        f"data is {describe(data)}; expected the path of a folder of class folders, an "
        "ImageFolder, or a map-style dataset of (PIL image or uint8 tensor, int)."
    )


def _reads_like_imagefolder(data: DatasetFolder) -> bool:
    """Whether `__getitem__` is torchvision's own, so that path, loader and label are the item."""
    return type(data).__getitem__ is DatasetFolder.__getitem__


def _without_transform(data: Any) -> Any:
    """Copy a dataset, shallowly, with its `transform` taken out and its `target_transform` left."""
    bare = copy.copy(data)
    joint = getattr(data, "transforms", None)
    if joint is not None:
        if not isinstance(joint, StandardTransform):
            raise ArgumentError(
                f"data is a {type(data).__name__} with transforms={describe(joint)}, one function "
                "of image and label together, which cannot be divided into steps. Build the "
                "dataset with transform= (and target_transform=) instead."
            )
        bare.transforms = StandardTransform(_unchanged, joint.target_transform)
    if getattr(data, "transform", None) is not None:
        bare.transform = _unchanged
    return bare


def _unchanged(image: Any) -> Any:
    # not None: a dataset may call its transform without looking
    return image


def _names(classes: Any) -> list[str] | None:
    return None if classes is None else [str(name) for name in classes]
