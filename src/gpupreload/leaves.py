"""A transform taken apart into its single steps, and the marks that say where a step belongs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gpupreload.catalog import (
    held_by,
    is_conversion,
    is_known,
    is_normalize,
    is_preset,
    kind_of,
    steps_of_preset,
    why_refused,
)
from gpupreload.errors import TransformError
from gpupreload.settings import name_of
from gpupreload.source import describe

Mark = Literal["", "once", "live", "batched"]


class Marked:
    """A callable with a mark on it that says where it belongs; called, it is that callable."""

    mark: Mark = ""

    def __init__(self, fn: Callable[..., Any]) -> None:
        if isinstance(fn, Marked):
            raise TransformError(
                f"{fn!r} is marked already; gp.{self.mark} cannot be put on top. Keep one mark."
            )
        if not callable(fn) or isinstance(fn, type):
            raise TransformError(
                f"gp.{self.mark} marks a callable, such as a function or a transform; "
                f"it was given {_what_came(fn)}."
            )
        self.fn = fn
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the callable."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"gp.{self.mark}({name_of(self.fn)})"


class _Once(Marked):
    mark = "once"


class _Live(Marked):
    mark = "live"


class _Batched(Marked):
    mark = "batched"


def once(fn: Callable[..., Any]) -> Marked:
    """Mark a step that is to run once, at preload, whatever it looks like.

    Use it for a callable that only seems random, for instance one that seeds a generator from the
    image. A step that is really random will give the same picture in every epoch.

    Args:
        fn: any callable from one image to one image; of a `Compose`, each step is marked.

    Returns:
        A callable that does what `fn` does, with its `__name__`.

    Raises:
        TransformError: `fn` is no callable, or carries a mark already.
    """
    return _Once(fn)


def live(fn: Callable[..., Any]) -> Marked:
    """Mark a step that is to be called anew for each sample of each batch.

    Use it for a callable with a random generator of its own whose draws seldom change the picture:
    a few trial calls may miss that it is random.

    Args:
        fn: any callable from one image to one image; of a `Compose`, each step is marked.

    Returns:
        A callable that does what `fn` does, with its `__name__`.

    Raises:
        TransformError: `fn` is no callable, or carries a mark already.
    """
    return _Live(fn)


def batched(fn: Callable[..., Any]) -> Marked:
    """Mark a step that is to be called on whole batches [N, C, H, W], on the device.

    Args:
        fn: any callable from a batch to a batch of as many images, such as a kornia module. It runs
            each time, and so does every step after it.

    Returns:
        A callable that does what `fn` does, with its `__name__`.

    Raises:
        TransformError: `fn` is no callable, or carries a mark already.
    """
    return _Batched(fn)


@dataclass(frozen=True)
class Leaf:
    """One step of a transform, in the order of running.

    Attributes:
        transform: the caller's own object, without its mark.
        place: where it stands, for messages: "step 2", "step 2 of train_aug".
        mark: "once", "live" or "batched", or "" for none.
        argument: the argument it came in: "deterministic_transform", "train_aug", or "".
        inserted: why this library put the step there, or "" where the caller did.
    """

    transform: Callable[..., Any]
    place: str
    mark: Mark = ""
    argument: str = ""
    inserted: str = ""

    @property
    def name(self) -> str:
        """The short name of the transform."""
        return name_of(self.transform)

    def __str__(self) -> str:
        return f"{self.place}, {self.name},"

    @property
    def is_known(self) -> bool:
        """Whether the table of torchvision's classes tells all of what the step does."""
        return not self.mark and is_known(self.transform)

    @property
    def keeps_geometry(self) -> bool:
        """Whether the step is known to change numbers and types only, pixel by pixel."""
        return is_conversion(self.transform) or is_normalize(self.transform)

    @property
    def must_run_each_time(self) -> bool:
        """Whether the step runs each time, as is known without trying it."""
        is_random = not self.mark and kind_of(self.transform) == "random"
        return is_random or self.mark in ("live", "batched")


def flatten(transform: Any, argument: str = "") -> list[Leaf]:
    """Take a transform apart: nested `Compose`, `Sequential`, lists and presets, into steps.

    `RandomApply`, `RandomChoice` and `RandomOrder` stay whole: each is one random step.

    Args:
        transform: a transform of torchvision's v1 or v2, any callable, a list of such, or None.
        argument: the name of the argument it came in, for messages; "" for the only one.

    Raises:
        TransformError: a step is a class, a string, None or no callable at all; or it is one of
            torchvision's classes that does not turn one image into one image.
    """
    leaves = take_apart(transform, argument)
    for leaf in leaves:
        check(leaf)
    return leaves


def take_apart(transform: Any, argument: str = "") -> list[Leaf]:
    """Take a transform apart as `flatten` does, without a look at the steps."""
    of = f" of {argument}" if argument else ""
    if transform is None:
        return []
    steps = list(_walk(transform, ""))
    return [
        Leaf(step, f"step {i}{of}" if len(steps) > 1 else f"the step{of}", mark, argument)
        for i, (step, mark) in enumerate(steps, 1)
    ]


def _walk(transform: Any, mark: Mark) -> Iterator[tuple[Any, Mark]]:
    if isinstance(transform, Marked):
        if mark:
            raise TransformError(
                f"gp.{mark} holds {transform!r}, which is marked already. Keep one mark."
            )
        yield from _walk(transform.fn, transform.mark)
        return
    parts = _parts(transform)
    if parts is None:
        yield transform, mark
    else:
        for part in parts:
            yield from _walk(part, mark)


def _parts(transform: Any) -> list[Any] | None:
    """What a container holds, or None for a step."""
    if isinstance(transform, list | tuple):
        return list(transform)
    if kind_of(transform) != "container":
        return None
    return steps_of_preset(transform) if is_preset(transform) else held_by(transform)


def check(leaf: Leaf) -> None:
    """Raise a `TransformError` for a step that is none: from one image to one image."""
    step = leaf.transform
    if isinstance(step, type):
        raise TransformError(
            f"{leaf.place} is {_what_came(step)}; expected a transform made from it. "
            f"Write {step.__name__}(...) with its settings."
        )
    if not callable(step):
        raise TransformError(
            f"{leaf.place} is {_what_came(step)}; expected a callable from image to image, "
            "such as v2.Resize(112). Take it out, or put a transform in its place."
        )
    refuse(leaf, why_refused)


def refuse(leaf: Leaf, why: Callable[[Any], str | None]) -> None:
    """Raise a `TransformError` where there is a reason against a step, or one that it holds."""
    reason = _reason(leaf.transform, why)
    if reason:
        raise TransformError(f"{leaf} cannot be used here: it {reason}.")


def _reason(step: Any, why: Callable[[Any], str | None]) -> str | None:
    if why(step):
        return why(step)
    inner = ((held, _reason(held, why)) for held in held_by(step))
    return next(
        (f"holds {name_of(held)}, which {reason}" for held, reason in inner if reason), None
    )


def _what_came(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if isinstance(value, str | None) else describe(value)
