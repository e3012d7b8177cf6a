"""One view of a folder, an `ImageFolder` or any map-style dataset: labels, sizes, pixels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized
from typing import Any, Unpack

from torch.utils.data import IterableDataset, Subset
from torchvision.datasets import DatasetFolder

from gpupreload.errors import ArgumentError
from gpupreload.source.arrays import check_not_arrays
from gpupreload.source.datasets import DatasetSource, SubsetSource
from gpupreload.source.files import FolderSource, list_of_unreadable, own_loader
from gpupreload.source.interface import Portable, Source, Transform
from gpupreload.source.options import FolderOptions, ReadingOptions
from gpupreload.source.reading import Reading
from gpupreload.source.spec import ImageSpec, describe

__all__ = [
    "FolderOptions",
    "ImageSpec",
    "Portable",
    "Source",
    "Transform",
    "describe",
    "list_of_unreadable",
    "open_source",
    "picked",
]


_READING = ReadingOptions.__annotations__


def open_source(data: Any, **folder: Unpack[FolderOptions]) -> Source:
    """Return the one view of whatever the caller gave as `data`.

    Args:
        data: the path of a folder of class folders, an `ImageFolder`, a `Subset`, or any map-style
            dataset of (PIL image or uint8 tensor, int).
        **folder: `FolderOptions`, for a path; of them the `ReadingOptions` for an `ImageFolder`
            too, and for a `Subset` of one.

    Raises:
        FolderError: the folder is missing, or is no folder of class folders.
        ArgumentError: `data` is none of these, or options for a folder came with other data.
        TypeError: there is no such option.
    """
    _check_known(folder)
    options: dict[str, Any] = dict(folder)
    reading = {name: options[name] for name in options if name in _READING}
    if isinstance(data, str | os.PathLike):
        listing = {name: options[name] for name in options if name not in _READING}
        return FolderSource.from_path(data, Reading.checked(**reading), **listing)
    _check_options(data, folder)
    if isinstance(data, DatasetFolder) and _reads_like(DatasetFolder, data):
        checked = Reading.checked(loader=own_loader(data), **reading)
        return FolderSource.from_dataset(data, checked)
    if isinstance(data, Subset) and _reads_like(Subset, data):
        return _subset(open_source(data.dataset, **reading), data)
    if isinstance(data, Source):
        return data
    check_not_arrays(data)
    is_map_style = hasattr(data, "__getitem__") and isinstance(data, Sized)
    if is_map_style and not isinstance(data, IterableDataset | bytes):
        return DatasetSource(data)
    raise ArgumentError(
        f"data is {describe(data)}; expected the path of a folder of class folders, an "
        "ImageFolder, or a map-style dataset of (PIL image or uint8 tensor, int)."
    )


def _check_known(folder: Mapping[str, Any]) -> None:
    unknown = folder.keys() - FolderOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")


def _check_options(data: Any, folder: Mapping[str, Any]) -> None:
    """Refuse options for data that are listed already, or read by a dataset of their own."""
    is_files = isinstance(data, DatasetFolder | Subset)
    wrong = sorted(name for name in folder if name not in _READING or not is_files)
    if wrong:
        name = wrong[0]
        what = "how to read the files of" if name in _READING else "how to list"
        raise ArgumentError(
            f"{name}= says {what} a folder, but data is {describe(data)}. Pass the folder's "
            f"path, or leave {name}= out."
        )


def _subset(source: Source, data: Subset[Any]) -> Source:
    whole = range(len(source))
    outside = [i for i in data.indices if not -len(whole) <= int(i) < len(whole)]
    if outside:
        raise ArgumentError(
            f"data is a Subset with the index {outside[0]}; expected 0 to {len(whole) - 1}, "
            f"for {source.name} has {len(whole):,} images."
        )
    return picked(source, [whole[int(i)] for i in data.indices])


def picked(source: Source, indices: list[int], name: str = "") -> Source:
    """Some items of a source, as a source of their own."""
    if isinstance(source, FolderSource):
        return source.picked(indices, name)
    part = SubsetSource(source, indices)
    part.name = name or part.name
    return part


def _reads_like(known: type, data: Any) -> bool:
    """Whether a subclass leaves reading as it is, so that items are what the class makes them."""
    names = ("__getitem__", "__len__")
    return all(getattr(type(data), name) is getattr(known, name) for name in names)
