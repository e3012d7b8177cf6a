"""Several processes that read one epoch: which of them this is, and what its share is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import torch.distributed
from torch import Tensor

from gpupreload.errors import ArgumentError

Uneven = Literal["drop", "exact"]


@dataclass(frozen=True)
class Share:
    """One process's share of each epoch's order: every `world_size`-th sample.

    Attributes:
        rank: the number of this process, from 0.
        world_size: how many processes there are.
        uneven: what becomes of samples that do not divide evenly: "drop" leaves them out of this
            epoch, so that each rank has as many; with "exact" lower ranks have one more.
    """

    rank: int
    world_size: int
    uneven: Uneven

    def n_of(self, n_samples: int) -> int:
        """How many of an epoch's samples are this process's."""
        each, rest = divmod(n_samples, self.world_size)
        return each + (self.uneven == "exact" and self.rank < rest)

    def of(self, order: Tensor) -> Tensor:
        """This process's part of what every process has, [N] in the order of the epoch."""
        return order[self.rank :: self.world_size][: self.n_of(len(order))]


ALL = Share(0, 1, "exact")
"""The share of one process alone."""


@dataclass(frozen=True)
class Ranks:
    """What the caller said about processes; the rest is asked of torch.distributed when needed.

    Attributes:
        rank: as given, or None.
        world_size: as given, or None.
        uneven: as for `Share`.
    """

    rank: int | None
    world_size: int | None
    uneven: Uneven

    @classmethod
    def checked(cls, rank: Any, world_size: Any, uneven: Any, *, is_training: bool) -> Self:
        """Check what was given; `uneven` None is "drop" for training, and "exact" otherwise.

        Raises:
            ArgumentError: a value cannot be used.
        """
        if (rank is None) != (world_size is None):
            raise ArgumentError(
                f"rank is {rank!r} and world_size is {world_size!r}; expected both, or neither, "
                "to take them from torch.distributed."
            )
        if rank is not None:
            check_rank(rank, world_size)
        if uneven not in (None, "drop", "exact"):
            raise ArgumentError(
                f"uneven is {uneven!r}; expected 'drop', for as many samples on each rank, "
                "'exact', for every sample once, or None: 'drop' with shuffle=True or weights=."
            )
        return cls(rank, world_size, uneven or ("drop" if is_training else "exact"))

    @property
    def share(self) -> Share:
        """The share of this process, as things are now."""
        if self.rank is not None and self.world_size is not None:
            return Share(self.rank, self.world_size, self.uneven)
        return Share(*current(), self.uneven)


def current() -> tuple[int, int]:
    """The rank of this process and the number of processes, as torch.distributed knows them."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def check_rank(rank: Any, world_size: Any) -> None:
    """Raise an `ArgumentError` where these are not a process's number and how many there are."""
    are_ints = all(isinstance(n, int) and not isinstance(n, bool) for n in (rank, world_size))
    if not are_ints or not 0 <= rank < world_size:
        raise ArgumentError(
            f"rank is {rank!r} and world_size is {world_size!r}; expected the number of this "
            "process, from 0, and how many processes there are."
        )
