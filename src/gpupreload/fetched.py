"""What a batched fetch gives to a `DataLoader`: the ready batch, which the default collate keeps.

`torch.utils.data.default_collate` looks its first element's type up in `default_collate_fn_map`.
`Fetched` is a sequence of `Item`s, and `Item` is registered there, so the batch behind it goes
through as it is; any other collate function sees pairs (image, label).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, overload

from torch import Tensor
from torch.utils.data import Subset
from torch.utils.data._utils.collate import collate, default_collate_fn_map
from torch.utils.data._utils.pin_memory import pin_memory

from gpupreload.errors import LoadingError, TransformError

# the code of torch's `Subset` that reads from a dataset
_SUBSET_READS = (Subset.__getitem__.__code__, Subset.__getitems__.__code__)


class Item(tuple[Tensor, int]):
    """One sample: the image [C, H, W] and its label."""

    __slots__ = ()


class Fetched(Sequence[Item]):
    """The samples of one batched fetch, as a sequence of `Item`s over one block of memory.

    Attributes:
        images: [N, C, H, W].
        labels: int64 [N], on the device of the images.
        labels_on_cpu: the same on the CPU, so that a look at one does not wait for the device.
    """

    def __init__(self, images: Tensor, labels: Tensor, labels_on_cpu: Tensor) -> None:
        self.images, self.labels, self.labels_on_cpu = images, labels, labels_on_cpu

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Fetched: ...
    def __getitem__(self, index: int | slice) -> Item | Fetched:
        if isinstance(index, slice):
            parts = (self.images, self.labels, self.labels_on_cpu)
            return Fetched(*(part[index] for part in parts))
        return Item((self.images[index], int(self.labels_on_cpu[index])))

    def __iter__(self) -> Iterator[Item]:
        return map(Item, zip(self.images, self.labels_on_cpu.tolist(), strict=True))


class Batch(list[Tensor]):
    """A collated batch [images, labels]; `DataLoader(pin_memory=True)` asks it to pin itself."""

    def pin_memory(self) -> list[Tensor]:
        """Pin a batch in host memory; a `LoadingError` for one that is on a device already."""
        images, labels = self
        if images.device.type != "cpu":
            raise LoadingError(
                f"pin_memory=True pins batches in the host's memory, but these are on "
                f"{images.device} already: use DataLoader(dataset, batch_size, num_workers=0, "
                "pin_memory=False) or gpupreload.Loader(dataset, batch_size)."
            )
        return [pin_memory(images), pin_memory(labels)]


def _collate(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> list[Any]:
    if isinstance(batch, Fetched):
        return Batch([batch.images, batch.labels])
    # items read one by one, as ConcatDataset reads them
    without_items = {k: fn for k, fn in (collate_fn_map or {}).items() if k is not Item}
    images, labels = zip(*batch, strict=True)
    return [
        collate(images, collate_fn_map=without_items),
        collate(labels, collate_fn_map=without_items),
    ]


default_collate_fn_map[Item] = _collate


def check_readers(frame: FrameType | None) -> None:
    """Refuse to be read through a torch `Subset` whose `transform` was set, for torch ignores it.

    A `Subset` says nothing of itself to what it reads from, so it is looked for among the callers.

    Args:
        frame: of the caller of a dataset's reading.
    """
    while frame is not None and frame.f_code in _SUBSET_READS:
        subset = frame.f_locals["self"]
        if has_ignored_transform(subset):
            raise TransformError(IGNORED_TRANSFORM)
        frame = frame.f_back


def has_ignored_transform(subset: Subset[Any]) -> bool:
    """Whether somebody set a transform on a `Subset` that is torch's own, or reads as it does."""
    return "transform" in vars(subset) and type(subset).__getitem__ is Subset.__getitem__


IGNORED_TRANSFORM = (
    "a torch.utils.data.Subset of this dataset was given a transform, which torch ignores: images "
    "would come out as without it. Write dataset.subset(indices).with_transform(transform), which "
    "shares the same memory."
)
"""The message of the error for that."""
