"""Several processes that read one epoch: which of them this is, and what its share is.

Each may hold all samples, and serve its share of every epoch's order; or hold a shard, and serve
all of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import torch.distributed
from torch import Tensor

from gpupreload import draws
from gpupreload.errors import ArgumentError

Uneven = Literal["drop", "exact"]
# of the children of an epoch's key, the one that deals out shards; see `draws.epoch_key`
_DEALING = 3


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
class Shard:
    """The samples that one of several processes holds: every one of a fixed permutation's.

    The permutation depends on the number of samples alone, so that each shard has its share of
    every class, but for chance, and shards are the same in every run.

    Attributes:
        rank: the number of this process, from 0.
        world_size: how many processes there are.
        n_images: in all shards together.
        is_whole: whether all of the shard is there; of a part, nobody knows the others' sizes.
    """

    rank: int
    world_size: int
    n_images: int
    is_whole: bool = True

    @cached_property
    def numbers(self) -> Tensor:
        """The number in the whole dataset of each of the shard's samples, int64, ascending."""
        key = draws.child(draws.epoch_key(0, 0), _DEALING)
        order = draws.permutations(key, self.n_images)[0]
        return order[self.rank :: self.world_size].sort().values

    @property
    def name(self) -> str:
        """The same short text in each process."""
        return f"{self.n_images} in {self.world_size} shards"

    def part(self) -> Shard:
        """What is known of some samples of it."""
        return replace(self, is_whole=False)


@dataclass(frozen=True)
class OfShard:
    """All that a process holds is its share of an epoch.

    Attributes:
        shard: what it holds.
        uneven: "drop" leaves out what the smallest shard has not; "exact" serves all.
    """

    shard: Shard
    uneven: Uneven

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return self.shard.world_size

    def n_of(self, n_samples: int) -> int:
        """How many of this process's samples are served in an epoch."""
        each = self.shard.n_images // self.shard.world_size
        return min(n_samples, each) if self.uneven == "drop" else n_samples

    def of(self, order: Tensor) -> Tensor:
        """The part of this process's own order, [N], that is served."""
        return order[: self.n_of(len(order))]


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

    def share(self, shard: Shard | None) -> Share | OfShard:
        """The share of this process, as things are now, where it holds all samples or a shard."""
        if shard is not None:
            return OfShard(shard, self.uneven)
        if self.rank is not None and self.world_size is not None:
            return Share(self.rank, self.world_size, self.uneven)
        return Share(*current(), self.uneven)


def check_shard(ranks: Ranks, shard: Shard | None) -> None:
    """Refuse what does not go with a dataset that is a shard; an `ArgumentError`."""
    if shard is not None and ranks.rank is not None:
        raise ArgumentError(
            f"rank is {ranks.rank}, but the dataset is shard {shard.rank} of {shard.world_size} "
            "already, all of which this process serves. Leave rank= and world_size= out."
        )
    if shard is not None and not shard.is_whole and ranks.uneven == "drop":
        raise ArgumentError(
            "the dataset is a part of a shard, and how large the parts of other processes are is "
            "not known here, so uneven='drop' cannot give each as many batches. Pass "
            "uneven='exact', or preload without shard=."
        )


def asked_shard(shard: bool | tuple[int, int]) -> tuple[int, int] | None:
    """The rank and the number of processes that `shard` means, or None for no shards.

    Raises:
        ArgumentError: it is neither a bool nor such a pair.
    """
    if isinstance(shard, bool):
        return current() if shard else None
    if not isinstance(shard, tuple) or len(shard) != 2:
        raise ArgumentError(
            f"shard is {shard!r}; expected True, to take the processes from torch.distributed, a "
            "pair (rank, world_size), or False."
        )
    check_rank(*shard)
    return shard


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
