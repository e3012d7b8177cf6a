"""A batch read at the places of a grid, one grid for each sample.

Both ways of reading give what torchvision's `_apply_grid_transform` gives image by image: they hand
the same grid to the same `grid_sample`. Places outside the image take the fill colour; in bilinear
interpolation, places partly outside take part of it, in torchvision's own way, which counts the
outside twice where the fill is given (see `bilinear`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import InterpolationMode

from gpupreload.errors import ArgumentError
from gpupreload.functional.chunks import work_dtype

Fill = float | Sequence[float] | None
"""The colour outside an image, a number or one for each channel; None for black."""

# the numbers of pixels are sampled as float32, which holds whole numbers up to here
_MOST_PIXELS = 2**24 - 1


def mode_name(interpolation: str | InterpolationMode, allowed: Sequence[str]) -> str:
    """Return torchvision's name of an interpolation, or raise `ArgumentError`."""
    name = str(getattr(interpolation, "value", interpolation))
    if name not in allowed:
        raise ArgumentError(
            f"interpolation must be one of {', '.join(allowed)} (torchvision has no other for "
            f"tensors here), got {name!r}."
        )
    return name


class Nearest:
    """Takes the nearest pixel at each place of a grid.

    `grid_sample` is asked for the pixels' numbers instead of their colours: one channel however
    many the images have, no copy in float32, and the same pixel as torchvision takes.

    Args:
        images: the batch [N, C, H, W] to be read, of any dtype.
        at_once: the most rows that will be read in one call; memory for them is kept.
        fill: the colour outside.

    Raises:
        ArgumentError: the fill cannot be used, or the images have 2^24 pixels or more each.
    """

    def __init__(self, images: Tensor, at_once: int, fill: Fill) -> None:
        _, c, h, w = images.shape
        if h * w > _MOST_PIXELS:
            raise ArgumentError(
                f"images of {h}×{w} pixels are too large for interpolation='nearest'; expected at "
                f"most {_MOST_PIXELS:,} pixels. Make them smaller first, or use 'bilinear'."
            )
        outside = _fill_tensor(fill, images)
        outside = outside.round() if images.dtype == torch.uint8 else outside
        numbers = torch.arange(1, h * w + 1, dtype=work_dtype(images), device=images.device)
        self._numbers = numbers.view(1, 1, h, w)
        # number 0, which grid_sample gives for the outside, is the fill colour
        self._colours = images.new_empty((at_once, c, 1 + h * w))
        self._colours[:, :, :1] = outside.to(images.dtype).flatten(2)
        self._number = torch.empty((at_once, 1, h * w), dtype=torch.int64, device=images.device)

    def __call__(self, images: Tensor, grid: Tensor, out: Tensor) -> None:
        """Read `images` [n, C, H, W] at the places `grid` [n, H, W, 2] into `out`, of one dtype."""
        n, c = images.shape[:2]
        numbers = self._numbers.expand(n, -1, -1, -1)
        number = F.grid_sample(numbers, grid, mode="nearest", align_corners=False)
        picked = self._number[:n].copy_(number.flatten(2))
        colours = self._colours[:n]
        colours[:, :, 1:] = images.flatten(2)
        picked = picked.expand(-1, c, -1)
        if out.is_contiguous():
            torch.gather(colours, 2, picked, out=out.view(n, c, -1))
        else:
            out.copy_(colours.gather(2, picked).view(images.shape))


class Bilinear:
    """Interpolates between the four pixels around each place of a grid.

    With a fill, as in torchvision, an image of ones is sampled along; its result m is the share of
    a place that lies inside. The colours, in which the outside already counts as 0, become
    `(colour - fill) * m + fill`: at the very edge the result is darker than a true blend would be.

    Args:
        images: the batch [N, C, H, W] to be read, uint8 or floats.
        at_once: the most rows that will be read in one call; memory for them is kept.
        fill: the colour outside; None is black without that second weighting.

    Raises:
        ArgumentError: the fill cannot be used.
    """

    def __init__(self, images: Tensor, at_once: int, fill: Fill) -> None:
        _, c, h, w = images.shape
        self._fill = None if fill is None else _fill_tensor(fill, images)
        self._source = torch.ones(
            (at_once, c + (fill is not None), h, w), dtype=work_dtype(images), device=images.device
        )

    def __call__(self, images: Tensor, grid: Tensor, out: Tensor) -> None:
        """Read `images` [n, C, H, W] at the places `grid` [n, H, W, 2] into `out`, of one dtype."""
        n, c = images.shape[:2]
        source = self._source[:n]
        source[:, :c] = images
        sampled = F.grid_sample(source, grid, mode="bilinear", align_corners=False)
        if self._fill is not None:
            inside, sampled = sampled[:, c:], sampled[:, :c]
            sampled = sampled.sub_(self._fill).mul_(inside).add_(self._fill)
        # from float32 straight to uint8 the CPU takes 3 times as long as with int16 in between
        out.copy_(sampled.round_().to(torch.int16) if out.dtype == torch.uint8 else sampled)


def _fill_tensor(fill: Fill, images: Tensor) -> Tensor:
    """Shape a colour as [1, C or 1, 1, 1] on the images' device, in the dtype to calculate in."""
    numbers = [fill or 0] if fill is None or isinstance(fill, int | float) else list(fill)
    if len(numbers) not in (1, images.shape[1]):
        raise ArgumentError(
            f"fill must be None, a number or {images.shape[1]} numbers (one for each channel), "
            f"got {len(numbers)}: {fill!r}."
        )
    values = torch.tensor(numbers, dtype=work_dtype(images)).view(1, -1, 1, 1)
    return values.to(images.device, non_blocking=True)
