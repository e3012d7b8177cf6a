"""RandomErasing, with a rectangle and noise of its own for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.errors import TransformError
from gpupreload.functional.chunks import in_one_piece
from gpupreload.functional.erase import erase_
from gpupreload.native.boxes import N_TRIES, choose_boxes, draw_sides
from gpupreload.native.noise import normal_noise
from gpupreload.native.ranges import Range
from gpupreload.native.reading import log_range_of, numbers_of, probability_of, range_of
from gpupreload.native.step import Native, Params, Shape


@dataclass(frozen=True)
class RandomErasing(Native):
    """A rectangle of random area and shape, overwritten in some images.

    Args:
        p: the probability.
        scale: the least and the greatest share of the image's area.
        log_ratio: the least and the greatest logarithm of the ratio of height to width.
        value: what to write, one number or one for each channel; None for normal noise.
    """

    p: float
    scale: Range
    log_ratio: Range
    value: tuple[float, ...] | None

    @classmethod
    def of(cls, transform: Any) -> RandomErasing:
        """Read a RandomErasing of v1 or v2."""
        return cls(
            probability_of(transform),
            range_of(transform, "scale"),
            log_range_of(transform, "ratio"),
            _value_of(transform.value),
        )

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`applied`, bool [N]; `i`, `j`, `h`, `w`, int64 [N]; `noise_key` where noise is written.

        They are the first line and column of the rectangle and its lines and columns. Where ten
        tries find none that fits, it is the whole image, and `applied` is False.
        """
        channels, height, width = shape
        if self.value is not None and len(self.value) not in (1, channels):
            raise TransformError(
                f"RandomErasing(value={self.value}) writes {len(self.value)} values, but the "
                f"images have {channels} channels. Give one number, or one for each channel."
            )
        heights, widths = draw_sides(keys, height * width, self.scale, self.log_ratio, first=1)
        fits = (heights < height) & (widths < width)
        image = height, width
        boxes = choose_boxes(keys, (heights, widths), fits, image, image, first=1 + 2 * N_TRIES)
        applied = draws.bernoulli(keys, self.p) & boxes.found
        params = {"applied": applied, "i": boxes.top, "j": boxes.left}
        params |= {"h": boxes.height, "w": boxes.width}
        return params if self.value is not None else params | {"noise_key": draws.child(keys, 0)}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Erase the rectangles."""
        erased = images.clone()
        self.write(erased, params)
        return erased

    @property
    def writes_in_place(self) -> bool:
        """Only the rectangles are touched."""
        return True

    def write(self, images: Tensor, params: Mapping[str, Tensor]) -> None:
        """Erase the rectangles in the images themselves."""
        height = torch.where(params["applied"], params["h"], 0)
        value: Tensor | tuple[float, ...] | None = self.value
        if value is None:
            value = _noise(params["noise_key"], params["applied"], images)
        erase_(images, params["i"], params["j"], height, params["w"], value)

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """With `v`, float32 [N, C, H, W]; the pixels of the rectangle are written."""
        full = dict(params)
        if self.value is None:
            full["v"] = normal_noise(full.pop("noise_key"), shape, torch.device("cpu"))
        return full


def _noise(keys: Tensor, applied: Tensor, images: Tensor) -> Tensor:
    """Normal noise, float32 [N, C, H, W]; on the CPU only for the rows that are applied."""
    shape = images.shape[1:]
    if in_one_piece(images):
        return normal_noise(keys, shape, images.device)
    noise = torch.empty(images.shape, dtype=torch.float32)
    rows = applied.nonzero()[:, 0]
    noise[rows] = normal_noise(keys[rows], shape, images.device)
    return noise


def _value_of(value: Any) -> tuple[float, ...] | None:
    """Read `value`: v2 keeps a list or None, v1 what it was given."""
    if value is None or isinstance(value, str):
        return None
    return numbers_of(value if isinstance(value, list | tuple) else [value], "value")
