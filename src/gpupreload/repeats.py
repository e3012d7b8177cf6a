"""How likely it is that random steps, run anew, give the same picture as before.

A random step makes one of several pictures, its outcomes. With the probabilities a₁, a₂, … of the
different outcomes, E runs all give the same picture with probability a₁ᴱ + a₂ᴱ + …: for a flip with
p = 0.5 and three runs, 0.5³ + 0.5³ = 1/4.

Of several steps, the one counts that is surest to show: whatever the other steps do, all pictures
of E runs agree with at most that probability. (The outcomes of two steps that move pictures about
are a convolution a * b, and Young's inequality says that the sum over its E-th powers is at most
that over a's.)

Where a class of torchvision's says how often it acts, that number is used: `p`. A draw of many
values counts as 64 equally likely outcomes, the place of a `RandomCrop` as 2. Steps that change
only some pictures (RandomGrayscale, RandomAutocontrast, RandomSolarize, RandomChannelPermutation)
are not counted: they might never show. Any other step is run on a made-up picture, 32 times, or
256 times where pictures repeat. If the commonest comes in the share m of N runs, its probability is
at most m + √(ln 10⁶ / 2N), but for one case in a million (Hoeffding 1963, theorem 1).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gpupreload.catalog import CONVERSIONS, held_by, kind_of
from gpupreload.leaves import Leaf
from gpupreload.probe import copy_of, generators_kept, seed_generators
from gpupreload.source import describe

_MANY = 64  # equally likely outcomes that a draw of many values counts as
_FEW_RUNS, _MANY_RUNS = 32, 256
_RARE = 0.25  # the share of the commonest outcome that few runs are enough for
_SIDE = 64  # pixels of the made-up picture


@dataclass(frozen=True)
class Outcomes:
    """The different pictures that a step may make of one picture, by their probabilities.

    Attributes:
        unchanged: the probability that the step leaves the picture as it is.
        changed: the probability of each other picture.
    """

    unchanged: float
    changed: tuple[float, ...] = ()

    @property
    def largest(self) -> float:
        """The probability of the commonest picture."""
        return max(self.unchanged, *self.changed, 0.0)

    def repeats(self, times: int) -> float:
        """The probability that so many runs all give the same picture.

        >>> Outcomes(0.5, (0.5,)).repeats(3)  # a flip: 0.125 + 0.125
        0.25
        """
        return float(sum(a**times for a in (self.unchanged, *self.changed)))


@dataclass(frozen=True)
class RandomStep:
    """A step that draws, and what may come out of it.

    Attributes:
        name: the step in a few words.
        outcomes: of one run.
    """

    name: str
    outcomes: Outcomes


_SAME = Outcomes(1.0)
_DIFFERENT = Outcomes(0.0, (1.0,))


def random_steps(leaves: Sequence[Leaf]) -> tuple[RandomStep, ...]:
    """Pick the steps that are random; callables that are not torchvision's are tried.

    The global generators of torch, NumPy and Python are seeded for the trial, so that it comes out
    the same every time, and put back.
    """
    found = ((leaf.name, _outcomes_if_random(leaf)) for leaf in leaves)
    return tuple(RandomStep(name, outcomes) for name, outcomes in found if outcomes is not None)


def _outcomes_if_random(leaf: Leaf) -> Outcomes | None:
    kind = None if leaf.mark else kind_of(leaf.transform)
    if leaf.mark == "once" or kind == "deterministic":
        return None
    if kind == "random":
        return outcomes_of(leaf.transform)
    trial = _tried(leaf.transform, batched=leaf.mark == "batched")
    return trial.outcomes if trial.is_random or leaf.mark else None


def outcomes_of(step: Callable[..., Any]) -> Outcomes:
    """Return what may come out of one step: of torchvision's, or any callable.

    >>> from torchvision.transforms import v2
    >>> outcomes_of(v2.RandomApply([v2.RandomHorizontalFlip(0.5)], p=0.5))
    Outcomes(unchanged=0.75, changed=(0.25,))
    """
    kind = kind_of(step)
    rule = _RULES.get(type(step).__name__) if kind else None
    if rule is not None:
        return rule(step)
    return _DIFFERENT if kind in ("deterministic", "container") else _tried(step).outcomes


def _either(step: Any) -> Outcomes:
    return Outcomes(1 - step.p, (step.p,))


def _sometimes(step: Any) -> Outcomes:
    return Outcomes(1 - step.p, (step.p / _MANY,) * _MANY)


def _applied(step: Any) -> Outcomes:
    inner = _surest(held_by(step))
    return Outcomes(1 - step.p + step.p * inner.unchanged, tuple(step.p * a for a in inner.changed))


def _chosen(step: Any) -> Outcomes:
    held = held_by(step)
    weights = step.p or [1.0] * len(held)
    parts = [(w / sum(weights), outcomes_of(s)) for w, s in zip(weights, held, strict=True)]
    return Outcomes(
        sum(share * part.unchanged for share, part in parts),
        tuple(share * a for share, part in parts for a in part.changed),
    )


def _surest(steps: Sequence[Any]) -> Outcomes:
    """The outcomes of the step that is surest to show."""
    found = (outcomes_of(step) for step in steps)
    return min(found, key=lambda outcomes: (outcomes.largest, outcomes.unchanged), default=_SAME)


def _not_counted(step: Any) -> Outcomes:
    return _SAME


def _rules() -> Iterator[tuple[str, Callable[[Any], Outcomes]]]:
    for name in ("HorizontalFlip", "VerticalFlip", "Invert", "Equalize", "Posterize"):
        yield f"Random{name}", _either
    yield "RandomAdjustSharpness", _either
    for name in ("Erasing", "Perspective", "ZoomOut"):
        yield f"Random{name}", _sometimes
    for name in ("Autocontrast", "ChannelPermutation", "Grayscale", "Solarize"):
        yield f"Random{name}", _not_counted
    for name in ("Grayscale", "Identity", "RGB", *CONVERSIONS):
        yield name, _not_counted
    for name in ("AugMix", "ElasticTransform"):  # slow to try
        yield name, lambda step: Outcomes(0.0, (1 / _MANY,) * _MANY)
    yield "RandomCrop", lambda step: Outcomes(0.5, (0.5,))
    yield "RandomApply", _applied
    yield "RandomChoice", _chosen
    for name in ("Compose", "RandomOrder", "Sequential"):
        yield name, lambda step: _surest(held_by(step))


_RULES = dict(_rules())


@dataclass(frozen=True)
class _Trial:
    is_random: bool
    outcomes: Outcomes


def _tried(step: Callable[..., Any], *, batched: bool = False) -> _Trial:
    """Run a step many times on the first made-up picture that it takes."""
    with generators_kept(), torch.no_grad():
        seed_generators(0)
        for picture in _pictures(batched):
            with generators_kept() as moved:
                try:
                    counts = _run(step, picture)
                except Exception:  # whatever a callable raises on a picture that is not for it
                    continue
                return _Trial(bool(moved()) or len(counts) > 1, _at_most(counts))
    return _Trial(True, _SAME)  # not to be tried here: it may be random, and may show or not


def _run(step: Callable[..., Any], picture: Any) -> Counter[bytes]:
    """Count the different pictures that come out."""
    runs = (digest(step(copy_of(picture))) for _ in range(_MANY_RUNS))
    counts = Counter(itertools.islice(runs, _FEW_RUNS))
    if len(counts) > 1 and max(counts.values()) > _RARE * _FEW_RUNS:
        counts.update(runs)
    return counts


def _at_most(counts: Counter[bytes]) -> Outcomes:
    """The outcomes that repeat most of all those whose commonest is no commoner than was seen."""
    if len(counts) == 1:
        return _SAME
    margin = math.sqrt(math.log(1e6) / (2 * counts.total()))
    largest = min(1.0, max(counts.values()) / counts.total() + margin)
    n_largest = int(1 / largest)
    return Outcomes(largest, (*(largest,) * (n_largest - 1), 1 - n_largest * largest))


def _pictures(batched: bool) -> Iterator[Any]:
    noise = np.random.default_rng(0).integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)
    pixels = torch.from_numpy(noise).permute(2, 0, 1).contiguous()
    tensors = [pixels / 255, pixels]
    if batched:
        yield from (tensor.unsqueeze(0) for tensor in tensors)
    else:
        yield from (Image.fromarray(noise), *tensors, noise)


def digest(image: Any) -> bytes:
    """Return 16 bytes that are equal for two equal images: type, shape and every pixel.

    Args:
        image: a PIL image, a tensor on any device, or an array, of any shape and dtype.

    Raises:
        TypeError: for all else.
    """
    if isinstance(image, Image.Image):
        kind, pixels = repr((image.mode, image.size)), image.tobytes()
    elif isinstance(image, Tensor):
        kind = f"{image.dtype} {tuple(image.shape)}"
        flat = image.detach().as_subclass(Tensor).cpu().contiguous().reshape(-1)
        pixels = flat.view(torch.uint8).numpy().tobytes()
    elif isinstance(image, np.ndarray):
        kind, pixels = f"{image.dtype} {image.shape}", image.tobytes()
    else:
        raise TypeError(f"{describe(image)} is no image")
    return hashlib.blake2b(kind.encode() + pixels, digest_size=16).digest()
