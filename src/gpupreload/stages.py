"""The ways in which steps run on a batch: by value, at once, drawn for all rows, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any

import numpy as np
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

from gpupreload import host
from gpupreload.calling import call_named, check_layout
from gpupreload.catalog import is_known
from gpupreload.errors import TransformError
from gpupreload.functional.levels import Levels
from gpupreload.functional.pieces import layout
from gpupreload.functional.pixelwise import apply_step, is_pixelwise
from gpupreload.native.catalog import native_of, why_unusable
from gpupreload.native.operator import Drawer
from gpupreload.native.step import Native, Params, Shape
from gpupreload.probe import generators_kept, seed_generators
from gpupreload.rows import Rows
from gpupreload.source import describe
from gpupreload.steps import Step

ON_BATCHES = (
    *(v1.Resize, v1.CenterCrop, v1.Pad, v1.Grayscale),
    *(v2.Resize, v2.CenterCrop, v2.Pad, v2.Grayscale, v2.RGB, v2.ToDtype),
)
"""torchvision's deterministic steps that treat each image of a batch as they would alone."""

# steps that may give one size to images of several
_GIVE_A_SIZE = (
    *(v1.Resize, v1.CenterCrop, v1.RandomCrop, v1.RandomResizedCrop),
    *(v2.Resize, v2.CenterCrop, v2.RandomCrop, v2.RandomResizedCrop),
)

Allocate = Callable[[tuple[int, ...], torch.device], Tensor]


class SampleBySample:
    """Steps that have no batched form here: each row alone, under generators set from its draw.

    torch's, Python's and NumPy's global generators are set from the sample's draw before every
    step and put back afterwards. A callable with a generator of its own is outside that.

    Args:
        steps: the steps, each with its number among those that may draw.
    """

    slow = True

    def __init__(self, steps: Sequence[tuple[int, Step]]) -> None:
        self.steps = tuple(steps)

    def __call__(self, images: Tensor, rows: Rows) -> Tensor:
        """Run the steps on each row of [N, C, H, W]; a `TransformError` where sizes then differ."""
        if not len(images):
            return images
        keys = [rows.keys(number).tolist() for number, _ in self.steps]
        with generators_kept():
            results = [
                self._run(image, row_keys)
                for image, row_keys in zip(images, zip(*keys, strict=True), strict=True)
            ]
        self._check_one_shape(results)
        return torch.stack(results).to(images.device)

    def _run(self, image: Tensor, keys: Iterable[int]) -> Tensor:
        for key, (_, step) in zip(keys, self.steps, strict=True):
            seed_generators(key, image.device)
            image = _call(step, image)
        return image

    def _check_one_shape(self, results: Sequence[Tensor]) -> None:
        shapes = {tuple(result.shape) for result in results}
        if len(shapes) > 1:
            first, second, *_ = sorted(shapes)
            names = ", ".join(step.name for _, step in self.steps)
            raise TransformError(
                f"the images of one batch have different sizes after {names}: {first} and "
                f"{second}. A batch needs one size: end the random part with a step that gives "
                "one, such as v2.CenterCrop(112)."
            )


class OnBatch:
    """One step that takes the whole batch: deterministic, or marked `gp.batched` by the caller.

    Args:
        number: of the step among those that may draw.
        step: the step.

    Attributes:
        is_written: whether a later stage writes to what comes out.
    """

    slow = False

    def __init__(self, number: int, step: Step) -> None:
        self.number, self.step = number, step
        self.is_written = False

    def __call__(self, images: Tensor, rows: Rows) -> Tensor:
        """Call the step on [N, C, H, W], under generators set from the draws of all its rows."""
        if self.step.randomness == "deterministic":
            return self._run(images)
        key = int(rows.keys(self.number).sum()) if len(images) else 0
        with generators_kept():
            seed_generators(key, images.device)
            return self._run(images)

    def _run(self, images: Tensor) -> Tensor:
        given = tv_tensors.Image(images) if self.step.is_tv_image else images
        result = _as_tensor(
            call_named(self.step.transform, given, self.step.name), self.step, n_dims=4
        )
        if len(result) != len(images):
            raise TransformError(
                f"{self.step.name} was given {len(images)} images and returned {len(result)}; "
                "expected as many."
            )
        return self._to_write(result) if self.is_written else result

    def _to_write(self, result: Tensor) -> Tensor:
        """In memory where each value stands for one pixel, and which no caller keeps."""
        copy = result.clone if self.step.call == "batch" else result.contiguous
        return copy(memory_format=layout(result))


class Drawn:
    """A random step of torchvision's in batched form: parameters for all rows, then one call."""

    slow = False

    def __init__(self, number: int, step: Step, native: Native) -> None:
        self.number, self.step, self.native = number, step, native
        self._drawer = Drawer(native)

    def draw(self, rows: Rows, shape: Shape) -> Params:
        """Draw the parameters of each row, for images of shape (C, H, W)."""
        return rows.draw(self._drawer, self.number, shape)

    def __call__(self, images: Tensor, rows: Rows, params: Params | None = None) -> Tensor:
        """Apply the step on [N, C, H, W], with parameters that were drawn for it, or are now."""
        return self.native.apply(images, self._drawn(images, rows, params))

    def write(self, images: Tensor, rows: Rows, params: Params | None = None) -> None:
        """Apply the step in the images themselves."""
        self.native.write(images, self._drawn(images, rows, params))

    def _drawn(self, images: Tensor, rows: Rows, params: Params | None) -> Params:
        channels, height, width = images.shape[1:]
        return self.draw(rows, (channels, height, width)) if params is None else params


class Pixelwise:
    """Consecutive steps that change each value by itself, as `functional.levels` runs them."""

    slow = False

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(step.transform for step in steps)
        self._levels: dict[tuple[int, torch.dtype], Levels] = {}

    def levels(self, channels: int, dtype: torch.dtype) -> Levels:
        """The chain for images of C channels and a dtype, made and checked once."""
        key = channels, dtype
        if key not in self._levels:
            self._levels[key] = Levels(self.steps, channels, dtype)
        return self._levels[key]

    def __call__(self, images: Tensor, rows: Rows) -> Tensor:
        """Run the steps on [N, C, H, W]."""
        if torch.compiler.is_compiling():  # the compiler makes one pass of them by itself
            for step in self.steps:
                images = apply_step(step, images)
            return images
        levels = self.levels(images.shape[1], images.dtype)
        if not levels.in_place:
            return levels(images)
        empty = host.pool_of_this_thread().empty
        out = empty(tuple(images.shape), levels.dtype, images.device, layout(images))
        return levels.write(images, out)

    def write(self, images: Tensor, allocate: Allocate) -> Tensor:
        """Run the steps into memory from `allocate`; where no floats come out, into a copy."""
        levels = self.levels(images.shape[1], images.dtype)
        if not levels.dtype.is_floating_point:
            return levels(images).clone()
        shape = (len(images), levels.channels, *images.shape[2:])
        return levels.write(images, allocate(shape, images.device))


Stage = SampleBySample | OnBatch | Drawn | Pixelwise


def stages_of(steps: Sequence[Step]) -> Iterator[Stage]:
    """Divide a chain into the longest runs that go one way.

    Steps that may draw are numbered among themselves, so that where the deterministic ones run
    changes no draw.

    Raises:
        TransformError: a setting makes a step fail, or pointless, on whatever images.
    """
    for step in steps:
        _check_settings(step)
    before: OnBatch | None = None  # the last one whose memory may come through to the stage
    for stage in _divided(steps):
        if isinstance(stage, OnBatch):
            before = stage
        elif isinstance(stage, Drawn) and stage.native.writes_in_place:
            if before is not None:
                before.is_written = True
        elif not isinstance(stage, Pixelwise):
            before = None
        yield stage


def _check_settings(step: Step) -> None:
    reason = why_unusable(step.transform) if step.call == "image" else None
    if reason:
        raise TransformError(f"{step.name} cannot be used here: it {reason}.")


def _divided(steps: Sequence[Step]) -> Iterator[Stage]:
    draws_before = accumulate((step.randomness != "deterministic" for step in steps), initial=0)
    triples = zip(_ways(steps), draws_before, steps, strict=False)  # one more number than steps
    for way, run in groupby(triples, key=lambda triple: triple[0]):
        yield from _stages_of_run(way, [(number, step) for _, number, step in run])


def _ways(steps: Sequence[Step]) -> list[type[Stage]]:
    """The way in which each step runs.

    A step that runs sample by sample may give each image a size of its own: then those after it
    run so too, up to the last that may give one size again.
    """
    ways = [_way(step) for step in steps]
    for i, step in enumerate(steps):
        if ways[i] is SampleBySample and not isinstance(step.transform, v2.JPEG):
            after = takewhile(lambda j: steps[j].call == "image", range(i + 1, len(steps)))
            sizing = [j for j in after if type(steps[j].transform) in _GIVE_A_SIZE]
            for j in range(i, max(sizing, default=i) + 1):
                ways[j] = SampleBySample
    return ways


def _way(step: Step) -> type[Stage]:
    if is_pixelwise(step.transform):
        return Pixelwise
    if step.call == "batch" or type(step.transform) in ON_BATCHES:
        return OnBatch
    return SampleBySample if native_of(step.transform) is None else Drawn


def _stages_of_run(way: type[Stage], run: Sequence[tuple[int, Step]]) -> Iterator[Stage]:
    if way is Pixelwise:
        yield Pixelwise([step for _, step in run])
    elif way is OnBatch:
        yield from (OnBatch(number, step) for number, step in run)
    elif way is Drawn:
        yield from (Drawn(number, step, _native(step)) for number, step in run)
    else:
        yield SampleBySample(run)


def _native(step: Step) -> Native:
    native = native_of(step.transform)
    assert native is not None  # `_way` found one
    return native


def _call(step: Step, image: Tensor) -> Tensor:
    """Call one step on one image [C, H, W], as a PIL image where it stood before ToTensor."""
    if is_pixelwise(step.transform):
        return apply_step(step.transform, image)
    given = _as_taken(step, image)
    result = call_named(step.transform, given, step.name)
    check_layout(step.name, given, result)
    return _as_tensor(result, step, n_dims=3)


def _as_taken(step: Step, image: Tensor) -> Any:
    """Give a callable of the caller's own what it got in its place: an image, or an array."""
    if step.is_tv_image:
        return tv_tensors.Image(image)
    if is_known(step.transform) or image.dtype != torch.uint8:
        return image
    if step.takes == "PIL":
        return F.to_pil_image(image)
    return image.permute(1, 2, 0).cpu().numpy() if step.takes == "array" else image


def _as_tensor(result: Any, step: Step, *, n_dims: int) -> Tensor:
    if isinstance(result, Image.Image):
        result = F.pil_to_tensor(result)
    elif isinstance(result, np.ndarray) and n_dims == 3:
        # as ToTensor reads an array: [H, W] or [H, W, C]
        array = torch.from_numpy(np.ascontiguousarray(result))
        result = array[None] if array.ndim == 2 else array.permute(2, 0, 1)
    if not isinstance(result, Tensor) or result.ndim != n_dims:
        expected = "an image [C, H, W]" if n_dims == 3 else "a batch [N, C, H, W]"
        raise TransformError(f"{step.name} returned {describe(result)}; expected {expected}.")
    # torch.compile knows no as_subclass of what is a plain tensor already
    return result if type(result) is Tensor else result.as_subclass(Tensor)
