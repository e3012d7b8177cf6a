"""A plan carried out: the pixels [N, C, H, W] and labels [N], resident on a device until freed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from gpupreload import host, resident
from gpupreload.bar import bar
from gpupreload.errors import DoesNotFitError, UnreadableError
from gpupreload.filling import Decoding, fill
from gpupreload.gaps import without_rows
from gpupreload.plan import Plan, identity_of
from gpupreload.probe import generators_kept
from gpupreload.source import Source, list_of_unreadable
from gpupreload.table import in_units


class Store:
    """Pixels and labels on a device, shared by the datasets that serve them.

    Args:
        images: [N, C, H, W].
        labels: int64 [N] on the CPU; a copy goes to the images' device.

    Attributes:
        identity: equal for stores that hold the same, or None where that cannot be told.
        device: where the tensors are.
        labels_on_cpu: the labels, to be read without waiting for a device.
        skipped: of the source's items that are left out, the lines that say why, by index.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        identity: Hashable | None = None,
        skipped: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.identity = identity
        self.skipped = skipped
        self.device = images.device
        self.labels_on_cpu = labels
        self._tensors = (images, labels.to(images.device))
        self._holders: WeakSet[Any] = WeakSet()
        resident.register(self)

    @property
    def images(self) -> Tensor:
        """The pixels [N, C, H, W], uint8 or float; to be read, never written."""
        return self._tensors[0]

    @property
    def labels(self) -> Tensor:
        """The labels, int64 [N]."""
        return self._tensors[1]

    @property
    def n_bytes(self) -> int:
        """The bytes of both tensors; 0 once they are freed."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def hold(self, holder: Any) -> None:
        """Note that a dataset serves from this store."""
        self._holders.add(holder)

    def release(self, holder: Any) -> int:
        """Let go of the store; the last holder frees it. Returns the number of bytes given back."""
        self._holders.discard(holder)
        if self._holders:
            return 0
        n_bytes = self.n_bytes
        self._tensors = (self.images.new_empty(0), self.labels.new_empty(0))
        if n_bytes and self.device.type == "cuda":
            torch.cuda.empty_cache()
        return n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        # torch hands a CPU tensor to a worker process as shared memory; who holds it stays here
        return Store, (self.images, self.labels_on_cpu)


def load(
    source: Source,
    plan: Plan,
    *,
    workers: int,
    progress: bool,
    cached: Callable[[Tensor, Tensor, int], bool],
) -> Store:
    """Fill a store as planned, or share the living one that holds just the same.

    Args:
        source: where images and labels come from.
        plan: made for this source.
        workers: number of decoding threads, 1 or more.
        progress: whether a bar is shown.
        cached: fills images and labels, with so many threads, from a cache, and returns True; or
            returns False, and they are decoded.

    Raises:
        DoesNotFitError: the device has not the memory; before any image is decoded.
        UnreadableError: files that cannot be read, all of them; after the others were read.
        SizeError: an image did not come out in the planned size.
    """
    identity = identity_of(source, plan.steps)
    living = resident.find(identity, plan.device)
    if isinstance(living, Store):
        return living
    plan.check_fits()
    images = _allocate(plan)
    labels = torch.empty(plan.n_images, dtype=torch.int64, device="cpu")
    if cached(images, labels, workers):
        return Store(images, labels, identity)
    unreadable = _decode_all(source, plan, images, labels, workers, progress)
    if len(unreadable) > (len(labels) - 1 if source.skips_unreadable else 0):
        raise UnreadableError(list_of_unreadable(list(unreadable.values()), len(labels)))
    images, labels = without_rows(images, unreadable), without_rows(labels, unreadable)
    return Store(images, labels, identity, unreadable)


def _decode_all(
    source: Source, plan: Plan, images: Tensor, labels: Tensor, workers: int, progress: bool
) -> dict[int, str]:
    """Fill images and labels; warn where something drew that was found deterministic."""
    with (
        bar(plan.n_images, plan.store_bytes, "preload", progress) as advance,
        generators_kept() as moved,
    ):
        unreadable = fill(images, labels, Decoding(source, plan, workers), workers, advance)
        sign = moved()
    if sign and all(step.randomness == "deterministic" for step in plan.steps.rows_of("once")):
        warnings.warn(
            f"{sign} while loading, though every step that ran was found deterministic: a step, or "
            "the data, draws for some of the images. What it drew is frozen. Mark it gp.live(fn).",
            stacklevel=3,
        )
    return unreadable


def _allocate(plan: Plan) -> Tensor:
    try:
        return host.empty((plan.n_images, *plan.shape), plan.dtype, plan.device)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise DoesNotFitError(
            f"{plan.device} refused {in_units(plan.store_bytes)} in one piece, though "
            f"{in_units(plan.free_bytes)} were free: its memory is in fragments, or another "
            "program took it. Free memory there, or make the images smaller with a Resize."
        ) from None
