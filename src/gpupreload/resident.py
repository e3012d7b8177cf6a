"""What is loaded already: the stores alive in this process, what they take and which holds what."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch.utils.data import Subset

from gpupreload.errors import ArgumentError
from gpupreload.placement import Rung


class Preloaded:
    """The base of the datasets whose images are loaded already."""


def check_not_preloaded(data: Any, way: str) -> None:
    """Raise an `ArgumentError`, with the way on, for a preloaded dataset or a `Subset` of one."""
    while isinstance(data, Subset):
        data = data.dataset
    if isinstance(data, Preloaded):
        raise ArgumentError(f"data is preloaded already{way}")


class Resident(Protocol):
    """What is known of a store from outside."""

    @property
    def identity(self) -> Hashable | None:
        """Equal for stores that hold equal pixels and labels; None where that cannot be told."""

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""

    @property
    def rung(self) -> Rung:
        """Where they are kept, on the ladder."""

    @property
    def n_bytes(self) -> int:
        """The bytes of its tensors; 0 once it is freed."""

    def bytes_on(self, device: torch.device) -> int:
        """How many bytes of that device's memory it takes."""


_alive: WeakSet[Resident] = WeakSet()
_may_share = ContextVar("may_share", default=True)


def register(store: Resident) -> None:
    """Note a store that was filled; it is forgotten by itself when nobody holds it any more."""
    _alive.add(store)


def find(
    identity: Hashable | None, device: torch.device, placement: str = "auto"
) -> Resident | None:
    """Return the living store for a device that holds just this on the rung that is asked for.

    With "auto" any rung will do.
    """
    if identity is None or not _may_share.get():
        return None
    matches = (
        store
        for store in _alive
        if store.n_bytes
        and store.device == device
        and store.identity == identity
        and placement in ("auto", store.rung)
    )
    return next(matches, None)


@contextlib.contextmanager
def none_shared() -> Iterator[None]:
    """Within it this thread finds no living store, and loads everything anew."""
    token = _may_share.set(False)
    try:
        yield
    finally:
        _may_share.reset(token)


def resident_bytes(device: torch.device) -> int:
    """Return how many bytes all living stores take of a device's memory."""
    return sum(store.bytes_on(device) for store in _alive)
