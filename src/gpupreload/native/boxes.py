"""Boxes of random area and aspect ratio, as torchvision draws them: the first of ten that fits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.native.ranges import Range, draw_below

N_TRIES = 10
"""How many boxes torchvision draws before it gives up."""


@dataclass(frozen=True)
class Boxes:
    """A place in each of N images, int64 [N] on the CPU, in pixels.

    Attributes:
        top: the first line.
        left: the first column.
        height: lines.
        width: columns.
        found: bool [N]: whether one of ten tries fitted; where not, the box is the fallback.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    found: Tensor


def draw_sides(
    keys: Tensor, area: int, scale: Range, log_ratio: Range, first: int
) -> tuple[Tensor, Tensor]:
    """Draw ten pairs of sides for each key: of a uniform area and a log-uniform ratio.

    Args:
        keys: int64 [N] on the CPU.
        area: of the image, in pixels.
        scale: the least and the greatest share of it.
        log_ratio: the least and the greatest logarithm of one side divided by the other.
        first: the number of the first draw used, of 2 * N_TRIES.

    Returns:
        The dividend and the divisor of the ratio, each int64 [N, 10], in pixels.
    """
    uniform = draws.uniform(keys, 2 * N_TRIES, first)
    areas = area * _between(uniform[:, :N_TRIES], scale)
    ratios = _between(uniform[:, N_TRIES:], log_ratio).exp()
    # like Python's, this round takes halves to the even number
    above, below = (x.sqrt().round().to(torch.int64) for x in (areas * ratios, areas / ratios))
    return above, below


def choose_boxes(
    keys: Tensor,
    sides: tuple[Tensor, Tensor],
    fits: Tensor,
    image: tuple[int, int],
    fallback: tuple[int, int],
    first: int,
) -> Boxes:
    """Take the first box that fits and put it at a place drawn uniformly.

    Args:
        keys: int64 [N] on the CPU.
        sides: heights and widths, int64 [N, 10].
        fits: bool [N, 10].
        image: the image's height and width.
        fallback: height and width of the box in the middle that is taken where none fits.
        first: the number of the first draw used, of 2.
    """
    found = fits.any(1)
    # argmax is the first True, or 0 where there is none
    number = fits.to(torch.uint8).argmax(1, keepdim=True)
    places = draws.uniform(keys, 2, first)
    (top, height), (left, width) = (
        _along_one_axis(side.gather(1, number)[:, 0], found, whole, middle, place)
        for side, whole, middle, place in zip(sides, image, fallback, places.unbind(1), strict=True)
    )
    return Boxes(top, left, height, width, found)


def _along_one_axis(
    length: Tensor, found: Tensor, whole: int, fallback: int, place: Tensor
) -> tuple[Tensor, Tensor]:
    """The first line and the number of lines of a box, or the same of columns."""
    length = torch.where(found, length, fallback)
    drawn = draw_below(place, whole - length + 1)
    return torch.where(found, drawn, (whole - fallback) // 2), length


def _between(uniform: Tensor, limits: Range) -> Tensor:
    low, high = limits
    return low + uniform * (high - low)
