"""`shares_draws`: does a callable on batches draw once for the whole batch?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError, TransformError
from gpupreload.per_sample import PerSample
from gpupreload.probe import generators_kept
from gpupreload.repeats import digest
from gpupreload.settings import name_of
from gpupreload.source import describe

_N_COPIES = 64
_N_CALLS = 20
_SIDE = 64  # pixels of the made-up image

Verdict = Literal["shared", "per sample", "no draw seen"]


@dataclass(frozen=True)
class SharedReport:
    """What a callable made of batches of equal images.

    Attributes:
        shared: whether all rows of a batch had one draw. False for a callable that draws for each
            row, and for one that was not seen to draw at all.
        verdict: "shared", "per sample", or "no draw seen".
        n_copies: how many equal images a batch held.
        n_distinct: the most different images that came out of one batch.
        n_calls: how many batches were made.
        sentence: what was found, in words.
    """

    shared: bool
    verdict: Verdict
    n_copies: int
    n_distinct: int
    n_calls: int
    sentence: str

    def __bool__(self) -> bool:
        return self.shared

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"SharedReport: {self.sentence}"


def shares_draws(
    transform: Callable[[Tensor], Tensor], image: Tensor | None = None
) -> SharedReport:
    """Call a transform on batches of copies of one image, and say whether its rows share a draw.

    A transform of torchvision's that is called on a batch draws one set of parameters for all of
    its rows. That is no error, and a model only learns less from it. Equal images show it: where
    each row has its own draw, they come out different.

    Up to 20 batches of 64 copies are made, and fewer where one of them has different rows. A
    callable whose rows are equal in every batch, but not the same from batch to batch, shares its
    draws. One whose result never changes was not seen to draw: it is deterministic, or acts less
    than once in some hundred images, or does not show on this image. Rows may differ in one draw
    and share another; then `n_distinct` is small.

    Args:
        transform: any callable from a batch [N, C, H, W] to one of N images, such as a torchvision
            transform, a kornia module, or a module from `per_sample`.
        image: [C, H, W] on any device; None makes one of 3×64×64, in floats of 0 to 1, or in uint8
            where the callable takes no floats.

    Returns:
        The verdict; it is true where draws are shared. The global random generators are put back
        as they were, and a module from `per_sample` does not count these calls.

    Raises:
        ArgumentError: `image` is no tensor [C, H, W], or `transform` is no callable.
        TransformError: the callable raises an error, or does not return N images.

    >>> from torchvision.transforms import v2
    >>> from gpupreload.per_sample import per_sample
    >>> bool(shares_draws(v2.ColorJitter(0.5)))
    True
    >>> shares_draws(per_sample(v2.ColorJitter(0.5), seed=0)).n_distinct
    64
    """
    _check(transform, image)
    with generators_kept(), torch.no_grad():
        images = [image] if image is not None else [_made_up(), (_made_up() * 255).byte()]
        batches = [one.expand(_N_COPIES, *one.shape) for one in images]
        batch = next((b for b in batches if _takes(transform, b)), batches[0])
        return _report(transform, batch)


def _report(transform: Callable[[Tensor], Tensor], batch: Tensor) -> SharedReport:
    seen: set[bytes] = set()
    most, n_calls = 0, 0
    while n_calls < _N_CALLS and most < 2:
        rows = {digest(row) for row in _call(transform, batch, n_calls)}
        seen |= rows
        most, n_calls = max(most, len(rows)), n_calls + 1
    name = _name(transform)
    if most > 1:
        text = f"{name} draws for each row: {_N_COPIES} equal images came out in {most} ways."
        return SharedReport(False, "per sample", _N_COPIES, most, n_calls, text)
    if len(seen) > 1:
        text = (
            f"{name} shares its draws: {_N_COPIES} equal images came out equal in every batch, and "
            f"in {len(seen)} ways from batch to batch. gpupreload.per_sample draws for each row."
        )
        return SharedReport(True, "shared", _N_COPIES, most, n_calls, text)
    text = (
        f"{name} was not seen to draw: {_N_COPIES} equal images came out equal in every one of "
        f"{n_calls} batches, and the same each time."
    )
    return SharedReport(False, "no draw seen", _N_COPIES, most, n_calls, text)


def _call(transform: Callable[[Tensor], Tensor], batch: Tensor, number: int) -> Tensor:
    given = batch.clone()  # copies of their own, for a callable that writes to them
    try:
        # with an epoch, a module does not count the call
        is_ours = isinstance(transform, PerSample)
        result: Any = transform(given, epoch=number) if is_ours else transform(given)  # type: ignore[call-arg]
    except Exception as error:
        raise TransformError(
            f"{_name(transform)} raised {type(error).__name__} on a batch, "
            f"{describe(batch)}: {error}\nPass an image that it takes, with image=..., or a "
            "transform that takes batches of images alone."
        ) from error
    if not isinstance(result, Tensor) or result.shape[:1] != batch.shape[:1]:
        raise TransformError(
            f"{_name(transform)} returned {describe(result)} for a batch of {len(batch)} images; "
            "expected as many images."
        )
    return result


def _name(transform: Callable[..., Any]) -> str:
    if not isinstance(transform, PerSample):
        return name_of(transform)
    names = [step.name for step in transform.steps]
    names += [] if transform.mix is None else [transform.mix.name]
    first, *others = names or ["None"]
    return f"gp.per_sample({f'[{first}, …]' if others else first})"


def _takes(transform: Callable[[Tensor], Tensor], batch: Tensor) -> bool:
    try:
        _call(transform, batch, 0)
    except TransformError:
        return False
    return True


def _made_up() -> Tensor:
    """An image of noise with all channels different, in floats of 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand((3, _SIDE, _SIDE), generator=generator)


def _check(transform: Any, image: Any) -> None:
    if not callable(transform):
        raise ArgumentError(
            f"transform is {describe(transform)}; expected a callable from a batch [N, C, H, W] to "
            "a batch, such as v2.Compose([...])."
        )
    if image is not None and not (isinstance(image, Tensor) and image.ndim == 3):
        raise ArgumentError(
            f"image is {describe(image)}; expected one image as a tensor [C, H, W]. Of a batch, "
            "pass batch[0]."
        )
