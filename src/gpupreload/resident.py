"""The stores that are alive in this process: how much they take, and which holds what."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol
from weakref import WeakSet

import torch


class Resident(Protocol):
    """What is known of a store from outside."""

    @property
    def identity(self) -> Hashable | None:
        """Equal for stores that hold equal pixels and labels; None where that cannot be told."""

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""

    @property
    def n_bytes(self) -> int:
        """The bytes of its tensors; 0 once it is freed."""


_alive: WeakSet[Resident] = WeakSet()


def register(store: Resident) -> None:
    """Note a store that was filled; it is forgotten by itself when nobody holds it any more."""
    _alive.add(store)


def find(identity: Hashable | None, device: torch.device) -> Resident | None:
    """Return the living store on a device that holds just this, if there is one."""
    if identity is None:
        return None
    matches = (s for s in _alive if s.n_bytes and s.device == device and s.identity == identity)
    return next(matches, None)


def resident_bytes(device: torch.device) -> int:
    """Return how many bytes all living stores take on a device."""
    return sum(store.n_bytes for store in _alive if store.device == device)
