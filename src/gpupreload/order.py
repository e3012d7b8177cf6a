"""In which order an epoch serves which samples: as they are numbered, shuffled, or sampled."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import BatchSampler

from gpupreload import draws
from gpupreload.arguments import whole_number
from gpupreload.errors import ArgumentError
from gpupreload.labels import Labels
from gpupreload.selection import in_range
from gpupreload.source import describe
from gpupreload.view import View

# of the children of an epoch's key, the one that draws by weights; see `draws.epoch_key`
_WEIGHING = 2


class Order(Protocol):
    """An order for each epoch."""

    may_repeat: bool

    @property
    def name(self) -> str:
        """Tells apart the orders that a state may be resumed with."""

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
        weights: gives them, float64 [N] on the CPU, 0 or more, their sum above 0; asked anew for
            each epoch, for they may go by labels, which may be written to.
        n_draws: in an epoch; None takes N.
    """

    may_repeat = True

    def __init__(self, weights: Callable[[], Tensor], n_draws: int | None = None) -> None:
        self._weights = weights
        self._n_draws = len(weights()) if n_draws is None else n_draws
        self._of_others = "" if n_draws is None else f", {n_draws} draws"

    @property
    def name(self) -> str:
        """Tells these weights from others."""
        return f"weights {zlib.crc32(self._ends.numpy().data):08x}{self._of_others}"

    @property
    def _ends(self) -> Tensor:
        return self._weights().cumsum(0)

    def __len__(self) -> int:
        return self._n_draws

    def of(self, seed: int, epoch: int) -> Tensor:
        """The positions of an epoch's samples."""
        key, ends = draws.child(draws.epoch_key(seed, epoch), _WEIGHING), self._ends
        places = draws.uniform(key, self._n_draws)[0] * ends[-1]
        return torch.searchsorted(ends, places, right=True)


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


def sampled(
    view: View,
    class_to_idx: Mapping[str, int],
    shuffle: bool,
    weights: Any,
    sampler: Any,
    num_samples: Any,
) -> Weighted | BySampler | None:
    """Return the order that a loader's arguments ask for, or None where they sample nothing.

    Args:
        view: of the samples to be served.
        class_to_idx: the number of each class by name.
        shuffle: whether each epoch is to have another order.
        weights: one for each sample, or by the name of a class, "balanced", or None.
        sampler: a torch sampler, or None.
        num_samples: how many draws by weights an epoch has; None takes one for each sample.

    Raises:
        ArgumentError: an argument cannot be used, or not with another.
    """
    _check_one(shuffle, weights, sampler)
    if num_samples is not None:
        num_samples = _n_draws(num_samples, weights, view)
    if sampler is not None:
        _check_sampler(sampler)
        return BySampler(sampler, len(view))
    if weights is not None:
        return Weighted(_weights_of(weights, view.labels, class_to_idx), num_samples)
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


def _check_one(shuffle: bool, weights: Any, sampler: Any) -> None:
    """Refuse two ways of saying in which order samples are served."""
    ways = {
        "sampler": sampler is not None,
        "weights": weights is not None,
        "shuffle=True": shuffle,
    }
    asked = [name for name, is_asked in ways.items() if is_asked]
    if len(asked) > 1:
        one, other, *_ = asked
        drawn = " (Draws by weights come in random order.)" if one == "weights" else ""
        raise ArgumentError(
            f"{one} and {other} were both given, and each says in which order samples are "
            f"served. Pass one of them.{drawn}"
        )


def _check_sampler(sampler: Any) -> None:
    once = isinstance(sampler, Iterator)
    if once or isinstance(sampler, BatchSampler) or not isinstance(sampler, Iterable):
        raise ArgumentError(
            f"sampler is {describe(sampler)}; expected a torch.utils.data.Sampler of sample "
            "numbers, or another iterable of ints that each epoch can go through anew, such as a "
            "list. Leave making batches to the Loader's batch_size."
        )


def _n_draws(num_samples: Any, weights: Any, view: View) -> int:
    number = whole_number(num_samples)
    if number is None or number < 1:
        raise ArgumentError(
            f"num_samples is {num_samples!r}; expected how many samples an epoch draws by weights, "
            "1 or more, or None for as many as there are."
        )
    if weights is None:
        raise ArgumentError(
            f"num_samples is {number}, but only draws by weights have a number of their own. Pass "
            "weights= too, or sampler=torch.utils.data.RandomSampler(dataset, "
            f"num_samples={number})."
        )
    if view.shard is not None:
        raise ArgumentError(
            f"num_samples is {number}, but the dataset was loaded with shard=, where an epoch has "
            "as many samples as each process holds. Leave num_samples= out."
        )
    return number


def _weights_of(
    weights: Any, labels: Labels, class_to_idx: Mapping[str, int]
) -> Callable[[], Tensor]:
    """How to find one weight for each sample, float64 [N] on the CPU, as the labels are then."""
    if isinstance(weights, str) and weights == "balanced":
        return partial(_balanced, labels)
    example = next(iter(class_to_idx), "cat")
    expected = (
        f"expected one number for each of the {len(labels):,} samples, 0 or more, not all of them "
        f"0, a dict of such numbers by class, as {{{example!r}: 2}}, or 'balanced'."
    )
    if isinstance(weights, str) or not isinstance(weights, Sized | Iterable):
        raise ArgumentError(f"weights is {weights!r}; {expected}")
    if isinstance(weights, Mapping):
        by_class = _by_class(weights, class_to_idx)
        return partial(_looked_up, by_class, labels, describe(weights), expected)
    found = _checked(weights, describe(weights), len(labels), expected)
    return partial(_checked, found, describe(weights), len(labels), expected)


def _balanced(labels: Labels) -> Tensor:
    """By these weights every class that has samples is drawn as often as any other."""
    _, of_class, sizes = labels.on_cpu.unique(return_inverse=True, return_counts=True)
    weights: Tensor = sizes.to(torch.float64).reciprocal()[of_class]
    return weights


def _looked_up(
    by_class: Mapping[int, Any], labels: Labels, described: str, expected: str
) -> Tensor:
    each = [by_class.get(label, 1.0) for label in labels.as_list]
    return _checked(each, described, len(labels), expected)


def _by_class(weights: Mapping[Any, Any], class_to_idx: Mapping[str, int]) -> dict[int, Any]:
    """Weights by the number of the class."""
    for name in weights:
        if name not in class_to_idx:
            near = get_close_matches(str(name), class_to_idx, n=1) or list(class_to_idx)[:3]
            raise ArgumentError(
                f"weights names the class {name!r}; expected names from dataset.classes, such as "
                f"{', '.join(map(repr, near))}. A class that is not named has the weight 1."
            )
    return {class_to_idx[name]: weight for name, weight in weights.items()}


def _checked(weights: Any, described: str, n_images: int, expected: str) -> Tensor:
    try:
        found = torch.as_tensor(weights, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError):
        what = f"weights is {described}, which cannot be read as numbers"
        raise ArgumentError(f"{what}; {expected}") from None
    if found.shape != (n_images,):
        raise ArgumentError(f"weights has the shape {tuple(found.shape)}; {expected}")
    total = float(found.sum())
    if not (float(found.min()) >= 0 and 0 < total < float("inf")):
        raise ArgumentError(f"weights run from {found.min():g} to {found.max():g}; {expected}")
    return found
