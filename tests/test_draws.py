"""Draws: a pure function of seed, epoch, step, occurrence, index and number, and of no more."""

from __future__ import annotations

import itertools
import math
import random
import shutil

import numpy as np
import pytest
import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.errors import ArgumentError

N = 20_000
KEYS = draws.keys(11, 3, torch.arange(N))
COORDINATES = ("seed", "epoch", "step", "occurrence", "index", "draw")
DISTRIBUTIONS = {
    "bits": lambda k: draws.bits(k, 3),
    "uniform": lambda k: draws.uniform(k, 3, first=2),
    "normal": lambda k: draws.normal(k, 3),
    "integers": lambda k: draws.integers(k, -3, 9),
    "bernoulli": lambda k: draws.bernoulli(k, 0.3),
    "choice": lambda k: draws.choice(k, torch.tensor([1.0, 2.0, 3.0])),
    "permutations": lambda k: draws.permutations(k, 4),
    "beta": lambda k: draws.beta(k, 0.4, 0.6),
    "dirichlet": lambda k: draws.dirichlet(k, 1.0, 3),
    "child": lambda k: draws.child(k, 1),
}


class SplitMix64:
    """The generator as its paper has it: a state that moves on, one output after the other."""

    def __init__(self, state: int) -> None:
        self.state = state

    def output(self, number: int) -> int:
        """Move on to the output with this number, counted from the state."""
        for _ in range(number + 1):
            self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)


def excess(counts: Tensor, expected: Tensor | float) -> float:
    """How many standard deviations the counts' χ² lies above its mean."""
    freedom = counts.numel() - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def histogram(values: Tensor, n_bins: int) -> Tensor:
    """How many of the values, in [0, 1), lie in each of equal bins."""
    return torch.bincount((values * n_bins).long(), minlength=n_bins).double()


def uniforms_along(coordinate: str, offset: int = 0) -> Tensor:
    """N uniform numbers whose coordinates are equal but for one, which counts from `offset`."""
    numbers = dict.fromkeys(COORDINATES, 5)
    if coordinate == "draw":
        key = draws.keys(5, 5, torch.tensor([5]), occurrence=5, step=5)
        return draws.uniform(key, N, first=offset)[0]
    if coordinate == "index":
        keys = draws.keys(5, 5, torch.arange(N) + offset, occurrence=5, step=5)
        return draws.uniform(keys, 1, first=5)[:, 0]
    del numbers["draw"]
    along = (draws.key_of(**{**numbers, coordinate: v}) for v in range(offset, N + offset))
    return draws.uniform(torch.tensor(list(along)), 1, first=5)[:, 0]


@pytest.mark.parametrize(
    ("seed", "epoch", "step", "occurrence", "index"),
    [(0, 0, 0, 0, 0), (3, 1, 4, 1, 5), (2**64 - 1, 7, 2, 0, 9), (-(2**63), 0, 0, 3, 8)],
)
def test_keys_are_the_tree_of_the_documentation(seed, epoch, step, occurrence, index) -> None:
    """A key is the output `index` of the output `occurrence`, and so on up to the seed's first."""
    expected = seed % 2**64
    for number in (0, epoch, step, occurrence, index):
        expected = SplitMix64(expected).output(number)
    key = draws.keys(seed, epoch, torch.tensor([index]), occurrence=occurrence, step=step)
    assert key.item() % 2**64 == expected
    assert draws.key_of(seed, epoch, index, occurrence=occurrence, step=step) == key.item()
    first_draws = [SplitMix64(expected).output(j) for j in range(3)]
    assert [b % 2**64 for b in draws.bits(key, 3)[0].tolist()] == first_draws


def test_occurrences_of_each_sample() -> None:
    """A tensor of occurrences gives each sample the key of its own occurrence."""
    indices, occurrence = torch.tensor([4, 4, 4, 9]), torch.tensor([0, 1, 2, 0])
    keys = draws.keys(1, 2, indices, occurrence=occurrence, step=3)
    for key, index, times in zip(keys, indices, occurrence, strict=True):
        alone = draws.keys(1, 2, index[None], occurrence=int(times), step=3)
        assert torch.equal(alone, key[None])


def test_no_two_coordinates_share_a_key() -> None:
    """Keys and draws over a grid of all coordinates are all different, those of children too."""
    grid = itertools.product(range(6), range(6), range(6), range(3))
    indices = torch.arange(20)
    keys = torch.cat(
        [draws.keys(s, e, indices, step=t, occurrence=torch.full((20,), o)) for s, e, t, o in grid]
        + [draws.epoch_key(s, e) for s in range(6) for e in range(6)]
    )
    families = [
        keys,
        draws.child(keys, 0),
        draws.child(keys, 1),
        draws.child(draws.child(keys, 0), 1),
    ]
    everything = torch.cat([draws.bits(k, 4).flatten() for k in families] + families)
    assert len(everything) == 5 * 4 * (6 * 6 * 6 * 3 * 20 + 36)
    assert len(everything.unique()) == len(everything)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_batches_do_not_matter(name: str) -> None:
    """A sample's draws are the same in any batch and any order."""
    draw = DISTRIBUTIONS[name]
    keys, order = KEYS[:100], torch.arange(99, -1, -1)
    whole = draw(keys)
    assert torch.equal(torch.cat([draw(part) for part in keys.split([1, 0, 36, 63])]), whole)
    assert torch.equal(draw(keys[order]), whole[order])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_keys_are_only_read(name: str) -> None:
    """Drawing leaves the keys as they were."""
    keys = KEYS[:50].clone()
    DISTRIBUTIONS[name](keys)
    assert torch.equal(keys, KEYS[:50])


def test_draws_are_numbered() -> None:
    """`first` says where a run of draws begins in the key's one sequence."""
    for draw in (draws.bits, draws.uniform, draws.normal):
        assert torch.equal(draw(KEYS[:9], 3, first=2), draw(KEYS[:9], 7)[:, 2:5])
    second = draws.uniform(KEYS[:99], 2)[:, 1]
    assert torch.equal(draws.bernoulli(KEYS[:99], 0.4, first=1), second < 0.4)
    assert torch.equal(draws.integers(KEYS[:99], 0, 8, first=1), (second * 8).long())


def test_global_generators_are_left_alone() -> None:
    """Drawing neither reads nor moves the generators of torch, NumPy and Python."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        found.append([draw(KEYS[:9]) for draw in DISTRIBUTIONS.values()])
        found[-1].append(draws.permutation(0, 0, 9))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[1].tolist() == before[1]
        assert random.getstate() == before[2]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("coordinate", COORDINATES)
def test_uniform_along_each_coordinate(coordinate: str) -> None:
    """Counting along one coordinate, all else equal, gives uniform numbers."""
    values = uniforms_along(coordinate)
    assert excess(histogram(values, 100), N / 100) < 4


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("apart", [1, 2, 64])
def test_neighbours_are_independent(coordinate: str, apart: int) -> None:
    """Numbers whose coordinates are close in one coordinate have nothing to do with each other."""
    both = uniforms_along(coordinate)
    here, there = both[:-apart], both[apart:]
    assert abs(torch.corrcoef(torch.stack([here, there]))[0, 1]) < 4 / math.sqrt(N)
    pairs = histogram(((here * 16).long() * 16 + (there * 16).long()) / 256, 256)
    assert excess(pairs, len(here) / 256) < 4


@pytest.mark.parametrize("coordinate", ["seed", "epoch", "step", "occurrence"])
def test_streams_are_independent(coordinate: str) -> None:
    """All samples of one epoch: another seed, epoch, step or occurrence gives unrelated numbers."""
    numbers = {"seed": 0, "epoch": 0, "step": 0, "occurrence": 0}
    other = {**numbers, coordinate: 1}
    one, two = (draws.keys(indices=torch.arange(N), **given) for given in (numbers, other))
    differing = (draws.bits(one) ^ draws.bits(two)) >> torch.arange(64) & 1
    # each of the 64 bits differs in half of the samples
    assert (differing.double().mean(0) - 0.5).abs().max() < 4.5 * 0.5 / math.sqrt(N)
    u = torch.cat([draws.uniform(one, 3), draws.uniform(two, 3)], dim=1)
    correlations = torch.corrcoef(u.T) - torch.eye(6)
    assert correlations.abs().max() < 4 / math.sqrt(N)


def test_children_are_independent() -> None:
    """A key's draws, those of its children and those of their children have nothing in common."""
    family = (
        KEYS,
        draws.child(KEYS, 0),
        draws.child(KEYS, 1),
        draws.child(draws.child(KEYS, 0), 0),
    )
    u = torch.cat([draws.uniform(k, 2) for k in family], dim=1)
    assert (torch.corrcoef(u.T) - torch.eye(8)).abs().max() < 4 / math.sqrt(N)


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_permutation(n: int) -> None:
    """The order of an epoch holds each position once, and sorts the epoch's own draws."""
    found = draws.permutation(4, 2, n)
    assert found.dtype == torch.int64
    assert sorted(found.tolist()) == list(range(n))
    bits = draws.bits(draws.epoch_key(4, 2), n)[0].tolist()
    assert found.tolist() == sorted(range(n), key=bits.__getitem__)


def test_permutation_is_uniform_over_epochs_and_seeds() -> None:
    """Over epochs, and over seeds, each of the 24 orders of 4 samples is equally frequent."""
    places = torch.tensor([64, 16, 4, 1])
    for orders in (
        torch.stack([draws.permutation(0, epoch, 4) for epoch in range(2400)]),
        torch.stack([draws.permutation(seed, 0, 4) for seed in range(2400)]),
        draws.permutations(KEYS[:2400], 4),
    ):
        kinds, counts = (orders * places).sum(1).unique(return_counts=True)
        assert len(kinds) == 24
        assert excess(counts.double(), 2400 / 24) < 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: draws.keys(0, 0, torch.tensor([0.5])),
            "indices is a torch.float32 tensor of shape (1,); expected an int64 tensor of shape "
            "[N]. Sample numbers become one with torch.as_tensor(..., dtype=torch.int64).",
        ),
        (
            lambda: draws.keys(0, 0, [1, 2]),
            "indices is list; expected an int64 tensor of shape [N]. Sample numbers become one "
            "with torch.as_tensor(..., dtype=torch.int64).",
        ),
        (
            lambda: draws.bits(torch.tensor(3)),
            "keys is a torch.int64 tensor of shape (); expected an int64 tensor of shape [N]. "
            "Sample numbers become one with torch.as_tensor(..., dtype=torch.int64).",
        ),
        (
            lambda: draws.keys(0, 0, torch.arange(3), occurrence=torch.arange(2)),
            "occurrence has 2 numbers and indices has 3; expected one occurrence for each index.",
        ),
        (
            lambda: draws.keys(2**64, 0, torch.arange(3)),
            "seed is 18446744073709551616; expected an int from -2**63 to 2**64 - 1. Any other "
            "number is brought into that range by int(...) % 2**64.",
        ),
        (
            lambda: draws.permutation(0, 1.5, 3),
            "epoch is 1.5; expected an int from -2**63 to 2**64 - 1. Any other number is brought "
            "into that range by int(...) % 2**64.",
        ),
        (lambda: draws.uniform(KEYS, -1), "n is -1; expected 0 or more. Count from 0."),
        (lambda: draws.normal(KEYS, 1, -2), "first is -2; expected 0 or more. Count from 0."),
        (lambda: draws.child(KEYS, -1), "number is -1; expected 0 or more. Count from 0."),
        (
            lambda: draws.integers(KEYS, 4, 4),
            "low is 4 and high is 4; expected high above low, by at most 2**53, for every sample. "
            "high itself is never drawn: pass the largest value plus 1.",
        ),
        (
            lambda: draws.integers(KEYS[:2], 0, torch.tensor([1, 0])),
            "low is 0 and high is a torch.int64 tensor of shape (2,); expected high above low, by "
            "at most 2**53, for every sample. high itself is never drawn: pass the largest value "
            "plus 1.",
        ),
        (
            lambda: draws.bernoulli(KEYS, 1.5),
            "p is 1.5; expected a probability, from 0 to 1.",
        ),
        (
            lambda: draws.bernoulli(KEYS, math.nan),
            "p is nan; expected a probability, from 0 to 1.",
        ),
        (
            lambda: draws.choice(KEYS, torch.zeros(2)),
            "weights is [0.0, 0.0]; expected numbers of 0 or more, and one above 0.",
        ),
        (
            lambda: draws.beta(KEYS, 0.0, 1.0),
            "a is 0.0 and b is 1.0; expected numbers above 0.",
        ),
        (lambda: draws.dirichlet(KEYS, -1.0, 3), "alpha is -1.0; expected numbers above 0."),
    ],
)
def test_bad_arguments(call, message: str) -> None:
    """What cannot be used is refused with its name, what was expected and what came."""
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_keys_are_the_same() -> None:
    """Code of torch.compile makes the same keys, also where seed and epoch are symbols to it."""
    compiled = torch.compile(draws.keys, fullgraph=True)
    for seed, epoch in ((0, 0), (0, 1), (-5, 2), (2**62, 2**40)):
        keys = compiled(seed, epoch, torch.arange(12))
        assert torch.equal(keys, draws.keys(seed, epoch, torch.arange(12)))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_draw_can_be_traced(name: str) -> None:
    """No draw breaks the graph of torch.compile."""
    compiled = torch.compile(DISTRIBUTIONS[name], fullgraph=True, backend="eager")
    assert torch.equal(compiled(KEYS[:9]), DISTRIBUTIONS[name](KEYS[:9]))
