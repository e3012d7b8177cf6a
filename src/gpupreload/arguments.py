"""The arguments of a preload that go with any data, checked before the long work."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from gpupreload import draws
from gpupreload import placement as placements
from gpupreload.devices import resolve_device
from gpupreload.errors import ArgumentError
from gpupreload.placement import Placement
from gpupreload.ranks import asked_shard
from gpupreload.user_cache import user_cache

# the type of the devices that decode JPEG files
_DECODES = "cuda"


@dataclass(frozen=True)
class CacheChoice:
    """Where a filled store is kept, and what the caller says of it.

    Attributes:
        folder: for the files; None keeps nothing.
        key: the caller's own text for what nobody else can tell; None without.
    """

    folder: Path | None
    key: str | None

    @classmethod
    def checked(cls, cache: bool | str | os.PathLike[str] | None, key: str | None) -> Self:
        """Check the arguments.

        Raises:
            ArgumentError: one has a value that cannot be used, or `key` comes without `cache`.
        """
        folder = cache_folder(cache) if cache is not None and cache is not False else None
        if key is not None and not isinstance(key, str):
            raise ArgumentError(
                f"cache_key is {key!r}; expected a text, which you change whenever your own steps "
                "or loader change."
            )
        if key is not None and folder is None:
            raise ArgumentError(
                f"cache_key is {key!r}, but nothing is kept without cache=. Pass cache=True too, "
                "or leave cache_key= out."
            )
        return cls(folder, key)


def check_decode(decode: Any, device: torch.device) -> None:
    """Refuse `decode="gpu"` for images that go to a device which cannot decode.

    Raises:
        ArgumentError: the device is no CUDA device.
    """
    if isinstance(decode, str) and decode == "gpu" and device.type != _DECODES:
        raise ArgumentError(
            f"decode is 'gpu', but the images go to device={str(device)!r}; expected a CUDA "
            "device, for only those decode JPEG files. Leave decode= out, for ImageFolder's "
            "pixels, or pass decode='fast', for pixels a level or two beside them."
        )


def cache_folder(cache: bool | str | os.PathLike[str]) -> Path:
    """Return the folder that `cache` means: True is the one in the user's cache."""
    if cache is True:
        return user_cache("stores")
    if not isinstance(cache, str | os.PathLike):
        raise ArgumentError(
            f"cache is {cache!r}; expected True, for a folder in the user's cache, the path of "
            "another folder, or False."
        )
    folder = Path(cache).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(
            f"cache is {str(folder)!r}, which is a file; expected a folder. Files in it are named "
            "after what they hold."
        )
    return folder


@dataclass(frozen=True)
class Settings:
    """How to load, with every default filled in.

    Attributes:
        device: where the images will be.
        seed: of the random draws.
        is_seed_drawn: whether it was drawn, for none was given.
        workers: number of decoding threads.
        progress: whether a bar is shown.
        cache: where the filled store is kept.
        shard: which process of how many loads a shard of its own, or None.
        placement: the rung that was asked for, or "auto".
    """

    device: torch.device
    seed: int
    is_seed_drawn: bool
    workers: int
    progress: bool
    cache: CacheChoice
    shard: tuple[int, int] | None
    placement: Placement

    @classmethod
    def checked(
        cls,
        device: str | torch.device | None,
        seed: int | None,
        workers: int | None,
        progress: bool,
        cache: bool | str | os.PathLike[str] | None,
        cache_key: str | None,
        shard: bool | tuple[int, int] = False,
        placement: Placement = "auto",
    ) -> Self:
        """Fill in what is None: the first device, a seed from torch's generator, a thread a CPU.

        Raises:
            DeviceError: there is no such device.
            ArgumentError: another argument has a value that cannot be used.
        """
        found, n_threads = resolve_device(device), resolve_workers(workers)
        is_drawn = seed is None
        if seed is None:
            seed = int(torch.randint(0, 2**63 - 1, (), device="cpu"))
        draws.key_of(seed, 0, 0)  # refuses a seed out of range
        asked = placements.checked(placement)
        if asked == "disk" and (cache is None or cache is False):
            cache = True
        choice = CacheChoice.checked(cache, cache_key)
        dealt = asked_shard(shard)
        return cls(found, int(seed), is_drawn, n_threads, progress, choice, dealt, asked)


def whole_number(value: Any) -> int | None:
    """Return the int that a value stands for, as NumPy's integers do; None for what is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_switches(**values: Any) -> None:
    """Raise an `ArgumentError` for the first value, by its argument's name, that is no bool."""
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_):
            raise ArgumentError(f"{name} is {value!r}; expected True or False.")


def resolve_workers(workers: int | None) -> int:
    """Return the number of decoding threads: as asked, or one for each CPU this process may use."""
    if workers is None:
        can_tell = hasattr(os, "sched_getaffinity")
        return min(32, len(os.sched_getaffinity(0)) if can_tell else os.cpu_count() or 1)
    number = whole_number(workers)
    if number is None or number < 1:
        raise ArgumentError(
            f"workers is {workers!r}; expected the number of decoding threads, 1 or more, "
            "or None for one a CPU."
        )
    return number
