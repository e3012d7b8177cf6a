"""RandomApply, RandomChoice and RandomOrder, drawn for each sample, whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.calling import call_named
from gpupreload.errors import TransformError
from gpupreload.functional.pieces import in_own_memory, layout
from gpupreload.functional.pixelwise import apply_step, channels_after, is_pixelwise
from gpupreload.native.step import Native, Params, Shape, with_prefix, without_prefix, write_where


@dataclass(frozen=True)
class Fixed(Native):
    """A deterministic step of torchvision's inside a container.

    Args:
        transform: one that takes batches and keeps the dtype.
        keeps_any_shape: whether it never changes an image's shape.
    """

    transform: Any
    keeps_any_shape: bool

    @property
    def keeps_shape(self) -> bool:
        """As the step was said to do."""
        return self.keeps_any_shape

    def output_shape(self, shape: Shape) -> Shape:
        """What the step makes of an image of this shape, found by a trial without memory."""
        if self.keeps_any_shape:
            return channels_after(self.transform, shape[0]), *shape[1:]
        _, channels, height, width = self._run(torch.empty(1, *shape, device="meta")).shape
        return channels, height, width

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Nothing."""
        return {}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Run the step on a batch."""
        return in_own_memory(self._run(images), images)

    def _run(self, images: Tensor) -> Tensor:
        step = self.transform
        if is_pixelwise(step):
            return apply_step(step, images)
        result: Tensor = call_named(step, images)
        return result


@dataclass(frozen=True)
class Chain(Native):
    """Steps one after another; each has its keys and, by its number, its parameters' prefix."""

    steps: tuple[Native, ...]

    @property
    def keeps_shape(self) -> bool:
        """Whether all steps do."""
        return all(step.keeps_shape for step in self.steps)

    def output_shape(self, shape: Shape) -> Shape:
        """The shape after the last step."""
        for step in self.steps:
            shape = step.output_shape(shape)
        return shape

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """The steps' parameters: `0.angle`, `1.applied`."""
        params: Params = {}
        for i, step in enumerate(self.steps):
            params |= with_prefix(str(i), step.draw(draws.child(keys, i), shape))
            shape = step.output_shape(shape)
        return params

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Run all steps."""
        changed = images
        for i, step in enumerate(self.steps):
            changed = step.apply(changed, without_prefix(str(i), params))
        return in_own_memory(changed, images)

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """The steps' parameters in full, and those of the container that holds the chain."""
        return _in_full(self.steps, params, shape, in_turn=True)


@dataclass(frozen=True)
class RandomApply(Native):
    """A chain that is run for some samples, and for the others not.

    Args:
        chain: what is run.
        p: the probability.
    """

    chain: Chain
    p: float

    @property
    def keeps_shape(self) -> bool:
        """Whether the chain does."""
        return self.chain.keeps_shape

    def output_shape(self, shape: Shape) -> Shape:
        """The chain's, which must be the one that came in unless all or none are changed."""
        if self.p <= 0:
            return shape
        after = self.chain.output_shape(shape)
        return after if self.p >= 1 else _one_shape("RandomApply", [after, shape])

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`applied`, bool [N], and the steps' parameters for all samples."""
        self.output_shape(shape)
        return {"applied": draws.bernoulli(keys, self.p), **self.chain.draw(keys, shape)}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Run the chain on the samples that were drawn."""
        if self.p >= 1:
            return self.chain.apply(images, params)
        return write_where(self.chain, images, params, params["applied"], images.clone())

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """The steps' parameters in full."""
        return self.chain.in_full(params, shape)


@dataclass(frozen=True)
class RandomChoice(Native):
    """One of several steps for each sample.

    Args:
        steps: which.
        weights: their probabilities, of any scale.
    """

    steps: tuple[Native, ...]
    weights: tuple[float, ...]

    @property
    def keeps_shape(self) -> bool:
        """Whether all steps do."""
        return all(step.keeps_shape for step in self.steps)

    def output_shape(self, shape: Shape) -> Shape:
        """That of all steps which can be drawn; it must be one."""
        pairs = zip(self.steps, self.weights, strict=True)
        shapes = [step.output_shape(shape) for step, weight in pairs if weight > 0]
        return _one_shape("RandomChoice", shapes)

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`choice`, int64 [N], the number of a step; and all steps' parameters for all samples."""
        self.output_shape(shape)
        params = {"choice": draws.choice(keys, torch.tensor(self.weights, dtype=torch.float64))}
        return params | _draw_each(self.steps, keys, shape)

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Run each sample's step."""
        _, *shape = images.shape
        after = self.output_shape((shape[0], shape[1], shape[2]))
        out = torch.empty(
            (len(images), *after),
            dtype=images.dtype,
            device=images.device,
            memory_format=layout(images),
        )
        for i, step in enumerate(self.steps):
            chosen = params["choice"] == i
            out = write_where(step, images, without_prefix(str(i), params), chosen, out)
        return out

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """The steps' parameters in full."""
        return _in_full(self.steps, params, shape, in_turn=False)


@dataclass(frozen=True)
class RandomOrder(Native):
    """Several steps in random order, none of which changes an image's shape."""

    steps: tuple[Native, ...]

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`order`, int64 [N, K], the steps' numbers; and the steps' parameters."""
        order = draws.permutations(keys, len(self.steps))
        return {"order": order, **_draw_each(self.steps, keys, shape)}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Run each sample's steps in its order."""
        out = images.clone()
        for numbers in params["order"].unbind(1):
            for i, step in enumerate(self.steps):
                out = write_where(step, out, without_prefix(str(i), params), numbers == i, out)
        return out

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """The steps' parameters in full."""
        return _in_full(self.steps, params, shape, in_turn=False)


def _draw_each(steps: Sequence[Native], keys: Tensor, shape: Shape) -> Params:
    """All steps' parameters for images of one shape, with keys of their own."""
    params: Params = {}
    for i, step in enumerate(steps):
        params |= with_prefix(str(i), step.draw(draws.child(keys, i), shape))
    return params


def _in_full(
    steps: Sequence[Native], params: Mapping[str, Tensor], shape: Shape, *, in_turn: bool
) -> Params:
    """The parameters of the container itself as they are, and those of its steps in full."""
    full = {name: values for name, values in params.items() if "." not in name}
    for i, step in enumerate(steps):
        full |= with_prefix(str(i), step.in_full(without_prefix(str(i), params), shape))
        shape = step.output_shape(shape) if in_turn else shape
    return full


def _one_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    first = shapes[0]
    for other in shapes:
        if other != first:
            raise TransformError(
                f"{name} gives some images the shape {first} and others {other}; the images of a "
                "batch need one. Put a step at the end of each way that gives it, such as "
                "v2.CenterCrop(112)."
            )
    return first
