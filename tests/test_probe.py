"""Finding out whether a caller's own callable is random."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from photo_list import of_many_sizes
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor, nn
from torchvision.transforms import v2

from gpupreload.probe import generators_kept, probe

Fn = Callable[[Any], Any]

PICTURES = of_many_sizes().images
TENSORS = [v2.functional.pil_to_tensor(picture) / 255 for picture in PICTURES]


def numpy_global(image: Any) -> Any:
    """Noise from NumPy's global generator."""
    array = np.asarray(image)
    return array + np.random.normal(size=array.shape)


def numpy_private() -> Fn:
    """Noise from a generator of its own."""
    rng = np.random.default_rng(0)
    return lambda image: np.asarray(image) + rng.normal(size=np.asarray(image).shape)


def python_global(image: Image.Image) -> Image.Image:
    """Flips by Python's global generator."""
    return ImageOps.mirror(image) if random.random() < 0.5 else image


def torch_global(image: Image.Image) -> Tensor:
    """Noise from torch's global generator."""
    pixels = v2.functional.pil_to_tensor(image)
    return pixels + torch.randn(pixels.shape)


def torch_private() -> Fn:
    """A flip with p = 0.5 from a generator of its own."""
    generator = torch.Generator().manual_seed(0)

    def flip(image: Image.Image) -> Image.Image:
        return ImageOps.mirror(image) if torch.rand(1, generator=generator) < 0.5 else image

    return flip


def seldom(image: Image.Image) -> Image.Image:
    """Changes one image in ten thousand, by Python's global generator."""
    return ImageOps.invert(image) if random.random() < 1e-4 else image


def fresh_generator(image: Any) -> Any:
    """Noise from a generator that is new, and unseeded, in every call."""
    array = np.asarray(image)
    return array + np.random.default_rng().normal(size=array.shape)


def every_other_call() -> Fn:
    """A closure that counts its calls, and does something in every other."""
    n_calls = 0

    def invert(image: Image.Image) -> Image.Image:
        nonlocal n_calls
        n_calls += 1
        return ImageOps.invert(image) if n_calls % 2 else image

    return invert


class Blend:
    """As albumentations does it: an object with settings and a generator of its own."""

    def __init__(self, p: float) -> None:
        self.p, self.rng = p, np.random.default_rng(7)

    def __call__(self, image: Any) -> dict[str, Any]:
        """Mirror the image, or not."""
        array = np.asarray(image)
        return {"image": array[:, ::-1].copy() if self.rng.random() < self.p else array}


class Solarize:
    """A callable object that is deterministic."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold

    def __call__(self, image: Image.Image) -> Image.Image:
        """Invert what is brighter than the threshold."""
        return ImageOps.solarize(image, self.threshold)


def to_tensor_then(module: nn.Module) -> Fn:
    """Run a module on the pixels as floats."""
    return lambda image: module(v2.functional.pil_to_tensor(image) / 255)


TORCH = "torch's global generator moved"
NUMPY = "NumPy's global generator moved"
PYTHON = "Python's global generator moved"
CHANGED = "repeated calls gave different pixels"

CALLABLES: dict[str, tuple[Fn, str]] = {
    "numpy global": (numpy_global, NUMPY),
    "numpy private": (numpy_private(), CHANGED),
    "python": (python_global, PYTHON),
    "torch": (torch_global, TORCH),
    "torch private, p = 0.5": (torch_private(), CHANGED),
    "p = 0.0001 with a global generator": (seldom, PYTHON),
    "a new generator each call": (fresh_generator, CHANGED),
    "a closure over state, acting at every other call": (every_other_call(), CHANGED),
    "like albumentations, p = 0.5": (lambda image: Blend(0.5)(image)["image"], ""),
    "an object of its own": (Blend(0.5), CHANGED),
    "a callable class": (Solarize(100), ""),
    "a partial": (functools.partial(ImageOps.posterize, bits=3), ""),
    "a partial of a random function": (functools.partial(torch_global), TORCH),
    "a PIL function": (lambda image: image.filter(ImageFilter.GaussianBlur(1)), ""),
    "a NumPy function": (lambda image: np.asarray(image)[::-1].copy(), ""),
    "dropout in training": (to_tensor_then(nn.Dropout(0.3)), TORCH),
    "dropout in evaluation": (to_tensor_then(nn.Dropout(0.3).eval()), ""),
    "a convolution": (to_tensor_then(nn.Conv2d(3, 2, 3)), ""),
    "a torchvision function": (v2.functional.horizontal_flip, ""),
    "a random torchvision step": (v2.Lambda(lambda image: v2.RandomInvert()(image)), TORCH),
    "two generators": (
        lambda image: python_global(image) if np.random.random() < 2 else image,
        "NumPy's and Python's global generators moved",
    ),
    "pixels that are no numbers": (lambda image: torch.full((3, 4, 4), torch.nan), ""),
}


@pytest.mark.parametrize(("fn", "sign"), CALLABLES.values(), ids=CALLABLES)
def test_callables_are_judged_rightly(fn: Fn, sign: str) -> None:
    """A callable is random if a global generator moved or if two calls differ, and only then."""
    verdict = probe(fn, PICTURES)
    assert verdict.randomness == ("random" if sign else "deterministic")
    assert verdict.sign == sign


def test_a_private_generator_that_seldom_acts_is_not_found() -> None:
    """The documented limit: a private generator whose draw changes nothing is taken for none."""
    rng = random.Random(0)
    verdict = probe(
        lambda image: ImageOps.invert(image) if rng.random() < 1e-4 else image, PICTURES
    )
    assert verdict.randomness == "deterministic"


@pytest.mark.parametrize("fn", [numpy_global, python_global, torch_global])
def test_generators_are_put_back(fn: Fn) -> None:
    """After a probe all global generators give the numbers that they would have given."""

    def drawn() -> list[float]:
        return [random.random(), np.random.random(), torch.rand(1).item()]

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = drawn()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    probe(fn, PICTURES)
    assert drawn() == expected


def test_generators_are_put_back_after_an_error() -> None:
    """Also where the callable raises, which comes through."""
    before = random.getstate()

    def fail(image: Any) -> Any:
        raise KeyError(random.random())

    with pytest.raises(KeyError):
        probe(fail, PICTURES)
    assert random.getstate() == before


def test_the_images_given_are_not_changed() -> None:
    """A callable that writes into its input is given copies."""
    pictures = [*(picture.copy() for picture in PICTURES), *(tensor.clone() for tensor in TENSORS)]
    arrays = [np.asarray(picture).copy() for picture in PICTURES]

    def write(image: Any) -> Any:
        if isinstance(image, Image.Image):
            image.paste((1, 2, 3), (0, 0, 5, 5))
        else:
            image[:] = 0
        return image

    assert probe(write, [*pictures, *arrays]).randomness == "deterministic"
    for picture, tensor, array, original in zip(
        pictures, pictures[len(PICTURES) :], arrays, PICTURES, strict=False
    ):
        assert picture.tobytes() == original.tobytes()
        assert torch.equal(tensor, v2.functional.pil_to_tensor(original) / 255)
        assert np.array_equal(array, np.asarray(original))


def test_five_calls_at_least_on_each_image() -> None:
    """However long a callable takes, it is called five times on each image."""
    n_calls = 0

    def count(image: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        return image

    probe(count, PICTURES)
    assert 5 * len(PICTURES) <= n_calls <= 25 * len(PICTURES)


def test_no_gradients_are_kept() -> None:
    """Modules with parameters are called without gradients."""
    seen = []
    module = nn.Conv2d(3, 2, 3)
    probe(lambda image: seen.append(module(image)) or seen[-1], TENSORS)
    assert not any(output.requires_grad for output in seen)


def test_moved_names_the_generators() -> None:
    """What has moved can be asked for within the block, and is empty at its start."""
    with generators_kept() as moved:
        assert moved() == ""
        torch.rand(1)
        assert moved() == TORCH
