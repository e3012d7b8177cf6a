"""A transform taken apart: which steps run once, which for each batch, and why."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import refusals
from gpupreload.catalog import is_normalize, makes_floats, reads_colors
from gpupreload.cover import ResizeToCover
from gpupreload.division import Division, divide
from gpupreload.errors import ArgumentError, FrozenAugmentationError, SizeError, TransformError
from gpupreload.leaves import Leaf, Marked, batched, flatten, live, once
from gpupreload.made_up import Like, MadeUp
from gpupreload.parts import Step, Steps
from gpupreload.probe import probe
from gpupreload.settings import fingerprint, is_portable
from gpupreload.source import ImageSpec, Source, open_source
from gpupreload.table import counted
from gpupreload.trace import Form, Trace, follow

__all__ = [
    "Marked",
    "Step",
    "Steps",
    "batched",
    "fingerprint",
    "is_portable",
    "live",
    "once",
    "probe",
    "split_explicit",
    "split_transform",
]

_ALIKE: tuple[Like, ...] = ("RGB photo", "uint8 tensor", "grey photo")
_WHY_STORE_SIZE = "inserted by store_size: what follows sees this picture, not the whole photo"
_WHY_FLOATS = "inserted: train_aug is given float pixels in [0, 1]"
_NOTE_WITHOUT_DATA = (
    "Whether all images have one size depends on the files: split_transform(transform, data) tells."
)


def split_transform(
    transform: Any, data: Any = None, *, store_size: tuple[int, int] | None = None
) -> Steps:
    """Read a torchvision transform, and say of each step whether it runs once or for each batch.

    Once, at preload, runs the longest deterministic start that leaves pixels uint8 and of one
    size. For each batch runs the rest: everything from the first random step on, and before it the
    steps that turn pixels into floats. What torchvision's classes do is known from a table; any
    other callable is tried on a few images (see `probe`), and `once`, `live` and `batched` overrule
    what is found.

    Args:
        transform: a transform of torchvision's v1 or v2, a `Compose` or `torch.nn.Sequential`, any
            callable from one image to one image, a list of these, or None.
        data: a folder, an `ImageFolder` or another map-style dataset, whose images tell whether
            they come out in one size. Without it, made-up images are used, and `stored` is None.
        store_size: (height, width) in pixels: photos of different sizes are resized until they
            just cover it, and centre-cropped to it, once, before the first random step.

    Raises:
        TransformError: a step cannot be used, or raises an error.
        SizeError: the images do not have one size where they would be stored.
        ArgumentError: `store_size` is no pair of positive numbers.

    >>> print(split_transform(v2.Compose([v2.CenterCrop(112), v2.RandomHorizontalFlip()])))
       step                         runs        why
    -  ---------------------------  ----------  ---------------------------------------
    1  CenterCrop(112)              once        deterministic, still uint8 and one size
    2  RandomHorizontalFlip(p=0.5)  each batch  random: drawn anew for each sample
    """
    leaves = flatten(transform)
    warn_of_colors(leaves)
    if data is not None:
        return _split(leaves, open_source(data), store_size)
    errors = []
    for like in _ALIKE:
        try:
            return _split(leaves, MadeUp(like), store_size)
        except TransformError as error:
            errors.append(error)
    raise TransformError(
        f"{errors[0]}\nWithout data, steps are tried on made-up images. Pass data, and they are "
        "tried on yours."
    ) from errors[0]


def split_explicit(
    deterministic_transform: Any, train_aug: Any, data: Any, *, allow_frozen: bool = False
) -> Steps:
    """Divide as the caller says: `deterministic_transform` runs once, `train_aug` for each batch.

    The steps at the end of `deterministic_transform` that turn pixels into floats are moved to
    each batch, with the same result. `train_aug` is given the tensor that `deterministic_transform`
    made; where it made none, float pixels in [0, 1], by a step that is inserted for it.

    Args:
        deterministic_transform: as `transform` in `split_transform`, or None.
        train_aug: the same; callables of the caller's own in it are not tried.
        data: a folder, an `ImageFolder` or another map-style dataset.
        allow_frozen: let a random step in `deterministic_transform` run once, with a warning.

    Raises:
        FrozenAugmentationError: a step of `deterministic_transform` is random.
        TransformError: a step cannot be used, or raises an error.
        SizeError: the images do not come out of `deterministic_transform` in one size.
    """
    before = flatten(deterministic_transform, "deterministic_transform")
    after = flatten(train_aug, "train_aug")
    _check_marks(before, after)
    warn_of_colors([*before, *after])
    source = open_source(data)
    trace = follow(before, source)
    _check_frozen(before, after, trace, allow_frozen)
    leaves = [*before, *_floats_for(after, trace.points[-1].first), *after]
    runs_once = [
        leaf.mark == "once" or kind != "deterministic"
        for leaf, kind in zip(before, trace.randomness, strict=True)
    ]
    return _steps(leaves, trace, len(before), _after_last(runs_once), source)


def _split(leaves: list[Leaf], source: Source, store_size: tuple[int, int] | None) -> Steps:
    trace = follow(head_of(leaves), source)
    if store_size is not None:
        leaves = _with_store_size(leaves, trace.first_random, store_size)
        trace = follow(head_of(leaves), source)
    last = trace.first_random
    floor = _after_last(leaf.mark == "once" for leaf in leaves)
    if floor > last:
        raise TransformError(
            f"{leaves[floor - 1]} is marked gp.once, but comes after {leaves[last]} which runs "
            "each time. Put it before that step, or take the mark off."
        )
    return _steps(leaves, trace, last, floor, source)


def head_of(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The steps before the first that is known to run each time."""
    return list(itertools.takewhile(lambda leaf: not leaf.must_run_each_time, leaves))


def _after_last(flags: Iterable[bool]) -> int:
    """The position after the last that is true, or 0."""
    return max((i for i, flag in enumerate(flags, 1) if flag), default=0)


def _steps(leaves: Sequence[Leaf], trace: Trace, last: int, floor: int, source: Source) -> Steps:
    """Divide, with a trace of the steps before `last`; then try those after it, and tell."""
    has_data = not isinstance(source, MadeUp)
    division = divide(leaves, trace, last, first=floor, has_data=has_data)
    # where a random step comes last, it may give one size
    ends_in_many_sizes = has_data and last == len(leaves) and not trace.points[last].one_form
    if division is None or ends_in_many_sizes:
        raise _nothing_to_store(leaves, trace, last, source)
    division = replace(division, trace=follow(leaves, source, done=trace))
    rows = rows_of(division)
    if not has_data:
        return Steps(rows, note=_NOTE_WITHOUT_DATA if division.is_assumed else "")
    form, n_decoded = division.stored, division.trace.n_decoded
    mode = str(form.dtype).removeprefix("torch.")
    return Steps(rows, ImageSpec("tensor", mode, *form.shape), n_decoded, _note(form, n_decoded))


def _nothing_to_store(
    leaves: Sequence[Leaf], trace: Trace, last: int, source: Source
) -> SizeError | TransformError:
    forms = trace.points[last].forms
    if any(form.dtype is None for form in forms):
        return TransformError(refusals.not_storable(leaves, trace, last, source))
    return SizeError(refusals.sizes_differ(leaves, trace, last, source))


def rows_of(division: Division) -> tuple[Step, ...]:
    """The steps of a division, whose trace reaches to its end."""
    return tuple(_step(division, i, why) for i, why in enumerate(division.reasons()))


def _step(division: Division, position: int, reason: str) -> Step:
    leaf, trace = division.leaves[position], division.trace
    return Step(
        transform=leaf.transform,
        name=leaf.name,
        part="once" if position < division.end else "each batch",
        reason=reason,
        randomness=trace.randomness[position],
        call="batch" if leaf.mark == "batched" else "image",
        takes=trace.points[position].first.takes,
        is_tv_image=trace.points[position].first.is_tv_image,
        is_marked_once=leaf.mark == "once",
    )


def _note(stored: Form, n_decoded: int) -> str:
    shape = "×".join(map(str, stored.shape))
    mode = str(stored.dtype).removeprefix("torch.")
    were = "was" if n_decoded == 1 else "were"
    images = f"{counted(n_decoded, 'image')} {were}"
    tried = f" {images} decoded to find this out." if n_decoded else ""
    return f"Stored: {shape} {mode}, {stored.n_bytes:,} bytes an image.{tried}"


def _with_store_size(
    leaves: Sequence[Leaf], first_random: int, store_size: tuple[int, int]
) -> list[Leaf]:
    """Insert the resize and the crop before the first random step, while pixels are uint8 still."""
    size = _checked_size(store_size)
    position = first_random
    while position and leaves[position - 1].keeps_geometry:
        position -= 1
    return [*leaves[:position], *inserted_for(size), *leaves[position:]]


def inserted_for(size: tuple[int, int]) -> list[Leaf]:
    """The steps that `store_size` inserts."""
    place = f"the step that store_size={size} inserts"
    steps = (ResizeToCover(size), v2.CenterCrop(size))
    return [Leaf(step, place, inserted=_WHY_STORE_SIZE) for step in steps]


def _checked_size(store_size: Any) -> tuple[int, int]:
    is_pair = isinstance(store_size, list | tuple) and len(store_size) == 2
    if not is_pair or any(type(side) is not int or side < 1 for side in store_size):
        raise ArgumentError(
            f"store_size is {store_size!r}; expected two numbers of pixels, (height, width), "
            "such as (128, 128)."
        )
    height, width = store_size
    return height, width


def _check_marks(before: Sequence[Leaf], after: Sequence[Leaf]) -> None:
    for leaf in before:
        if leaf.mark in ("live", "batched"):
            raise TransformError(
                f"{leaf} is marked gp.{leaf.mark}, to run each time, but "
                "deterministic_transform runs once. Move it to train_aug."
            )
    for leaf in after:
        if leaf.mark == "once":
            raise TransformError(
                f"{leaf} is marked gp.once, but train_aug runs for each batch. "
                "Move it to deterministic_transform."
            )


def _check_frozen(
    before: Sequence[Leaf], after: Sequence[Leaf], trace: Trace, allow_frozen: bool
) -> None:
    position = trace.first_random
    if position == len(before):
        return
    if not allow_frozen:
        sign = trace.signs[position]
        raise FrozenAugmentationError(refusals.frozen(before, position, sign, after))
    warn(
        f"{before[position]} is random and runs once, because allow_frozen=True: "
        "every epoch will show the same picture."
    )


def _floats_for(after: Sequence[Leaf], given: Form) -> list[Leaf]:
    """The step that gives `train_aug` float pixels in [0, 1] where no tensor comes to it."""
    if not after or given.takes == "tensor":
        return []
    if any(makes_floats(leaf.transform) for leaf in after):
        return []
    return [Leaf(v1.ToTensor(), "the step that makes floats for train_aug", inserted=_WHY_FLOATS)]


def warn_of_colors(leaves: Sequence[Leaf]) -> None:
    """Warn of steps that read colours where `Normalize` has changed their range."""
    normalize = None
    for leaf in leaves:
        if is_normalize(leaf.transform):
            normalize = leaf
        elif normalize and reads_colors(leaf.transform):
            warn(refusals.color_after_normalize(normalize, leaf))


def warn(text: str) -> None:
    """Warn at the line outside this package from which it was called."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
