"""The arguments of a preload that go with any data, checked before the long work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

import torch

from gpupreload import draws
from gpupreload.devices import resolve_device
from gpupreload.errors import ArgumentError


@dataclass(frozen=True)
class Settings:
    """How to load, with every default filled in.

    Attributes:
        device: where the images will be.
        seed: of the random draws.
        workers: number of decoding threads.
        progress: whether a bar is shown.
    """

    device: torch.device
    seed: int
    workers: int
    progress: bool

    @classmethod
    def checked(
        cls,
        device: str | torch.device | None,
        seed: int | None,
        workers: int | None,
        progress: bool,
    ) -> Self:
        """Fill in what is None: the first device, a seed from torch's generator, a thread a CPU.

        Raises:
            DeviceError: there is no such device.
            ArgumentError: `workers` or `seed` has a value that cannot be used.
        """
        found, n_threads = resolve_device(device), resolve_workers(workers)
        if seed is None:
            seed = int(torch.randint(0, 2**63 - 1, (), device="cpu"))
        draws.key_of(seed, 0, 0)  # refuses a seed out of range
        return cls(found, int(seed), n_threads, progress)


def resolve_workers(workers: int | None) -> int:
    """Return the number of decoding threads: as asked, or one for each CPU this process may use."""
    if workers is None:
        can_tell = hasattr(os, "sched_getaffinity")
        return min(32, len(os.sched_getaffinity(0)) if can_tell else os.cpu_count() or 1)
    if not isinstance(workers, int) or workers < 1:
        raise ArgumentError(
            f"workers is {workers!r}; expected the number of decoding threads, 1 or more, "
            "or None for one a CPU."
        )
    return workers
