"""Random numbers as a pure function of (seed, epoch, step, occurrence, sample index, draw number).

Keys form a tree. Each is the state of a SplitMix64 generator (see `splitmix`), and the keys below
it are that generator's outputs: the seed's output 0 has an output for each epoch, that one for
each step, that one for each occurrence, and that one for each sample index. The last is the
sample's key, and its outputs are the draws.

Keys that differ in one coordinate only are never equal, nor are two draws of one key. Otherwise
keys are as random numbers of 64 bits: the chance that among M keys, with n draws each, any two
share a draw is below n * M**2 / 2**64. For 50,000 samples, 100 epochs and 10 steps of 6 draws
that is 1 in 1,000, for one pair of all.

Nothing here reads or moves a global generator. Bounds that are tensors are checked on the CPU
only: on an accelerator, a look would wait for it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gpupreload import splitmix
from gpupreload.errors import ArgumentError
from gpupreload.source import describe

# the fraction of the square root of 2 in 64 bits: sets the children of a key apart from its draws
_CHILDREN = 0x6A09E667F3BCC908
# for a shape of 1 or more at most 0.0484 of the candidates are rejected; 0.0484**8 is 3e-11
_N_CANDIDATES = 8


def keys(
    seed: int, epoch: int, indices: Tensor, *, occurrence: int | Tensor = 0, step: int = 0
) -> Tensor:
    """Return the key of each sample: the state from which its draws for one step come.

    Args:
        seed: from -2**63 to 2**64 - 1, as `torch.manual_seed` takes; -1 and 2**64 - 1 are one seed.
        epoch: the number of the epoch, in the same range.
        indices: int64 [N], sample numbers in the whole dataset, on any device.
        occurrence: how often the sample came before in this epoch: one int, or int64 [N].
        step: the number of the random step in its transform.

    Returns:
        int64 [N] on the CPU; all 64 bits are random.

    Raises:
        ArgumentError: an integer is outside its range, or a tensor is not int64 [N].

    >>> keys(0, 0, torch.tensor([7, 8]))
    tensor([-615685441532763356, 7072153410309255612])
    """
    _check_int64("indices", indices)
    if not isinstance(occurrence, Tensor):
        state = _state(seed, epoch=epoch, step=step, occurrence=occurrence)
    else:
        _check_int64("occurrence", occurrence)
        if len(occurrence) != len(indices):
            raise ArgumentError(
                f"occurrence has {len(occurrence)} numbers and indices has {len(indices)}; "
                "expected one occurrence for each index."
            )
        state = splitmix.outputs(_state(seed, epoch=epoch, step=step), occurrence.cpu())
    return splitmix.outputs(state, indices.cpu())


def key_of(seed: int, epoch: int, index: int, *, occurrence: int = 0, step: int = 0) -> int:
    """Return one sample's key as a Python int: `keys(...)` of one index, without a tensor.

    The range is that of int64; `key_of(...) % 2**64` suits generators that take no negative seed.

    >>> key_of(0, 0, 7)
    -615685441532763356
    """
    numbers = {"epoch": epoch, "step": step, "occurrence": occurrence, "index": index}
    return splitmix.signed(_scalar_state(seed, **numbers))


def epoch_key(seed: int, epoch: int) -> Tensor:
    """Return a key for draws that belong to an epoch and no sample, such as its order.

    Returns:
        int64 [1] on the CPU. `permutation` uses its draws; other uses take a `child` of it.
    """
    return child(_state(seed, epoch=epoch), 0)


def child(keys: Tensor, number: int) -> Tensor:
    """Return new keys, independent of the draws of `keys` and of other children.

    Args:
        keys: int64 [N].
        number: which child, 0 or more; a container takes one for each of its steps.

    Returns:
        int64 [N] on the device of `keys`. Errors are as for `bits`.
    """
    _check_int64("keys", keys)
    _check_not_negative(number=number)
    return bits(keys ^ _CHILDREN, 1, number).squeeze(1)


def bits(keys: Tensor, n: int = 1, first: int = 0) -> Tensor:
    """Return n draws of 64 random bits for each key: its outputs `first` to `first + n - 1`.

    Args:
        keys: int64 [N], on any device; the bits are the same on each.
        n: how many draws.
        first: the number of the first draw.

    Returns:
        int64 [N, n] on the device of `keys`, with a row's n values all different.

    Raises:
        ArgumentError: `keys` is not int64 [N], or `n` or `first` is negative.

    >>> bits(torch.tensor([1234567]), 2)  # SplitMix64's published first outputs for this state
    tensor([[6457827717110365317, 3203168211198807973]])
    """
    _check_int64("keys", keys)
    _check_not_negative(n=n, first=first)
    numbers = torch.arange(first, first + n, device=keys.device)
    return splitmix.outputs(keys.unsqueeze(1), numbers)


def uniform(keys: Tensor, n: int = 1, first: int = 0) -> Tensor:
    """Return n uniform numbers for each key: float64 [N, n] in [0, 1), multiples of 2**-53.

    Arguments and errors are those of `bits`.

    >>> uniform(torch.tensor([1234567]), 2)
    tensor([[0.3501, 0.1736]], dtype=torch.float64)
    """
    return splitmix.top_bits(bits(keys, n, first), 53).to(torch.float64).mul_(2.0**-53)


def normal(keys: Tensor, n: int = 1, first: int = 0) -> Tensor:
    """Return n standard normal numbers for each key: float64 [N, n], within 8.3 of 0.

    The inverse distribution function `torch.special.ndtri` of one uniform number each, the middle
    of one of 2**52 equal intervals. Arguments and errors are those of `bits`.
    """
    normals: Tensor = torch.special.ndtri(_inside(bits(keys, n, first)))
    return normals


def integers(keys: Tensor, low: int | Tensor, high: int | Tensor, first: int = 0) -> Tensor:
    """Return one uniform integer for each key, from `low` to `high` - 1, as `torch.randint` does.

    low + floor(u * (high - low)) with u of 53 bits: the chance of each value is off by at most
    2**-52, which in a range of a million values is a part in 4 billion.

    Args:
        keys: int64 [N].
        low: the smallest value, for all or int64 [N].
        high: the largest value plus 1, for all or int64 [N]; at most low + 2**53.
        first: the number of the draw used.

    Returns:
        int64 [N] on the device of `keys`.

    Raises:
        ArgumentError: `high` is not above `low`.
    """
    span = high - low
    if not (_holds(span > 0) and _holds(span <= 1 << 53)):
        raise ArgumentError(
            f"low is {_shown(low)} and high is {_shown(high)}; expected high above low, by at most "
            "2**53, for every sample. high itself is never drawn: pass the largest value plus 1."
        )
    return torch.add((uniform(keys, 1, first).squeeze(1) * span).to(torch.int64), low)


def bernoulli(keys: Tensor, p: float | Tensor, first: int = 0) -> Tensor:
    """Return for each key True with probability p: bool [N]; never for 0, always for 1.

    Args:
        keys: int64 [N].
        p: from 0 to 1, for all or floating point [N].
        first: the number of the draw used.

    Raises:
        ArgumentError: `p` is outside 0 to 1.
    """
    if not (_holds(p >= 0) and _holds(p <= 1)):
        raise ArgumentError(f"p is {_shown(p)}; expected a probability, from 0 to 1.")
    return uniform(keys, 1, first).squeeze(1) < p


def choice(keys: Tensor, weights: Tensor, first: int = 0) -> Tensor:
    """Return for each key the number of one of K things, drawn in proportion to their weights.

    Args:
        keys: int64 [N].
        weights: floating point [K], each 0 or more, their sum above 0; of any scale.
        first: the number of the draw used.

    Returns:
        int64 [N], from 0 to K - 1; a thing of weight 0 is never drawn.

    Raises:
        ArgumentError: a weight is negative or not finite, or all are 0.
    """
    ends = weights.to(keys.device, torch.float64).cumsum(0)
    if not (_holds(weights >= 0) and _holds(weights.sum() > 0) and _holds(ends < float("inf"))):
        raise ArgumentError(
            f"weights is {weights.tolist()}; expected numbers of 0 or more, and one above 0."
        )
    return torch.searchsorted(ends, uniform(keys, 1, first).squeeze(1) * ends[-1], right=True)


def permutation(seed: int, epoch: int, n: int) -> Tensor:
    """Return the order of an epoch: int64 [n] on the CPU, each of 0 to n - 1 once.

    The positions that would sort n draws of `epoch_key`, which all differ: there are no ties.

    Raises:
        ArgumentError: `seed` or `epoch` is out of range, or `n` is negative.

    >>> permutation(seed=0, epoch=0, n=6)
    tensor([2, 5, 1, 0, 4, 3])
    """
    # 50,000 in 1.3 ms; torch's sort takes 0.9 ms on an idle core, but hundreds where its threads
    # must wait for one that is busy
    return torch.from_numpy(np.argsort(bits(epoch_key(seed, epoch), n)[0].numpy()))


def permutations(keys: Tensor, n: int, first: int = 0) -> Tensor:
    """Return a permutation of 0 to n - 1 for each key: int64 [N, n].

    The positions that would sort `bits(keys, n, first)`, whose arguments and errors these are.
    """
    return bits(keys, n, first).argsort(dim=1)


def beta(keys: Tensor, a: float | Tensor, b: float | Tensor, first: int = 0) -> Tensor:
    """Return one number of the Beta(a, b) distribution for each key.

    G_a / (G_a + G_b) of two Gamma numbers, made as for `dirichlet`, with the same error.

    Args:
        keys: int64 [N].
        a: above 0, for all or floating point [N].
        b: above 0, for all or floating point [N].
        first: the number of the draw used; one draw is used, whatever the shapes.

    Returns:
        float64 [N] in [0, 1]; 0 and 1 come of rounding where a or b is small.

    Raises:
        ArgumentError: `a` or `b` is not above 0.
    """
    if not (_holds(a > 0) and _holds(b > 0)):
        raise ArgumentError(f"a is {_shown(a)} and b is {_shown(b)}; expected numbers above 0.")
    shapes = torch.ones(len(keys), 2, dtype=torch.float64, device=keys.device)
    shapes[:, 0], shapes[:, 1] = a, b
    return dirichlet(keys, shapes, 2, first)[:, 0]


def dirichlet(keys: Tensor, alpha: float | Tensor, n: int, first: int = 0) -> Tensor:
    """Return n shares that sum to 1, of a Dirichlet distribution, for each key.

    Gamma numbers over their sum: G. Marsaglia, W. W. Tsang, "A Simple Method for Generating Gamma
    Variables", ACM TOMS 2000, for the shape alpha + 1, brought to alpha by a factor U**(1/alpha),
    all in logarithms, so that a small alpha gives no 0/0. The method rejects candidates: 8 are
    made, and the first is taken where all are rejected. The chance of that is below 4e-11, and the
    distribution of each Gamma number differs from the true one by no more.

    Args:
        keys: int64 [N].
        alpha: above 0: one for all, or floating point [n] or [N, n].
        n: how many shares.
        first: the number of the draw used; one draw is used, whatever n.

    Returns:
        float64 [N, n] in [0, 1].

    Raises:
        ArgumentError: `alpha` is not above 0.
    """
    if not _holds(alpha > 0):
        raise ArgumentError(f"alpha is {_shown(alpha)}; expected numbers above 0.")
    shapes = torch.as_tensor(alpha, dtype=torch.float64, device=keys.device)
    return _log_gamma(bits(keys, 1, first).squeeze(1), shapes.expand(len(keys), n)).softmax(dim=1)


def _log_gamma(keys: Tensor, shapes: Tensor) -> Tensor:
    """The logarithms of Gamma numbers of scale 1 and the given shapes, float64 [N, n]."""
    n = _N_CANDIDATES
    random = bits(keys, shapes.shape[1] * (2 * n + 1)).view(*shapes.shape, 2 * n + 1)
    x = torch.special.ndtri(_inside(random[..., :n]))
    log_u = _inside(random[..., n:]).log()
    d = shapes.unsqueeze(2) + 2 / 3
    base = 1 + x / (3 * d.sqrt())
    log_v = 3 * torch.where(base > 0, base, 1).log()
    accepted = (base > 0) & (log_u[..., :n] < x.square() / 2 + d * (1 - log_v.exp() + log_v))
    # argmax is the first True, or 0 where there is none
    chosen = log_v.gather(2, accepted.to(torch.uint8).argmax(dim=2, keepdim=True))
    return d.squeeze(2).log() + chosen.squeeze(2) + log_u[..., n] / shapes


def _inside(random: Tensor) -> Tensor:
    """Uniform numbers, never 0 or 1: the middles of 2**52 intervals, exact in float64."""
    return splitmix.top_bits(random, 52).to(torch.float64).add_(0.5).mul_(2.0**-52)


def _state(seed: int, **numbers: int) -> Tensor:
    """The state below the seed that these numbers lead to, int64 [1]."""
    if not torch.compiler.is_compiling():
        return torch.tensor([splitmix.signed(_scalar_state(seed, **numbers))], device="cpu")
    # a traced seed may be a symbolic int64, in which SplitMix64's products do not fit
    state = torch.full((1,), splitmix.signed(seed))
    for number in (0, *numbers.values()):
        state = splitmix.outputs(state, torch.full((1,), splitmix.signed(number)))
    return state


def _scalar_state(seed: int, **numbers: int) -> int:
    """The state below the seed that these numbers lead to, from 0 to 2**64 - 1."""
    state = splitmix.output(splitmix.unsigned("seed", seed), 0)
    for name, number in numbers.items():
        state = splitmix.output(state, splitmix.unsigned(name, number))
    return state


def _check_not_negative(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise ArgumentError(f"{name} is {number}; expected 0 or more. Count from 0.")


def _check_int64(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int64 or tensor.ndim != 1:
        raise ArgumentError(
            f"{name} is {describe(tensor)}; expected an int64 tensor of shape [N]. "
            f"Sample numbers become one with torch.as_tensor(..., dtype=torch.int64)."
        )


def _holds(condition: bool | Tensor) -> bool:
    """Whether a condition is true of all samples; taken for true where looking would wait."""
    if not isinstance(condition, Tensor):
        return bool(condition)
    unseen = torch.compiler.is_compiling() or condition.device.type != "cpu"
    return unseen or bool(condition.all())


def _shown(bound: float | Tensor) -> str:
    return describe(bound) if isinstance(bound, Tensor) else repr(bound)
