"""SplitMix64: a generator any output of which is had at once, without the ones before it.

G. L. Steele, D. Lea, C. H. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
with the mixing function of Java's `SplittableRandom` (variant 13 of D. Stafford, "Better Bit
Mixing", 2011). Output j of the generator with state s is mix(s + (j + 1) * GAMMA) modulo 2^64.
mix is one to one, so two outputs of one state are never equal (j below 2^64), nor are outputs of
one number of two states.
"""

from __future__ import annotations

from operator import index

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpupreload.errors import ArgumentError

MODULUS = 1 << 64
GAMMA = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd
# shift and multiplier of each of mix's two rounds, and the shift that ends it
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
# the same for NumPy, made once: made at each call they took a fifth of its time for 64 × 6
_ONE, _NUMPY_GAMMA, _NUMPY_LAST_SHIFT = np.uint64(1), np.uint64(GAMMA), np.uint64(_LAST_SHIFT)
_NUMPY_ROUNDS = tuple((np.uint64(shift), np.uint64(factor)) for shift, factor in _ROUNDS)
_BLOCK = 1 << 14  # 128 KiB stay in cache for all nine passes: 7 ms against 16 for 64 × 37,632


def output(state: int, number: int) -> int:
    """Return one output, in Python's integers: state, number and output from 0 to 2**64 - 1.

    >>> output(1234567, 0)  # the published first output for this state
    6457827717110365317
    """
    z = (state + (number + 1) * GAMMA) % MODULUS
    for shift, multiplier in _ROUNDS:
        z = (z ^ (z >> shift)) * multiplier % MODULUS
    return z ^ (z >> _LAST_SHIFT)


def outputs(states: Tensor, numbers: Tensor) -> Tensor:
    """Return the outputs with these numbers of generators with these states.

    Args:
        states: int64 of any shape, 64 bits each, on any device.
        numbers: int64 on the same device, of a shape that broadcasts with that of `states`.

    Returns:
        int64 of the common shape, on the same device: the same bits on every device.
    """
    if torch.compiler.is_compiling():
        return torch.ops.gpupreload.splitmix64(states, numbers)  # type: ignore[no-any-return]
    return _outputs(states, numbers)


def unsigned(name: str, number: int) -> int:
    """Return the 64 bits of an argument as a number from 0 to 2**64 - 1: -1 gives the last.

    Raises:
        ArgumentError: it is no integer, or outside -2**63 to 2**64 - 1.
    """
    try:
        integer = index(number)
    except TypeError:
        integer = MODULUS
    if not -(1 << 63) <= integer < MODULUS:
        raise ArgumentError(
            f"{name} is {number!r}; expected an int from -2**63 to 2**64 - 1. "
            "Any other number is brought into that range by int(...) % 2**64."
        )
    return integer % MODULUS


def signed(number: int) -> int:
    """Return the int64 that has the 64 bits of a number from 0 to 2**64 - 1."""
    return number - MODULUS if number >= 1 << 63 else number


def top_bits(integers: Tensor, n: int) -> Tensor:
    """Return the highest n of 64 bits, n below 64, as int64 from 0 to 2**n - 1."""
    return (integers >> (64 - n)).bitwise_and_((1 << n) - 1)


def _outputs(states: Tensor, numbers: Tensor) -> Tensor:
    if states.device.type == "cpu":
        unsigned = (t.numpy().view(np.uint64) for t in (states, numbers))
        return torch.from_numpy(_outputs_in_numpy(*unsigned).view(np.int64))
    return _outputs_in_torch(states, numbers)


def _outputs_in_numpy(
    states: NDArray[np.uint64], numbers: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """NumPy's unsigned shifts need no mask and its calls cost less: half the time for 64 × 6."""
    z = states + (numbers + _ONE) * _NUMPY_GAMMA
    flat = z.reshape(-1)
    shifted = np.empty(min(flat.size, _BLOCK), dtype=np.uint64)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        _mix(block, shifted[: block.size])
    return flat.reshape(z.shape)


def _mix(z: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> None:
    for shift, multiplier in _NUMPY_ROUNDS:
        z ^= np.right_shift(z, shift, out=shifted)
        z *= multiplier
    z ^= np.right_shift(z, _NUMPY_LAST_SHIFT, out=shifted)


def _outputs_in_torch(states: Tensor, numbers: Tensor) -> Tensor:
    """For any device: products of int64 wrap there, and have the bits of unsigned ones."""
    z = states + (numbers + 1) * signed(GAMMA)
    for shift, multiplier in _ROUNDS:
        z ^= top_bits(z, 64 - shift)
        z *= signed(multiplier)
    return z ^ top_bits(z, 64 - _LAST_SHIFT)


# Compiled code calls the generator as it is: C++ made from a trace would let signed integers
# overflow, which that language leaves undefined.
_operator = torch.library.custom_op(
    "gpupreload::splitmix64",
    _outputs,
    mutates_args=(),
    schema="(Tensor states, Tensor numbers) -> Tensor",
)


@_operator.register_fake
def _fake(states: Tensor, numbers: Tensor) -> Tensor:
    return torch.empty_like(states + numbers)
