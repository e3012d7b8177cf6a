"""All images of a store as floats, after every deterministic step up to the first random one."""

from __future__ import annotations

from itertools import takewhile

import torch
from torch import Tensor

from gpupreload.per_sample import PerSample
from gpupreload.stages import Rows
from gpupreload.steps import Steps

# images turned into floats at a time, so that temporaries stay small
_CHUNK = 256


def as_floats(images: Tensor, steps: Steps) -> Tensor:
    """Run the deterministic steps of the each-batch part on all images.

    Args:
        images: [N, C, H, W] as they are stored; at least one.
        steps: of the transform.

    Returns:
        Floats [N, C, H, W] on the same device; without a step that makes floats they are in [0, 1].
    """
    each_batch = steps.each_batch_steps
    run = PerSample(takewhile(lambda step: step.randomness == "deterministic", each_batch)).run
    numbers = torch.arange(len(images), device="cpu")
    out: Tensor | None = None
    for start in range(0, len(images), _CHUNK):
        rows = slice(start, start + _CHUNK)
        chunk = run(images[rows].clone(), Rows(0, 0, numbers[rows]))
        if not chunk.is_floating_point():
            chunk = chunk.to(torch.float32).div_(torch.iinfo(chunk.dtype).max)
        if out is None:
            out = chunk.new_empty((len(images), *chunk.shape[1:]))
        out[rows] = chunk
    assert out is not None  # a store holds at least one image
    return out
