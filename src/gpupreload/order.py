"""In which order an epoch serves which samples: as they are numbered, shuffled, or sampled."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import BatchSampler

from gpupreload import draws
from gpupreload.errors import ArgumentError
from gpupreload.selection import in_range
from gpupreload.source import describe
from gpupreload.view import View

# of the children of an epoch's key, the one that draws by weights; see `draws.epoch_key`
_WEIGHING = 2


class Order(Protocol):
    """An order for each epoch. `name` tells orders apart that a state may be resumed with."""

    name: str
    may_repeat: bool

    def __len__(self) -> int:
        """The number of samples in an epoch."""

    def of(self, seed: int, epoch: int) -> Tensor:
        """The positions of an epoch's samples in the dataset, int64 [N] on the CPU."""


class AsNumbered:
    """The order of the dataset, or another permutation of it for each epoch."""

    may_repeat = False

    def __init__(self, n_images: int, *, shuffle: bool) -> None:
        self._n_images, self._shuffle = n_images, shuffle
        self.name = "shuffled" if shuffle else "in order"

    def __len__(self) -> int:
        return self._n_images

    def of(self, seed: int, epoch: int) -> Tensor:
        """The positions of an epoch's samples."""
        if self._shuffle:
            return draws.permutation(seed, epoch, self._n_images)
        return torch.arange(self._n_images, device="cpu")


class Weighted:
    """As many draws as there are samples, with replacement, each in proportion to its weight.

    A draw is the place of a uniform number among the weights' sums in float64: there is no limit on
    how many there are, as `torch.multinomial` has one at 2**24.

    Args:
        weights: floating point [N] on the CPU, 0 or more, their sum above 0.
        n_draws: in an epoch; None takes N.
    """

    may_repeat = True

    def __init__(self, weights: Tensor, n_draws: int | None = None) -> None:
        self._ends = weights.to(torch.float64).cumsum(0)
        self._n_draws = len(weights) if n_draws is None else n_draws
        self.name = f"weights {zlib.crc32(self._ends.numpy().data):08x}"

    def __len__(self) -> int:
        return self._n_draws

    def of(self, seed: int, epoch: int) -> Tensor:
        """The positions of an epoch's samples."""
        key = draws.child(draws.epoch_key(seed, epoch), _WEIGHING)
        places = draws.uniform(key, self._n_draws)[0] * self._ends[-1]
        return torch.searchsorted(self._ends, places, right=True)


class BySampler:
    """What a sampler gives in one pass; one that has a `set_epoch` is told the epoch before."""

    name = "sampler"
    may_repeat = True

    def __init__(self, sampler: Any, n_images: int) -> None:
        self.sampler, self._n_images = sampler, n_images

    def __len__(self) -> int:
        return len(self.sampler)

    def of(self, seed: int, epoch: int) -> Tensor:
        """The positions of an epoch's samples."""
        if callable(getattr(self.sampler, "set_epoch", None)):
            self.sampler.set_epoch(epoch)
        listed = torch.tensor([_position(i) for i in self.sampler], dtype=torch.int64, device="cpu")
        return in_range(listed, self._n_images)


def sampled(view: View, shuffle: bool, weights: Any, sampler: Any) -> Weighted | BySampler | None:
    """Return the order that a loader's arguments ask for, or None where they sample nothing.

    Args:
        view: of the samples to be served.
        shuffle: whether each epoch is to have another order.
        weights: one for each sample, "balanced", or None.
        sampler: a torch sampler, or None.

    Raises:
        ArgumentError: an argument cannot be used, or not with another.
    """
    if sampler is not None:
        _check_sampler(sampler, shuffle, weights)
        return BySampler(sampler, len(view))
    if weights is not None:
        return Weighted(_balanced(view) if _is_balanced(weights) else _weights(weights, len(view)))
    return None


def check_no_rank(order: Order | None, rank: int | None) -> None:
    """Refuse a rank beside a sampler, which says by itself what each process serves."""
    if isinstance(order, BySampler) and rank is not None:
        raise ArgumentError(
            "sampler and rank were both given, and a sampler says by itself what this process "
            "serves. Leave rank= and world_size= out, or use shuffle=True or weights= instead."
        )


def _position(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise ArgumentError(
            f"sampler gave {describe(index)}; expected an int, the number of a sample. Leave "
            "making batches to the Loader's batch_size."
        ) from None


def _check_sampler(sampler: Any, shuffle: bool, weights: Any) -> None:
    other = "shuffle=True" if shuffle else "weights" if weights is not None else ""
    if other:
        raise ArgumentError(
            f"sampler and {other} were both given, and each says in which order samples are "
            "served. Pass one of them."
        )
    once = isinstance(sampler, Iterator)
    if once or isinstance(sampler, BatchSampler) or not isinstance(sampler, Iterable):
        raise ArgumentError(
            f"sampler is {describe(sampler)}; expected a torch.utils.data.Sampler of sample "
            "numbers, or another iterable of ints that each epoch can go through anew, such as a "
            "list. Leave making batches to the Loader's batch_size."
        )


def _is_balanced(weights: Any) -> bool:
    return isinstance(weights, str) and weights == "balanced"


def _balanced(view: View) -> Tensor:
    """Weights by which every class that has samples is drawn as often as any other."""
    labels = view.labels_on_cpu
    return torch.bincount(labels).to(torch.float64).reciprocal()[labels]


def _weights(weights: Any, n_images: int) -> Tensor:
    expected = (
        f"expected one number for each of the {n_images:,} samples, 0 or more, not all of them 0, "
        "or 'balanced'."
    )
    if isinstance(weights, str) or not isinstance(weights, Sized | Iterable):
        raise ArgumentError(f"weights is {weights!r}; {expected}")
    found = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    if found.shape != (n_images,):
        raise ArgumentError(f"weights has the shape {tuple(found.shape)}; {expected}")
    total = float(found.sum())
    if not (float(found.min()) >= 0 and 0 < total < float("inf")):
        raise ArgumentError(f"weights run from {found.min():g} to {found.max():g}; {expected}")
    return found
