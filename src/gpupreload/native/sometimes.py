"""Steps that are made or not, with nothing else to draw: flips, RandomInvert and their like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.errors import TransformError
from gpupreload.functional import color, filter, moves, tone
from gpupreload.functional.chunks import white
from gpupreload.native.reading import count_of, number_of, probability_of, unusable
from gpupreload.native.step import Native, Params, Shape


@dataclass(frozen=True)
class Sometimes(Native):
    """A step that changes each sample with one probability.

    Args:
        p: the probability.
        kernel: takes images [N, C, H, W] and bool [N]: which of them to change.
    """

    p: float
    kernel: Callable[[Tensor, Tensor], Tensor]

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`applied`, bool [N]."""
        return {"applied": draws.bernoulli(keys, self.p)}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Change the samples that were drawn."""
        return self.kernel(images, params["applied"])


def horizontal_flip(transform: Any) -> Sometimes:
    """Read a RandomHorizontalFlip."""
    return Sometimes(probability_of(transform), moves.horizontal_flip)


def vertical_flip(transform: Any) -> Sometimes:
    """Read a RandomVerticalFlip."""
    return Sometimes(probability_of(transform), moves.vertical_flip)


def grayscale(transform: Any) -> Sometimes:
    """Read a RandomGrayscale."""
    return Sometimes(probability_of(transform), color.grayscale)


def invert(transform: Any) -> Sometimes:
    """Read a RandomInvert."""
    return Sometimes(probability_of(transform), tone.invert)


def autocontrast(transform: Any) -> Sometimes:
    """Read a RandomAutocontrast."""
    return Sometimes(probability_of(transform), tone.autocontrast)


def equalize(transform: Any) -> Sometimes:
    """Read a RandomEqualize."""
    return Sometimes(probability_of(transform), tone.equalize)


def posterize(transform: Any) -> Sometimes:
    """Read a RandomPosterize."""
    bits = count_of(transform, "bits", 0, 8)
    return Sometimes(probability_of(transform), partial(_posterize, bits=bits))


def solarize(transform: Any) -> Sometimes:
    """Read a RandomSolarize."""
    threshold = number_of(transform, "threshold")
    return Sometimes(probability_of(transform), partial(_solarize, threshold=threshold))


def sharpness(transform: Any) -> Sometimes:
    """Read a RandomAdjustSharpness."""
    factor = number_of(transform, "sharpness_factor")
    if not factor >= 0:
        raise unusable("sharpness_factor", transform.sharpness_factor, "a number, 0 or more")
    return Sometimes(probability_of(transform), partial(_adjust_sharpness, factor=factor))


def _posterize(images: Tensor, applied: Tensor, bits: int) -> Tensor:
    return tone.posterize(images, torch.full((len(images),), bits), applied)


def _solarize(images: Tensor, applied: Tensor, threshold: float) -> Tensor:
    if threshold > white(images):
        raise TransformError(
            f"RandomSolarize(threshold={threshold:g}) got {images.dtype} images, whose values go "
            f"up to {white(images)}. Give a threshold on their scale, or put the step before the "
            "one that makes floats."
        )
    return tone.solarize(images, _repeated(threshold, images), applied)


def _adjust_sharpness(images: Tensor, applied: Tensor, factor: float) -> Tensor:
    return filter.adjust_sharpness(images, _repeated(factor, images), applied)


def _repeated(value: float, images: Tensor) -> Tensor:
    return torch.full((len(images),), value, dtype=torch.float64)
