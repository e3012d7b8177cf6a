"""`per_sample`: a transform on whole batches, with a draw of its own for every sample."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws, host
from gpupreload.batch_checks import (
    check_0_to_1,
    check_batch,
    check_labels,
    checked_indices,
    first_of_0_to_1,
)
from gpupreload.catalog import is_known
from gpupreload.chains import MixStep, read_chain
from gpupreload.functional.chunks import in_one_piece
from gpupreload.functional.picking import Picker, picker_of_this_thread
from gpupreload.native.step import Params, Shape
from gpupreload.one_pass import Head, drawn_ahead, start_of_tail
from gpupreload.rows import Rows
from gpupreload.stages import Allocate, Drawn, OnBatch, Pixelwise, SampleBySample, stages_of
from gpupreload.steps import Step

_SLOW = "sample by sample: slow"
_OWN = "sample by sample: slow; a random generator of its own is not seeded"
# one for all modules, which are copied and pickled: no two threads draw for the same call
_counting = threading.Lock()


def per_sample(transform: Any, *, seed: int | None = None) -> PerSample:
    """Make a module that runs a torchvision transform on batches, each row with its own draws.

    torchvision's transforms draw one set of parameters for all rows of a batch. The module draws
    for each row, with the distributions that torchvision has for a single image, and gives row i
    what torchvision gives image i with the same parameters.

    Called as `module(images, indices=..., epoch=..., seed=...)`, what a row becomes is a function
    of its image and of (seed, epoch, index) alone: not of the batch, its size or order, the
    device, or a global generator. Called with images alone, it counts its calls, and draws anew.

    `torch.compile(module, fullgraph=True)` takes it in one graph, with the same draws, unless a
    policy (RandAugment and its kin) or a step that runs sample by sample is in it. Colours may
    then differ by a level, and by another where one change of colour follows another.

    Args:
        transform: a transform of torchvision's v1 or v2, a `Compose` or `torch.nn.Sequential`, any
            callable from one image [C, H, W] to one image, a list of these, or None. At the end
            may stand `v2.MixUp`, `v2.CutMix` or a `RandomChoice` between them: the module then
            takes (images, labels) and returns images and soft labels. ToTensor, ToImage and
            PILToTensor do nothing to tensors. `gp.batched(fn)` is called on the whole batch.
            Settings are read now: what is changed in the transform later has no effect.
        seed: of the draws, where a call gives none; None draws one number from torch's global
            generator, and keeps it as `module.seed`.

    Raises:
        TransformError: a step cannot be used: it makes images of different sizes, several images
            of one, or is about bounding boxes.
        ArgumentError: `seed` is out of range.

    >>> from torchvision.transforms import v2
    >>> flip = per_sample(v2.RandomHorizontalFlip(), seed=0)
    >>> flip(torch.tensor([1, 2], dtype=torch.uint8).expand(4, 1, 1, 2)).squeeze()
    tensor([[1, 2],
            [2, 1],
            [2, 1],
            [1, 2]], dtype=torch.uint8)
    """
    steps, mix = read_chain(transform)
    if seed is None:
        seed = int(torch.randint(0, 2**63 - 1, (), device="cpu"))
    draws.key_of(seed, 0, 0)  # refuses a seed out of range
    return PerSample(steps, mix, seed=seed)


class PerSample(torch.nn.Module):
    """A chain of steps on batches, every row with its own random parameters.

    The draws of a row are a function of (seed, epoch, index, occurrence, step) alone: not of the
    batch it comes in, of the order, or of any global generator.

    Args:
        steps: the steps in order, as `split_transform` lists them.
        mix: a step at the end that mixes images and labels, or None.
        seed: of the draws, where a call gives none.

    Attributes:
        stages: what is run, in order.
        head: which of them can be run while samples are gathered.
        mix: as given.
        seed: as given.
    """

    def __init__(self, steps: Iterable[Step], mix: MixStep | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.stages = tuple(stages_of(self.steps))
        self._tail = start_of_tail(self.stages)
        self.head = Head.of(self.stages[: self._tail])
        self.mix, self.seed = mix, seed
        with torch.inference_mode(False):  # a module made in it may be called outside
            # a tensor, so that torch.compile need not compile anew for each number
            self._calls = torch.zeros(1, dtype=torch.int64, device="cpu")
        self._first_of_0_to_1 = first_of_0_to_1(self.steps)

    @property
    def slow_steps(self) -> tuple[str, ...]:
        """The names of the steps that run sample by sample, in order."""
        by_sample = (stage for stage in self.stages if isinstance(stage, SampleBySample))
        return tuple(step.name for stage in by_sample for _, step in stage.steps)

    def forward(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        *,
        indices: Tensor | Sequence[int] | None = None,
        epoch: int | None = None,
        seed: int | None = None,
        occurrence: int | Tensor = 0,
    ) -> Any:
        """Run the steps on a batch.

        Args:
            images: [N, C, H, W] on any device, uint8 (0 to 255) or floats (0 to 1).
            labels: only where the last step mixes: int64 [N], or probabilities [N, num_classes].
            indices: int64 [N], the sample number of each row, best on the CPU, where the draws are
                made: an accelerator would be waited for. None numbers the rows from 0.
            epoch: number of the epoch; None takes the number of calls made so far without one.
            seed: of the draws; None takes the module's.
            occurrence: how often each sample came before in this epoch, one int or int64 [N].

        Returns:
            A tensor [N, C', H', W'] on the same device. The input is never written to. Where the
            last step mixes, (images, soft labels): float [N, num_classes].

        Raises:
            ArgumentError: `images` is no such batch or requires a gradient, or `indices` or
                `labels` do not match it. On the CPU also: floats outside 0 to 1 come to a step that
                takes them as colours, or a label is no class. On an accelerator these two are not
                looked at, for the look would wait for it: such floats are cut off as torchvision
                does, and such a label gives a row of NaN.
            TransformError: a crop is larger than the images, or a callable fails.
        """
        check_batch(images)
        check_labels(labels, None if self.mix is None else self.mix.name)
        check_0_to_1(images, self._first_of_0_to_1)
        numbers = checked_indices(indices, images)
        number = self._count_call() if epoch is None else epoch
        rows = Rows(self.seed if seed is None else seed, number, numbers, occurrence)
        result = self._run_on_batch(images, rows)
        return result if labels is None else self.run_mix(result, labels, rows)

    @property
    def n_calls(self) -> int:
        """How many calls were made without an epoch; the last one drew for `n_calls - 1`."""
        return int(self._calls)

    def _count_call(self) -> int | Tensor:
        if torch.compiler.is_compiling():
            number = self._calls.clone()
            self._calls.add_(1)
            return number
        with _counting:
            self._calls.add_(1)
            return int(self._calls) - 1

    def _run_on_batch(self, images: Tensor, rows: Rows) -> Tensor:
        """Run the steps on a batch that stays as it is."""
        if in_one_piece(images) or self.head.is_empty or not images.is_contiguous():
            return self.run(images if self._leaves_input else images.clone(), rows)
        return self.run_on_rows(images, torch.arange(len(images), device="cpu"), rows)

    def run_on_rows(self, images: Tensor, indices: Tensor, rows: Rows) -> Tensor:
        """Run the steps on some rows of images, which stay as they are.

        Args:
            images: [M, C, H, W] on any device, contiguous.
            indices: int64 [N] on that device: which of them.
            rows: which samples they are.
        """
        if in_one_piece(images) or self.head.is_empty:
            return self.run(images.index_select(0, indices), rows)
        channels, height, width = images.shape[1:]
        drawn = self.draw(rows, (channels, height, width), images.dtype)
        allocate = partial(host.pool_of_this_thread().empty, dtype=images.dtype)
        picked = self.pick(picker_of_this_thread(), images, indices, drawn, allocate)
        return self.run(picked, rows, drawn=drawn, start=self.head.n_stages)

    @property
    def draws(self) -> bool:
        """Whether anything may depend on which samples a batch's rows are."""
        return self.n_drawing > 0 or self.shows_batches

    @property
    def _leaves_input(self) -> bool:
        """Whether the first step is known to make new memory, and to write to no other."""
        first = self.stages[0] if self.stages else None
        return isinstance(first, Drawn) and not first.native.writes_in_place

    @property
    def copies_last(self) -> bool:
        """Whether the end is written to other memory than is read, so a batch can be reused."""
        return self._tail is not None

    @property
    def shows_batches(self) -> bool:
        """Whether a callable outside this library is given rows of a batch, or all of them.

        It may hold what it was given, and come out otherwise for other rows.
        """
        return bool(self.slow_steps) or any(step.call == "batch" for step in self.steps)

    @property
    def n_drawing(self) -> int:
        """How many steps may draw; a step that mixes after them has this number."""
        return sum(step.randomness != "deterministic" for step in self.steps)

    def draw(self, rows: Rows, shape: Shape, dtype: torch.dtype) -> list[Params | None]:
        """Draw for many samples ahead, of a store with images of this shape (C, H, W) and dtype."""
        return drawn_ahead(self.stages, rows, shape, dtype)

    def pick(
        self,
        picker: Picker,
        store: Tensor,
        indices: Tensor,
        drawn: Sequence[Params | None],
        allocate: Callable[[tuple[int, ...]], Tensor],
    ) -> Tensor:
        """Gather samples from a store on the CPU, and run the first `head.n_stages` on the way."""
        channels, height, width = store.shape[1:]
        shape = self.head.output_shape(self.stages, (channels, height, width))
        out = allocate((len(indices), *shape))
        return self.head.pick(picker, self.stages, drawn, store, indices, out)

    def run(
        self,
        images: Tensor,
        rows: Rows,
        allocate: Allocate | None = None,
        drawn: Sequence[Params | None] | None = None,
        start: int = 0,
    ) -> Tensor:
        """Run the steps on a batch that is the callee's own: it may be written to or returned.

        Args:
            images: [N, C, H, W] on any device.
            rows: which samples they are.
            allocate: called with the shape and device of the result where the last stages can
                write into memory that is given; returns a float tensor of that shape.
            drawn: what `draw` returned for these rows; None draws now.
            start: the number of the first stage to run.
        """
        drawn = [None] * len(self.stages) if drawn is None else drawn
        end = len(self.stages) if self._tail is None else self._tail
        for stage, params in zip(self.stages[start:end], drawn[start:end], strict=True):
            if not isinstance(stage, Drawn):
                images = stage(images, rows)
            elif stage.native.writes_in_place:
                stage.write(images, rows, params)
            else:
                images = stage(images, rows, params)
        return images if self._tail is None else self._finish(images, rows, allocate, drawn)

    def _finish(
        self,
        images: Tensor,
        rows: Rows,
        allocate: Allocate | None,
        drawn: Sequence[Params | None],
    ) -> Tensor:
        """Make floats, in memory that is given, and write what comes after into them."""
        first, *others = self.stages[self._tail :]
        assert isinstance(first, Pixelwise)  # for the type checker: start_of_tail
        images = first(images, rows) if allocate is None else first.write(images, allocate)
        for stage, params in zip(others, drawn[len(drawn) - len(others) :], strict=True):
            assert isinstance(stage, Drawn)  # likewise
            stage.write(images, rows, params)
        return images

    def run_mix(self, images: Tensor, labels: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Mix a batch and its labels, which the steps have been run on."""
        assert self.mix is not None  # for the type checker: check_labels
        params = draw_mix(self.mix, rows, self.n_drawing, images)
        return self.mix.mixing.apply(images, labels, params)

    def extra_repr(self) -> str:
        """The steps by name, each with the way it runs; those that run alone are marked slow."""
        ways = zip(self.steps, _ways(self.stages), strict=True)
        lines = [f"{step.name} ({_in_words(step, way)})" for step, way in ways]
        if self.mix is not None:
            lines.append(f"{self.mix.name} (native)")
        return "\n".join([*lines, f"seed={self.seed}"])


def draw_mix(mix: MixStep, rows: Rows, number: int, images: Tensor) -> Params:
    """Draw the parameters of a step that mixes, for each row.

    Args:
        mix: the step.
        rows: which samples they are.
        number: of the step among those that may draw.
        images: [N, C, H, W], as they come to the step.
    """
    channels, height, width = images.shape[1:]
    return rows.draw(mix.drawer, number, (channels, height, width))


def _ways(stages: Iterable[Any]) -> Iterator[str]:
    """How each step of some stages runs, in order."""
    for stage in stages:
        if isinstance(stage, Drawn):
            yield "native"
        elif isinstance(stage, SampleBySample):
            yield from (_SLOW for _ in stage.steps)
        else:
            yield from ("on the whole batch" for _ in _steps_of(stage))


def _steps_of(stage: OnBatch | Pixelwise) -> tuple[Any, ...]:
    return stage.steps if isinstance(stage, Pixelwise) else (stage.step,)


def _in_words(step: Step, way: str) -> str:
    if way != _SLOW:
        return "gp.batched: called on the whole batch" if step.call == "batch" else way
    return way if is_known(step.transform) else _OWN
