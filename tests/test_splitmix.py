"""The generator: published values, one answer in Python, NumPy and torch, and its integers."""

from __future__ import annotations

import pytest
import torch

from gpupreload import splitmix
from gpupreload.errors import ArgumentError

# the outputs that Vigna's splitmix64.c, the form of the generator that others are checked against,
# gives from these states
PUBLISHED = {
    1234567: (
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ),
    0: (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F),
}
STATES = (0, 1, 1234567, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x9E3779B97F4A7C15)
NUMBERS = (0, 1, 2, 41, (1 << 40) + 7, (1 << 63) - 1)


def as_unsigned(integers: torch.Tensor) -> list[int]:
    """The 64 bits of each as a number of 0 or more."""
    return [number % (1 << 64) for number in integers.flatten().tolist()]


@pytest.mark.parametrize("state", PUBLISHED)
def test_published_values(state: int) -> None:
    """The outputs of a state are the published ones of SplitMix64, in order."""
    expected = PUBLISHED[state]
    assert tuple(splitmix.output(state, j) for j in range(len(expected))) == expected
    found = splitmix.outputs(torch.tensor([state]), torch.arange(len(expected)))
    assert tuple(as_unsigned(found)) == expected


@pytest.mark.parametrize(
    "outputs", [splitmix.outputs, splitmix._outputs_in_torch], ids=["numpy", "torch"]
)
def test_tensors_and_integers_agree(outputs) -> None:
    """An output is the same from Python's integers, from NumPy and from torch's int64."""
    states = torch.tensor([splitmix.signed(state) for state in STATES])
    found = outputs(states[:, None], torch.tensor(NUMBERS))
    assert found.shape == (len(STATES), len(NUMBERS))
    assert found.dtype == torch.int64
    assert as_unsigned(found) == [splitmix.output(s, n) for s in STATES for n in NUMBERS]


def test_more_numbers_than_one_block() -> None:
    """Large results, made block by block, are as small ones, to the last."""
    states, numbers = torch.arange(3), torch.arange(splitmix._BLOCK // 2 + 5)
    found = splitmix.outputs(states[:, None], numbers)
    assert torch.equal(found, splitmix._outputs_in_torch(states[:, None], numbers))
    assert as_unsigned(found[2, -1:]) == [splitmix.output(2, int(numbers[-1]))]


def test_inputs_are_only_read() -> None:
    """States and numbers are as they were, also where the two need no broadcasting."""
    states, numbers = torch.arange(5), torch.arange(5)
    splitmix.outputs(states, numbers)
    splitmix._outputs_in_torch(states, numbers)
    assert torch.equal(states, torch.arange(5))
    assert torch.equal(numbers, torch.arange(5))


def test_strided_and_empty_states() -> None:
    """Views with gaps and empty tensors are read as any other."""
    states = torch.arange(10)
    found = splitmix.outputs(states[::3], torch.tensor([2]))
    assert as_unsigned(found) == [splitmix.output(s, 2) for s in (0, 3, 6, 9)]
    assert splitmix.outputs(states[:0, None], torch.arange(4)).shape == (0, 4)


@pytest.mark.parametrize("n", [1, 11, 52, 53, 63])
def test_top_bits(n: int) -> None:
    """The top n bits are those of the unsigned number, also where the sign bit is set."""
    values = [splitmix.signed(state) for state in STATES]
    assert splitmix.top_bits(torch.tensor(values), n).tolist() == [s >> (64 - n) for s in STATES]


@pytest.mark.parametrize("number", [0, 5, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_signed_and_unsigned_are_inverse(number: int) -> None:
    """`signed` and `unsigned` keep the 64 bits."""
    assert -(1 << 63) <= splitmix.signed(number) < 1 << 63
    assert splitmix.unsigned("seed", splitmix.signed(number)) == number


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, 1.0, "1", None])
def test_no_integer_of_64_bits(number) -> None:
    """What is no integer of 64 bits is refused by name."""
    with pytest.raises(ArgumentError) as caught:
        splitmix.unsigned("seed", number)
    assert str(caught.value) == (
        f"seed is {number!r}; expected an int from -2**63 to 2**64 - 1. "
        "Any other number is brought into that range by int(...) % 2**64."
    )
