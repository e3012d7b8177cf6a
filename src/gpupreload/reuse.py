"""Another transform over images that are stored already: what of it is done, and what is left."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torchvision.transforms import v2

from gpupreload.catalog import (
    is_center_crop,
    is_conversion,
    is_grayscale,
    is_pad,
    is_resize,
    is_rgb,
    is_to_pil,
    kind_of,
)
from gpupreload.cover import ResizeToCover
from gpupreload.division import Division
from gpupreload.errors import TransformError
from gpupreload.functional.pixelwise import UNCHANGED_ON_TENSORS
from gpupreload.leaves import Leaf, flatten
from gpupreload.made_up import MadeUp
from gpupreload.parts import Step, Steps
from gpupreload.probe import copy_of, generators_kept, probe
from gpupreload.settings import code_of
from gpupreload.source import Source
from gpupreload.steps import (
    fingerprint,
    head_of,
    inserted_for,
    rows_of,
    split_explicit,
    warn_of_colors,
)
from gpupreload.trace import Point, Trace, follow


def once_identity(steps: Steps) -> Hashable:
    """Say what the once-part does: equal for equal settings of equal classes, in order."""
    return tuple(fingerprint(row.transform) for row in once_rows(steps))


def once_rows(steps: Steps) -> tuple[Step, ...]:
    """The once-part, but for conversions at its end: the same pixels are stored without them."""
    rows = list(steps.rows_of("once"))
    while rows and type(rows[-1].transform) in UNCHANGED_ON_TENSORS:
        rows.pop()
    return tuple(rows)


@dataclass(frozen=True)
class Explicit:
    """What a dataset of the explicit form was made with.

    Attributes:
        first: its `deterministic_transform`, or the data's own transform.
        allow_frozen: whether a random step in it was let through.
    """

    first: Any
    allow_frozen: bool

    def with_train_aug(self, train_aug: Any) -> list[Any]:
        """The whole transform: `first`, then this."""
        return [part for part in (self.first, train_aug) if part is not None]

    def is_whole(self, transform: Any, stored: Steps) -> bool:
        """Whether a transform begins with what ran once, or with all of `first`."""
        leaves, first = flatten(transform), flatten(self.first)
        done = [row.transform for row in once_rows(stored)]
        starts = [start for start in (done, [leaf.transform for leaf in first]) if start]
        return any(_begins(leaves, start) for start in starts)


def steps_over(
    stored: Steps, transform: Any, source: Source, given: Explicit | None
) -> tuple[Steps, Any]:
    """Read a transform for images that are stored already.

    It is the whole transform, and begins with the steps that these went through. Its deterministic
    steps after those run for each batch; they are refused where on tensors they give other pixels
    than on the PIL images that they would be given. For the explicit form, one that begins neither
    with what ran once nor with all of `deterministic_transform` takes the place of `train_aug`. One
    that does nothing at all, such as `lambda image: image`, gives the images as they are stored.

    Args:
        stored: the steps of a dataset over the same images.
        transform: as for `split_transform`.
        source: what the images were read from.
        given: what a dataset of the explicit form was made with; None for another.

    Returns:
        The steps, of which those that run once are the stored ones, and the whole transform.

    Raises:
        TransformError: the images went through other steps, or a step cannot be used.
    """
    if given is not None:
        return _explicit_over(stored, transform, source, given)
    return _whole_over(stored, transform, source), transform


def _whole_over(stored: Steps, transform: Any, source: Source) -> Steps:
    leaves, done = flatten(transform), once_rows(stored)
    warn_of_colors(leaves)
    own, size = _own_rows(done)
    if not _begins(leaves, [row.transform for row in own]):
        if all(_does_nothing(leaf, source) for leaf in leaves):
            return replace(stored, rows=done)
        raise TransformError(_another_once_part(stored, leaves))
    if size is not None:
        leaves[len(own) : len(own)] = inserted_for(size)
    trace = follow(head_of(leaves), source)
    end = _end(leaves, len(done), trace.first_random)
    way = _way_on(leaves, trace, end, is_cut=size is not None)
    if way is not None:
        raise TransformError(_another_once_part(stored, leaves, way))
    rows = _rows(leaves, trace, end, source)
    return replace(stored, rows=(*done, *rows[len(done) :]))


def _explicit_over(
    stored: Steps, transform: Any, source: Source, given: Explicit
) -> tuple[Steps, Any]:
    """Read a transform for a dataset of the explicit form: the whole one, or another train_aug."""
    if given.is_whole(transform, stored):
        return _whole_over(stored, transform, source), transform
    leaves = flatten(transform, "train_aug")
    resize = next((leaf for leaf in head_of(leaves) if is_resize(leaf.transform)), None)
    if resize is not None:  # more likely the start of a whole transform than an augmentation
        raise TransformError(_another_once_part(stored, leaves, _live_way(resize)))
    steps = split_explicit(given.first, transform, source, allow_frozen=given.allow_frozen)
    return steps, given.with_train_aug(transform)


def _begins(leaves: Sequence[Leaf], start: Sequence[Any]) -> bool:
    """Whether steps begin with steps of these settings."""
    found = [fingerprint(leaf.transform) for leaf in leaves[: len(start)]]
    return found == [fingerprint(transform) for transform in start]


def _does_nothing(leaf: Leaf, source: Source) -> bool:
    """Whether a step gives back what it is given, as `v2.Identity` or `lambda image: image`."""
    if leaf.mark:
        return False
    if kind_of(leaf.transform) not in (None, "function"):
        return isinstance(leaf.transform, v2.Identity)
    is_tensor = next(iter(source.specs.values())).kind == "tensor"
    made_up = MadeUp("uint8 tensor" if is_tensor else "RGB photo")
    images = [made_up.read(i)[0] for i in range(len(made_up))]
    try:
        with generators_kept(), torch.no_grad():
            given_back = [leaf.transform(copy_of(image)) for image in images]
        is_same = all(map(_are_equal, images, given_back))
        return is_same and probe(leaf.transform, images).randomness == "deterministic"
    except Exception:  # whatever the callable raises, it does something
        return False


def _are_equal(image: Any, other: Any) -> bool:
    return type(image) is type(other) and np.array_equal(np.asarray(image), np.asarray(other))


def _own_rows(done: Sequence[Step]) -> tuple[Sequence[Step], tuple[int, int] | None]:
    """The caller's own rows of what ran once, and the size where `store_size` inserted others."""
    for position, row in enumerate(done):
        if isinstance(row.transform, ResizeToCover):
            return done[:position], row.transform.size
    return done, None


def _end(leaves: Sequence[Leaf], n_done: int, last: int) -> int:
    """Where what is stored ends, with the conversions that leave it as it is."""
    end = n_done
    while end < last and type(leaves[end].transform) in UNCHANGED_ON_TENSORS:
        end += 1
    return end


def _way_on(leaves: Sequence[Leaf], trace: Trace, end: int, *, is_cut: bool) -> str | None:
    """Say what to do where what is left of a transform cannot run on what is stored.

    Args:
        leaves: the steps.
        trace: of those before the first random one.
        end: those before this position are done.
        is_cut: whether `store_size` cut the images, so that what lay around them is not there.

    Returns:
        The way on, or what is in the way, in a sentence; "" where a random step was frozen; None
        where nothing is in the way.
    """
    if end > trace.first_random:  # a random step was frozen on purpose
        return ""
    marked = next((leaf for leaf in leaves[end:] if leaf.mark == "once"), None)
    if marked is not None:
        return f"Or take gp.once off {marked.name}, and it runs for each batch.\n"
    for position in range(end, trace.first_random):
        leaf, (before, after) = leaves[position], trace.points[position : position + 2]
        if is_cut and is_center_crop(leaf.transform) and _is_larger(after, before):
            height, width = before.first.shape[1:]
            return (
                f"{leaf.name} is larger than the {height}×{width} pixels that it would cut from: "
                "what store_size cut off is not there again.\n"
            )
        if before.first.takes == "PIL" and not _is_alike(leaf.transform, before, after):
            return _way_from_pil(leaf, before)
    return None


def _way_from_pil(leaf: Leaf, before: Point) -> str:
    """The way on for a step that on tensors gives other pixels than on PIL images, or fails."""
    if is_pad(leaf.transform):
        pad: Any = leaf.transform
        fill = pad.fill if pad.padding_mode == "constant" else 0  # else nothing is filled
        same = v2.Pad(pad.padding, fill=fill, padding_mode=pad.padding_mode)
        return (
            f"Or write {code_of(same)}, and it runs for each batch, on tensors, for which v1's Pad "
            "takes one number as fill.\n"
        )
    if is_rgb(leaf.transform):
        modes = " and ".join(sorted({form.mode for form in before.forms}))
        return (
            f"{leaf.name} cannot run for each batch: on tensors it does not do what it does to PIL "
            f"images of mode {modes}.\n"
        )
    return _live_way(leaf)


def _is_larger(after: Point, before: Point) -> bool:
    sides = zip(after.first.shape[1:], before.first.shape[1:], strict=True)
    return any(new > old for new, old in sides)


def _is_alike(transform: Any, before: Point, after: Point) -> bool:
    """Whether a step does to tensors what it does to PIL images, to the bit."""
    if kind_of(transform) in (None, "function"):  # the caller's own are given PIL images again
        return True
    modes = {form.mode for form in before.forms}
    if is_resize(transform):
        return before.one_form is not None and before.first.shape == after.first.shape
    if is_grayscale(transform):  # PIL weighs the channels in whole numbers
        return modes == {"L"} and after.first.shape[0] == 1
    if is_rgb(transform):
        return modes <= {"L", "RGB"}
    if is_pad(transform):  # v1's takes one number for tensors
        return isinstance(transform, v2.Pad) or isinstance(transform.fill, int | float)
    is_moving = is_center_crop(transform) or isinstance(transform, v2.Identity)
    return is_moving or is_conversion(transform) or is_to_pil(transform)


def _rows(leaves: Sequence[Leaf], trace: Trace, end: int, source: Source) -> tuple[Step, ...]:
    stored = trace.points[end].first
    division = Division(leaves, trace, trace.first_random, end, stored, False, "", is_given=True)
    return rows_of(replace(division, trace=follow(leaves, source, done=trace)))


def _live_way(leaf: Leaf) -> str:
    return (
        f"Or write gp.live({code_of(leaf.transform)}), and it runs for each batch: on tensors, "
        "where its pixels may be a grey level or two beside those of PIL images.\n"
    )


def _another_once_part(stored: Steps, leaves: Sequence[Leaf], way: str | None = None) -> str:
    """What to say to a transform whose once-part is not the one that the images went through."""
    begin = "Or begin it with the steps that they were loaded with: it is the whole transform.\n"
    asked = list(head_of(leaves))
    while asked and asked[-1].keeps_geometry:
        asked.pop()
    loaded, names = _told_apart(stored.rows_of("once"), asked)
    return (
        "this transform has another once-part than the images were loaded with, so they must be "
        "loaded again: gpupreload.preload(data, transform).\n"
        f"{begin if way is None else way}"
        f"loaded with: {', '.join(loaded) or 'nothing'}\n"
        f"asked for:   {', '.join(names) or 'nothing'}"
    )


def _told_apart(rows: Sequence[Step], leaves: Sequence[Leaf]) -> tuple[list[str], list[str]]:
    """The names of both, with v1 or v2 before the names of two in one place that differ in that."""
    names, others = [row.name for row in rows], [leaf.name for leaf in leaves]
    for i, (row, leaf) in enumerate(zip(rows, leaves, strict=False)):
        versions = [_version(step.transform) for step in (row, leaf)]
        if row.name == leaf.name and versions[0] != versions[1]:
            names[i], others[i] = (f"{version}.{row.name}" for version in versions)
    return names, others


def _version(transform: Any) -> str:
    return "v2" if ".v2" in type(transform).__module__ else "v1"
