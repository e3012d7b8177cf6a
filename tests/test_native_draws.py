"""Every drawn parameter has torchvision's distribution: 20,000 draws each way, side by side."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from native_examples import FACTORS, keys, native
from one_distribution import (
    UNLIKELY,
    Columns,
    N,
    assert_one_distribution,
    columns,
    likelihood,
    stacked,
)
from scipy import stats
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Let torchvision draw the same numbers each time."""
    torch.manual_seed(0)
    random.seed(0)


def box_columns(params: Mapping[str, Any]) -> Columns:
    """The four numbers of a box, its area and its shape."""
    four = columns(params)
    _, _, height, width = four.values()
    ratio = np.log(np.maximum(width, 0.5) / np.maximum(height, 0.5))
    return four | {"area": height * width, "ratio": ratio}


def shown(size: tuple[int, int]) -> Tensor:
    """An image of a size."""
    return torch.zeros((3, *size), dtype=torch.uint8)


# the usual; too wide for most tries; too tall for the ratios; whole areas alone; and in v1 too
BOXES = [
    (v2, (37, 53), {}),
    (v2, (20, 110), {"scale": (0.3, 1.0)}),
    (v2, (90, 21), {"scale": (0.2, 0.6), "ratio": (0.9, 2.0)}),
    (v2, (10, 200), {"scale": (1.0, 1.0), "ratio": (1.0, 1.0)}),
    (v1, (21, 90), {"scale": (0.2, 0.6)}),
]


@pytest.mark.parametrize(("module", "size", "settings"), BOXES)
def test_boxes_to_resize(module: Any, size: tuple[int, int], settings: dict[str, Any]) -> None:
    """RandomResizedCrop: places, sides, areas and shapes, the fallback's share included."""
    transform, image = module.RandomResizedCrop(9, **settings), shown(size)
    if module is v1:
        four = (transform.get_params(image, transform.scale, transform.ratio) for _ in range(N))
    else:
        four = (tuple(transform.make_params([image]).values()) for _ in range(N))
    theirs = dict(zip(("top", "left", "height", "width"), zip(*four, strict=True), strict=True))
    ours = native(transform).draw(keys(N), (3, *size))
    assert_one_distribution(box_columns(ours), box_columns(theirs))


@pytest.mark.parametrize(
    ("module", "size", "settings"),
    [
        (v2, (37, 53), {}),
        (v2, (30, 31), {"scale": (0.6, 1.0), "ratio": (0.3, 3.3)}),
        (v1, (20, 110), {"scale": (0.1, 0.9)}),
    ],
)
def test_boxes_to_erase(module: Any, size: tuple[int, int], settings: dict[str, Any]) -> None:
    """RandomErasing: the same for its boxes, of which the whole image means none."""
    transform, image = module.RandomErasing(p=1, **settings), shown(size)
    if module is v1:
        how = (transform.scale, transform.ratio, [0.0])
        four = (transform.get_params(image, *how)[:4] for _ in range(N))
    else:
        four = (tuple(transform.make_params([image]).values())[:4] for _ in range(N))
    theirs = dict(zip("ijhw", zip(*four, strict=True), strict=True))
    ours = native(transform).draw(keys(N), (3, *size))
    whole = (ours["h"] == size[0]) & (ours["w"] == size[1])
    assert torch.equal(ours.pop("applied"), ~whole)
    assert_one_distribution(box_columns(ours), box_columns(theirs))


AFFINE = {"degrees": (-5, 40), "translate": (0.1, 0.4), "scale": (0.5, 1.2)}


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "settings", [AFFINE | {"shear": (-3, 9, 2, 4)}, {"degrees": 3, "shear": 20}]
)
def test_affine_maps(module: Any, settings: dict[str, Any]) -> None:
    """RandomAffine: all six numbers, and that each is drawn by itself."""
    t = module.RandomAffine(**settings)
    if module is v1:
        how = (t.degrees, t.translate, t.scale, t.shear, [31, 20])
        theirs = (t.get_params(*how) for _ in range(N))
    else:
        theirs = (tuple(t.make_params([shown((20, 31))]).values()) for _ in range(N))
    ours = native(t).draw(keys(N), (3, 20, 31))
    assert ours["translate"].dtype == torch.int64
    assert_one_distribution(columns(ours), stacked(theirs, "angle translate scale shear"))


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(("size", "scale"), [((20, 31), 0.5), ((7, 9), 0.8)])
def test_perspectives(module: Any, size: tuple[int, int], scale: float) -> None:
    """RandomPerspective: where the four corners come to lie."""
    t = module.RandomPerspective(scale)
    if module is v1:
        theirs = [(t.get_params(size[1], size[0], scale)[1],) for _ in range(N)]
    else:
        # v2 gives only the coefficients that follow from the corners
        name = "torchvision.transforms.v2._geometry._get_perspective_coeffs"
        with mock.patch(name, lambda start, end: end):
            theirs = [(t.make_params([shown(size)])["coefficients"],) for _ in range(N)]
    ours = native(t).draw(keys(N), (3, *size))
    assert_one_distribution(columns({"end": ours["endpoints"]}), stacked(theirs, "end"))


JITTERS = [
    {"brightness": 0.4, "contrast": (0.3, 2), "saturation": 1.5, "hue": (-0.1, 0.4)},
    {"contrast": 0.2},
]


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("settings", JITTERS)
def test_jitters(module: Any, settings: dict[str, Any]) -> None:
    """ColorJitter: the order, which is any of 24, and the factors."""
    t = module.ColorJitter(**settings)
    if module is v1:
        how = (t.brightness, t.contrast, t.saturation, t.hue)
        five = (t.get_params(*how) for _ in range(N))
    else:
        five = (tuple(t.make_params([]).values()) for _ in range(N))
    names = ("fn_idx", *FACTORS)
    theirs = dict(zip(names, zip(*five, strict=True), strict=True))
    drawn = {name: values for name, values in theirs.items() if values[0] is not None}
    ours = native(t).draw(keys(N), (3, 4, 4))
    assert_one_distribution(columns(ours), columns(drawn))


def test_distortions() -> None:
    """RandomPhotometricDistort: which changes are made, and how far; NaN stands for None."""
    t = v2.RandomPhotometricDistort(contrast=(0.2, 1.1), p=0.3)
    drawn = [t.make_params([shown((3, 3))]) for _ in range(N)]
    theirs = {name: [params[name] for params in drawn] for name in drawn[0]}
    theirs["channel_permutation"] = [
        torch.arange(3) if order is None else order for order in theirs["channel_permutation"]
    ]
    ours = native(t).draw(keys(N), (3, 4, 4))
    assert_one_distribution(columns(ours), columns(theirs))


SINGLE: dict[str, tuple[Any, Callable[[], Any], str]] = {
    "v1.RandomRotation": (
        v1.RandomRotation((-3, 70)),
        lambda: v1.RandomRotation.get_params([-3, 70]),
        "angle",
    ),
    "v2.RandomRotation": (
        v2.RandomRotation(15),
        lambda: v2.RandomRotation(15).make_params([])["angle"],
        "angle",
    ),
    "v1.GaussianBlur": (v1.GaussianBlur(3), lambda: v1.GaussianBlur.get_params(0.1, 2.0), "sigma"),
    "v2.GaussianBlur": (
        v2.GaussianBlur(3, sigma=(1, 5)),
        lambda: v2.GaussianBlur(3, sigma=(1, 5)).make_params([])["sigma"][1],
        "sigma",
    ),
    "v2.RandomChannelPermutation": (
        v2.RandomChannelPermutation(),
        lambda: v2.RandomChannelPermutation().make_params([torch.zeros(4, 1, 1)])["permutation"],
        "permutation",
    ),
}


@pytest.mark.parametrize(("transform", "draw", "name"), SINGLE.values(), ids=list(SINGLE))
def test_single_parameters(transform: Any, draw: Callable[[], Any], name: str) -> None:
    """Angles, sigmas and orders of channels."""
    theirs = stacked(((draw(),) for _ in range(N)), name)
    assert_one_distribution(columns(native(transform).draw(keys(N), (4, 5, 5))), theirs)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_crops(module: Any) -> None:
    """RandomCrop: every picture that can come out has torchvision's share."""
    transform = module.RandomCrop((4, 6), padding=[1, 2], pad_if_needed=True, fill=7)
    image = torch.arange(6, dtype=torch.uint8).view(1, 2, 3)
    step = native(transform)
    ours = step.apply(image.expand(N, -1, -1, -1), step.draw(keys(N), (1, 2, 3)))
    counts = [
        Counter(picture.numpy().tobytes() for picture in pictures)
        for pictures in (ours, (transform(image) for _ in range(N)))
    ]
    pictures = sorted(counts[0])
    assert len(pictures) == 6
    assert set(pictures) == set(counts[1])
    table = [[count[picture] for picture in pictures] for count in counts]
    assert stats.chi2_contingency(table, correction=False).pvalue > UNLIKELY


# the function of v1 that each class calls where it changes an image
SOMETIMES = {
    "RandomHorizontalFlip": "hflip",
    "RandomVerticalFlip": "vflip",
    "RandomGrayscale": "rgb_to_grayscale",
    "RandomInvert": "invert",
    "RandomAutocontrast": "autocontrast",
    "RandomEqualize": "equalize",
    "RandomPosterize": "posterize",
    "RandomSolarize": "solarize",
    "RandomAdjustSharpness": "adjust_sharpness",
    "RandomErasing": "erase",
    "RandomPerspective": "perspective",
}
FIRST = {"RandomPosterize": (1,), "RandomSolarize": (9,), "RandomAdjustSharpness": (2,)}


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", SOMETIMES)
def test_what_is_made_or_not(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of samples for which a step is made is torchvision's."""
    transform = getattr(module, name)(*FIRST.get(name, ()), p=0.3)
    image, made = shown((3, 4)), [0]

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        made[-1] += 1
        return image

    if module is v1:
        monkeypatch.setattr(v1.functional, SOMETIMES[name], kernel)
    else:
        monkeypatch.setattr(transform, "transform", kernel)
    for _ in range(N):
        transform(image)
        made.append(0)
    applied = native(transform).draw(keys(N), (3, 3, 4))["applied"]
    assert likelihood(applied.numpy().astype(int), np.array(made[:-1])) > UNLIKELY
