"""Taking transforms apart, and the marks on steps."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchvision import models
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload.errors import TransformError
from gpupreload.leaves import batched, flatten, live, once

A, B, C, D = v1.Pad(1), v2.Pad(2), v2.RandomHorizontalFlip(), v1.ToTensor()


def double(image: Any) -> Any:
    """Twice the image."""
    return image * 2


@pytest.mark.parametrize(
    ("transform", "steps"),
    [
        (None, []),
        (A, [A]),
        ([], []),
        ([A, (B, C), D], [A, B, C, D]),
        (v1.Compose([]), []),
        (v1.Compose([A, v2.Compose([B, v1.Compose([C])]), D]), [A, B, C, D]),
        (nn.Sequential(B, nn.Sequential(C)), [B, C]),
        ([v2.Compose([A, B]), None], None),
        (double, [double]),
    ],
)
def test_containers_are_taken_apart(transform: Any, steps: list[Any] | None) -> None:
    """Nested containers become one row of the caller's own objects, in order."""
    if steps is None:
        with pytest.raises(TransformError):
            flatten(transform)
    else:
        leaves = flatten(transform)
        assert [id(leaf.transform) for leaf in leaves] == [id(step) for step in steps]


@pytest.mark.parametrize("make", [v2.RandomApply, v2.RandomChoice, v2.RandomOrder, v1.RandomOrder])
def test_random_containers_stay_whole(make: Callable[[Any], Any]) -> None:
    """What picks among its steps anew each time is one step."""
    container = make([A, B])
    assert [leaf.transform for leaf in flatten([A, container])] == [A, container]


def test_weights_transforms_are_taken_apart() -> None:
    """The preset of a model's weights is its five steps."""
    preset = models.ResNet18_Weights.DEFAULT.transforms()
    names = [leaf.name for leaf in flatten([preset])]
    assert names == [
        "Resize(256)",
        "CenterCrop(224)",
        "PILToTensor()",
        "ConvertImageDtype(torch.float32)",
        "Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])",
    ]


def test_a_subclass_of_a_container_is_one_step() -> None:
    """A caller's own `Compose` may do more than its steps do one by one."""
    own = type("Compose", (v2.Compose,), {})([A, B])
    assert [leaf.transform for leaf in flatten(own)] == [own]


@pytest.mark.parametrize(
    ("transform", "argument", "message"),
    [
        (
            [A, v2.RandomHorizontalFlip],
            "",
            "step 2 is the class RandomHorizontalFlip; expected a transform made from it. "
            "Write RandomHorizontalFlip(...) with its settings.",
        ),
        (
            "Resize",
            "train_aug",
            "the step of train_aug is 'Resize'; expected a callable from image to image, "
            "such as v2.Resize(112). Take it out, or put a transform in its place.",
        ),
        (
            v1.Compose([A, None]),
            "deterministic_transform",
            "step 2 of deterministic_transform is None; expected a callable from image to image, "
            "such as v2.Resize(112). Take it out, or put a transform in its place.",
        ),
        (
            112,
            "",
            "the step is int; expected a callable from image to image, "
            "such as v2.Resize(112). Take it out, or put a transform in its place.",
        ),
        (
            [v2.FiveCrop(20), D],
            "",
            "step 1, FiveCrop(20), cannot be used here: it returns five images for one; choose "
            "one crop, such as v2.CenterCrop, instead.",
        ),
        (
            v2.MixUp(num_classes=10),
            "",
            "the step, MixUp(num_classes=10), cannot be used here: it mixes the images of a batch "
            "with each other and their labels likewise; give it to the loader, as "
            "gp.Loader(dataset, mix=...), or put it last in gp.per_sample.",
        ),
        (
            v2.SanitizeBoundingBoxes(),
            "",
            "the step, SanitizeBoundingBoxes(), cannot be used here: it is about boxes or points "
            "in an image, which image classification does not have.",
        ),
        (
            v2.UniformTemporalSubsample(3),
            "",
            "the step, UniformTemporalSubsample(3), cannot be used here: it takes videos, "
            "not images.",
        ),
    ],
)
def test_what_is_no_step_is_refused(transform: Any, argument: str, message: str) -> None:
    """A class, a text, None, a number or a step for more than one image is named and refused."""
    with pytest.raises(TransformError) as caught:
        flatten(transform, argument)
    assert str(caught.value) == message


def test_marks_are_carried_by_the_steps() -> None:
    """A mark on a container marks each step in it, and the step itself is the caller's."""
    leaves = flatten([once(A), live(v2.Compose([B, C])), batched(double), D])
    assert [(leaf.transform, leaf.mark) for leaf in leaves] == [
        (A, "once"),
        (B, "live"),
        (C, "live"),
        (double, "batched"),
        (D, ""),
    ]


@pytest.mark.parametrize("mark", [once, live, batched])
def test_a_marked_callable_is_that_callable(mark: Callable[[Any], Any]) -> None:
    """Called directly, a marked function does what it did, under its own name."""
    marked = mark(double)
    assert torch.equal(marked(torch.ones(2)), torch.full((2,), 2.0))
    assert marked.__name__ == "double"
    assert marked.__doc__ == "Twice the image."
    assert repr(marked) == f"gp.{mark.__name__}(double)"
    assert repr(mark(v2.Pad(3))) == f"gp.{mark.__name__}(Pad(3))"
    assert pickle.loads(pickle.dumps(marked))(3) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: once(live(double)),
            "gp.live(double) is marked already; gp.once cannot be put on top. Keep one mark.",
        ),
        (
            lambda: flatten(once(v2.Compose([A, live(double)]))),
            "gp.once holds gp.live(double), which is marked already. Keep one mark.",
        ),
        (
            lambda: batched(3),
            "gp.batched marks a callable, such as a function or a transform; it was given int.",
        ),
        (
            lambda: once(v2.Resize),
            "gp.once marks a callable, such as a function or a transform; it was given "
            "the class Resize.",
        ),
        (
            lambda: live("flip"),
            "gp.live marks a callable, such as a function or a transform; it was given 'flip'.",
        ),
    ],
)
def test_wrong_marks_are_refused(make: Callable[[], Any], message: str) -> None:
    """A step has one mark at most, and only a callable can have one."""
    with pytest.raises(TransformError) as caught:
        make()
    assert str(caught.value) == message
