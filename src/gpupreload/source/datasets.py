"""Any map-style dataset, and some items of one, as a source."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torchvision.datasets.vision import StandardTransform

from gpupreload.errors import ArgumentError, DataError
from gpupreload.source.interface import MOST_CLASSES, Source, whole_number
from gpupreload.source.spec import describe


class DatasetSource(Source):
    """Any map-style dataset of (PIL image or uint8 tensor, int), such as torchvision's CIFAR10."""

    def __init__(self, data: Any) -> None:
        self.name = type(data).__name__
        self.transform = _own_transform(data)
        self._data = _without_transform(data)
        self._lock = threading.Lock()
        self.classes = _names(getattr(data, "classes", None))
        numbers = getattr(data, "class_to_idx", None)
        by_order = {name: i for i, name in enumerate(self.classes or ())}
        self.class_to_idx = (numbers if isinstance(numbers, dict) else by_order) or None
        samples = getattr(data, "samples", None)
        self.samples = samples if isinstance(samples, list) else None

    def __len__(self) -> int:
        return len(self._data)

    def read(self, index: int) -> tuple[Any, int]:
        """Read one item of the dataset; the image is a copy, which steps may write to."""
        with self._lock:  # a dataset of unknown making may not bear several threads
            item = self._item(index)
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise DataError(f"{self.where(index)} is {_instead_of_a_pair(item)}")
            image, label = item
            image = _copied(image)
        return image, self.check_label(label, index)

    @property
    def n_labels(self) -> int:
        """Labels are below this number; what a `target_transform` makes of them is not known."""
        return MOST_CLASSES if self._has_target_transform else super().n_labels

    @cached_property
    def targets(self) -> list[int] | None:
        """The dataset's own `targets`, where they are its labels and changed no more."""
        targets = getattr(self._data, "targets", None)
        if isinstance(targets, Tensor | np.ndarray):
            targets = targets.tolist()
        if self._has_target_transform or not isinstance(targets, list | tuple):
            return None
        if len(targets) != len(self) or any(whole_number(label) is None for label in targets):
            return None
        return [self.check_label(label, i) for i, label in enumerate(targets)]

    def where(self, index: int) -> str:
        """The item's number and the dataset's type."""
        return f"item {index} of {self.name}"

    @property
    def _has_target_transform(self) -> bool:
        return getattr(self._data, "target_transform", None) is not None

    def _item(self, index: int) -> Any:
        try:
            return self._data[index]
        except Exception as error:
            hint = (
                "\nThe dataset is read without its transform, whose steps run on the image later; "
                "its __getitem__ must bear that."
                if self.transform is not None
                else ""
            )
            raise DataError(
                f"{self.where(index)} cannot be read: {type(error).__name__}: {error}{hint}"
            ) from error


class SubsetSource(Source):
    """Some items of a `DatasetSource`, as `torch.utils.data.Subset` picks them."""

    def __init__(self, source: Source, indices: Iterable[int]) -> None:
        self._source = source
        self._indices = list(indices)
        self.name = f"subset of {source.name}"
        self.classes, self.class_to_idx = source.classes, source.class_to_idx
        self.transform = source.transform
        whole = source.samples
        self.samples = None if whole is None else [whole[i] for i in self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, index: int) -> tuple[Any, int]:
        """Read the item of the whole set that stands at `index` in the subset."""
        return self._source.read(self._indices[index])

    def where(self, index: int) -> str:
        """Where the whole set says it comes from."""
        return self._source.where(self._indices[index])

    @property
    def n_labels(self) -> int:
        """Labels are below this number, as in the whole set."""
        return self._source.n_labels

    @cached_property
    def targets(self) -> list[int] | None:
        """The labels in order, or None where only reading the items would tell them."""
        targets = self._source.targets
        return None if targets is None else [targets[i] for i in self._indices]


def _instead_of_a_pair(item: Any) -> str:
    """What an item is, what was expected, and what to do with a dict, which many datasets give."""
    found = f"{describe(item)}; expected a pair (image, label)."
    if not isinstance(item, Mapping):
        return found
    keys = ", ".join(repr(key) for key in item)
    return (
        f"{found} Its keys are {keys}: wrap the dataset in one whose __getitem__ returns the "
        "image and the label of such an item."
    )


def _own_transform(data: Any) -> Any:
    # some datasets have a flag or a table of that name, which is not for us to run
    transform = getattr(data, "transform", None)
    return transform if callable(transform) else None


def _without_transform(data: Any) -> Any:
    """Copy a dataset, shallowly, with its `transform` taken out and its `target_transform` left."""
    bare = copy.copy(data)
    joint = getattr(data, "transforms", None)
    if isinstance(joint, StandardTransform):
        bare.transforms = StandardTransform(_unchanged, joint.target_transform)
    elif callable(joint):
        raise ArgumentError(
            f"data is a {type(data).__name__} with transforms={describe(joint)}, which "
            "may change image and label together and cannot be divided into steps. Build the "
            "dataset with transform= (and target_transform=) instead."
        )
    if _own_transform(data) is not None:
        try:
            bare.transform = _unchanged
        except Exception as error:
            raise ArgumentError(
                f"data is a {type(data).__name__} whose transform cannot be taken out ({error}). "
                "Pass a dataset without a transform, and the transform as an argument."
            ) from error
    return bare


def _unchanged(image: Any) -> Any:
    # not None: a dataset may call its transform without looking
    return image


def _copied(image: Any) -> Any:
    if isinstance(image, Tensor):
        return image.detach().clone()
    return image.copy() if isinstance(image, Image.Image) else image


def _names(classes: Any) -> list[str] | None:
    """The class names as a list; None where an attribute of that name holds something else."""
    if not isinstance(classes, list | tuple | np.ndarray):
        return None
    return [str(name) for name in classes] or None
