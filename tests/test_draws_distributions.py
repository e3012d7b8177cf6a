"""Draws: each distribution is the one it is called, also at its ends."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from gpupreload import draws

N = 20_000
KEYS = draws.keys(11, 3, torch.arange(N))


def key_with_first_draw(bits: int) -> Tensor:
    """The key whose draw 0 has these 64 bits: the generator's mixing, run backwards."""
    z = bits ^ (bits >> 31) ^ (bits >> 62)
    for shift, multiplier in ((27, 0x94D049BB133111EB), (30, 0xBF58476D1CE4E5B9)):
        z = z * pow(multiplier, -1, 2**64) % 2**64
        z = z ^ (z >> shift) ^ (z >> 2 * shift)
    z = (z - 0x9E3779B97F4A7C15) % 2**64
    return torch.tensor([z - 2**64 if z >= 2**63 else z])


ALL_ZEROS, ALL_ONES = key_with_first_draw(0), key_with_first_draw(2**64 - 1)


def excess(counts: Tensor, expected: Tensor | float) -> float:
    """How many standard deviations the counts' χ² lies above its mean."""
    freedom = counts.numel() - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def distance(values: Tensor, cdf) -> float:
    """Kolmogorov and Smirnov's distance from a distribution, times the root of the sample size.

    Above 2.0 with a chance of 0.0007, above 2.5 with one of 7e-6.
    """
    at = cdf(values.sort().values)
    steps = torch.arange(len(at) + 1, dtype=torch.float64) / len(at)
    largest = torch.maximum((steps[1:] - at).max(), (at - steps[:-1]).max())
    return float(largest) * math.sqrt(len(at))


def test_uniform_is_the_top_53_bits() -> None:
    """A uniform number is the draw's top 53 bits over 2**53: 0 comes, 1 does not."""
    bits = [b % 2**64 for b in draws.bits(KEYS[:200], 2).flatten().tolist()]
    assert draws.uniform(KEYS[:200], 2).flatten().tolist() == [(b >> 11) / 2**53 for b in bits]
    assert draws.uniform(ALL_ZEROS).item() == 0
    assert draws.uniform(ALL_ONES).item() == 1 - 2**-53


def test_normal() -> None:
    """Normal numbers are the inverse distribution function of 52 bits, and always finite."""
    bits = [b % 2**64 >> 12 for b in draws.bits(KEYS[:500]).flatten().tolist()]
    expected = [NormalDist().inv_cdf((b + 0.5) / 2**52) for b in bits]
    found = draws.normal(KEYS[:500])[:, 0]
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert distance(draws.normal(KEYS, 5).flatten(), torch.special.ndtr) < 2
    lowest, highest = draws.normal(ALL_ZEROS).item(), draws.normal(ALL_ONES).item()
    assert -8.3 < lowest < -8.2
    assert lowest == pytest.approx(-highest)


def test_integers() -> None:
    """Integers are uniform from low to high - 1."""
    found = draws.integers(KEYS, -3, 9)
    assert found.dtype == torch.int64
    assert (found.min(), found.max()) == (-3, 8)
    assert excess(torch.bincount(found + 3).double(), N / 12) < 4


@pytest.mark.parametrize("span", [1, 2, 3, 7, 1000, 2**31 + 1, 2**53 - 1, 2**53])
def test_integers_never_reach_high(span: int) -> None:
    """The largest draw gives high - 1 and the smallest gives low, however wide the range."""
    assert draws.integers(ALL_ONES, 10, 10 + span).item() == 9 + span
    assert draws.integers(ALL_ZEROS, 10, 10 + span).item() == 10


def test_integers_with_bounds_of_each_sample() -> None:
    """Each sample may have bounds of its own."""
    low, high = torch.arange(N) % 5, 5 + torch.arange(N) % 7
    found = draws.integers(KEYS, low, high)
    one_by_one = [draws.integers(KEYS[i : i + 1], int(low[i]), int(high[i])) for i in range(50)]
    assert torch.equal(found[:50], torch.cat(one_by_one))
    assert bool(((found >= low) & (found < high)).all())
    assert torch.equal(draws.integers(KEYS, low, low + 1), low)


def test_bernoulli() -> None:
    """True comes with probability p: never for 0, always for 1."""
    for p in (0.1, 0.5, 0.9):
        share = draws.bernoulli(KEYS, p).double().mean().item()
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / N)
    both = torch.cat([ALL_ZEROS, ALL_ONES])
    assert draws.bernoulli(both, 0.0).tolist() == [False, False]
    assert draws.bernoulli(both, 1.0).tolist() == [True, True]
    assert draws.bernoulli(KEYS[:2], torch.tensor([0.0, 1.0])).tolist() == [False, True]


def test_choice() -> None:
    """Things are chosen in proportion to their weights, and never with weight 0."""
    weights = torch.tensor([0.0, 3.0, 0.0, 1.0, 2.0, 0.0])
    found = torch.bincount(draws.choice(KEYS, weights), minlength=6).double()
    assert found[[0, 2, 5]].tolist() == [0, 0, 0]
    assert excess(found[[1, 3, 4]], weights[[1, 3, 4]] * N / 6) < 4
    assert draws.choice(torch.cat([ALL_ZEROS, ALL_ONES]), weights).tolist() == [1, 4]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_permutations(n: int) -> None:
    """Each row is a permutation of its own: the positions that sort the key's draws."""
    found = draws.permutations(KEYS[:40], n, first=3)
    bits = draws.bits(KEYS[:40], n, first=3).tolist()
    assert found.tolist() == [sorted(range(n), key=row.__getitem__) for row in bits]


@pytest.mark.parametrize(
    ("a", "b", "cdf"),
    [
        (1, 1, lambda x: x),
        (2, 1, lambda x: x**2),
        (0.2, 1, lambda x: x**0.2),
        (0.05, 1, lambda x: x**0.05),
        (2, 2, lambda x: x**2 * (3 - 2 * x)),
        (0.5, 0.5, lambda x: x.sqrt().asin() * 2 / math.pi),
    ],
)
def test_beta_where_its_distribution_is_known(a: float, b: float, cdf) -> None:
    """Beta numbers have the distribution function that calculus gives for these shapes."""
    assert distance(draws.beta(KEYS, a, b), cdf) < 2


@pytest.mark.parametrize(("a", "b"), [(0.2, 0.2), (0.4, 0.4), (8.0, 3.0), (0.3, 50.0)])
def test_beta_against_numpy(a: float, b: float) -> None:
    """Beta numbers have the distribution of NumPy's, for shapes without a simple formula."""
    other = torch.from_numpy(np.random.default_rng(0).beta(a, b, 10 * N)).sort().values
    # 10 samples to one make the two-sample distance 5 % larger than that from the true function
    assert distance(draws.beta(KEYS, a, b), lambda x: torch.searchsorted(other, x) / len(other)) < 2


def test_beta_with_shapes_of_each_sample() -> None:
    """Each sample may have shapes of its own."""
    a = torch.tensor([0.2, 1.0, 30.0], dtype=torch.float64)
    alone = [draws.beta(KEYS[i : i + 1], float(a[i]), 2.0) for i in range(3)]
    assert torch.equal(draws.beta(KEYS[:3], a, 2.0), torch.cat(alone))


@pytest.mark.parametrize("shape", [1e-300, 1e-8, 1e-3, 1e6, 1e300])
def test_beta_of_extreme_shapes(shape: float) -> None:
    """Shapes near 0 give 0 or 1, large ones 1/2, and none gives NaN."""
    found = draws.beta(KEYS, shape, shape)
    assert bool(((found >= 0) & (found <= 1)).all())
    assert found.mean().item() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(N))
    if shape <= 1e-3:
        assert ((found < 1e-9) | (found > 1 - 1e-9)).double().mean() > 0.97
    else:
        assert (found - 0.5).abs().max() < 0.01


@pytest.mark.parametrize("alpha", [0.01, 0.7, 4.0])
def test_gamma_numbers_are_those_of_the_paper(alpha: float) -> None:
    """Marsaglia and Tsang's loop, one number after another, gives the same from these draws."""
    stream = draws.bits(KEYS)[:, 0]
    normals = draws.normal(stream, 8).tolist()
    uniforms = draws.uniform(stream, 9, first=8).tolist()
    d = alpha + 1 - 1 / 3
    logarithms = []
    for x, u in zip(normals, uniforms, strict=True):
        cubes = [(1 + xi / math.sqrt(9 * d)) ** 3 for xi in x]
        for xi, ui, v in zip(x, u, cubes, strict=False):
            if v > 0 and math.log(ui) < 0.5 * xi * xi + d - d * v + d * math.log(v):
                logarithms.append(math.log(d * v) + math.log(u[8]) / alpha)
                break
    expected = torch.tensor(logarithms, dtype=torch.float64)
    found = draws._log_gamma(stream, torch.full((N, 1), alpha, dtype=torch.float64))[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_rejected_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all candidates are rejected a finite number still comes."""
    monkeypatch.setattr(draws, "_N_CANDIDATES", 1)
    found = draws.beta(KEYS, 0.1, 0.1)
    assert bool(((found >= 0) & (found <= 1)).all())


def test_dirichlet() -> None:
    """Shares sum to 1, are Beta distributed, and take from each other evenly."""
    found = draws.dirichlet(KEYS, 1.0, 3)
    torch.testing.assert_close(found.sum(1), torch.ones(N, dtype=torch.float64))
    for share in found.T:
        assert distance(share, lambda x: 1 - (1 - x) ** 2) < 2
    off_diagonal = torch.corrcoef(found.T)[[0, 0, 1], [1, 2, 2]]
    assert (off_diagonal + 0.5).abs().max() < 4 / math.sqrt(N)


def test_dirichlet_with_alphas_of_their_own() -> None:
    """The mean of each share is its alpha's part of their sum."""
    alpha = torch.tensor([0.5, 1.5, 6.0])
    torch.testing.assert_close(
        draws.dirichlet(KEYS, alpha, 3).mean(0), alpha.double() / 8, rtol=0, atol=0.005
    )
