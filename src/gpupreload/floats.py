"""A view of a store as plain float images, for those who want all of them in one tensor."""

from __future__ import annotations

from itertools import takewhile

import torch
from torch import Tensor

from gpupreload.per_sample import PerSample
from gpupreload.rows import Rows
from gpupreload.steps import Steps
from gpupreload.view import View

# images turned into floats at a time, so that temporaries stay small
_CHUNK = 256


def float_images(view: View, steps: Steps) -> Tensor:
    """Run the deterministic steps up to the first random one on every image of a view.

    Returns:
        [N, C, H, W] on the store's device, of the float type that the steps make; where they make
        none, float32 in [0, 1].
    """
    each_batch = steps.each_batch_steps
    run = PerSample(takewhile(lambda step: step.randomness == "deterministic", each_batch)).run
    positions = torch.arange(len(view), device="cpu")
    out: Tensor | None = None
    for chosen in positions.split(_CHUNK):
        images = view.store.take(view.rows_of(chosen))
        images = run(images, Rows(0, 0, view.numbers_of(chosen)))
        images = images if images.is_floating_point() else _as_floats(images)
        if out is None:
            out = images.new_empty((len(view), *images.shape[1:]))
        out[int(chosen[0]) : int(chosen[-1]) + 1] = images
    assert out is not None  # a dataset holds at least one image
    return out


def _as_floats(images: Tensor) -> Tensor:
    return images.to(torch.float32).div_(torch.iinfo(images.dtype).max)
