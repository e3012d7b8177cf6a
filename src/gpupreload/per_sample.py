"""The each-batch part of a transform on whole batches, with a draw of its own for every sample."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from gpupreload import draws
from gpupreload.errors import ArgumentError, TransformError
from gpupreload.functional.levels import Levels, apply_step, is_pixelwise
from gpupreload.source import describe
from gpupreload.steps import Step

# torchvision's deterministic steps that treat each image of a batch as they would alone
_ON_BATCHES = (
    *(v1.Resize, v1.CenterCrop, v1.Pad, v1.Grayscale),
    *(v2.Resize, v2.CenterCrop, v2.Pad, v2.Grayscale, v2.RGB),
)

Allocate = Callable[[tuple[int, ...], torch.device], Tensor]


@dataclass(frozen=True)
class Rows:
    """Which samples the rows of a batch are: with the seed, all that their draws depend on.

    Attributes:
        seed: of the reader.
        epoch: number of the epoch.
        indices: int64 [N] on the CPU, sample numbers in the whole dataset.
        occurrence: how often the sample came before in this epoch: 0, or int64 [N].
    """

    seed: int
    epoch: int
    indices: Tensor
    occurrence: int | Tensor = 0

    def keys(self, step: int) -> Tensor:
        """The draws' keys of one step, int64 [N] on the CPU."""
        return draws.keys(
            self.seed, self.epoch, self.indices, occurrence=self.occurrence, step=step
        )


def occurrences(indices: Tensor) -> int | Tensor:
    """Count how often each sample number came before in the same batch: 0, or int64 [N]."""
    listed = indices.tolist()
    if len(set(listed)) == len(listed):
        return 0
    seen: Counter[int] = Counter()
    counts = []
    for index in listed:
        counts.append(seen[index])
        seen[index] += 1
    return torch.tensor(counts)


class SampleBySample:
    """Steps that have no batched form here: each row alone, under generators set from its draw.

    torch's, Python's and NumPy's global generators are set from the sample's draw before every
    step and put back afterwards. A callable with a generator of its own is outside that.

    Args:
        steps: the steps with their numbers in the transform.
    """

    slow = True

    def __init__(self, steps: Sequence[tuple[int, Step]]) -> None:
        self.steps = tuple(steps)

    def __call__(self, images: Tensor, rows: Rows) -> Tensor:
        """Run the steps on each row of [N, C, H, W]; a `TransformError` where sizes then differ."""
        if not len(images):
            return images
        keys = [rows.keys(number).tolist() for number, _ in self.steps]
        with _global_generators_kept(images.device):
            results = [
                self._run(image, row_keys)
                for image, row_keys in zip(images, zip(*keys, strict=True), strict=True)
            ]
        self._check_one_shape(results)
        return torch.stack(results).to(images.device)

    def _run(self, image: Tensor, keys: Iterable[int]) -> Tensor:
        for key, (_, step) in zip(keys, self.steps, strict=True):
            _set_global_generators(key, image.device)
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
    """One step that takes the whole batch: deterministic, or marked `gp.batched` by the caller."""

    slow = False

    def __init__(self, number: int, step: Step) -> None:
        self.number, self.step = number, step

    def __call__(self, images: Tensor, rows: Rows) -> Tensor:
        """Call the step on [N, C, H, W], under generators set from the draws of all its rows."""
        if self.step.randomness == "deterministic":
            return _as_tensor(self.step.transform(images), self.step, n_dims=4)
        key = int(rows.keys(self.number).sum()) if len(images) else 0
        with _global_generators_kept(images.device):
            _set_global_generators(key, images.device)
            return _as_tensor(self.step.transform(images), self.step, n_dims=4)


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
        for step in self.steps:
            images = apply_step(step, images)
        return images

    def write(self, images: Tensor, allocate: Allocate) -> Tensor:
        """Run the steps into memory from `allocate`; where no floats come out, into a copy."""
        levels = self.levels(images.shape[1], images.dtype)
        if not levels.dtype.is_floating_point:
            return levels(images).clone()
        shape = (len(images), levels.channels, *images.shape[2:])
        return levels.write(images, allocate(shape, images.device))


Stage = SampleBySample | OnBatch | Pixelwise


class PerSample(torch.nn.Module):
    """A chain of steps on batches, every row with its own random parameters.

    The draws of a row are a function of (seed, epoch, index, occurrence, step) alone: not of the
    batch it comes in, of the order, or of any global generator.

    Args:
        steps: the steps in order, as `split_transform` lists them.

    Attributes:
        stages: what is run, in order.
        slow_steps: the names of the steps that run sample by sample.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.stages = tuple(_stages(self.steps))
        self._n_calls = 0

    @property
    def slow_steps(self) -> tuple[str, ...]:
        """The names of the steps that run sample by sample, in order."""
        by_sample = (stage for stage in self.stages if isinstance(stage, SampleBySample))
        return tuple(step.name for stage in by_sample for _, step in stage.steps)

    @property
    def is_random(self) -> bool:
        """Whether any step draws, or may draw, random numbers."""
        return any(step.randomness != "deterministic" for step in self.steps)

    def forward(
        self,
        images: Tensor,
        *,
        indices: Tensor | None = None,
        epoch: int | None = None,
        seed: int = 0,
        occurrence: int | Tensor = 0,
    ) -> Tensor:
        """Run the steps on a batch.

        Args:
            images: [N, C, H, W] on any device, uint8, or float in the range the steps expect.
            indices: int64 [N], the sample number of each row; None numbers the rows from 0.
            epoch: number of the epoch; None takes the number of calls made so far without one.
            seed: of the draws.
            occurrence: how often each sample came before in this epoch, one int or int64 [N].

        Returns:
            A tensor [N, C', H', W'] on the same device. The input is never written to.

        Raises:
            ArgumentError: `images` is not [N, C, H, W], or `indices` does not match it.
        """
        _check_batch(images, indices)
        if indices is None:
            indices = torch.arange(len(images))
        if epoch is None:
            epoch, self._n_calls = self._n_calls, self._n_calls + 1
        return self.run(images.clone(), Rows(seed, epoch, indices.cpu(), occurrence))

    @property
    def copies_last(self) -> bool:
        """Whether the last stage writes to other memory than it reads, so a batch can be reused."""
        return bool(self.stages) and isinstance(self.stages[-1], Pixelwise)

    @property
    def is_row_wise(self) -> bool:
        """Whether a row comes out the same whatever rows come with it in the batch."""
        return not any(step.call == "batch" for step in self.steps)

    def run(self, images: Tensor, rows: Rows, allocate: Allocate | None = None) -> Tensor:
        """Run the steps on a batch that is the callee's own: it may be written to or returned.

        Args:
            images: [N, C, H, W] on any device.
            rows: which samples they are.
            allocate: called with the shape and device of the result where the last stage can
                write into memory that is given; returns a float tensor of that shape.
        """
        if allocate is None or not self.copies_last:
            for stage in self.stages:
                images = stage(images, rows)
            return images
        for stage in self.stages[:-1]:
            images = stage(images, rows)
        last = self.stages[-1]
        assert isinstance(last, Pixelwise)  # for the type checker: copies_last
        return last.write(images, allocate)

    def extra_repr(self) -> str:
        """The steps by name; those that run sample by sample are marked."""
        return "\n".join(
            step.name + (" (sample by sample: slow)" if step.name in self.slow_steps else "")
            for step in self.steps
        )


def _check_batch(images: Tensor, indices: Tensor | None) -> None:
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise ArgumentError(f"images is {describe(images)}; expected a batch [N, C, H, W].")
    if indices is not None and (indices.dtype != torch.int64 or indices.shape != images.shape[:1]):
        raise ArgumentError(
            f"indices is {describe(indices)}; expected an int64 tensor of shape "
            f"({len(images)},), the sample number of each row of images."
        )


def _stages(steps: Sequence[Step]) -> Iterator[Stage]:
    """Divide a chain into the longest runs that go one way."""
    run: list[tuple[int, Step]] = []
    for number, step in enumerate(steps):
        if run and _way(step) is not _way(run[-1][1]):
            yield from _stages_of_run(run)
            run = []
        run.append((number, step))
    if run:
        yield from _stages_of_run(run)


def _way(step: Step) -> type[Stage]:
    if is_pixelwise(step.transform):
        return Pixelwise
    if step.call == "batch" or type(step.transform) in _ON_BATCHES:
        return OnBatch
    return SampleBySample


def _stages_of_run(run: Sequence[tuple[int, Step]]) -> Iterator[Stage]:
    way = _way(run[0][1])
    if way is Pixelwise:
        yield Pixelwise([step for _, step in run])
    elif way is OnBatch:
        yield from (OnBatch(number, step) for number, step in run)
    else:
        yield SampleBySample(run)


def _call(step: Step, image: Tensor) -> Tensor:
    """Call one step on one image [C, H, W], as a PIL image where it stood before ToTensor."""
    if is_pixelwise(step.transform):
        return apply_step(step.transform, image)
    return _as_tensor(step.transform(_as_taken(step, image)), step, n_dims=3)


def _as_taken(step: Step, image: Tensor) -> Any:
    from_torchvision = type(step.transform).__module__.startswith("torchvision.")
    if step.takes == "PIL" and not from_torchvision and image.dtype == torch.uint8:
        return F.to_pil_image(image)
    return image


def _as_tensor(result: Any, step: Step, *, n_dims: int) -> Tensor:
    if isinstance(result, Image.Image):
        result = F.pil_to_tensor(result)
    elif isinstance(result, np.ndarray):
        # as ToTensor reads an array: [H, W] or [H, W, C]
        array = torch.from_numpy(result)
        result = array[None] if array.ndim == 2 else array.permute(2, 0, 1)
    if not isinstance(result, Tensor) or result.ndim != n_dims:
        expected = "an image [C, H, W]" if n_dims == 3 else "a batch [N, C, H, W]"
        raise TransformError(f"{step.name} returned {describe(result)}; expected {expected}.")
    return result.as_subclass(Tensor)


def _set_global_generators(key: int, device: torch.device) -> None:
    """Seed torch's, Python's and NumPy's global generators from a draw's 64 bits."""
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.manual_seed(key)
    elif device.type == "mps":
        torch.mps.manual_seed(key)
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)


@contextmanager
def _global_generators_kept(device: torch.device) -> Iterator[None]:
    """Put torch's, Python's and NumPy's global generators back as they were, also on errors."""
    python, numpy = random.getstate(), np.random.get_state()
    devices: list[Any] = [device] if device.type in ("cuda", "mps") else []
    kind = device.type if devices else "cuda"
    with torch.random.fork_rng(devices, device_type=kind):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
