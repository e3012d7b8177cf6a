"""One or two instances of every transform class of torchvision's v1 and v2 that takes one image."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

Make = Callable[[], Any]

_NORM = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}

_SETTINGS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "AugMix": [((), {"severity": 2})],
    "AutoAugment": [((), {}), ((v1.AutoAugmentPolicy.SVHN,), {})],
    "CenterCrop": [((20,), {}), (((16, 24),), {})],
    "ColorJitter": [((), {"brightness": 0.4, "hue": 0.1}), ((), {"saturation": (0.5, 2.0)})],
    "ConvertImageDtype": [((torch.float32,), {})],
    "ElasticTransform": [((), {"alpha": 20.0})],
    "GaussianBlur": [((3,), {"sigma": (0.5, 1.0)})],
    "GaussianNoise": [((), {"sigma": 0.2})],
    "Grayscale": [((), {}), ((3,), {})],
    "Identity": [((), {})],
    "JPEG": [(((20, 80),), {})],
    "LinearTransformation": [((torch.eye(3 * 30 * 40), torch.ones(3 * 30 * 40)), {})],
    "Normalize": [((), _NORM)],
    "PILToTensor": [((), {})],
    "Pad": [((3,), {}), (((1, 2),), {"padding_mode": "reflect"})],
    "RGB": [((), {})],
    "RandAugment": [((), {"num_ops": 1})],
    "RandomAdjustSharpness": [((2,), {})],
    "RandomAffine": [((30,), {"translate": (0.1, 0.2)})],
    "RandomAutocontrast": [((), {})],
    "RandomChannelPermutation": [((), {})],
    "RandomCrop": [((20,), {"padding": 4}), (((16, 20),), {"pad_if_needed": True})],
    "RandomEqualize": [((), {"p": 0.4})],
    "RandomErasing": [((), {}), ((), {"value": 1.0, "p": 1.0}), ((), {"value": "random"})],
    "RandomGrayscale": [((), {})],
    "RandomHorizontalFlip": [((), {}), ((1.0,), {})],
    "RandomInvert": [((), {})],
    "RandomPerspective": [((), {"fill": 3})],
    "RandomPhotometricDistort": [((), {})],
    "RandomPosterize": [((3,), {})],
    "RandomResize": [((20, 30), {})],
    "RandomResizedCrop": [((20,), {"scale": (0.3, 1.0)}), (((20, 24),), {})],
    "RandomRotation": [((30,), {"expand": True})],
    "RandomShortestSize": [(([20, 24],), {})],
    "RandomSolarize": [((128,), {})],
    "RandomVerticalFlip": [((), {})],
    "RandomZoomOut": [((), {"side_range": (1.0, 2.0)})],
    "Resize": [
        ((20,), {}),
        (((24, 20),), {"interpolation": v1.InterpolationMode.BICUBIC}),
        ((20,), {"max_size": 25}),
    ],
    "ScaleJitter": [(((40, 40),), {})],
    "ToDtype": [((torch.float32,), {"scale": True})],
    "ToImage": [((), {})],
    "ToPILImage": [((), {})],
    "ToPureTensor": [((), {})],
    "ToTensor": [((), {})],
    "TrivialAugmentWide": [((), {})],
}

HOLDING = {
    "RandomApply": lambda module: module.RandomApply([module.ColorJitter(0.4)], p=0.3),
    "RandomChoice": lambda module: module.RandomChoice([module.Pad(2), module.Pad(4)]),
    "RandomOrder": lambda module: module.RandomOrder([module.Pad(2), module.RandomCrop(20)]),
}


def _make(module: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v2.ToTensor says that it is deprecated
        return getattr(module, name)(*args, **kwargs)


def examples(names: Any) -> dict[str, Make]:
    """Ways to make each example of these classes, by a readable label such as "v2.Resize-1"."""
    made: dict[str, Make] = {}
    for prefix, module in (("v1", v1), ("v2", v2)):
        for name in (name for name in names if hasattr(module, name)):
            if name in HOLDING:
                made[f"{prefix}.{name}"] = functools.partial(HOLDING[name], module)
            for i, (args, kwargs) in enumerate(_SETTINGS.get(name, ())):
                made[f"{prefix}.{name}-{i}"] = functools.partial(_make, module, name, args, kwargs)
    return made


def missing(names: Any) -> set[str]:
    """The classes that have no example here."""
    return set(names) - set(_SETTINGS) - set(HOLDING)
