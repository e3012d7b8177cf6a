"""The settings of torchvision's transforms, read and checked; or why there is no native form."""

from __future__ import annotations

import math
import operator
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


class UnusableSettingError(NoNativeFormError):
    """A setting with which the transform fails or makes no sense, whatever images it is given."""


def unusable(name: str, value: Any, expected: str) -> UnusableSettingError:
    """The error for a setting, in words that go on after the transform's name.

    Args:
        name: of the setting.
        value: what it is.
        expected: what it should be.
    """
    return UnusableSettingError(f"has {name}={value!r}; expected {expected}")


def probability_of(transform: Any) -> float:
    """Read `p`; what lies outside 0 to 1, which v1 lets through, means never or always."""
    p = number_of(transform, "p")
    if math.isnan(p):
        raise unusable("p", transform.p, "a probability, from 0 to 1")
    return min(max(p, 0.0), 1.0)


def number_of(transform: Any, name: str) -> float:
    """Read a setting of one number."""
    value = getattr(transform, name)
    if isinstance(value, str):
        raise unusable(name, value, "a number")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last of a tensor of several
        raise unusable(name, value, "a number") from None


def numbers_of(values: Any, name: str, n: int | None = None) -> tuple[float, ...]:
    """Read a setting of several numbers.

    Args:
        values: what the setting is.
        name: of it.
        n: how many numbers there must be; None takes any, and one or more.
    """
    expected = f"{n} numbers" if n else "a number, or one for each channel"
    try:
        numbers = () if isinstance(values, str) else tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or n not in (None, len(numbers)):
        raise unusable(name, values, expected)
    return numbers


def count_of(transform: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """Read a setting of one whole number.

    Args:
        transform: a torchvision transform.
        name: of the setting.
        least: the lowest value; None for no bound.
        most: the highest; None for no bound.
    """
    value = getattr(transform, name)
    expected = "a whole number"
    if least is not None:
        expected += f", {least} or more" if most is None else f" from {least} to {most}"
    try:
        count = operator.index(value)
    except TypeError:
        raise unusable(name, value, expected) from None
    if (least is not None and count < least) or (most is not None and count > most):
        raise unusable(name, value, expected)
    return count


def range_of(transform: Any, name: str, values: Any = None) -> Range:
    """Read a setting of two numbers between which torchvision draws.

    Args:
        transform: a torchvision transform.
        name: of the setting.
        values: the two numbers, by default the attribute of that name.

    Raises:
        UnusableSettingError: torchvision itself fails to draw between them.
    """
    values = getattr(transform, name) if values is None else values
    low, high = numbers_of(values, name, 2)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise unusable(name, values, "two finite numbers, the lower one first")
    return low, high


def log_range_of(transform: Any, name: str) -> Range:
    """Read a setting of two positive numbers, between whose logarithms torchvision draws."""
    low, high = range_of(transform, name)
    if low <= 0:
        expected = "numbers above 0, between whose logarithms torchvision draws"
        raise unusable(name, getattr(transform, name), expected)
    return math.log(low), math.log(high)


def interpolation_of(transform: Any, allowed: Sequence[str]) -> str:
    """Read `interpolation`, a name, an `InterpolationMode` or one of Pillow's numbers."""
    value = transform.interpolation
    name = value if isinstance(value, str) else getattr(value, "value", None)
    if isinstance(value, int) and 0 <= value < len(_PILLOW):
        name = _PILLOW[value]
    if name == "lanczos" and allowed == RESIZING:
        raise NoNativeFormError(
            "has interpolation='lanczos', which is calculated for each image alone"
        )
    if name not in allowed:
        expected = f"one that torchvision has for tensors: {', '.join(allowed)}"
        raise unusable("interpolation", name or value, expected)
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
    if isinstance(fill, str):
        raise unusable("fill", fill, "a number, or one for each channel")
    raise NoNativeFormError(f"has fill={fill!r}, and not one number or one for each channel")


def size_of(transform: Any) -> tuple[int, int]:
    """Read `size` as lines and columns."""
    try:
        height, width = (operator.index(side) for side in transform.size)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise unusable("size", transform.size, "whole numbers of lines and columns, 1 or more")
    return height, width


def center_of(transform: Any) -> tuple[float, float] | None:
    """Read `center`, (x, y) in pixels from the top left corner, or None for the middle."""
    if transform.center is None:
        return None
    x, y = numbers_of(transform.center, "center", 2)
    return x, y
