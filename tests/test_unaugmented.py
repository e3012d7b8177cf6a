"""A dataset without its augmentation, and the size of its images."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import gpupreload as gp

RESIZE = v2.Resize((24, 20))
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
FLOATS_CODE = "v2.ToImage(), v2.ToDtype(torch.float32, scale=True)"
LOADING = {"device": "cpu", "seed": 5, "progress": False}


@pytest.fixture(autouse=True)
def each_time() -> Iterator[None]:
    """Warn each time, and not only once a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield


def preload(folder: Path, *steps: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    return gp.preload(folder, v2.Compose(list(steps)), **LOADING, **settings)


def explicit(folder: Path, *train_aug: Any) -> gp.GPUPreloadDataset:
    """Preload in the explicit form."""
    return gp.GPUPreloadDataset(
        folder, v2.Compose([RESIZE, *FLOATS]), v2.Compose(list(train_aug)), **LOADING
    )


WARNED = {
    "RandomCrop": (
        lambda folder: preload(folder, RESIZE, v2.RandomCrop(16), *FLOATS),
        "without RandomCrop(16) images are 24×20 pixels, and with it they are 16×16",
        f"v2.Compose([v2.Resize((24, 20)), v2.CenterCrop(16), {FLOATS_CODE}])",
    ),
    "among others": (
        lambda folder: preload(
            folder,
            *(RESIZE, v2.RandomHorizontalFlip(), v2.RandomResizedCrop((12, 8))),
            *(v2.Pad(1), v2.ColorJitter(0.2), T.ToTensor()),
        ),
        "without RandomResizedCrop((12, 8)) images are 26×22 pixels, and with it they are 14×10",
        "v2.Compose([v2.Resize((24, 20)), v2.CenterCrop((12, 8)), v2.Pad(1), T.ToTensor()])",
    ),
    "a Resize behind it": (
        lambda folder: preload(folder, RESIZE, v2.RandomCrop(16), v2.Resize(10), *FLOATS),
        "without RandomCrop(16) images are 12×10 pixels, and with it they are 10×10",
        "v2.Compose([v2.Resize((24, 20)), v2.CenterCrop(16), gp.live(v2.Resize(10)), "
        f"{FLOATS_CODE}])",
    ),
    "store_size": (
        lambda folder: preload(folder, v2.RandomResizedCrop(12), *FLOATS, store_size=(16, 18)),
        "without RandomResizedCrop(12) images are 16×18 pixels, and with it they are 12×12",
        f"v2.Compose([v2.CenterCrop(12), {FLOATS_CODE}])",
    ),
    "train_aug": (
        lambda folder: explicit(folder, v2.RandomCrop(16)),
        "without RandomCrop(16) images are 24×20 pixels, and with it they are 16×16",
        "v2.CenterCrop(16)",
    ),
    "train_aug of several": (
        lambda folder: explicit(folder, v2.RandomCrop(16), v2.Normalize([0.5], [0.5])),
        "without RandomCrop(16) images are 24×20 pixels, and with it they are 16×16",
        "v2.Compose([v2.CenterCrop(16), v2.Normalize(mean=[0.5], std=[0.5])])",
    ),
}


@pytest.mark.parametrize(("load", "sizes", "code"), WARNED.values(), ids=WARNED)
def test_another_size_without_a_crop(photo_folder: Path, load: Any, sizes: str, code: str) -> None:
    """A warning at the caller's line names both sizes, and a transform that keeps the size."""
    train = load(photo_folder)
    state = torch.get_rng_state()
    with pytest.warns(UserWarning, match="^without Random") as warned:
        plain = train.with_transform(None)
    [warning] = warned
    assert warning.filename == __file__
    assert str(warning.message) == (
        f"{sizes} (height×width). To see them in the size of training, crop the centre: "
        f"dataset.with_transform({code})."
    )
    assert torch.equal(torch.get_rng_state(), state)
    [before, after] = re.findall(r"(\d+×\d+)", sizes)
    for data, size in ((plain, before), (train, after)):
        assert "×".join(map(str, data[0][0].shape[1:])) == size
    val = train.with_transform(eval(code, {"v2": v2, "T": T, "torch": torch, "gp": gp}))
    assert val[0][0].shape == train[0][0].shape
    assert all(step.randomness != "random" for step in val.steps.rows)


QUIET = {
    "no crop": [RESIZE, v2.RandomHorizontalFlip(), *FLOATS],
    "a padded crop": [RESIZE, v2.RandomCrop((24, 20), padding=2), *FLOATS],
    "one size again": [RESIZE, v2.RandomCrop(16), v2.CenterCrop(12), *FLOATS],
    "nothing random": [RESIZE, v2.CenterCrop(12), *FLOATS],
    "a callable of the caller's": [RESIZE, gp.live(lambda image: image), *FLOATS],
}


@pytest.mark.parametrize("steps", QUIET.values(), ids=QUIET)
def test_no_warning_where_the_size_stays(photo_folder: Path, steps: list[Any]) -> None:
    """Where images come out as large as before there is nothing to say."""
    train = preload(photo_folder, *steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = train.with_transform(None)
        again = plain.with_transform(None)
    assert plain[0][0].shape == again[0][0].shape == train[0][0].shape


def test_assigning_none_warns_too(photo_folder: Path) -> None:
    """dataset.transform = None is the same, and says the same."""
    train = preload(photo_folder, RESIZE, v2.RandomCrop(16), *FLOATS)
    with pytest.warns(UserWarning, match=r"^without RandomCrop\(16\) images are 24×20 pixels"):
        train.transform = None
    assert train[0][0].shape == (3, 24, 20)


def test_reasons_are_those_of_the_steps_that_are_left(photo_folder: Path) -> None:
    """No step is said to come after a random one where none is left."""
    steps = [RESIZE, *FLOATS, v2.RandomHorizontalFlip(), v2.Normalize([0.5], [0.5])]
    later = [gp.live(v2.CenterCrop(16)), v2.ToImage(), v2.RandomHorizontalFlip()]
    plain = preload(photo_folder, *steps).with_transform(None)
    kept = "deterministic, kept where the random steps before it are left out"
    floats = "deterministic, but turns pixels into floats: four times the memory, so it runs on the"
    assert [(row.name, row.reason) for row in plain.steps.rows] == [
        ("Resize((24, 20))", "deterministic, still uint8 and one size"),
        ("ToImage()", "deterministic, still uint8 and one size"),
        ("ToDtype(torch.float32, scale=True)", f"{floats} device"),
        ("Normalize(mean=[0.5], std=[0.5])", kept),
    ]
    marked = preload(photo_folder, RESIZE, *later).with_transform(None)
    assert [(row.name, row.reason) for row in marked.steps.rows][1:] == [
        ("CenterCrop(16)", "marked gp.live: called anew for each sample"),
        ("ToImage()", "after CenterCrop(16), which runs each time"),
    ]


@pytest.mark.parametrize("size", [(16, 16), (24, 10)])
def test_deterministic_classes_marked_live_are_kept(photo_folder: Path, size: Any) -> None:
    """gp.live says where a Resize runs, not that it is random: None keeps it, as if unmarked."""
    steps = [RESIZE, gp.live(v2.Resize(size)), v2.RandomHorizontalFlip(), *FLOATS]
    train = preload(photo_folder, *steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = train.with_transform(None)
    for i in range(3):
        stored = tv_tensors.Image(train.stored([i])[0])
        expected = F.to_dtype(F.resize(stored, size), torch.float32, scale=True)
        assert torch.equal(plain[i][0], expected)
    floats = plain.as_tensor_dataset()
    assert floats.tensors[0].shape[-2:] == size


class Cropped(torch.nn.Module):
    """A module of a user's own that crops at random."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the image, changed."""
        return v2.RandomCrop(16)(image)


class Grown(torch.nn.Module):
    """A module of a user's own that draws, and enlarges images."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the image, changed."""
        torch.rand(())
        return F.resize(image, [30, 26])


WRAPPED = {
    "RandomApply": [v2.RandomApply([v2.RandomCrop(16)], p=1.0)],
    "RandomChoice": [v2.RandomChoice([v2.RandomCrop(16), v2.CenterCrop(16)])],
    "RandomOrder": [v2.RandomOrder([v2.RandomCrop(16), v2.RandomHorizontalFlip()])],
    "a module": [Cropped()],
    "a module behind a crop": [v2.RandomCrop(12), Grown()],
}


@pytest.mark.parametrize("steps", WRAPPED.values(), ids=WRAPPED)
def test_another_size_where_no_code_can_be_known(photo_folder: Path, steps: list[Any]) -> None:
    """What steps do is seen by running them: the sizes are told, and the kind of step to take."""
    train = preload(photo_folder, RESIZE, *steps, *FLOATS)
    height, width = train[0][0].shape[-2:]
    states = torch.get_rng_state(), random.getstate()
    with pytest.warns(UserWarning, match="^without the random steps") as warned:
        plain = train.with_transform(None)
    assert plain[0][0].shape == (3, 24, 20)
    size = height if height == width else (height, width)
    assert [str(warning.message) for warning in warned] == [
        "without the random steps images are 24×20 pixels, and with them they are "
        f"{height}×{width} (height×width). To see them in the size of training, pass "
        "dataset.with_transform a transform with a step of that size in place of the random ones, "
        f"such as v2.CenterCrop({size})."
    ]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_a_crop_that_is_marked_live_is_named(photo_folder: Path) -> None:
    """A mark hides no crop."""
    train = preload(photo_folder, RESIZE, gp.live(v2.RandomCrop(16)), *FLOATS)
    with pytest.warns(UserWarning, match=r"crop the centre: .*v2\.CenterCrop\(16\), v2\.ToImage"):
        train.with_transform(None)


def test_a_step_that_fails_is_no_matter_here(photo_folder: Path) -> None:
    """Leaving out a step that raises an error raises none, and the others are left."""
    train = explicit(photo_folder, lambda image: image.no_such_attribute)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train.with_transform(None)[0][0].shape == (3, 24, 20)
