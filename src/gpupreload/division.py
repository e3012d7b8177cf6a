"""Where the once-part of a transform ends, and the reason for each step's place in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from gpupreload.catalog import kind_of
from gpupreload.leaves import Leaf
from gpupreload.trace import Form, Point, Trace

FROM_TRAIN_AUG = "given as train_aug"
"""The reason of a step that the caller gave so."""

_TIMES = {2: "twice", 4: "four times", 8: "eight times"}


@dataclass(frozen=True)
class Division:
    """A chain of steps divided in two.

    Attributes:
        leaves: the steps.
        trace: what images look like between them.
        last: the position of the first step that must run each time, or the end.
        end: the once-part is the steps before this position, which is `last` or lies before it.
        stored: the form of what is stored.
        is_assumed: whether one size of all images had to be assumed, for want of data.
        why_floats: why floats are stored, or "" where uint8 is.
        is_given: whether the images are stored already, so that `end` could not be chosen.
    """

    leaves: Sequence[Leaf]
    trace: Trace
    last: int
    end: int
    stored: Form
    is_assumed: bool
    why_floats: str
    is_given: bool = False

    def reasons(self) -> list[str]:
        """For each step, why it is where it is."""
        return [self._reason(position) for position in range(len(self.leaves))]

    def _reason(self, position: int) -> str:
        leaf = self.leaves[position]
        if leaf.inserted:
            return leaf.inserted
        if leaf.argument == "train_aug":
            return FROM_TRAIN_AUG
        if position < self.end:
            return self._why_once(position)
        if position < self.last:
            return f"{self._how_known(position)}, {self._why_not_once(position)}"
        return self._why_each_batch(position)

    def _how_known(self, position: int) -> str:
        leaf = self.leaves[position]
        if leaf.mark == "once":
            return "marked gp.once"
        is_listed = kind_of(leaf.transform) == "deterministic"
        return "deterministic" if is_listed else "deterministic when tried"

    def _why_once(self, position: int) -> str:
        if self.trace.randomness[position] != "deterministic":
            return "FROZEN: random, but run once because allow_frozen=True"
        how = self._how_known(position)
        if self.why_floats and position == self.end - 1:
            return f"{how}; {self.why_floats}"
        after = self.trace.points[position + 1]
        if not _is_uint8(after):
            return f"{how}, on the way to what is stored"
        if after.one_form:
            return f"{how}, still uint8 and one size"
        if self.is_assumed:
            return f"{how}, still uint8; one size only if all files have the same size"
        return f"{how}, still uint8; sizes still differ"

    def _why_not_once(self, position: int) -> str:
        before, after = self.trace.points[position : position + 2]
        if not _is_uint8(before):
            return "on float pixels, so it runs on the device"
        if _is_uint8(after):
            if self.is_given:
                return "but the images were stored without it, so it runs on the device"
            return "but images differ in size after it"
        mode = after.first.mode
        times = _TIMES.get(getattr(torch, mode, torch.uint8).itemsize, "more")
        into = "floats" if mode == "float32" else mode
        return f"but turns pixels into {into}: {times} the memory, so it runs on the device"

    def _why_each_batch(self, position: int) -> str:
        leaf = self.leaves[position]
        if leaf.mark == "live":
            return "marked gp.live: called anew for each sample"
        if leaf.mark == "batched":
            return "marked gp.batched: called on whole batches"
        if self.trace.randomness[position] == "random":
            sign = self.trace.signs[position]
            return f"random: {sign + '; ' if sign else ''}drawn anew for each sample"
        if "random" in self.trace.randomness[:position]:
            return "after a random step"
        return f"after {self.leaves[self.last].name}, which runs each time"


def _is_uint8(point: Point) -> bool:
    return all(form.dtype == torch.uint8 for form in point.forms)


def divide(
    leaves: Sequence[Leaf], trace: Trace, last: int, *, first: int = 0, has_data: bool = True
) -> Division | None:
    """Choose what to store: pixels after the last step that leaves them uint8 and of one size.

    Floats are stored instead where no uint8 pixels have one size, or where they take fewer bytes.

    Args:
        leaves: the steps.
        trace: what images look like between them.
        last: the position before which the once-part must end: that of the first random step.
        first: the position before which it must not end, because of steps that are to run once.
        has_data: whether the trace is of the caller's images; else one size may be assumed.

    Returns:
        The division, or None where there is nothing that can be stored.
    """
    points = trace.points[first : last + 1]
    agreed = {first + k: point.one_form for k, point in enumerate(points)}
    end = _choose({k: form for k, form in agreed.items() if form and form.dtype})
    is_assumed = end is None and not has_data
    if is_assumed:
        end = _choose({first + k: p.first for k, p in enumerate(points) if p.first.dtype})
    if end is None:
        return None
    stored = trace.points[end].first
    why_floats = "" if stored.dtype == torch.uint8 else _why_floats(trace, first, end)
    return Division(leaves, trace, last, end, stored, is_assumed, why_floats)


def _choose(forms: Mapping[int, Form]) -> int | None:
    whole = [k for k, form in forms.items() if form.dtype == torch.uint8]
    key: Callable[[int], tuple[int, int]] = lambda k: (forms[k].n_bytes, -k)  # noqa: E731
    floats = sorted((k for k in forms if k not in whole), key=key)
    if not floats or not whole:
        return whole[-1] if whole else floats[0] if floats else None
    return floats[0] if forms[floats[0]].n_bytes < forms[whole[-1]].n_bytes else whole[-1]


def _why_floats(trace: Trace, first: int, end: int) -> str:
    stored = trace.points[end].first
    assert stored.dtype is not None
    times = _TIMES.get(stored.dtype.itemsize, "more")
    costs = f"stored as floats, {times} the memory of uint8"
    whole = [p for p in trace.points[first:end] if _is_uint8(p)]
    of_one_size = [p for p in whole if p.one_form]
    if of_one_size:
        fewer = f"fewer than the {of_one_size[-1].first.n_bytes:,} of uint8 before"
        return f"stored as floats: {stored.n_bytes:,} bytes an image, {fewer}"
    if whole:
        return f"{costs}: before it, sizes differ"
    if any(_is_uint8(p) for p in trace.points[:first]):
        return f"{costs}, because it is to run once"
    return "stored as floats: the images are not of 8 bits"
