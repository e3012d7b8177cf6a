"""A plan carried out: the pixels [N, C, H, W] and labels [N], kept until freed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from gpupreload import resident
from gpupreload.building import build
from gpupreload.cache import Cache
from gpupreload.cache_writing import Images
from gpupreload.placement import Rung
from gpupreload.plan import identity_of
from gpupreload.planned import Plan
from gpupreload.shelves import Below, OnDevice, Shelf
from gpupreload.source import Source


class Store:
    """Pixels and labels, shared by the datasets that serve them.

    Args:
        images: [N, C, H, W] on the device; or a shelf that gathers them there.
        labels: int64 [N] on the CPU.
        identity: equal for stores that hold the same, or None where that cannot be told.
        skipped: of the source's items that are left out, the lines that say why, by index.

    Attributes:
        skipped: as given.
        device: where batches are served.
        labels: as given, to be read: each dataset has a copy of its own, on the device.
    """

    def __init__(
        self,
        images: Tensor | Shelf,
        labels: Tensor,
        identity: Hashable | None = None,
        skipped: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.skipped = skipped
        self._shelf: Shelf = OnDevice(images) if isinstance(images, Tensor) else images
        self.device = self._shelf.device
        self.labels, self._label_bytes = labels, labels.nbytes
        self._holders: WeakSet[Any] = WeakSet()
        self._identity, self._as_loaded = identity, self._versions()
        resident.register(self)

    @property
    def identity(self) -> Hashable | None:
        """As given; None once somebody has written to the images: nothing equals them."""
        return self._identity if self._versions() == self._as_loaded else None

    def _versions(self) -> tuple[int, ...]:
        """How often torch has written to each tensor; it does not count that in inference mode."""
        tensors = [] if self._shelf.rung == "mixed" else [self._shelf.images]
        return tuple(t._version for t in tensors if not t.is_inference())

    @property
    def images(self) -> Tensor:
        """The pixels [N, C, H, W], uint8 or float, where they are; to be read, never written.

        Raises:
            LoadingError: they are in no one tensor.
        """
        return self._shelf.images

    @property
    def form(self) -> Tensor:
        """A tensor with the shape and dtype of the images, on the device; it may have no pixels."""
        return self._shelf.form

    @property
    def rung(self) -> Rung:
        """Where the pixels are kept."""
        return self._shelf.rung

    @property
    def where(self) -> str:
        """Where the pixels are kept, in words."""
        return self._shelf.where

    @property
    def in_order(self) -> Images:
        """The pixels, to be gone through in pieces."""
        shelf = self._shelf
        return shelf if isinstance(shelf, Below) and shelf.rung == "mixed" else shelf.images

    @property
    def n_bytes(self) -> int:
        """The bytes of pixels and labels, wherever they are; 0 once they are freed."""
        return self.form.nbytes + self._label_bytes

    def bytes_on(self, device: torch.device) -> int:
        """How many bytes of that device's memory it takes."""
        labels = self._label_bytes if device == self.device else 0
        return self._shelf.bytes_on(device) + labels

    def take(self, rows: Tensor) -> Tensor:
        """Gather rows, int64 [K] on the CPU, into new memory [K, C, H, W] on the device."""
        return self._shelf.take(rows)

    def blocks(self, rows: Tensor, n_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Gather rows so many at a time, ahead of their use; see `shelves.Shelf.blocks`."""
        return self._shelf.blocks(rows, n_rows)

    @property
    def is_shared(self) -> bool:
        """Whether more than one dataset serves from it."""
        return len(self._holders) > 1

    def hold(self, holder: Any) -> None:
        """Note that a dataset serves from this store."""
        self._holders.add(holder)

    def release(self, holder: Any) -> int:
        """Let go of the store; the last holder frees it. Returns the number of bytes given back."""
        self._holders.discard(holder)
        if self._holders:
            return 0
        n_bytes = self.n_bytes
        self._shelf, self._label_bytes = self._shelf.empty(), 0
        self.labels = torch.empty(0, dtype=torch.int64, device="cpu")
        if n_bytes and self.device.type == "cuda":
            torch.cuda.empty_cache()
        return n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        # torch hands a CPU tensor to a worker process as shared memory; who holds it stays here
        images = self._shelf.images if isinstance(self._shelf, OnDevice) else self._shelf
        return Store, (images, self.labels)


def load(source: Source, plan: Plan, kept: Cache, *, workers: int, progress: bool) -> Store:
    """Fill a store as planned, or share the living one that holds just the same.

    Args:
        source: where images and labels come from.
        plan: made for this source.
        kept: the cache, from which the images are read where they are there.
        workers: number of decoding threads, 1 or more.
        progress: whether a bar is shown.

    Raises:
        DoesNotFitError: there is no room where they are planned; before any image is decoded.
        UnreadableError: files that cannot be read, all of them; after the others were read.
        SizeError: an image did not come out in the planned size.
    """
    identity = identity_of(source, plan.steps)
    living = resident.find(identity, plan.device, plan.place.rung)
    if isinstance(living, Store):
        return living
    plan.check_fits()
    built = build(source, plan, kept, workers, progress)
    return Store(built.shelf, built.labels, identity, built.unreadable)
