"""Which of torchvision's transforms have a native form, and why the others have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2
from transform_examples import HOLDING, Make, examples

from gpupreload import catalog
from gpupreload.native.catalog import native_of, why_not_native

SUBCLASS = type("Subclass", (v2.RandomInvert,), {})
ITS_OWN = "is a function of its own, which only runs on one image at a time"
ITS_OWN_SIZE = "gives each image a size of its own"
WARPING = "one that torchvision has for tensors: nearest, bilinear"
JPEG = "encodes and decodes each image by itself"
A_RANGE = "two finite numbers, the lower one first"
WEIGHTS = "finite numbers of 0 or more, and one above 0"

NOT_NATIVE = [
    (
        v2.RandomRotation(3, expand=True),
        "has expand=True, which gives each image a size of its own",
    ),
    (
        v2.RandomAffine(3, interpolation="bicubic"),
        f"has interpolation='bicubic'; expected {WARPING}",
    ),
    (
        v1.RandomPerspective(interpolation=v1.InterpolationMode.HAMMING),
        f"has interpolation='hamming'; expected {WARPING}",
    ),
    (v2.ElasticTransform(interpolation=9), f"has interpolation=9; expected {WARPING}"),
    (
        v2.RandomResizedCrop(3, interpolation=1),
        "has interpolation='lanczos', which is calculated for each image alone",
    ),
    (
        v2.RandomCrop(3, fill={tv_tensors.Image: 1.0}),
        f"has fill={{{tv_tensors.Image!r}: 1.0}}, and not one number or one for each channel",
    ),
    (v2.RandomCrop(3, padding=-1), "has padding=[-1, -1, -1, -1], which cuts pixels off"),
    (
        v1.RandomCrop(3, padding=[1, 2, 3]),
        "has padding=[1, 2, 3]; expected a whole number of pixels, or 2 or 4 of them",
    ),
    (
        v2.RandomResizedCrop(3, scale=(0.1, float("nan"))),
        f"has scale=(0.1, nan); expected {A_RANGE}",
    ),
    (
        v2.RandomResizedCrop(3, ratio=(0, 1)),
        "has ratio=(0, 1); expected numbers above 0, between whose logarithms torchvision draws",
    ),
    (
        v2.ElasticTransform(sigma=(0.0, 2.0)),
        "has sigma=[0.0, 2.0]; expected two finite numbers above 0, or two of 0",
    ),
    (
        v1.RandomPerspective(distortion_scale=-1),
        "has distortion_scale=-1; expected a number from 0 to 1",
    ),
    (v2.RandomAffine(1, scale=(2, 1)), f"has scale=(2, 1); expected {A_RANGE}"),
    (v2.RandomPosterize(9), "has bits=9; expected a whole number from 0 to 8"),
    (v1.RandomAdjustSharpness(-1), "has sharpness_factor=-1; expected a number, 0 or more"),
    (v2.GaussianNoise(sigma=-0.1), "has sigma=-0.1; expected a number, 0 or more"),
    (
        v2.RandomPhotometricDistort(hue=(-0.6, 0)),
        "has brightness=(0.875, 1.125), contrast=(0.5, 1.5), saturation=(0.5, 1.5), hue=(-0.6, 0); "
        "expected a hue from -0.5 to 0.5, and the others 0 or more",
    ),
    (v2.JPEG((40, 50)), JPEG),
    (v2.ScaleJitter((3, 3)), ITS_OWN_SIZE),
    (v2.Resize(3), "draws nothing, and is run on whole batches as it is"),
    (v2.FiveCrop(3), "is no step from one image to one image"),
    (v2.RandomApply([v2.JPEG((40, 50))]), f"holds JPEG((40, 50)), which {JPEG}"),
    (
        v2.Compose([v2.RandomApply([v2.RandomInvert(), v2.JPEG((40, 50))])]),
        "holds RandomApply([RandomInvert(p=0.5), JPEG((40, 50))], p=0.5), which holds "
        f"JPEG((40, 50)), which {JPEG}",
    ),
    (
        v1.RandomOrder([v1.RandomInvert(), v1.RandomCrop(3)]),
        "holds RandomCrop(3), which can change the size that the next steps see",
    ),
    (
        v2.RandomChoice([v2.ToDtype(torch.float32)]),
        "holds ToDtype(torch.float32), which may change the dtype of some images and not of others",
    ),
    (v2.RandomApply([abs]), f"holds abs, which {ITS_OWN}"),
    (v2.Lambda(abs), ITS_OWN),
    (SUBCLASS(), ITS_OWN),
    (v1.RandomChoice([v1.RandomInvert()], p=[0]), f"has p=[0]; expected {WEIGHTS}"),
    (v1.RandomChoice([]), "holds no steps; expected one or more"),
]


@pytest.mark.filterwarnings("ignore:Scale and ratio should be")
@pytest.mark.parametrize(("transform", "reason"), NOT_NATIVE, ids=lambda x: str(x)[:40])
def test_what_is_not_native_says_why(transform: Any, reason: str) -> None:
    """A transform has a native form, or a reason why it has none."""
    assert native_of(transform) is None
    assert why_not_native(transform) == reason


SLOW = {"JPEG", "RandomResize", "RandomShortestSize", "RandomZoomOut", "ScaleJitter"}
# these examples are set to what has no native form
SET_SO = {"v1.RandomRotation-0", "v2.RandomRotation-0", "v1.RandomOrder", "v2.RandomOrder"}


@pytest.mark.parametrize(("label", "make"), examples(catalog.RANDOM).items())
def test_random_classes_are_native(label: str, make: Make) -> None:
    """Of torchvision's random classes, all but five have a native form."""
    transform = make()
    slow = type(transform).__name__ in SLOW or label in SET_SO
    assert (native_of(transform) is None) == slow
    assert (why_not_native(transform) is not None) == slow


def test_v1_and_v2_have_native_forms_by_class() -> None:
    """Every random class that v1 and v2 both have is native in both or in neither."""
    labels = {label[3:].split("-")[0] for label in examples(catalog.RANDOM)}
    assert labels == set(catalog.RANDOM)
    assert set(HOLDING) < labels


def test_the_form_is_that_of_the_moment() -> None:
    """A transform that is changed later has another form then, and the old one stays."""
    transform = v2.RandomRotation(10)
    before = native_of(transform)
    transform.degrees = [0.0, 1.0]
    assert before == native_of(v2.RandomRotation(10))
    assert native_of(transform) == native_of(v2.RandomRotation((0, 1)))
