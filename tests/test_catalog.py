"""The table of torchvision's transform classes, held against torchvision itself."""

from __future__ import annotations

import enum
import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import _presets, v2
from transform_examples import Make, examples, missing

from gpupreload import catalog

IMAGE = Image.effect_noise((40, 30), 80).convert("RGB")
UINT8 = v2.functional.pil_to_tensor(IMAGE).contiguous()
FLOATS = UINT8 / 255


def transform_classes(module: Any) -> list[type]:
    """All public classes of a module that are no enums."""
    found = (getattr(module, name) for name in dir(module) if not name.startswith("_"))
    return [cls for cls in found if inspect.isclass(cls) and not issubclass(cls, enum.Enum)]


def draws(transform: Callable[..., Any]) -> bool:
    """Whether torch's or Python's generator moved while a step was called on what it takes."""
    before = torch.get_rng_state().tolist(), random.getstate()
    for image in (IMAGE, FLOATS, UINT8):
        try:
            transform(image)
        except (TypeError, ValueError, AttributeError):
            continue
        return before != (torch.get_rng_state().tolist(), random.getstate())
    raise AssertionError(f"{transform} takes none of the images")


@pytest.mark.parametrize("cls", [*transform_classes(v1), *transform_classes(v2)])
def test_every_class_of_torchvision_is_in_the_table(cls: type) -> None:
    """A class that torchvision adds must be looked at by a person before it is trusted."""
    assert catalog.kind_of(cls.__new__(cls)) is not None


def test_every_name_in_the_table_is_a_class_of_torchvision() -> None:
    """No name in the table is misspelt, and none stands in it twice."""
    names = [*catalog.DETERMINISTIC, *catalog.RANDOM, *catalog.REFUSED]
    assert len(names) == len(set(names))
    there = {cls.__name__ for module in (v1, v2) for cls in transform_classes(module)}
    assert set(names) | {"Compose", "Lambda"} == there
    assert set(catalog.COLOR) <= there


def test_presets_of_weights_are_in_the_table() -> None:
    """All presets that torchvision's weights carry are known, or refused."""
    presets = [getattr(_presets, name)(**settings) for name, settings in PRESETS.items()]
    kinds = [catalog.kind_of(preset) for preset in presets]
    assert kinds == ["container", "container", "container", "refused", "refused"]
    assert set(PRESETS) == set(_presets.__all__)


PRESETS: dict[str, dict[str, Any]] = {
    "ImageClassification": {"crop_size": 20, "resize_size": 25, "antialias": False},
    "SemanticSegmentation": {"resize_size": 25},
    "ObjectDetection": {},
    "VideoClassification": {"crop_size": (2, 2), "resize_size": (2, 2)},
    "OpticalFlow": {},
}


@pytest.mark.parametrize("image", [IMAGE, UINT8], ids=["PIL", "tensor"])
@pytest.mark.parametrize("name", list(PRESETS)[:3])
def test_steps_of_a_preset_give_the_same_bits(name: str, image: Any) -> None:
    """A model's preset and the steps that it is taken apart into are one and the same."""
    preset = getattr(_presets, name)(**PRESETS[name])
    expected = preset(image)
    for step in catalog.steps_of_preset(preset):
        image = step(image)
    assert torch.equal(image, expected)


def test_a_preset_without_a_size_keeps_the_size() -> None:
    """A segmentation preset may have no resize at all."""
    preset = _presets.SemanticSegmentation(resize_size=None)
    names = [type(step).__name__ for step in catalog.steps_of_preset(preset)]
    assert names == ["PILToTensor", "ConvertImageDtype", "Normalize"]


def test_every_class_has_an_example() -> None:
    """The tests below leave no class out."""
    assert missing([*catalog.DETERMINISTIC, *catalog.RANDOM]) == set()


@pytest.mark.parametrize("make", examples(catalog.DETERMINISTIC).values())
def test_deterministic_classes_draw_nothing(make: Make) -> None:
    """What the table calls deterministic leaves the generators alone."""
    assert catalog.kind_of(make()) == "deterministic"
    assert not draws(make())


@pytest.mark.parametrize("make", examples(catalog.RANDOM).values())
def test_random_classes_draw(make: Make) -> None:
    """What the table calls random moves a generator; v1's `RandomChoice` Python's."""
    assert catalog.kind_of(make()) == "random"
    assert draws(make())


def test_subclasses_are_not_known() -> None:
    """A subclass of a torchvision class may do anything, so nothing is known of it."""
    subclass = type("Resize", (v2.Resize,), {})
    assert catalog.kind_of(subclass(20)) is None
    assert catalog.kind_of(type("Seq", (nn.Sequential,), {})()) is None


def test_a_random_container_is_known_only_if_all_in_it_is() -> None:
    """`RandomApply` is random whatever it holds, but a caller's function in it is not known."""
    assert catalog.is_known(v2.RandomApply([v2.Compose([v2.Pad(1), v2.RandomCrop(3)])]))
    assert not catalog.is_known(v2.RandomApply([v2.Compose([v2.Pad(1), abs])]))
    assert not catalog.is_known(v2.Lambda(abs))
    assert not catalog.is_known(v2.FiveCrop(3))
    assert catalog.kind_of(v2.RandomApply([abs])) == "random"


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (v2.ColorJitter(0.1), True),
        (v1.RandomGrayscale(), True),
        (v2.RandomApply(nn.ModuleList([v2.RandAugment()])), True),
        (v2.RandomChoice([v2.Compose([v2.Identity(), v2.ColorJitter()])]), True),
        (v2.RandomOrder([v2.Pad(3)]), False),
        (v2.GaussianBlur(3), False),
        (abs, False),
    ],
)
def test_steps_that_read_colors(transform: Any, expected: bool) -> None:
    """A step reads colours if it, or anything that it holds, does."""
    assert catalog.reads_colors(transform) is expected
