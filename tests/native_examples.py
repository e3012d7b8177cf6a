"""torchvision transforms with a native form, and how torchvision itself replays their draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.native.catalog import native_of, why_not_native
from gpupreload.native.step import Native, Params

Row = dict[str, Any]
FACTORS = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")


def keys(n: int, seed: int = 0) -> Tensor:
    """The keys of samples 0 to n - 1."""
    return draws.keys(seed, 0, torch.arange(n))


def native(transform: Any) -> Native:
    """The native form of a transform, which must have one."""
    form = native_of(transform)
    assert form is not None, why_not_native(transform)
    return form


def row(params: Mapping[str, Tensor], i: int) -> Row:
    """The parameters of one sample: numbers as Python's, the rest as tensors."""
    return {k: v[i] if v[i].ndim else v[i].item() for k, v in params.items()}


def transformed(transform: Any, image: Tensor, row: Row) -> Tensor:
    """What the transform's own `transform` makes of an image with these parameters."""
    result: Tensor = transform.transform(image, row) if row.pop("applied", True) else image
    return result


def cropped(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.RandomCrop with the padding that it works out itself."""
    return transformed(transform, image, transform.make_params([image]) | row)


def cropped_by_v1(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v1.RandomCrop as it is, but for the place."""
    place = (row["top"], row["left"], *transform.size)
    with mock.patch.object(transform, "get_params", return_value=place):
        result: Tensor = transform(image)
    return result


def erased(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.RandomErasing: of the noise, what lies in the rectangle."""
    i, j, h, w = (row[name] for name in "ijhw")
    values = transform.value
    v = row["v"][:, i : i + h, j : j + w] if values is None else torch.tensor(values)[:, None, None]
    return transformed(transform, image, row | {"v": v})


def distorted(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.RandomPerspective, which takes its coefficients as a list."""
    row.pop("endpoints")
    return transformed(transform, image, row | {"coefficients": row["coefficients"].tolist()})


def mapped(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.RandomAffine, which takes pairs as lists."""
    pairs = {name: row[name].tolist() for name in ("translate", "shear")}
    return transformed(transform, image, row | pairs)


def displaced(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.ElasticTransform, whose displacement has a dimension more."""
    return transformed(transform, image, {"displacement": row["displacement"][None]})


def jittered(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.ColorJitter or RandomPhotometricDistort: no factor, or NaN, is None."""
    drawn = {name: row.get(name, float("nan")) for name in FACTORS}
    factors = {name: None if value != value else value for name, value in drawn.items()}
    return transformed(transform, image, row | factors)


def blurred(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.GaussianBlur, which takes its sigma twice."""
    return transformed(transform, image, {"sigma": [row["sigma"]] * 2})


def noisy(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.GaussianNoise, which draws inside its kernel."""
    with mock.patch.object(torch, "randn_like", return_value=row["noise"]):
        return transformed(transform, image, {})


def grayed(transform: Any, image: Tensor, row: Row) -> Tensor:
    """v2.RandomGrayscale, whose one parameter is no draw."""
    return transformed(transform, image, row | {"num_input_channels": len(image)})


@dataclass(frozen=True)
class Example:
    """A transform, its oracle, and the bounds that the law of the rows has for it.

    Attributes:
        name: of the class.
        settings: keyword arguments.
        replay: torchvision's result for one image, given one row of parameters in full.
        share: how many uint8 values may differ, by one level; 0 for equal.
        apart: how far floats may lie from torchvision's; 0 for equal.
        distinct: how many different images of 64 equal ones must come out, at least.
        channels: for which numbers of channels it can be run.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    replay: Callable[[Any, Tensor, Row], Tensor] = transformed
    share: float = 0.0
    apart: float = 0.0
    distinct: int = 2
    channels: tuple[int, ...] = (1, 3)
    module: Any = v2

    def make(self, module: Any = None) -> Any:
        """The transform."""
        return getattr(module or self.module, self.name)(**self.settings)

    def __str__(self) -> str:
        """A label for pytest."""
        version = "v1." if self.module is v1 else ""
        return version + self.name + "".join(f" {v}" for v in self.settings.values())


def expected(example: Example, images: Tensor, params: Params) -> Tensor:
    """The oracle's rows, one by one."""
    transform = example.make()
    rows = (row(params, i) for i in range(len(images)))
    pairs = zip(images, rows, strict=True)
    return torch.stack([example.replay(transform, image, row) for image, row in pairs])


AFFINE = {"degrees": 40, "translate": (0.2, 0.1), "scale": (0.6, 1.5), "shear": (-9, 9, -5, 5)}
CROP = {"size": (17, 12), "padding": [3, 1, 2, 4]}
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.2}

CROPS = [
    *(
        Example(
            "RandomCrop",
            {**settings, "padding_mode": mode},
            replay,
            distinct=20,
            module=module,
        )
        for module, replay in ((v2, cropped), (v1, cropped_by_v1))
        for settings in (CROP, {"size": (34, 30), "padding": 2, "pad_if_needed": True})
        for mode in ("constant", "edge", "reflect", "symmetric")
    ),
    Example("RandomCrop", CROP | {"fill": (9, 8, 7)}, cropped, distinct=20, channels=(3,)),
    Example("RandomCrop", CROP | {"fill": None}, cropped, distinct=20),
    Example("RandomCrop", {"size": 7}, cropped, distinct=20),
]
RESIZED_CROPS = [
    Example(
        "RandomResizedCrop",
        {"size": (12, 17), "interpolation": how, "antialias": antialias},
        distinct=20,
        apart=apart,
    )
    for how, antialias, apart in (
        ("nearest", True, 0),
        ("nearest-exact", True, 0),
        ("bilinear", True, 0),
        ("bilinear", False, 0),
        (v2.InterpolationMode.BICUBIC, True, 0),
        (2, None, 0),
    )
]
ERASING = [
    Example("RandomErasing", {"p": 0.8, "value": value}, erased, distinct=20, channels=channels)
    for value, channels in ((0, (1, 3)), ((3, 0.5, 200), (3,)), ([1.0], (1, 3)), ("random", (1, 3)))
]
WARPS = [
    *(
        Example(name, settings | how, replay, apart=2e-6, distinct=distinct)
        for name, settings, replay, distinct in (
            ("RandomRotation", {"degrees": (-50, 130)}, transformed, 20),
            ("RandomAffine", AFFINE, mapped, 20),
            ("RandomPerspective", {"p": 0.7}, distorted, 20),
            ("ElasticTransform", {"alpha": 40.0, "sigma": 1.0}, displaced, 20),
        )
        for how in (
            {"interpolation": "nearest"},
            {"interpolation": "bilinear", "fill": 3},
            {"interpolation": v2.InterpolationMode.BILINEAR, "fill": None},
        )
    ),
    Example("RandomRotation", {"degrees": (90, 90), "center": (3, 5.5)}, distinct=1),
    Example("RandomRotation", {"degrees": 30, "fill": (5, 6, 7)}, distinct=20, channels=(3,)),
    Example("RandomAffine", {"degrees": 0, "scale": (1, 2), "center": [0, 9]}, mapped, distinct=20),
    Example("RandomAffine", {"degrees": (0, 0), "shear": 20}, mapped, distinct=20),
    Example(
        "ElasticTransform",
        {"alpha": [30.0, 9.0], "sigma": [0.5, 2.0]},
        displaced,
        apart=2e-6,
        distinct=20,
    ),
    Example("ElasticTransform", {"sigma": 0.0}, displaced, apart=2e-6, distinct=20),
]
COLORS = [
    # a level of difference before another change can become two
    Example("ColorJitter", JITTER, jittered, share=1e-3, apart=1e-5, distinct=20),
    Example("ColorJitter", {"brightness": (0.5, 2)}, jittered, distinct=20),
    Example("ColorJitter", {"contrast": 0.5, "hue": 0.1}, jittered, 1e-3, 1e-5, distinct=20),
    Example(
        "RandomPhotometricDistort",
        {"brightness": (0.5, 1.5), "hue": (-0.2, 0.3), "p": 0.6},
        jittered,
        share=1e-3,
        apart=1e-5,
        distinct=20,
    ),
    Example("RandomChannelPermutation", distinct=6, channels=(3,)),
    Example("GaussianBlur", {"kernel_size": (5, 3)}, blurred, 1e-3, 1e-6, distinct=20),
    Example("GaussianNoise", {}, noisy, apart=1e-7, distinct=20),
    Example(
        "GaussianNoise", {"mean": 0.2, "sigma": 0.6, "clip": False}, noisy, apart=1e-6, distinct=20
    ),
]
SOMETIMES = [
    Example("RandomHorizontalFlip"),
    Example("RandomVerticalFlip", {"p": 0.3}),
    Example("RandomGrayscale", {"p": 0.5}, grayed, channels=(3,)),
    Example("RandomInvert"),
    Example("RandomPosterize", {"bits": 3}),
    Example("RandomSolarize", {"threshold": 0.4}),
    Example("RandomAdjustSharpness", {"sharpness_factor": 1.7}, apart=3e-7),
    Example("RandomAutocontrast"),
    Example("RandomEqualize"),
]
EXAMPLES = [*CROPS, *RESIZED_CROPS, *ERASING, *WARPS, *COLORS, *SOMETIMES]
