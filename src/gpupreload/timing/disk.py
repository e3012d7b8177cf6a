"""The data as a training without preloading reads them: decoded anew for every epoch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypedDict

from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets.folder import default_loader
from torchvision.transforms.v2 import Compose

from gpupreload.errors import ArgumentError
from gpupreload.plan import own_transform
from gpupreload.resident import check_not_preloaded
from gpupreload.source import describe, open_source

_NOT_FROM_DISK = (
    ", so an epoch from disk cannot be timed. Pass the files' folder, or another dataset, and the "
    "transform: both ways are measured from there."
)


class DataLoaderOptions(TypedDict, total=False):
    """Settings of a `torch.utils.data.DataLoader`, as it names them."""

    num_workers: int
    pin_memory: bool
    persistent_workers: bool
    prefetch_factor: int
    multiprocessing_context: Any
    drop_last: bool


class Files(Dataset[tuple[Any, int]]):
    """(PIL image, label) of each file, opened as torchvision's `ImageFolder` opens it."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        return default_loader(path), label


class Reread(Dataset[tuple[Any, Any]]):
    """Items of a dataset, with a transform that is run on each image at every reading.

    Args:
        data: a map-style dataset of (image, label).
        transform: from one image to a tensor, or a list of steps; None leaves images as they come.
    """

    def __init__(self, data: Any, transform: Any) -> None:
        self.data = data
        self.transform: Callable[[Any], Any] | None = (
            Compose(transform) if isinstance(transform, list | tuple) else transform
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, label = self.data[index]
        return (image if self.transform is None else self.transform(image)), label


def check_options(options: DataLoaderOptions) -> None:
    """Refuse a setting that is not among `DataLoaderOptions`.

    Raises:
        ArgumentError: there is one.
    """
    names = DataLoaderOptions.__annotations__
    unknown = options.keys() - names.keys()
    if unknown:
        raise ArgumentError(
            f"{min(unknown)}= is not taken here; expected settings of your DataLoader that change "
            f"its speed: {', '.join(names)}. Leave {min(unknown)}= out."
        )


def from_disk(
    data: Any, transform: Any, batch_size: int, options: DataLoaderOptions
) -> DataLoader[tuple[Any, Any]]:
    """Return a shuffling `DataLoader` that reads the data anew for every epoch.

    Raises:
        ArgumentError: the data cannot be used, there is a transform too many, or it makes no
            tensors, or all images are left out by `drop_last`.
    """
    check_not_preloaded(data, _NOT_FROM_DISK)
    source = open_source(data)
    own_transform(source, transform)  # refuses two of them
    is_path = isinstance(data, str | os.PathLike)
    reread = Reread(Files(source.samples or []) if is_path else data, transform)
    image = reread[0][0]
    if not isinstance(image, Tensor):
        raise ArgumentError(
            f"transform gives {describe(image)}; expected a tensor, which a DataLoader can put "
            "into a batch. End the transform with ToImage() and ToDtype(torch.float32, scale=True)."
        )
    if options.get("drop_last") and len(reread) < batch_size:
        raise ArgumentError(
            f"drop_last=True leaves nothing of {len(reread):,} images in batches of "
            f"{batch_size:,}; expected a batch_size of {len(reread):,} or less."
        )
    return DataLoader(reread, batch_size, shuffle=True, **options)
