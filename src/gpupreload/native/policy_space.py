"""What a policy can draw: the magnitudes of its operations, and the step that applies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.native.policy_ops import (
    BLENDS,
    MOVES,
    NUMBER_OF,
    OPERATIONS,
    WARPS,
    apply_operations,
)
from gpupreload.native.reading import WARPING, NoNativeFormError, fill_of, interpolation_of
from gpupreload.native.step import Native, Shape

_SIGNED = torch.tensor([name in WARPS + MOVES + BLENDS for name in OPERATIONS])


@dataclass(frozen=True)
class Strengths:
    """How far the operations of a policy go in the last of its bins of magnitude.

    Attributes:
        shear: tangent of the angle.
        translate: share of the width or height; pixels where `in_pixels`.
        rotate: degrees.
        blend: what a factor has above 1 or below.
        bits: that Posterize keeps in the first bin, and in the last.
        in_pixels: what `translate` is counted in.
    """

    shear: float
    translate: float
    rotate: float
    blend: float
    bits: tuple[int, int]
    in_pixels: bool = False


@lru_cache(maxsize=64)
def magnitudes(
    strengths: Strengths, n_bins: int, height: int, width: int, solarize_from: int = 1
) -> Tensor:
    """The magnitude of each operation and bin, as torchvision's `_AUGMENTATION_SPACE` has it.

    Calculated in float32, as torchvision does. The result is shared: it is not to be written to.

    Args:
        strengths: in the last bin.
        n_bins: how many magnitudes there are, 2 or more.
        height: of the images, in pixels.
        width: of the images, in pixels.
        solarize_from: the white that thresholds are counted down from before they are rounded.

    Returns:
        float64 [15, n_bins] on the CPU, in the order of `OPERATIONS`; 0 for those without one.
    """
    across, down = (1, 1) if strengths.in_pixels else (width, height)
    ends = dict.fromkeys(BLENDS, strengths.blend) | {
        "ShearX": strengths.shear,
        "ShearY": strengths.shear,
        "TranslateX": strengths.translate * across,
        "TranslateY": strengths.translate * down,
        "Rotate": strengths.rotate,
    }
    table = torch.zeros(len(OPERATIONS), n_bins, dtype=torch.float64)
    for name, end in ends.items():
        table[NUMBER_OF[name]] = torch.linspace(0.0, end, n_bins)
    thresholds = torch.linspace(float(solarize_from), 0.0, n_bins)
    table[NUMBER_OF["Solarize"]] = thresholds.double() / solarize_from
    table[NUMBER_OF["Posterize"]] = _bits(*strengths.bits, n_bins)
    return table


def _bits(first: int, last: int, n_bins: int) -> Tensor:
    lost = torch.arange(n_bins) / ((n_bins - 1) / (first - last))
    return (first - lost).round()


def signed(keys: Tensor, op_index: Tensor, magnitude: Tensor, first: int) -> Tensor:
    """Turn half of the magnitudes round, where the operation has two directions.

    Args:
        keys: int64 [N].
        op_index: int64 [N], numbers in `OPERATIONS`.
        magnitude: float64 [N].
        first: the number of the draw used.
    """
    turned = draws.bernoulli(keys, 0.5, first) & _SIGNED[op_index]
    return torch.where(turned, -magnitude, magnitude)


class OperationChain(Native):
    """Operations one after another, each with an operation and a magnitude for every sample.

    The parameters are `op_index`, int64 [N, K], numbers in `OPERATIONS`, and `magnitude`,
    float64 [N, K]. torchvision's v1 policies take uint8 only, and count Solarize's threshold from
    0 to 255; here their float images are treated as v2 treats them, and the magnitude is the share
    of white for both.

    Args:
        transform: torchvision's instance of the policy, of v1 or v2.
        strengths: of its operations.
        n_bins: how many magnitudes there are for each operation.

    Raises:
        NoNativeFormError: fewer than 2 bins, an interpolation that torchvision has not for
            tensors, or a fill for each type of input.
    """

    def __init__(self, transform: Any, strengths: Strengths, n_bins: int) -> None:
        if n_bins < 2:
            raise NoNativeFormError(
                f"has num_magnitude_bins={n_bins}, and a magnitude is a place between two bins"
            )
        self.strengths, self.n_bins = strengths, n_bins
        self.interpolation = interpolation_of(transform, WARPING)
        self.fill = fill_of(transform)
        # v1 rounds 255 * (1 - k / bins) to float32, and v2 rounds 1 - k / bins
        self._solarize_from = 1 if isinstance(transform, v2.Transform) else 255

    def magnitudes(self, shape: Shape) -> Tensor:
        """The magnitude of each operation and bin for images (C, H, W): float64 [15, bins]."""
        _, height, width = shape
        return magnitudes(self.strengths, self.n_bins, height, width, self._solarize_from)

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Apply `op_index` and `magnitude` to [N, C, H, W], C of 1 or 3, column after column."""
        return self.run(images, params["op_index"], params["magnitude"])

    def run(self, images: Tensor, op_index: Tensor, magnitude: Tensor) -> Tensor:
        """`apply_operations` with the transform's interpolation and fill."""
        return apply_operations(
            images, op_index, magnitude, interpolation=self.interpolation, fill=self.fill
        )
