"""Whether a callable is random, found out by calling it, with every random generator put back.

Two signs are looked for. A callable that draws from a global generator of torch, NumPy or Python
moves that generator's state, however seldom the draw changes a picture. A callable with a generator
of its own shows itself only when two calls on the same image give different pixels. If a call
changes the picture with probability q, then n calls miss it with probability (1 - q) ** n, about:
one in a million for q = 0.5 and n = 20, but 0.998 for q = 0.0001. Only the caller can tell then,
with `gp.live`.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

Randomness = Literal["deterministic", "random", "unknown"]

_MIN_CALLS_EACH = 5
_MAX_CALLS_EACH = 25
_SECONDS = 0.1  # calls beyond the least number are made while this lasts


@dataclass(frozen=True)
class Verdict:
    """What trial calls of a callable showed.

    Attributes:
        randomness: "random" where one of the two signs was seen, else "deterministic"; "unknown"
            where none was looked for.
        sign: the sign that was seen, in words, or "".
    """

    randomness: Randomness
    sign: str = ""


def probe(fn: Callable[[Any], Any], images: Sequence[Any]) -> Verdict:
    """Call a callable on copies of a few images, several times each, and say if it is random.

    At least five calls are made on each image, and up to twenty-five while they take less than a
    tenth of a second in all. The global generators of torch (CUDA and MPS too, where in use), NumPy
    and Python are put back as they were. Whatever the callable raises comes through.

    Args:
        fn: from one image to one image.
        images: PIL images, tensors or arrays of any shape and dtype; they are not changed.

    >>> import random
    >>> probe(lambda image: image + random.random(), [torch.zeros(1, 2, 2)]).sign
    "Python's global generator moved"
    """
    with generators_kept() as moved, torch.no_grad():
        expected = [_contents(fn(copy_of(image))) for image in images]
        sign = moved() or _changes(fn, images, expected) or moved()
    return Verdict("random" if sign else "deterministic", sign)


def _changes(fn: Callable[[Any], Any], images: Sequence[Any], expected: list[Hashable]) -> str:
    start = time.perf_counter()
    pairs = deque(zip(images, expected, strict=True))
    for n_calls in range(1, _MAX_CALLS_EACH):
        if n_calls >= _MIN_CALLS_EACH and time.perf_counter() - start > _SECONDS:
            break
        # another order each time: a function that acts at every other call must meet an image twice
        pairs.rotate()
        for image, contents in pairs:
            if _contents(fn(copy_of(image))) != contents:
                return "repeated calls gave different pixels"
    return ""


@contextlib.contextmanager
def generators_kept() -> Iterator[Callable[[], str]]:
    """Put the global random generators back at the end as they were at the start.

    Yields:
        A function that names the generators which have moved since the start, or returns "".
    """
    before = {name: (get(), put) for name, get, put in _generators()}

    def moved() -> str:
        names = [
            name
            for name, get, _ in _generators()
            if name in before and _contents(get()) != _contents(before[name][0])
        ]
        noun = "generator" if len(names) == 1 else "generators"
        return f"{' and '.join(names)} global {noun} moved" if names else ""

    try:
        yield moved
    finally:
        for state, put in before.values():
            put(state)


def seed_generators(key: int, device: torch.device | None = None) -> None:
    """Seed torch's, Python's and NumPy's global generators from 64 bits.

    Unlike `torch.manual_seed`, this leaves devices alone but for the one given: their generators
    may not be in use yet, and then cannot be put back.
    """
    torch.default_generator.manual_seed(key)
    if device is not None and device.type == "cuda":
        torch.cuda.manual_seed(key)
    elif device is not None and device.type == "mps":
        torch.mps.manual_seed(key)
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)


def _generators() -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], Any]]]:
    """Name, and ways to read and to set the state, of each global generator in use."""
    yield "torch's", torch.get_rng_state, torch.set_rng_state
    yield "NumPy's", lambda: np.random.get_state(legacy=False), np.random.set_state
    yield "Python's", random.getstate, random.setstate
    # reading the state of a device that is not in use yet would start it
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield "torch's CUDA", torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
    if torch.backends.mps.is_available():
        yield "torch's MPS", torch.mps.get_rng_state, torch.mps.set_rng_state


def copy_of(image: Any) -> Any:
    """Return a copy that shares no pixels with an image: a PIL image, a tensor or an array."""
    if isinstance(image, Tensor):
        return image.clone()
    return image.copy() if isinstance(image, Image.Image | np.ndarray) else image


def _contents(value: Any) -> Hashable:
    """All that makes two values equal: pixels by their bytes, so that NaN equals itself."""
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, Tensor):
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return str(value.dtype), tuple(value.shape), raw.numpy().tobytes()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return tuple((key, _contents(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_contents(item) for item in value)
    return value if isinstance(value, Hashable) else repr(value)
