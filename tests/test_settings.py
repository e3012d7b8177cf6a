"""Names, pasteable code and fingerprints of steps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2
from transform_examples import Make, examples

from gpupreload.catalog import DETERMINISTIC, RANDOM
from gpupreload.cover import ResizeToCover
from gpupreload.settings import code_of, fingerprint, is_portable, name_of, remade

ALL = examples([*DETERMINISTIC, *RANDOM])
WITHOUT_TENSORS = {label: make for label, make in ALL.items() if "Linear" not in label}


def sharpen(image: Any) -> Any:
    """A function of a caller's own."""
    return image


class Soften:
    """A callable object of a caller's own."""

    def __call__(self, image: Any) -> Any:
        """Do nothing."""
        return image


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (v2.Resize(112), "Resize(112)"),
        (v1.Resize((112, 112)), "Resize((112, 112))"),
        (v2.CenterCrop(112), "CenterCrop(112)"),
        (v2.CenterCrop((112, 96)), "CenterCrop((112, 96))"),
        (v2.RandomHorizontalFlip(), "RandomHorizontalFlip(p=0.5)"),
        (v1.RandomCrop(32, padding=4), "RandomCrop(32, padding=4)"),
        (v1.ToTensor(), "ToTensor()"),
        (v2.ToDtype(torch.float32, scale=True), "ToDtype(torch.float32, scale=True)"),
        (v1.ColorJitter(0.4), "ColorJitter(brightness=(0.6, 1.4))"),
        (v2.Resize(9, interpolation="bicubic"), "Resize(9, interpolation='bicubic')"),
        (v1.Resize(9, v1.InterpolationMode.BICUBIC), "Resize(9, interpolation=BICUBIC)"),
        (v2.RandomApply([v2.Pad(3), sharpen], p=0.3), "RandomApply([Pad(3), sharpen], p=0.3)"),
        (v2.Pad(1, fill={torch.Tensor: 3}), "Pad(1, fill={Tensor: 3})"),
        (ResizeToCover((96, 112)), "ResizeToCover((96, 112))"),
        (sharpen, "sharpen"),
        (lambda image: image, "<lambda>"),
        (v2.Lambda(lambda image: image), "Lambda(<lambda>)"),
        (functools.partial(sharpen, image=3), "partial(sharpen)"),
        (Soften(), "Soften()"),
        (nn.Dropout(0.25), "Dropout(p=0.25, inplace=False)"),
        (
            nn.Sequential(nn.Conv2d(3, 8, 3)),
            "Sequential(Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1)))",
        ),
        (
            v2.Normalize([0.123456789] * 3, [0.123456789] * 3),
            "Normalize(mean=[0.123456789, 0.123456789, 0.123456789], std=[0.…",
        ),
    ],
)
def test_names_fit_in_a_table(transform: Any, name: str) -> None:
    """A name is short: a class with what it is set to, or a function's name."""
    assert name_of(transform) == name


@pytest.mark.parametrize("make", WITHOUT_TENSORS.values(), ids=WITHOUT_TENSORS)
def test_code_makes_the_same_step(make: Make) -> None:
    """The code shown for a step makes a step of the same class with the same settings."""
    made = eval(code_of(make()), {"T": v1, "v2": v2, "torch": torch})
    assert fingerprint(made) == fingerprint(make())


@pytest.mark.parametrize("make", WITHOUT_TENSORS.values(), ids=WITHOUT_TENSORS)
def test_a_step_made_again_is_the_same(make: Make) -> None:
    """Without a change, a step made again has the same class and the same settings."""
    assert fingerprint(remade(make())) == fingerprint(make())


def test_a_step_made_again_with_a_change() -> None:
    """One argument is changed in a new step, the others stay, and so does the step itself."""
    crop = v2.RandomResizedCrop(20, scale=(0.3, 1.0), interpolation="nearest")
    changed = remade(crop, scale=(0.5, 0.6))
    expected = v2.RandomResizedCrop(20, scale=(0.5, 0.6), interpolation="nearest")
    assert fingerprint(changed) == fingerprint(expected)
    assert crop.scale == (0.3, 1.0)


@pytest.mark.parametrize(
    ("transform", "code"),
    [
        (sharpen, "sharpen"),
        (lambda image: image, "your_lambda"),
        (Soften(), "your_Soften"),
        (v2.Lambda(sharpen), "v2.Lambda(sharpen)"),
        (
            v2.RandomApply([nn.Sequential(v2.Pad(1), nn.ReLU())]),
            "v2.RandomApply([torch.nn.Sequential(v2.Pad(1), your_ReLU)], p=0.5)",
        ),
        (
            v1.LinearTransformation(torch.eye(3), torch.zeros(3)),
            "T.LinearTransformation(transformation_matrix=..., mean_vector=...)",
        ),
    ],
)
def test_code_of_what_cannot_be_written_down(transform: Any, code: str) -> None:
    """What has no code of its own stands in it as a name, or as an ellipsis."""
    assert code_of(transform) == code
    compile(code, "", "eval")


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_equal_settings_have_equal_fingerprints(make: Make) -> None:
    """Two instances made alike have one fingerprint, which holds in any process."""
    assert fingerprint(make()) == fingerprint(make())
    assert hash(fingerprint(make())) == hash(fingerprint(make()))
    assert is_portable(fingerprint(make()))


def test_all_examples_have_different_fingerprints() -> None:
    """Another class, another module of the two, or another setting is another fingerprint."""
    assert len({fingerprint(make()) for make in ALL.values()}) == len(ALL)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (v2.Resize(20), v2.Resize((20, 20))),
        (v2.ToDtype(torch.float32, scale=True), v2.ToDtype(torch.float32)),
        (v2.ToDtype(torch.float32), v2.ToDtype(torch.float16)),
        (v2.Resize(20), v2.Resize(20, antialias=False)),
        (v2.RandomApply([v2.Pad(1)]), v2.RandomApply([v2.Pad(2)])),
        (v1.RandomApply(nn.ModuleList([v2.Pad(1)])), v1.RandomApply(nn.ModuleList([v2.Pad(2)]))),
        (v2.Pad(1, fill={torch.Tensor: 1}), v2.Pad(1, fill={torch.Tensor: 2})),
        (
            v1.LinearTransformation(torch.eye(3), torch.zeros(3)),
            v1.LinearTransformation(torch.eye(3), torch.ones(3)),
        ),
        (v2.Normalize([1.0], [1.0]), v2.Normalize([True], [1.0])),
        (sharpen, Soften()),
        (v2.Lambda(sharpen), v2.Lambda(Soften())),
        (lambda image: image, lambda image: image),
        (type("Resize", (v2.Resize,), {})(20), type("Resize", (v2.Resize,), {})(20)),
    ],
)
def test_different_steps_have_different_fingerprints(a: Any, b: Any) -> None:
    """Whatever may change a pixel changes the fingerprint."""
    assert fingerprint(a) != fingerprint(b)


@pytest.mark.parametrize(
    "transform",
    [sharpen, Soften(), v2.Lambda(sharpen), v2.RandomApply([v2.Compose([sharpen])])],
)
def test_a_callers_own_callable_is_itself_alone(transform: Any) -> None:
    """A function is equal to itself, and means nothing in another process."""
    assert fingerprint(transform) == fingerprint(transform)
    assert not is_portable(fingerprint(transform))


def test_numbers_of_numpy_count_by_value() -> None:
    """A setting that came out of NumPy is equal to the same number again."""
    a, b = (v2.Resize([np.int64(20)]) for _ in range(2))
    assert fingerprint(a) == fingerprint(b)
    assert is_portable(fingerprint(a))


def test_arrays_are_named_by_their_numbers() -> None:
    """A Normalize made from NumPy arrays is split and named like one made from lists."""
    from gpupreload.settings import name_of

    mean, std = np.array([0.5, 0.25]), np.array([0.5, 1.0])
    for normalize in (v1.Normalize(mean, std), v2.Normalize(mean, std)):
        assert name_of(normalize) == "Normalize(mean=[0.5, 0.25], std=[0.5, 1.0])"
