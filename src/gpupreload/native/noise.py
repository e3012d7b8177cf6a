"""Noise for whole images as a function of each sample's key, made on the images' own device.

One draw of 64 bits gives two numbers. Uniform noise has the same bits on every device; normal noise
differs in the last ones, as the devices' logarithms and cosines do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.functional.pieces import pieces

# numbers that a CPU thread makes at a time: some arrays of 1 MB stay in its cache
_NUMBERS_A_THREAD = 2**18


def uniform_noise(keys: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
    """Make uniform noise: float32 [N, *shape] in [0, 1), multiples of 2**-24, as `torch.rand`'s.

    Args:
        keys: int64 [N], best on the CPU.
        shape: of one sample's noise.
        device: where to make it.

    >>> uniform_noise(torch.tensor([1234567]), (2,), torch.device("cpu"))  # both from one draw
    tensor([[0.9806, 0.3501]])
    """
    return _noise(_uniform, keys, shape, device)


def normal_noise(keys: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
    """Make standard normal noise: float32 [N, *shape], within 6.7 of 0.

    By the formula of G. E. P. Box and M. E. Muller, "A Note on the Generation of Random Normal
    Deviates", 1958, from uniform numbers of 31 and 32 bits. Arguments are those of
    `uniform_noise`.
    """
    return _noise(_normal, keys, shape, device)


def _noise(
    numbers: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    keys: Tensor,
    shape: Sequence[int],
    device: torch.device,
) -> Tensor:
    n_each = math.prod(shape)
    n_pairs = -(-n_each // 2)
    keys = keys.to(device, non_blocking=True)
    noise = torch.empty((len(keys), n_pairs, 2), dtype=torch.float32, device=device)
    for start, stop in pieces(noise, len(keys), n_each, _NUMBERS_A_THREAD):
        halves = draws.bits(keys[start:stop], n_pairs).view(torch.int32)
        low, high = halves.view(-1, n_pairs, 2).unbind(2)
        noise[start:stop, :, 0], noise[start:stop, :, 1] = numbers(low, high)
    return noise.flatten(1)[:, :n_each].reshape(len(keys), *shape)


def _uniform(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    first, second = (((half >> 8) & 0xFFFFFF).float() * 2.0**-24 for half in (low, high))
    return first, second


def _normal(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    # the middle of one of 2**31 intervals, which is never 0
    uniform = (low & 0x7FFFFFFF).float().mul_(2.0**-31).add_(2.0**-32)
    radius = uniform.log_().mul_(-2).sqrt_()
    angle = high.float().mul_(math.pi * 2.0**-31)
    return angle.cos().mul_(radius), angle.sin().mul_(radius)
