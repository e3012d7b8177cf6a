"""How likely random steps are to give the same picture again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from photo_list import of_one_size
from PIL import Image, ImageOps
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.catalog import RANDOM
from gpupreload.leaves import flatten
from gpupreload.repeats import Outcomes, digest, outcomes_of, random_steps

PICTURE = of_one_size().images[0]
PIXELS = v2.functional.pil_to_tensor(PICTURE)

# each with the probability that three runs give the same picture, worked out by hand
EXACT: dict[str, tuple[Any, float]] = {
    "flip": (v2.RandomHorizontalFlip(0.5), 1 / 4),
    "v1 flip": (v1.RandomVerticalFlip(0.2), 0.2**3 + 0.8**3),
    "invert": (v2.RandomInvert(0.9), 0.9**3 + 0.1**3),
    "never": (v2.RandomHorizontalFlip(0.0), 1.0),
    "always": (v2.RandomHorizontalFlip(1.0), 1.0),
    "apply a fixed step": (v2.RandomApply([v2.RandomInvert(1.0)], p=0.3), 0.3**3 + 0.7**3),
    "apply a flip": (v1.RandomApply([v1.RandomHorizontalFlip(0.5)], p=0.4), 0.8**3 + 0.2**3),
    "choose": (
        v2.RandomChoice([v2.RandomInvert(1.0), v2.RandomHorizontalFlip(1.0)], p=[1, 3]),
        0.25**3 + 0.75**3,
    ),
    "choose nothing": (v1.RandomChoice([v1.Compose([]), v1.Pad(1), v1.Pad(2)]), 3 / 27),
    "any order": (v2.RandomOrder([v2.ToImage(), v2.RandomInvert(0.5)]), 1 / 4),
}


@pytest.mark.parametrize(("step", "expected"), EXACT.values(), ids=EXACT)
def test_chances_follow_from_p(step: Any, expected: float) -> None:
    """Where a step says how often it acts, the chance is worked out from that."""
    assert outcomes_of(step).repeats(3) == pytest.approx(expected, rel=1e-12)


BOUNDED: dict[str, Any] = {
    **{name: step for name, (step, _) in EXACT.items()},
    "flip and invert": v2.Compose([v2.RandomHorizontalFlip(0.4), v2.RandomInvert(0.3)]),
    "two flips": v2.Compose([v2.RandomHorizontalFlip(0.5), v2.RandomHorizontalFlip(0.5)]),
    "apply two": v2.RandomApply([v2.RandomHorizontalFlip(0.4), v2.RandomVerticalFlip(0.4)], p=0.6),
    "order of two": v2.RandomOrder([v2.RandomHorizontalFlip(0.4), v2.RandomInvert(0.4)]),
    "crop": v2.RandomCrop((29, 40)),
    "sharpness": v2.RandomAdjustSharpness(2, p=0.3),
    "perspective": v2.RandomPerspective(p=0.4),
    "zoom out": v2.RandomZoomOut(side_range=(1.2, 2.0), p=0.4),
    "rotation": v2.RandomRotation(30),
    "jitter": v2.RandomApply([v2.ColorJitter(0.4)], p=0.4),
    "policy": v2.TrivialAugmentWide(),
    "elastic": v2.ElasticTransform(alpha=20.0, sigma=1.0),
    "two sizes": v2.RandomShortestSize([20, 24]),
    "grey": v2.RandomGrayscale(0.3),
}


@pytest.mark.parametrize("step", BOUNDED.values(), ids=BOUNDED)
def test_no_chance_is_understated(step: Any) -> None:
    """Steps of torchvision's do not repeat themselves more often than is said."""
    torch.manual_seed(0), random.seed(0)
    n_trials = 200
    same = sum(len({digest(step(PICTURE)) for _ in range(3)}) == 1 for _ in range(n_trials))
    said = outcomes_of(step).repeats(3)
    four_sigma = 4 * (said * (1 - said) / n_trials) ** 0.5
    assert same / n_trials <= said + four_sigma


@pytest.mark.parametrize(
    "step",
    [
        v2.ColorJitter(0.4),
        v2.RandomResizedCrop(20),
        v1.RandomAffine(20, translate=(0.1, 0.1)),
        v2.GaussianNoise(),
        v2.JPEG((10, 90)),
        v2.RandAugment(),
        v1.GaussianBlur(3),
        v2.RandomErasing(1.0),
    ],
    ids=lambda step: type(step).__name__,
)
def test_what_always_draws_shows_soon(step: Any) -> None:
    """Of steps that always draw, sixteen samples in three epochs are enough."""
    assert outcomes_of(step).repeats(3) ** 16 < 1e-6


@pytest.mark.parametrize(
    "step",
    [
        v2.ColorJitter(),
        v2.RandomRotation((30, 30)),
        v2.RandomResizedCrop(20, scale=(1, 1), ratio=(1, 1)),
        v2.GaussianBlur(3, sigma=1.0),
        v2.RandomGrayscale(0.5),
        v2.RandomAutocontrast(0.5),
        v2.RandomSolarize(255, p=0.5),
        v2.RandomChannelPermutation(),
        v2.RandomOrder([v2.ToImage(), v2.Grayscale(3)]),
    ],
    ids=lambda step: type(step).__name__,
)
def test_what_may_never_show_is_not_counted(step: Any) -> None:
    """Steps set to a single value, and steps that leave some pictures as they are, tell nothing."""
    [found] = random_steps(flatten(step))
    assert found.outcomes == Outcomes(1.0)


@pytest.mark.parametrize("name", RANDOM)
def test_the_table_of_steps_names_classes_that_exist(name: str) -> None:
    """Every random class of torchvision has a rule by its name, or is tried."""
    from transform_examples import examples

    for make in examples([name]).values():
        outcomes = outcomes_of(make())
        assert 0.999999 < outcomes.unchanged + sum(outcomes.changed) < 1.000001


def numpy_noise(image: Any) -> Any:
    """Noise on an array, from NumPy's global generator."""
    return np.asarray(image) + np.random.normal(size=np.asarray(image).shape)


def torch_noise(image: Tensor) -> Tensor:
    """Noise on a float tensor; a PIL image is a `TypeError`."""
    return image + torch.randn_like(image)


def mirror_half(image: Image.Image) -> Image.Image:
    """A flip with p = 0.5 from Python's global generator."""
    return ImageOps.mirror(image) if random.random() < 0.5 else image


def seldom(image: Image.Image) -> Image.Image:
    """A change in one of ten thousand, from Python's global generator."""
    return ImageOps.invert(image) if random.random() < 1e-4 else image


def of_a_batch(images: Tensor) -> Tensor:
    """Noise on a batch [N, C, H, W]."""
    n, _, _, _ = images.shape
    return images + torch.rand(n, 1, 1, 1)


def fails(image: Any) -> Any:
    """Nothing is good enough for this one."""
    raise RuntimeError("no")


CALLABLES: dict[str, tuple[Callable[..., Any], bool, bool]] = {
    # random, and shows within 32 samples and three epochs
    "numpy": (numpy_noise, True, True),
    "torch": (torch_noise, True, True),
    "python": (mirror_half, True, True),
    "lambda step": (v2.Lambda(mirror_half), True, True),
    "live": (gp.live(mirror_half), True, True),
    "batched": (gp.batched(of_a_batch), True, True),
    "seldom": (seldom, True, False),
    "live, and shows nothing": (gp.live(ImageOps.mirror), True, False),
    "not to be tried": (fails, True, False),
    "deterministic": (ImageOps.mirror, False, False),
    "once": (gp.once(numpy_noise), False, False),
}


@pytest.mark.parametrize(("fn", "is_random", "shows"), CALLABLES.values(), ids=CALLABLES)
def test_callables_are_tried(fn: Callable[..., Any], is_random: bool, shows: bool) -> None:
    """Callables that are not torchvision's are run on a made-up picture that they take."""
    found = random_steps(flatten(fn))
    assert bool(found) is is_random
    assert any(step.outcomes.repeats(3) ** 32 < 1e-6 for step in found) is shows


def test_a_flip_of_ones_own_is_not_overstated() -> None:
    """A trial allows for luck: it says more than the true chance, 1/4, and the same every time."""
    found = []
    for seed in range(5):
        random.seed(seed)
        found.append(outcomes_of(mirror_half))
    assert set(found) == {found[0]}
    assert 1 / 4 < found[0].repeats(3) < 0.7


def test_trials_put_the_generators_back() -> None:
    """The global generators give the numbers that they would have given."""

    def drawn() -> list[float]:
        return [random.random(), np.random.random(), torch.rand(1).item()]

    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    expected = drawn()
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    random_steps(flatten([numpy_noise, torch_noise, mirror_half, fails, v2.ColorJitter(0.4)]))
    assert drawn() == expected


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (PICTURE, PICTURE.copy(), True),
        (PICTURE, ImageOps.mirror(PICTURE), False),
        (PICTURE, PICTURE.convert("RGBA"), False),
        (PIXELS, PIXELS.clone(), True),
        (PIXELS, v2.functional.to_image(PIXELS), True),
        (PIXELS, PIXELS.to(torch.int16), False),
        (PIXELS, PIXELS.flip(-1), False),
        (PIXELS.transpose(1, 2), PIXELS.transpose(1, 2).contiguous(), True),
        (torch.zeros(2, 3), torch.zeros(3, 2), False),
        (torch.full((2,), torch.nan), torch.full((2,), torch.nan), True),
        (torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.uint8), False),
        (torch.ones(2, dtype=torch.bfloat16, requires_grad=True), torch.ones(2).bfloat16(), True),
        (np.eye(3), np.eye(3), True),
        (np.eye(3)[::-1], np.eye(3), False),
        (np.eye(3), np.eye(3, dtype=np.float32), False),
    ],
)
def test_digests_are_equal_for_equal_images(a: Any, b: Any, same: bool) -> None:
    """Two images have one digest if type, shape and all pixels are equal, and only then."""
    assert (digest(a) == digest(b)) is same


def test_only_images_have_a_digest() -> None:
    """Anything else is refused."""
    with pytest.raises(TypeError, match=r"^dict is no image$"):
        digest({})
