"""The settings of torchvision's transforms, read and checked; or why there is no native form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from gpupreload.errors import TransformError
from gpupreload.functional.sample import Fill
from gpupreload.native.ranges import Range

WARPING = ("nearest", "bilinear")
"""The interpolations that torchvision has for tensors where pixels move off the grid."""

RESIZING = ("nearest", "nearest-exact", "bilinear", "bicubic")
"""The interpolations that torchvision has for tensors of any dtype where boxes are resized."""

# Pillow's numbers of the interpolations, which torchvision takes too
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


class NoNativeFormError(TransformError):
    """A transform, as it is set, has no native form; the message goes on after its name."""


def probability_of(transform: Any) -> float:
    """Read `p`; what lies outside 0 to 1, which v1 lets through, means never or always."""
    return min(max(float(transform.p), 0.0), 1.0)


def range_of(transform: Any, name: str, values: Any = None) -> Range:
    """Read a setting of two numbers between which torchvision draws.

    Args:
        transform: a torchvision transform.
        name: of the setting.
        values: the two numbers, by default the attribute of that name.

    Raises:
        NoNativeFormError: torchvision itself fails to draw between them.
    """
    low, high = getattr(transform, name) if values is None else values
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise NoNativeFormError(f"draws {name} between {low} and {high}, which torchvision refuses")
    return float(low), float(high)


def log_range_of(transform: Any, name: str) -> Range:
    """Read a setting of two positive numbers, between whose logarithms torchvision draws."""
    low, high = range_of(transform, name)
    if low <= 0:
        raise NoNativeFormError(f"has {name}={low}, whose logarithm torchvision cannot draw from")
    return math.log(low), math.log(high)


def interpolation_of(transform: Any, allowed: Sequence[str]) -> str:
    """Read `interpolation`, a name, an `InterpolationMode` or one of Pillow's numbers."""
    value = transform.interpolation
    name = value if isinstance(value, str) else getattr(value, "value", None)
    if isinstance(value, int) and 0 <= value < len(_PILLOW):
        name = _PILLOW[value]
    if name not in allowed:
        raise NoNativeFormError(
            f"has interpolation={name or value!r}, which torchvision does not have for tensors"
            if name != "lanczos"
            else "has interpolation='lanczos', which is calculated for each image alone"
        )
    return str(name)


def fill_of(transform: Any) -> Fill:
    """Read `fill`: a number, one for each channel, or None."""
    fill = transform.fill
    if fill is None:
        return None
    if isinstance(fill, Real):
        return float(fill)
    if isinstance(fill, list | tuple) and all(isinstance(value, Real) for value in fill):
        return tuple(float(value) for value in fill)
    raise NoNativeFormError(f"has fill={fill!r}, and not one number or one for each channel")


def size_of(transform: Any) -> tuple[int, int]:
    """Read `size` as lines and columns."""
    height, width = transform.size
    return int(height), int(width)


def center_of(transform: Any) -> tuple[float, float] | None:
    """Read `center`, (x, y) in pixels from the top left corner, or None for the middle."""
    if transform.center is None:
        return None
    x, y = transform.center
    return float(x), float(y)
