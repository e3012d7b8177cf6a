"""RandomCrop and RandomResizedCrop, with a draw of their own for each sample."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.errors import TransformError
from gpupreload.functional import moves, resize
from gpupreload.native.boxes import N_TRIES, choose_boxes, draw_sides
from gpupreload.native.ranges import Range
from gpupreload.native.reading import (
    RESIZING,
    NoNativeFormError,
    fill_of,
    interpolation_of,
    log_range_of,
    range_of,
    size_of,
    unusable,
)
from gpupreload.native.step import Native, Params, Shape

Padding = tuple[int, int, int, int]
"""Pixels to the left, above, to the right and below."""


@dataclass(frozen=True)
class RandomCrop(Native):
    """A window of one size at a random place of the padded image.

    Args:
        size: lines and columns of the window.
        padding: around each image, or None.
        pad_if_needed: pad on both sides what an image lacks of the window's size.
        at_once: all padding in one step, as v2 does it; v1 pads for `padding`, then the sides, then
            top and bottom, which differs in the modes that mirror.
        fill: the colour of constant padding.
        padding_mode: one of `moves.PADDING_MODES`.
    """

    size: tuple[int, int]
    padding: Padding | None
    pad_if_needed: bool
    at_once: bool
    fill: float | Sequence[float]
    padding_mode: str

    @classmethod
    def of(cls, transform: Any) -> RandomCrop:
        """Read a RandomCrop of v1 or v2."""
        is_v2, size = isinstance(transform, v2.RandomCrop), size_of(transform)
        padding = _padding_of(transform.padding, is_v2)
        if padding and min(padding) < 0:
            raise NoNativeFormError(f"has padding={transform.padding}, which cuts pixels off")
        return cls(
            size,
            padding,
            bool(transform.pad_if_needed),
            is_v2,
            fill_of(transform) or 0,
            str(transform.padding_mode),
        )

    @property
    def keeps_shape(self) -> bool:
        """Not for images of every size."""
        return False

    def output_shape(self, shape: Shape) -> Shape:
        """The window's size."""
        return shape[0], *self.size

    def paddings(self, height: int, width: int) -> list[Padding]:
        """What images of this height and width are padded by, one after another."""
        first = self.padding or (0, 0, 0, 0)
        needed = (0, 0)
        if self.pad_if_needed:
            lines, columns = height + first[1] + first[3], width + first[0] + first[2]
            needed = max(0, self.size[0] - lines), max(0, self.size[1] - columns)
        below, beside = needed
        if self.at_once:
            left, top, right, bottom = first
            steps = [(left + beside, top + below, right + beside, bottom + below)]
        else:
            steps = [first, (beside, 0, beside, 0), (0, below, 0, below)]
        return [step for step in steps if any(step)]

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`top` and `left`, int64 [N], counted in the padded image."""
        _, height, width = shape
        for left, above, right, below in self.paddings(height, width):
            height, width = height + above + below, width + left + right
        if height < self.size[0] or width < self.size[1]:
            raise TransformError(self._too_large(height, width))
        return {
            "top": draws.integers(keys, 0, height - self.size[0] + 1),
            "left": draws.integers(keys, 0, width - self.size[1] + 1, first=1),
        }

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Cut the windows out."""
        how: dict[str, Any] = {"fill": self.fill, "padding_mode": self.padding_mode}
        paddings = self.paddings(*images.shape[2:])
        for padding in paddings[:-1]:
            images = moves.pad(images, padding, **how)
        last = paddings[-1] if paddings else None
        return moves.crop(images, params["top"], params["left"], *self.size, padding=last, **how)

    def _too_large(self, height: int, width: int) -> str:
        padded = "padded " if self.padding else ""
        return (
            f"RandomCrop cuts out {self.size[0]}×{self.size[1]} pixels (height × width), but the "
            f"{padded}images have {height}×{width}. Pass padding=... or pad_if_needed=True to it, "
            "or put a Resize before it."
        )


@dataclass(frozen=True)
class RandomResizedCrop(Native):
    """A box of random area and shape, resized to one size.

    Args:
        size: lines and columns of the result.
        scale: the least and the greatest share of the image's area.
        ratio: the least and the greatest ratio of width to height.
        log_ratio: their logarithms.
        interpolation: one of `RESIZING`.
        antialias: whether bilinear and bicubic take in all pixels where a box shrinks.
    """

    size: tuple[int, int]
    scale: Range
    ratio: Range
    log_ratio: Range
    interpolation: str
    antialias: bool

    @classmethod
    def of(cls, transform: Any) -> RandomResizedCrop:
        """Read a RandomResizedCrop of v1 or v2."""
        return cls(
            size_of(transform),
            range_of(transform, "scale"),
            range_of(transform, "ratio"),
            log_range_of(transform, "ratio"),
            interpolation_of(transform, RESIZING),
            bool(transform.antialias),
        )

    @property
    def keeps_shape(self) -> bool:
        """Not for images of every size."""
        return False

    def output_shape(self, shape: Shape) -> Shape:
        """The size asked for."""
        return shape[0], *self.size

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`top`, `left`, `height` and `width` of the box, int64 [N]."""
        _, height, width = shape
        widths, heights = draw_sides(keys, height * width, self.scale, self.log_ratio, first=0)
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
        fallback = self._middle(height, width)
        boxes = choose_boxes(
            keys, (heights, widths), fits, (height, width), fallback, first=2 * N_TRIES
        )
        return {
            "top": boxes.top,
            "left": boxes.left,
            "height": boxes.height,
            "width": boxes.width,
        }

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Cut the boxes out and resize them."""
        return resize.resized_crop(
            images,
            params["top"],
            params["left"],
            params["height"],
            params["width"],
            self.size,
            interpolation=self.interpolation,
            antialias=self.antialias,
        )

    def _middle(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the box for images that none of ten fits: the largest of a ratio."""
        lowest, highest = self.ratio
        if width / height < lowest:
            return round(width / lowest), width
        if width / height > highest:
            return height, round(height * highest)
        return height, width


def _padding_of(padding: Any, is_v2: bool) -> Padding | None:
    if not padding:
        return None
    if is_v2:
        # v2 keeps it in this order of its own
        left, right, top, bottom = padding
        return left, top, right, bottom
    try:
        sides = [operator.index(n) for n in ([padding] if isinstance(padding, int) else padding)]
    except TypeError:
        sides = []
    if len(sides) not in (1, 2, 4):
        raise unusable("padding", padding, "a whole number of pixels, or 2 or 4 of them")
    left, top, right, bottom = sides * (4 // len(sides))
    return left, top, right, bottom
