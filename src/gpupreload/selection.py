"""Which samples: indices of any kind as positions, and a set divided into parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpupreload import draws
from gpupreload.arguments import check_switches, whole_number
from gpupreload.errors import ArgumentError
from gpupreload.source import describe

# of the children of an epoch's key, the one that divides sets; see `draws.epoch_key`
_DIVIDING = 1
# how far the sum of fractions may be from 1: 0.1 ten times is 1 - 1.1e-16
_TOLERANCE = 1e-6


def as_positions(indices: Any, n_images: int) -> Tensor:
    """Return indices as positions counted from 0.

    Args:
        indices: ints in a sequence, an array or a tensor on any device, negative ones counting from
            the end; a slice; or a mask, bool [n_images].
        n_images: of the dataset.

    Returns:
        int64 [N] on the CPU, in the order given.

    Raises:
        ArgumentError: `indices` is nothing of that, or names no sample.
        IndexError: one is out of range.

    >>> as_positions([2, -1], 5), as_positions(slice(1, 3), 5)
    (tensor([2, 4]), tensor([1, 2]))
    """
    if isinstance(indices, slice):
        indices = range(n_images)[indices]
    found = _as_tensor(indices, n_images)
    if found.dtype == torch.bool:
        found = found.nonzero().squeeze(1)
    if not len(found):
        raise ArgumentError("indices names no sample; expected one or more.")
    return in_range(found.to(torch.int64), n_images)


def in_range(indices: Tensor, n_images: int) -> Tensor:
    """Count negative indices, int64 [N] on the CPU, from the end.

    Raises:
        IndexError: one is out of range; on a GPU that would end the process.
    """
    low, high = map(int, indices.aminmax()) if len(indices) else (0, 0)
    if low < -n_images or high >= n_images:
        wrong = low if low < -n_images else high
        raise IndexError(f"index {wrong} is out of range for {n_images:,} images.")
    return indices % n_images if low < 0 else indices


def parts_of(labels: Tensor, sizes: Sequence[float], seed: int, *, stratify: bool) -> list[Tensor]:
    """Divide samples at random into parts that share none.

    Args:
        labels: int64 [N] on the CPU.
        sizes: fractions that sum to 1, or numbers of samples that sum to N.
        seed: of the draw.
        stratify: whether each part gets its share of every class. Samples that the shares leave
            over go to the classes with the largest rests: of two parts, no class is off by a whole
            sample. Of more, that holds of the first; each later one has its share of what the
            parts before it left, so that it may be off by more.

    Returns:
        The positions of each part, int64 on the CPU, in ascending order.

    Raises:
        ArgumentError: `sizes` do not sum up, or leave a part empty; `stratify` is no bool.

    >>> [part.tolist() for part in parts_of(torch.tensor([0, 0, 1, 1]), [2, 2], 0, stratify=True)]
    [[0, 3], [1, 2]]
    """
    _check_stratify(stratify)
    counts = _counts(sizes, len(labels))
    key = draws.child(draws.epoch_key(seed, 0), _DIVIDING)
    order = draws.permutations(key, len(labels))[0].numpy()
    rest, parts = order, []
    for n_samples in counts:
        if stratify:
            chosen = _of_each_class(n_samples, labels.numpy()[rest])
        else:
            chosen = np.arange(len(rest)) < n_samples
        parts.append(torch.from_numpy(np.sort(rest[chosen])))
        rest = rest[~chosen]
    return parts


def _check_stratify(stratify: Any) -> None:
    if isinstance(stratify, Tensor | np.ndarray | list | tuple):
        raise ArgumentError(
            f"stratify is {describe(stratify)}; expected True or False. stratify=True goes by the "
            "dataset's own labels."
        )
    check_switches(stratify=stratify)


def _as_tensor(indices: Any, n_images: int) -> Tensor:
    try:
        found = torch.as_tensor(indices, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(1, 1, device="cpu")  # refused below
    if found.shape == (0,):
        return found.to(torch.int64)
    if found.ndim != 1 or found.is_floating_point() or found.is_complex():
        raise ArgumentError(
            f"indices is {describe(indices)}; expected sample numbers, such as [0, 2], a slice, or "
            "a mask with one bool for each image."
        )
    if found.dtype == torch.bool and len(found) != n_images:
        raise ArgumentError(
            f"indices is a mask of {len(found):,} bools; expected one for each of the "
            f"{n_images:,} images, or sample numbers."
        )
    return found


def _counts(sizes: Sequence[float], n_images: int) -> list[int]:
    """The number of samples in each part; what fractions leave over goes to the largest rests."""
    sizes = _listed(sizes, n_images)
    are_counts = all(whole_number(size) is not None for size in sizes)
    fits = sum(sizes) == n_images if are_counts else abs(sum(sizes) - 1) < _TOLERANCE
    if not sizes or not fits or min(sizes) <= 0:
        raise _no_division(sizes, n_images)
    exact = [size if are_counts else size * n_images for size in sizes]
    counts = [math.floor(number + _TOLERANCE) for number in exact]
    rests = sorted(range(len(sizes)), key=lambda i: counts[i] - exact[i])
    for i in rests[: n_images - sum(counts)]:
        counts[i] += 1
    if min(counts) == 0:
        raise ArgumentError(
            f"sizes is {sizes}, which leaves a part of {n_images} images empty; expected larger "
            "fractions."
        )
    return counts


def _listed(sizes: Any, n_images: int) -> list[float]:
    """The sizes as a list of numbers; of a single one, say which two it may mean."""
    whole = whole_number(sizes)
    if whole is not None or isinstance(sizes, float | np.floating):
        rest = n_images - whole if whole is not None else round(1 - float(sizes), 9)
        if sizes > 0 and rest > 0:
            raise ArgumentError(
                f"sizes is {sizes}; expected a size for each part, which sum up: "
                f"split([{sizes}, {rest}])."
            )
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise _no_division(sizes, n_images)
    listed = list(sizes)
    if not all(isinstance(size, Real) or whole_number(size) is not None for size in listed):
        raise _no_division(listed, n_images)
    return listed


def _no_division(sizes: Any, n_images: int) -> ArgumentError:
    return ArgumentError(
        f"sizes is {sizes!r}; expected fractions above 0 that sum to 1, such as [0.8, 0.2], or "
        f"whole numbers above 0 that sum to {n_images}, the number of images."
    )


def _of_each_class(n_chosen: int, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Choose so many samples of a random order: of each class its share, the first ones.

    What whole samples leave over goes to the classes with the largest rests, and between equal
    rests to the class that comes first, so that chance and not its number decides.
    """
    _, first, of_class, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    shares, rests = np.divmod(sizes * n_chosen, len(labels))
    shares[np.lexsort((first, -rests))[: n_chosen - shares.sum()]] += 1
    by_class = np.argsort(of_class, stable=True)
    place = np.empty_like(by_class)
    place[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen: NDArray[np.bool_] = place < shares[of_class]
    return chosen
