"""Which of torchvision's transforms have a native form, by their exact class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload.catalog import held_by, kind_of
from gpupreload.functional.pixelwise import (
    UNCHANGED_ON_TENSORS,
    is_pixelwise,
    why_unusable_pixelwise,
)
from gpupreload.native import colors, sometimes
from gpupreload.native.containers import Chain, Fixed, RandomApply, RandomChoice, RandomOrder
from gpupreload.native.crops import RandomCrop, RandomResizedCrop
from gpupreload.native.erasing import RandomErasing
from gpupreload.native.policies import POLICIES
from gpupreload.native.reading import (
    NoNativeFormError,
    UnusableSettingError,
    numbers_of,
    probability_of,
    unusable,
)
from gpupreload.native.step import Native
from gpupreload.native.warps import (
    ElasticTransform,
    RandomAffine,
    RandomPerspective,
    RandomRotation,
)
from gpupreload.settings import name_of

Reader = Callable[[Any], Native]


def native_of(transform: Any) -> Native | None:
    """Return the native form of one of torchvision's random steps, or None where it has none.

    The form is that of the settings at this moment: what is changed in the transform later does
    not reach it.

    Args:
        transform: anything; only torchvision's own classes, v1 or v2, have a native form, and no
            subclasses of them.
    """
    try:
        return _read(transform)
    except NoNativeFormError:
        return None


def why_not_native(transform: Any) -> str | None:
    """Say why a transform, as it is set, has no native form, in words that go on after its name.

    None where it has one.

    >>> why_not_native(v2.JPEG(50))
    'encodes and decodes each image by itself'
    """
    try:
        _read(transform)
    except NoNativeFormError as reason:
        return str(reason)
    return None


def why_unusable(transform: Any) -> str | None:
    """Say which setting makes a transform fail or pointless, in words that go on after its name.

    None where nothing is known against it. What a container holds is looked at too.

    >>> why_unusable(v2.RandomPosterize(9))
    'has bits=9; expected a whole number from 0 to 8'
    """
    try:
        _read(transform)
    except UnusableSettingError as reason:
        return str(reason)
    except NoNativeFormError:
        if is_pixelwise(transform) and why_unusable_pixelwise(transform):
            return why_unusable_pixelwise(transform)
    inner = ((held, why_unusable(held)) for held in held_by(transform))
    return next(
        (f"holds {name_of(held)}, which {reason}" for held, reason in inner if reason), None
    )


def _read(transform: Any) -> Native:
    read = _READERS.get(type(transform))
    if read is None:
        raise NoNativeFormError(_why_unknown(transform))
    return read(transform)


def _why_unknown(transform: Any) -> str:
    kind = kind_of(transform)
    if kind == "deterministic":
        return "draws nothing, and is run on whole batches as it is"
    if kind == "random":
        return _REASONS.get(type(transform).__name__, "has no native form yet")
    if kind is None or kind == "function":
        return "is a function of its own, which only runs on one image at a time"
    return "is no step from one image to one image"


def _held(transform: Any) -> list[Native]:
    return [_read_held(step) for step in held_by(transform)]


def _read_held(transform: Any) -> Native:
    """A step inside a container: random, or deterministic with the dtype kept."""
    cls = type(transform)
    if cls in _FIXED:
        return Fixed(transform, keeps_any_shape=cls in _KEEPING_SHAPE)
    try:
        return _read(transform)
    except NoNativeFormError as error:
        inner = str(error)
        if isinstance(error, UnusableSettingError):
            raise UnusableSettingError(f"holds {name_of(transform)}, which {inner}") from error
        if kind_of(transform) == "deterministic":
            inner = "may change the dtype of some images and not of others"
        raise NoNativeFormError(f"holds {name_of(transform)}, which {inner}") from error


def _chain(transform: Any) -> Chain:
    return Chain(tuple(_held(transform)))


def _random_apply(transform: Any) -> RandomApply:
    return RandomApply(_chain(transform), probability_of(transform))


def _random_choice(transform: Any) -> RandomChoice:
    steps = tuple(_held(transform))
    if not steps:
        raise UnusableSettingError("holds no steps; expected one or more")
    p = [1] * len(steps) if transform.p is None else transform.p
    weights = numbers_of(p, "p", len(steps))
    if not 0 < sum(weights) < math.inf or min(weights) < 0:
        raise unusable("p", p, "finite numbers of 0 or more, and one above 0")
    return RandomChoice(steps, weights)


def _random_order(transform: Any) -> RandomOrder:
    steps = tuple(_held(transform))
    for step, held in zip(steps, held_by(transform), strict=True):
        if not step.keeps_shape:
            raise NoNativeFormError(
                f"holds {name_of(held)}, which can change the size that the next steps see"
            )
    return RandomOrder(steps)


# names in torchvision.transforms and torchvision.transforms.v2; some are in one of them only
_BY_NAME: dict[str, Reader] = {
    "ColorJitter": colors.ColorJitter.of,
    "Compose": _chain,
    "ElasticTransform": ElasticTransform.of,
    "GaussianBlur": colors.GaussianBlur.of,
    "GaussianNoise": colors.GaussianNoise.of,
    "RandomAdjustSharpness": sometimes.sharpness,
    "RandomAffine": RandomAffine.of,
    "RandomApply": _random_apply,
    "RandomAutocontrast": sometimes.autocontrast,
    "RandomChannelPermutation": colors.RandomChannelPermutation.of,
    "RandomChoice": _random_choice,
    "RandomCrop": RandomCrop.of,
    "RandomEqualize": sometimes.equalize,
    "RandomErasing": RandomErasing.of,
    "RandomGrayscale": sometimes.grayscale,
    "RandomHorizontalFlip": sometimes.horizontal_flip,
    "RandomInvert": sometimes.invert,
    "RandomOrder": _random_order,
    "RandomPerspective": RandomPerspective.of,
    "RandomPhotometricDistort": colors.RandomPhotometricDistort.of,
    "RandomPosterize": sometimes.posterize,
    "RandomResizedCrop": RandomResizedCrop.of,
    "RandomRotation": RandomRotation.of,
    "RandomSolarize": sometimes.solarize,
    "RandomVerticalFlip": sometimes.vertical_flip,
}

_OF_ITS_OWN_SIZE = "gives each image a size of its own"
_REASONS = {
    "JPEG": "encodes and decodes each image by itself",
    "RandomResize": _OF_ITS_OWN_SIZE,
    "RandomShortestSize": _OF_ITS_OWN_SIZE,
    "RandomZoomOut": _OF_ITS_OWN_SIZE,
    "ScaleJitter": _OF_ITS_OWN_SIZE,
}


def _classes(*names: str) -> list[type]:
    return [getattr(m, name) for name in names for m in (v1, v2) if hasattr(m, name)]


_READERS: dict[type, Reader] = {
    nn.Sequential: _chain,
    **POLICIES,
    **{cls: read for name, read in _BY_NAME.items() for cls in _classes(name)},
}
NATIVE = frozenset(_READERS)
"""The classes that have a native form, as most of their settings are."""

_KEEPING_SHAPE = {*UNCHANGED_ON_TENSORS, *_classes("Normalize")}
_FIXED = {*_KEEPING_SHAPE, *_classes("CenterCrop", "Grayscale", "Pad", "RGB", "Resize")}
