"""What every kind of data looks like from here on: how many, labels, sizes, pixels."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from torch import Tensor

from gpupreload.errors import DataError
from gpupreload.folder import Notice
from gpupreload.remarks import Remark
from gpupreload.source.spec import ImageSpec, check_layout_of_item, describe
from gpupreload.tree import PassedOver


@dataclass(frozen=True)
class Portable:
    """What the contents of a source depend on, as it means the same in another process.

    Attributes:
        files: of each file its path below the folder, size, time of change and label.
        options: how the files are read.
        root: the folder.
        skips_unreadable: whether files that cannot be read are left out.
        loader: the caller's own, of which nothing is known; None without one.
    """

    files: str
    options: tuple[Any, ...]
    root: str = ""
    skips_unreadable: bool = False
    loader: Callable[[str], Any] | None = None


Transform = Callable[[Any], Any]

_N_LOOKED_AT = 8
# a larger label is no class number but an identifier; nn.CrossEntropyLoss needs as many outputs
MOST_CLASSES = 1_000_000


class Source(ABC):
    """A set of images and labels, of known length, whose items can be read from several threads.

    Attributes:
        name: of the data: the folder's path, or the dataset's type.
        classes: the class names in the order of their numbers, or None where there are none.
        class_to_idx: the number of each class by name, or None.
        samples: (path, label) of each image, or None where there are no paths.
        transform: the data's own transform, which `read` leaves out.
        has_headers: whether `specs` are found without decoding.
        passed_over: the files of a folder that are no samples, each with the reason.
        notices: what about the classes of a folder may surprise.
        skips_unreadable: whether files that cannot be read are left out, not an error.
        decoder: "fast" where a Resize may run on tensors, "gpu" where a CUDA device may do so.
        is_read_plainly: whether `read` gives the RGB pixels of the file in `samples`.
        turns_upright: whether photos are turned as their EXIF orientation says.
        skipped: of the files left out for that, by path, one line each: the path and why.
        n_labels: labels are below this number.
    """

    name: str
    classes: list[str] | None
    class_to_idx: dict[str, int] | None
    samples: list[tuple[str, int]] | None
    transform: Transform | None = None
    has_headers: bool = False
    passed_over: tuple[PassedOver, ...] = ()
    notices: tuple[Notice, ...] = ()
    skips_unreadable: bool = False
    decoder: str = "exact"
    is_read_plainly: bool = False
    turns_upright: bool = False
    skipped: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def __len__(self) -> int:
        """The number of images."""

    @abstractmethod
    def read(self, index: int) -> tuple[Any, int]:
        """Read one item: a PIL image or a CPU tensor [C, H, W], and its label."""

    def ahead(self, indices: range) -> Callable[[int], tuple[Any, int]]:
        """Return `read` for these items, each to be read once; their files may have been read."""
        return self.read

    @abstractmethod
    def where(self, index: int) -> str:
        """Say where an item comes from, for error messages: a path, or "item 3 of CIFAR10"."""

    @property
    def n_labels(self) -> int:
        """Labels are below this number: that of the classes, where these are known."""
        return len(self.classes) if self.classes else MOST_CLASSES

    @cached_property
    def targets(self) -> list[int] | None:
        """The labels in order, or None where only reading the items would tell them."""
        return None

    @cached_property
    def specs(self) -> dict[int, ImageSpec]:
        """The spec of each item by its index, or of a few of them where `n_decoded` is not 0."""
        return {i: self._spec_of_item(i) for i in looked_at(len(self))}

    @property
    def specs_found(self) -> Mapping[int, ImageSpec]:
        """`specs`, also where some files are unreadable: of the others."""
        return self.specs

    @property
    def n_decoded(self) -> int:
        """How many items were decoded to find `specs`."""
        return 0 if self.has_headers else len(self.specs)

    @property
    def remarks(self) -> Mapping[Remark, Sequence[int]]:
        """The indices of the items of whose files there is something to remark."""
        return {}

    def identity(self) -> tuple[Any, ...] | None:
        """A value that is equal for equal contents, or None where contents cannot be told apart."""
        return None

    def readable(self) -> Source:
        """This source, less the files that are to be skipped for what is known of them now."""
        return self

    def without(self, unreadable: Mapping[int, str]) -> Source:
        """This source, less some items: by index, the line that says why each cannot be read."""
        assert not unreadable, "only sources that skip_unreadable have any"
        return self

    def portable(self) -> Portable | None:
        """What the contents depend on, for the key of a cache; None where nobody can tell."""
        return None

    def facts(self) -> dict[str, Any]:
        """What headers told, as plain data for a cache; of all files, skipped ones included."""
        return {}

    def knowing(self, facts: dict[str, Any], skipped: Mapping[int, str]) -> Source:
        """This source, less the skipped items, with `facts` in place of its headers.

        Args:
            facts: what `facts()` gave for the same files.
            skipped: of the items that cannot be read, the reasons by index.
        """
        assert not facts, "only files have facts"
        return self

    def thinned(self) -> Source:
        """This source, of whose specs only the extremes are kept, where that can be done."""
        return self

    def check_label(self, label: Any, index: int) -> int:
        """Return a label as an int, or raise `DataError` when it is no class number."""
        number = whole_number(label)
        if number is None:
            raise DataError(
                f"{self.where(index)} has the label {label!r}, {describe(label)}; expected an int, "
                "the number of a class. Turn labels into numbers with a target_transform."
            )
        if not 0 <= number < self.n_labels:
            all_classes = len(self.classes or ()) == self.n_labels
            count = f", for there are {self.n_labels:,} classes" if all_classes else ""
            raise DataError(
                f"{self.where(index)} has the label {number}; expected 0 to "
                f"{self.n_labels - 1:,}{count}. Correct the labels, or pass a target_transform "
                "that maps them."
            )
        return number

    def _spec_of_item(self, index: int) -> ImageSpec:
        image, _ = self.read(index)
        try:
            check_layout_of_item(image)
            return ImageSpec.of(image)
        except DataError as error:
            raise DataError(f"{self.where(index)}: {error}") from None


def looked_at(n_items: int) -> range:
    """Return the few items that are decoded to learn what all of them are like."""
    return range(0, n_items, max(1, n_items // _N_LOOKED_AT))[:_N_LOOKED_AT]


def whole_number(label: Any) -> int | None:
    """Return a label as an int where it is a whole number of any type, else None."""
    if isinstance(label, Tensor) and label.ndim == 0:
        label = label.item()
    try:
        return operator.index(label)
    except TypeError:
        return None
