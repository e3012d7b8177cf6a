"""gp.shares_draws: one draw for the whole batch, a draw for each row, or none."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

import gpupreload as gp


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What the callables draw is the same in every run."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def add_one_number(images: Tensor) -> Tensor:
    """A callable that draws once for all rows, from Python's and NumPy's generators."""
    return images + (random.random() + np.random.rand()) / 2


def add_a_number_each(images: Tensor) -> Tensor:
    """A callable that draws for each row."""
    return images + torch.rand(len(images), 1, 1, 1)


def flip_each(images: Tensor) -> Tensor:
    """A flip of half the rows: two different images at most."""
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)


def writes(images: Tensor) -> Tensor:
    """A callable that changes its input, always in the same way."""
    return images.mul_(0.5)


CASES: list[tuple[Callable[[Tensor], Tensor], str, int]] = [
    (v2.RandomRotation(30), "shared", 1),
    (v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.5)]), "shared", 1),
    (v2.RandomHorizontalFlip(), "shared", 1),
    (add_one_number, "shared", 1),
    (gp.per_sample(v2.ColorJitter(0.5), seed=0), "per sample", 64),
    (gp.per_sample(v2.RandomHorizontalFlip()), "per sample", 2),
    (add_a_number_each, "per sample", 64),
    (flip_each, "per sample", 2),
    (v2.Resize(16), "no draw seen", 1),
    (v2.RandomHorizontalFlip(p=0), "no draw seen", 1),
    (gp.per_sample(v2.Resize(16)), "no draw seen", 1),
    (writes, "no draw seen", 1),
]


@pytest.mark.parametrize(("transform", "verdict", "n_distinct"), CASES)
def test_the_three_kinds_are_told_apart(
    transform: Callable[[Tensor], Tensor], verdict: str, n_distinct: int
) -> None:
    """Rows that differ have draws of their own; equal ones that change together share one."""
    report = gp.shares_draws(transform)
    assert (report.verdict, report.n_distinct, report.n_copies) == (verdict, n_distinct, 64)
    assert bool(report) is report.shared is (verdict == "shared")


def test_kornia_is_told_apart() -> None:
    """A module of another library is a callable like any other."""
    augmentation = pytest.importorskip("kornia.augmentation")
    turn = augmentation.RandomRotation(30.0, p=1.0)
    assert gp.shares_draws(turn).verdict == "per sample"
    turn = augmentation.RandomRotation(30.0, p=1.0, same_on_batch=True)
    assert gp.shares_draws(turn).verdict == "shared"


def test_sentences() -> None:
    """Each verdict has a sentence that names the callable and the numbers."""
    shared = gp.shares_draws(v2.GaussianNoise(sigma=0.0, mean=0.1))
    assert str(shared) == (
        "GaussianNoise(mean=0.1, sigma=0.0) was not seen to draw: 64 equal images came out equal "
        "in every one of 20 batches, and the same each time."
    )
    assert str(gp.shares_draws(flip_each)) == (
        "flip_each draws for each row: 64 equal images came out in 2 ways."
    )
    chain = gp.per_sample([v2.ColorJitter(0.5), v2.RandomInvert()], seed=0)
    assert str(gp.shares_draws(chain)) == (
        "gp.per_sample([ColorJitter(brightness=(0.5, 1.5)), …]) draws for each row: 64 equal "
        "images came out in 64 ways."
    )
    report = gp.shares_draws(add_one_number)
    assert repr(report) == (
        "SharedReport: add_one_number shares its draws: 64 equal images came out equal in every "
        "batch, and in 20 ways from batch to batch. gpupreload.per_sample draws for each row."
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.shared = False  # type: ignore[misc]


def test_generators_and_counters_stay_where_they_are() -> None:
    """Trying a callable moves no global generator, and counts as no call of a module."""
    module = gp.per_sample(v2.RandomRotation(30))
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    for transform in (module, v2.RandomRotation(30), add_one_number):
        gp.shares_draws(transform)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])
    assert module.n_calls == 0


def test_what_takes_bytes_only_is_given_bytes() -> None:
    """A callable that takes no floats is tried on uint8."""
    seen = set()

    def shifted(images: Tensor) -> Tensor:
        seen.add(images.dtype)
        return images << torch.randint(0, 3, (len(images), 1, 1, 1)).byte()

    assert gp.shares_draws(shifted).verdict == "per sample"
    assert seen == {torch.float32, torch.uint8}


def test_an_image_of_one_s_own_is_taken() -> None:
    """The image decides about size, channels and dtype; it is not written to."""
    image, shapes = torch.full((1, 5, 7), 0.5), []

    def see(images: Tensor) -> Tensor:
        shapes.append(tuple(images.shape))
        return images.mul_(2)

    assert gp.shares_draws(see, image).verdict == "no draw seen"
    assert set(shapes) == {(64, 1, 5, 7)}
    assert image.unique().tolist() == [0.5]


def fails(images: Tensor) -> Tensor:
    """A callable that takes nothing."""
    raise ValueError("no")


ERRORS: list[tuple[tuple[Any, ...], str]] = [
    (
        (fails,),
        "fails raised ValueError on a batch, a torch.float32 tensor of shape (64, 3, 64, 64): no\n"
        "Pass an image that it takes, with image=..., or a transform that takes batches of images "
        "alone.",
    ),
    (
        (torch.mean, torch.zeros(1, 2, 2)),
        "mean returned a torch.float32 tensor of shape () for a batch of 64 images; expected as "
        "many images.",
    ),
    (
        ("flip",),
        "transform is str; expected a callable from a batch [N, C, H, W] to a batch, such as "
        "v2.Compose([...]).",
    ),
    (
        (torch.abs, torch.zeros(2, 3, 4, 4)),
        "image is a torch.float32 tensor of shape (2, 3, 4, 4); expected one image as a tensor "
        "[C, H, W]. Of a batch, pass batch[0].",
    ),
]


@pytest.mark.parametrize(("args", "expected"), ERRORS)
def test_what_cannot_be_tried_is_named(args: tuple[Any, ...], expected: str) -> None:
    """An error of the callable, and a wrong argument, are told in whole sentences."""
    with pytest.raises((gp.ArgumentError, gp.TransformError)) as caught:
        gp.shares_draws(*args)
    assert str(caught.value) == expected


def test_a_step_that_mixes_is_named() -> None:
    """MixUp needs labels, and the message says whose."""
    with pytest.raises(gp.TransformError, match=r"^gp.per_sample\(MixUp\(num_classes=3\)\) raised"):
        gp.shares_draws(gp.per_sample(v2.MixUp(num_classes=3)))
