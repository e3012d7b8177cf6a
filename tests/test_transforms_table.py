"""The README's table of torchvision's transforms: complete, and true of the library as it is."""

from __future__ import annotations

import enum
import inspect
from typing import Any

import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2
from transform_examples import Make, examples

import gpupreload as gp
from tools import transforms_table as table

OF_EXAMPLES = examples(table.names())


def test_the_readme_has_the_table_as_it_should_be() -> None:
    """The table in the README is what the library says; tools/transforms_table.py writes it."""
    text = table.README.read_text(encoding="utf-8")
    assert table.written(text) == text


def test_the_table_is_complete() -> None:
    """Every public class of torchvision's v1 and v2 has its row."""
    found = {
        name
        for module in (v1, v2)
        for name, cls in inspect.getmembers(module, inspect.isclass)
        if not name.startswith("_") and not issubclass(cls, enum.Enum)
    }
    assert set(table.names()) == found


def way_of(transform: Any) -> str:
    """How gp.per_sample runs a single step, as its repr says it; "refused" where it does not."""
    try:
        line = repr(gp.per_sample(transform, seed=0)).splitlines()[1]
    except gp.TransformError:
        return "refused"
    return line.rpartition("(")[2].removesuffix(")")


SET_TO_BE_REFUSED = {"RandomRotation"}  # the examples have expand=True
SET_TO_BE_SLOW = {"RandomOrder"}  # the examples hold a crop


@pytest.mark.parametrize(("label", "make"), OF_EXAMPLES.items())
def test_each_row_is_true(label: str, make: Make) -> None:
    """What the table says of a class is what gp.per_sample does with an instance."""
    name = label[3:].split("-")[0]
    expected = table.how(name)
    if name in SET_TO_BE_REFUSED:
        expected = "refused"
    if name in SET_TO_BE_SLOW:
        expected = table.BY_SAMPLE
    assert way_of(make()) == expected.removesuffix(", per sample")


OTHERS = {
    "RandomRotation": v2.RandomRotation(30),
    "RandomOrder": v2.RandomOrder([v2.RandomInvert()]),
    "MixUp": v2.MixUp(num_classes=3),
    "CutMix": v2.CutMix(num_classes=3),
    "Lambda": v2.Lambda(abs),
    "FiveCrop": v1.FiveCrop(3),
    "TenCrop": v2.TenCrop(3),
    "RandomIoUCrop": v2.RandomIoUCrop(),
    "SanitizeBoundingBoxes": v2.SanitizeBoundingBoxes(),
    "ClampBoundingBoxes": v2.ClampBoundingBoxes(),
    "ConvertBoundingBoxFormat": v2.ConvertBoundingBoxFormat("XYWH"),
    "UniformTemporalSubsample": v2.UniformTemporalSubsample(3),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_rows_without_an_example_are_true(name: str) -> None:
    """The same for classes that are no step on one image, or whose examples are set otherwise."""
    way = way_of(OTHERS[name]).split(";")[0]
    expected = table.how(name).removesuffix(", per sample")
    assert expected.startswith(way.removesuffix(" (sample by sample"))


@pytest.mark.parametrize("held", [v2.JPEG(50), abs])
@pytest.mark.parametrize("name", ["RandomApply", "RandomChoice", "RandomOrder"])
def test_containers_are_as_slow_as_what_they_hold(name: str, held: Any) -> None:
    """A container that holds what has no native form runs sample by sample."""
    assert way_of(getattr(v2, name)([v2.RandomInvert(), held])).startswith("sample by sample")


def test_lanczos_runs_sample_by_sample() -> None:
    """The one interpolation without a native form is torchvision's own."""
    crop = v2.RandomResizedCrop(8, interpolation=v2.InterpolationMode.LANCZOS)
    assert way_of(crop) == table.BY_SAMPLE
    images = torch.zeros(2, 3, 9, 9, dtype=torch.uint8)
    assert gp.per_sample(crop)(images).shape == (2, 3, 8, 8)
