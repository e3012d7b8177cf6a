"""The each-batch part of a transform on whole batches, with a draw of its own for every sample."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.source import describe
from gpupreload.stages import Allocate, Pixelwise, Rows, SampleBySample, stages_of
from gpupreload.steps import Step


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
        self.stages = tuple(stages_of(self.steps))
        self._n_calls = 0

    @property
    def slow_steps(self) -> tuple[str, ...]:
        """The names of the steps that run sample by sample, in order."""
        by_sample = (stage for stage in self.stages if isinstance(stage, SampleBySample))
        return tuple(step.name for stage in by_sample for _, step in stage.steps)

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
            indices = torch.arange(len(images), device="cpu")
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
