"""Which epoch is drawn for: one that was set, or another at each reading."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from gpupreload import draws
from gpupreload.arguments import whole_number
from gpupreload.errors import ArgumentError
from gpupreload.rows import Rows, occurrences

_NO_EPOCH = -1


class Clock:
    """The epoch that a dataset is set to, and how often it was read without one.

    The epoch is in shared memory, so that the workers of a DataLoader that outlive an epoch see it
    change. Processes that train beside each other, forked from one that had loaded the images, are
    not to move each other's: one that sets an epoch has one of its own from then on.
    """

    def __init__(self) -> None:
        self._epoch, self._process = _shared(_NO_EPOCH), os.getpid()
        self._n_reads = [0]

    @property
    def epoch(self) -> int | None:
        """The epoch that was set, or None."""
        epoch = int(self._epoch)
        return None if epoch == _NO_EPOCH else epoch

    def set(self, epoch: int | None) -> None:
        """Set the epoch, or None; an `ArgumentError` for what is neither."""
        number = _NO_EPOCH
        if epoch is not None:
            number = check_epoch(epoch, " or None for fresh draws")
        if self._process == os.getpid() or get_worker_info() is not None:
            self._epoch.fill_(number)
        else:
            self._epoch, self._process = _shared(number), os.getpid()

    def another(self) -> Clock:
        """A clock that is set alike, and by itself from now on; readings are counted together."""
        clock = Clock()
        clock.set(self.epoch)
        clock._n_reads = self._n_reads
        return clock

    def rows(self, seed: int, numbers: Tensor) -> Rows:
        """What samples draw from that are read now, by their numbers, int64 [N] on the CPU."""
        epoch = int(self._epoch)
        if epoch == _NO_EPOCH:
            worker = get_worker_info()
            # a DataLoader gives its workers another seed in each epoch, but the same dataset
            parts = (seed, self._n_reads[0], 0 if worker is None else worker.seed)
            seed, epoch = draws.key_of(*parts), 0
            self._n_reads[0] += 1
        return Rows(seed, epoch, numbers, occurrences(numbers))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._epoch.share_memory_()


def _shared(epoch: int) -> Tensor:
    with torch.inference_mode(False):  # it will be written to outside of any such mode, too
        number: Tensor = torch.tensor(epoch, device="cpu").share_memory_()
    return number


def check_epoch(epoch: Any, otherwise: str = "") -> int:
    """Return an epoch as an int; an `ArgumentError` where it is no whole number of 0 or more."""
    number = whole_number(epoch)
    if number is None or number < 0:
        comma = "," if otherwise else ""
        raise ArgumentError(
            f"epoch is {epoch!r}; expected a whole number, 0 or more{comma}{otherwise}."
        )
    return number
