"""What of a torchvision step can be changed by hand: its numbers, ranges and choices, by name."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torchvision.transforms import AutoAugmentPolicy, InterpolationMode

from gpupreload.catalog import kind_of

Kind = Literal["number", "range", "choice"]


@dataclass(frozen=True)
class Knob:
    """One argument of a step's constructor, as it is set, and how far it can be turned.

    Attributes:
        name: of the argument, as torchvision names it.
        kind: "number"; "range", a pair (from, to); or "choice", one of `choices`.
        value: as it is set: a number, a pair of numbers, or one of the choices' values.
        low: the least number.
        high: the largest number.
        step: from one number to the next.
        choices: (label, value) pairs.
    """

    name: str
    kind: Kind
    value: Any
    low: float = 0.0
    high: float = 1.0
    step: float = 0.05
    choices: tuple[tuple[str, Any], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are expected."""
        return isinstance(self.step, int)


@dataclass(frozen=True)
class _Number:
    low: float = 0.0
    high: float = 1.0
    step: float = 0.05

    def knob(self, name: str, value: Any) -> Knob | None:
        number = _the_one_number(value)
        if number is None:
            return None
        low, high = min(self.low, number), max(self.high, number)
        return Knob(name, "number", number, low, high, self.step)


@dataclass(frozen=True)
class _Range:
    low: float = 0.0
    high: float = 1.0
    step: float = 0.05
    if_none: tuple[float, float] = (0.0, 0.0)  # the pair that changes nothing

    def knob(self, name: str, value: Any) -> Knob | None:
        pair = self.if_none if value is None else value
        if not _is_pair(pair):
            return None
        low, high = min(self.low, *pair), max(self.high, *pair)
        return Knob(name, "range", tuple(pair), low, high, self.step)


@dataclass(frozen=True)
class _Choice:
    choices: tuple[tuple[str, Any], ...]

    def knob(self, name: str, value: Any) -> Knob | None:
        labels = [label for label, choice in self.choices if _plain(choice) == _plain(value)]
        # the value itself among the choices: v2 takes names as well as torchvision's enumerations
        choices = tuple((k, value if k in labels else choice) for k, choice in self.choices)
        return Knob(name, "choice", value, choices=choices) if labels else None


_Bounds = _Number | _Range | _Choice

_P: dict[str, _Bounds] = {"p": _Number()}
_HOW = _Choice(
    tuple(
        (f"{mode.value}", mode) for mode in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR)
    )
)
_POLICY = _Choice(tuple((policy.value, policy) for policy in AutoAugmentPolicy))
_PADDING = _Choice(tuple((how, how) for how in ("constant", "edge", "reflect", "symmetric")))
_FACTOR = _Range(0.0, 3.0, if_none=(1.0, 1.0))
_HUE = _Range(-0.5, 0.5, 0.01)
_ANGLE = _Range(-180.0, 180.0, 1.0)
_SIDE = _Number(8, 256, 1)
_JITTER: dict[str, _Bounds] = {
    "brightness": _FACTOR,
    "contrast": _FACTOR,
    "saturation": _FACTOR,
    "hue": _HUE,
}
_AREA: dict[str, _Bounds] = {"scale": _Range(0.01, 1.0, 0.01), "ratio": _Range(0.1, 10.0, 0.05)}

_TABLE: dict[str, Mapping[str, _Bounds]] = {
    "AugMix": {
        "severity": _Number(1, 10, 1),
        "mixture_width": _Number(1, 6, 1),
        "chain_depth": _Number(-1, 6, 1),
        "alpha": _Number(0.1, 5.0, 0.1),
    },
    "AutoAugment": {"policy": _POLICY, "interpolation": _HOW},
    "ColorJitter": _JITTER,
    "ElasticTransform": {"alpha": _Number(0.0, 300.0, 5.0), "sigma": _Number(1.0, 20.0, 0.5)},
    "GaussianBlur": {"kernel_size": _Number(1, 31, 2), "sigma": _Range(0.1, 10.0, 0.1)},
    "GaussianNoise": {"mean": _Number(-0.5, 0.5, 0.01), "sigma": _Number(0.0, 1.0, 0.01)},
    "JPEG": {"quality": _Range(1, 100, 1)},
    "RandAugment": {
        "num_ops": _Number(1, 8, 1),
        "magnitude": _Number(0, 30, 1),
        "interpolation": _HOW,
    },
    "RandomAdjustSharpness": {"sharpness_factor": _Number(0.0, 10.0, 0.5), **_P},
    "RandomAffine": {
        "degrees": _ANGLE,
        "scale": _Range(0.1, 3.0, if_none=(1.0, 1.0)),
        "shear": _Range(-60.0, 60.0, 1.0),
        "interpolation": _HOW,
    },
    "RandomApply": _P,
    "RandomAutocontrast": _P,
    "RandomCrop": {"size": _SIDE, "padding": _Number(0, 64, 1), "padding_mode": _PADDING},
    "RandomEqualize": _P,
    "RandomErasing": {**_P, **_AREA},
    "RandomGrayscale": _P,
    "RandomHorizontalFlip": _P,
    "RandomInvert": _P,
    "RandomPerspective": {"distortion_scale": _Number(), **_P, "interpolation": _HOW},
    "RandomPhotometricDistort": {**_JITTER, **_P},
    "RandomPosterize": {"bits": _Number(0, 8, 1), **_P},
    "RandomResizedCrop": {"size": _SIDE, **_AREA},
    "RandomRotation": {"degrees": _ANGLE, "interpolation": _HOW},
    "RandomSolarize": {"threshold": _Number(), **_P},
    "RandomVerticalFlip": _P,
    "RandomZoomOut": {"side_range": _Range(1.0, 6.0, 0.1), **_P},
    "ScaleJitter": {"scale_range": _Range(0.1, 3.0)},
    "TrivialAugmentWide": {"num_magnitude_bins": _Number(2, 62, 1), "interpolation": _HOW},
}
"""For each class of torchvision's, in v1 and in v2, the arguments that can be turned, and how far.

Fill colours, centres, and pairs of different sides are not among them: they stay as they are given.
"""


def knobs_of(transform: Any) -> list[Knob]:
    """Return what of a step can be turned; nothing of a callable that is not torchvision's.

    >>> from torchvision.transforms import v2
    >>> [(knob.name, knob.value) for knob in knobs_of(v2.RandomRotation(30))]
    [('degrees', (-30.0, 30.0)), ('interpolation', 'nearest')]
    """
    if kind_of(transform) != "random":
        return []
    bounds = _TABLE.get(type(transform).__name__, {})
    found = (b.knob(name, getattr(transform, name, None)) for name, b in bounds.items())
    return [_widened(knob) for knob in found if knob is not None]


def _widened(knob: Knob) -> Knob:
    """A threshold above 1 is one of whole numbers up to 255."""
    if knob.name != "threshold" or knob.value <= 1:
        return knob
    return Knob(knob.name, knob.kind, knob.value, 0, 255, 1)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _the_one_number(value: Any) -> float | None:
    """The number that an argument is set to, for both sides where there are two; or None."""
    if value is None:
        return 0
    if isinstance(value, list | tuple):
        return _the_one_number(value[0]) if len(set(value)) == 1 else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(number, int | float) for number in value)
        and value[0] <= value[1]
    )
