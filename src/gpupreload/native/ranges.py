"""Uniform numbers in ranges of their own, several for each sample at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpupreload import draws

Range = tuple[float, float]
"""The lowest and the highest value of a parameter."""


def draw_between(keys: Tensor, ranges: Sequence[Range], first: int = 0) -> Tensor:
    """Draw uniform numbers, as many for each key as there are ranges.

    Args:
        keys: int64 [N].
        ranges: K of them; a range of one value gives exactly that.
        first: the number of the first draw used, of K.

    Returns:
        float64 [N, K].
    """
    low, high = torch.tensor(ranges, dtype=torch.float64).unbind(1)
    return torch.addcmul(low, draws.uniform(keys, len(ranges), first), high - low)


def draw_below(uniform: Tensor, bounds: Tensor | int) -> Tensor:
    """Turn uniform numbers into whole ones of 0 to `bounds` - 1, each equally likely.

    Args:
        uniform: float64, in [0, 1).
        bounds: int64 that broadcasts with it, at least 1 and below 2**53.

    Returns:
        int64.
    """
    return (uniform * bounds).to(torch.int64)
