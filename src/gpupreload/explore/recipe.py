"""A transform as it is set in the widget: steps left out, settings changed, and the code for it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torchvision.transforms import v2

from gpupreload.catalog import kind_of
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.leaves import Mark, batched, flatten, live, once
from gpupreload.per_sample import PerSample
from gpupreload.settings import code_of, compose_code, imports_of, name_of, remade
from gpupreload.steps import Step

_WIDEST = 62  # characters of a step: as many as the code box shows in a window of 800 pixels

_MARKS = {"once": once, "live": live, "batched": batched}


@dataclass(frozen=True)
class Part:
    """One step, and what was done to it by hand.

    Attributes:
        given: the step as the dataset has it.
        mark: the caller's mark on it, or "".
        on: whether it runs.
        changes: the constructor's arguments that were changed, by name.
    """

    given: Step
    mark: Mark = ""
    on: bool = True
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_random(self) -> bool:
        """Whether the step may be left out and changed: it is random, or may be."""
        return self.given.part == "each batch" and self.given.randomness != "deterministic"

    @cached_property
    def step(self) -> Step:
        """The step as it is set; torchvision's own error where it does not take the settings."""
        if not self.changes:
            return self.given
        transform = remade(self.given.transform, **self.changes)
        return replace(self.given, transform=transform, name=name_of(transform))

    @property
    def code(self) -> str:
        """Python that makes the step."""
        code = code_of(self.step.transform)
        return f"gp.{self.mark}({code})" if self.mark else code

    @property
    def transform(self) -> Any:
        """The step's transform, with the caller's mark on it."""
        transform = self.step.transform
        return _MARKS[self.mark](transform) if self.mark else transform


@dataclass(frozen=True)
class Recipe:
    """All steps of a dataset's transform, as they are set."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, dataset: GPUPreloadDataset) -> Recipe:
        """The recipe of a dataset, with nothing changed."""
        marks = {id(leaf.transform): leaf.mark for leaf in flatten(dataset.transform)}
        return cls(tuple(Part(s, marks.get(id(s.transform), "")) for s in dataset.steps.rows))

    def changed(self, position: int, *, on: bool, changes: Mapping[str, Any]) -> Recipe:
        """The recipe with one step set anew."""
        part = replace(self.parts[position], on=on, changes=changes)
        return Recipe((*self.parts[:position], part, *self.parts[position + 1 :]))

    @property
    def chosen(self) -> list[Part]:
        """The steps that run, in order, without those that `store_size` inserted."""
        return [
            part
            for part in self.parts
            if part.on and not part.given.reason.startswith("inserted by store_size")
        ]

    def module(self, *, shared: bool = False) -> PerSample:
        """The each-batch part, with a draw of its own for every sample.

        Args:
            shared: whether torchvision's random steps are called on the whole batch instead, as
                `transform(batch)` would: with one draw for all of it.
        """
        steps = [part.step for part in self.parts if part.on and part.given.part == "each batch"]
        return PerSample(_on_batches(step) if shared else step for step in steps)

    @property
    def transform(self) -> v2.Compose:
        """The whole transform as it is set, to be used like any of torchvision's."""
        return v2.Compose([part.transform for part in self.chosen] or [v2.Identity()])

    @property
    def code(self) -> str:
        """Python that makes the transform, with the imports that it needs."""
        codes = [_on_lines(part.code) for part in self.chosen]
        composed = compose_code(codes or ["v2.Identity()"])
        return "\n".join([*imports_of(composed), f"transform = {composed}"])


def _on_lines(call: str) -> str:
    """A step's code; of a long call with an argument a line."""
    if len(call) <= _WIDEST:
        return call
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:  # the name of what has no code
        return call
    if not isinstance(tree, ast.Call):
        return call
    values = map(ast.unparse, tree.args)
    named = (f"{argument.arg}={ast.unparse(argument.value)}" for argument in tree.keywords)
    arguments = "".join(f"        {text},\n" for text in (*values, *named))
    return f"{ast.unparse(tree.func)}(\n{arguments}    )"


def _on_batches(step: Step) -> Step:
    return replace(step, call="batch") if kind_of(step.transform) == "random" else step
