"""How many kernels a batch starts on an accelerator, counted on tensors that have no pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import gpupreload as gp
from gpupreload.rows import Rows
from gpupreload.stages import Drawn

N_IMAGES, SHAPE = 64, (3, 112, 112)
CROP, FLIP, ERASE = v2.RandomCrop(112, padding=8), v2.RandomHorizontalFlip(), v2.RandomErasing()
FLOATS, NORMALIZE = v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)


class Launches(TorchDispatchMode):
    """Counts what gives a tensor on the device and is neither a view nor an allocation.

    Attributes:
        total: of all of them.
        over_pixels: of those that make as many numbers as a batch has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = self.over_pixels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, list | tuple) else [result]
        made = [x for x in results if isinstance(x, Tensor) and x.device.type == "cuda"]
        if made and not func.is_view and "empty" not in func.name():
            self.total += 1
            self.over_pixels += made[0].numel() >= N_IMAGES * 3 * 112 * 112
        return result


def launches(steps: Sequence[Any]) -> Launches:
    """Run a chain on a batch that has a device, a shape and a dtype, but no pixels."""
    module = gp.per_sample(v2.Compose(steps), seed=0)
    module(torch.zeros(2, *SHAPE, dtype=torch.uint8))  # what is made once, on the CPU
    rows = Rows(0, 0, torch.arange(N_IMAGES))
    drawn = [s.draw(rows, SHAPE) if isinstance(s, Drawn) else None for s in module.stages]
    with FakeTensorMode(allow_non_fake_inputs=True), Launches() as counted:
        images = torch.empty(N_IMAGES, *SHAPE, dtype=torch.uint8, device="cuda")
        counted.total = counted.over_pixels = 0
        for stage, params in zip(module.stages, drawn, strict=True):
            images = stage(images, rows, params) if params else stage(images, rows)
    assert images.device.type == "cuda"
    return counted


@pytest.mark.parametrize(
    ("steps", "total", "over_pixels"),
    [
        ([FLIP], 3, 2),
        ([FLOATS], 2, 2),
        ([CROP, FLIP, FLOATS, ERASE, NORMALIZE], 43, 11),
        ([v2.RandomAffine(20)], 20, 2),
        ([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], 100, 46),
    ],
    ids=["flip", "floats", "recipe", "affine", "jitter"],
)
def test_no_batch_starts_many_kernels(steps: list[Any], total: int, over_pixels: int) -> None:
    """Most of them are small: they work out rows and columns, and few go over the pixels."""
    counted = launches(steps)
    assert 0 < counted.over_pixels <= over_pixels, counted.over_pixels
    assert counted.over_pixels <= counted.total <= total, counted.total
