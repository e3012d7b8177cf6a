"""The float steps after the store (ToTensor, ToDtype, Normalize…) for whole batches, in place.

Pixels of 8 bits have 256 levels, so such a chain of steps is a table of 256 numbers a channel. The
caller's own steps, run on a ramp of all levels, give that table: it is the oracle against which
the faster arithmetic is held, once, when a `Levels` is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from torch import Tensor

from gpupreload.functional.pieces import pieces
from gpupreload.functional.pixelwise import UNCHANGED_ON_TENSORS, apply_step

Operation = tuple[str, Any]

# of floats that a CPU thread makes at a time: they are still in the last cache for the next pass
_BYTES_A_THREAD = 5 << 20


class Levels:
    """A chain of pixelwise steps on batches [N, C, H, W], equal to torchvision's bit for bit.

    Args:
        steps: instances of torchvision's pixelwise classes, in order.
        channels: C of the images that will come.
        dtype: the dtype of the images that will come.

    Attributes:
        steps: as given.
        dtype: the dtype that comes out.
        channels: the C that comes out.
        normalization: what `Normalize` took away and divided by, a number a channel, or None
            where the chain has no `Normalize`; for showing pictures.
    """

    def __init__(
        self, steps: Sequence[Callable[..., Any]], channels: int, dtype: torch.dtype = torch.uint8
    ) -> None:
        self.steps = tuple(steps)
        ramp = torch.arange(256, dtype=torch.uint8, device="cpu").expand(1, channels, 1, 256)
        expected = self(ramp if dtype == torch.uint8 else ramp.to(dtype) / 255)
        self.dtype, self.channels = expected.dtype, expected.shape[1]
        self.normalization = mean_and_std(self.steps)
        self._operations = _operations(self.steps)
        self._constants: dict[tuple[Any, ...], list[tuple[str, Any]]] = {}
        self.in_place = dtype == torch.uint8 and self._agrees(ramp, expected)

    def __call__(self, images: Tensor) -> Tensor:
        """Run the steps on a batch, whose memory is neither written nor, once changed, shared."""
        for step in self.steps:
            images = apply_step(step, images)
        return images

    def write(self, images: Tensor, out: Tensor) -> Tensor:
        """Run the steps on a uint8 batch into `out`, with no other memory where `in_place` holds.

        Args:
            images: [N, C, H, W] uint8.
            out: [N, C, H, W] on the same device, contiguous or channels_last, of any float dtype.

        Returns:
            `out`.
        """
        if not self.in_place:
            return out.copy_(self(images))
        if out.dtype != self.dtype:
            # computed as the steps say, and rounded once
            return out.copy_(self.write(images, torch.empty_like(out, dtype=self.dtype)))
        for start, stop in pieces(out, len(out), out[:1].nbytes, _BYTES_A_THREAD):
            part = out[start:stop].copy_(images[start:stop])
            for name, constant in self._constants_like(part):
                getattr(part, name)(constant)
        return out

    def _agrees(self, ramp: Tensor, expected: Tensor) -> bool:
        makes_floats = expected.is_floating_point() and expected.shape == ramp.shape
        if self._operations is None or not makes_floats:
            return False
        self.in_place = True
        return torch.equal(self.write(ramp, torch.empty_like(expected)), expected)

    def _constants_like(self, out: Tensor) -> list[Operation]:
        """The operations with their constants as large as an image, in the layout of `out`.

        Constants of [C, 1, 1] on a channels_last batch were measured 3 to 4 times slower.
        """
        key = (out.shape[1:], out.device, out.stride()[1:])
        if key not in self._constants:
            like = torch.empty_like(out[:1])
            self._constants[key] = [
                (name, value if isinstance(value, float) else like.clone().copy_(value))
                for name, value in self._operations or ()
            ]
        return self._constants[key]


def _operations(steps: Sequence[Callable[..., Any]]) -> list[Operation] | None:
    """The steps as in-place operations on floats of 0 to 255, or None where one has none."""
    operations: list[Operation] = []
    for step in steps:
        if isinstance(step, v1.ToTensor | v2.ToTensor | v1.ConvertImageDtype):
            operations.append(("div_", 255.0))
        elif isinstance(step, v2.ConvertImageDtype) or (
            isinstance(step, v2.ToDtype) and step.scale
        ):
            operations.append(("mul_", 1.0 / 255))
        elif isinstance(step, v1.Normalize | v2.Normalize):
            operations += [("sub_", _a_channel(step.mean)), ("div_", _a_channel(step.std))]
        elif not isinstance(step, (v2.ToDtype, *UNCHANGED_ON_TENSORS)):
            return None
    return operations


def _a_channel(numbers: Sequence[float] | float) -> Tensor:
    return torch.as_tensor(numbers, dtype=torch.float32, device="cpu").reshape(-1, 1, 1)


def mean_and_std(
    steps: Sequence[Callable[..., Any]],
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return what the last `Normalize` takes away and divides by, or None where there is none."""
    for step in reversed(steps):
        if isinstance(step, v1.Normalize | v2.Normalize):
            mean, std = (torch.as_tensor(x).flatten().tolist() for x in (step.mean, step.std))
            return tuple(mean), tuple(std)
    return None
