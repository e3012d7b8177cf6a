"""Policies: what is drawn has torchvision's distribution, and settings are read or refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.errors import ArgumentError
from gpupreload.native.policies import POLICIES
from gpupreload.native.policy_ops import NUMBER_OF, OPERATIONS
from gpupreload.native.policy_space import OperationChain
from gpupreload.native.reading import NoNativeFormError

N = 28_000
KEYS = draws.keys(5, 2, torch.arange(N))
SHAPE = (3, 112, 100)
# of RandAugment and TrivialAugmentWide; torchvision chooses one of 14 with randint
SIGNED = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9])
UNSIGNED = torch.tensor([0, 10, 11, 12, 13])
POLICY = v1.AutoAugmentPolicy
TRANSFORMS = [
    make
    for m in (v1, v2)
    for make in (m.RandAugment(), m.TrivialAugmentWide(16), m.AutoAugment(), m.AugMix())
]


def native_of(transform: Any) -> OperationChain:
    """The native form of a policy."""
    native = POLICIES[type(transform)](transform)
    assert isinstance(native, OperationChain)
    return native


def excess(counts: Tensor, expected: Tensor | float, totals: int = 1) -> float:
    """How many standard deviations the counts' χ² lies above its mean, given some totals."""
    freedom = counts.numel() - totals
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def distance(values: Tensor, cdf: Any) -> float:
    """Kolmogorov and Smirnov's distance times √N; above 2.0 with a chance of 0.0007."""
    at = cdf(values.sort().values)
    steps = torch.arange(len(at) + 1, dtype=torch.float64) / len(at)
    largest = torch.maximum((steps[1:] - at).max(), (at - steps[:-1]).max())
    return float(largest) * math.sqrt(len(at))


def cells(*numbers: Tensor) -> Tensor:
    """How often each combination of some numbers comes, each of 0 to its largest."""
    index = torch.zeros_like(numbers[0])
    for number in numbers:
        index = index * (int(number.max()) + 1) + number
    sizes = [int(number.max()) + 1 for number in numbers]
    return torch.bincount(index, minlength=math.prod(sizes)).double().view(sizes)


def test_operations_are_torchvisions() -> None:
    """The numbers of operations stand for all names in torchvision's augmentation spaces."""
    policies = (v2.RandAugment, v2.TrivialAugmentWide, v2.AutoAugment, v2.AugMix)
    names = {name for policy in policies for name in policy._AUGMENTATION_SPACE}
    assert sorted(names) == sorted(OPERATIONS)
    assert len(NUMBER_OF) == 15


@pytest.mark.parametrize("size", [(17, 22), (112, 112), (224, 192), (32, 33)])
@pytest.mark.parametrize(
    "transform", TRANSFORMS, ids=lambda t: type(t).__module__[23:] + type(t).__name__
)
def test_magnitudes_are_torchvisions_to_the_last_bit(transform: Any, size: tuple[int, int]) -> None:
    """The table of magnitudes is torchvision's, with Solarize's threshold as a share of white."""
    native = native_of(transform)
    table = native.magnitudes((3, *size))
    for name, (expected, signed) in space(transform, native.n_bins, size).items():
        assert signed == (NUMBER_OF[name] in SIGNED)
        if expected is None or expected.ndim == 0:
            expected = torch.zeros(native.n_bins)
        in_levels = isinstance(transform, v2.Transform) or name != "Solarize"
        found = table[NUMBER_OF[name]] * (1 if in_levels else 255)
        assert torch.equal(found.float(), expected.float()), name


def space(transform: Any, n_bins: int, size: tuple[int, int]) -> dict[str, tuple[Any, bool]]:
    """The table that an instance of torchvision's has, by operation."""
    if isinstance(transform, v2.Transform):
        table = transform._AUGMENTATION_SPACE  # type: ignore[attr-defined]
        return {name: (make(n_bins, *size), signed) for name, (make, signed) in table.items()}
    takes_no_size = isinstance(transform, v1.TrivialAugmentWide)
    found: dict[str, tuple[Any, bool]] = (
        transform._augmentation_space(n_bins)
        if takes_no_size
        else transform._augmentation_space(n_bins, size)
    )
    return found


def test_randaugment_draws_each_operation_and_sign_alike() -> None:
    """14 operations come alike, also one after another; half of the signed ones are turned."""
    params = native_of(v2.RandAugment()).draw(KEYS, SHAPE)
    first, second = params["op_index"].unbind(1)
    assert excess(cells(first, second), N / 14**2) < 4
    negative = (params["magnitude"] < 0).long()
    for column in (0, 1):
        counts = cells(params["op_index"][:, column], negative[:, column])
        assert excess(counts[SIGNED], N / 28) < 4
        assert counts[UNSIGNED, 1].tolist() == [0] * 5
    both_signed = torch.isin(params["op_index"], SIGNED).all(1)
    assert excess(cells(*negative[both_signed].unbind(1)), int(both_signed.sum()) / 4) < 4


def test_randaugment_takes_one_magnitude_for_each_operation() -> None:
    """Bin 9 of 31 by default: 0.3 of a linear range, of the width and height in pixels."""
    params = native_of(v2.RandAugment()).draw(KEYS[:2000], SHAPE)
    expected = {
        **dict.fromkeys(("Identity", "AutoContrast", "Equalize"), 0),
        **dict.fromkeys(("ShearX", "ShearY"), 0.09),
        "TranslateX": 150 / 331 * 100 * 0.3,
        "TranslateY": 150 / 331 * 112 * 0.3,
        "Rotate": 9,
        **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), 0.27),
        "Posterize": 7,
        "Solarize": 0.7,
    }
    drawn = zip(*(params[name].flatten().tolist() for name in params), strict=True)
    sizes = {(OPERATIONS[op], abs(size)) for op, size in drawn}
    assert len(sizes) == 14
    assert dict(sizes) == pytest.approx(expected, rel=1e-6)


def test_randaugment_counts_bins_from_the_end_too() -> None:
    """A magnitude of -1 is the last bin, as in torchvision."""
    last, minus_one = (
        native_of(v2.RandAugment(magnitude=magnitude)).draw(KEYS[:99], SHAPE)
        for magnitude in (30, -1)
    )
    assert all(torch.equal(last[name], minus_one[name]) for name in last)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_trivialaugment_draws_operations_bins_and_signs_alike(module: Any) -> None:
    """14 operations come alike, with each of 31 magnitudes alike, and half of the signs."""
    native = native_of(module.TrivialAugmentWide())
    params = native.draw(KEYS, SHAPE)
    ops, sizes = params["op_index"][:, 0], params["magnitude"][:, 0]
    assert excess(torch.bincount(ops).double(), N / 14) < 4
    table = native.magnitudes(SHAPE)
    for op in (*SIGNED.tolist(), NUMBER_OF["Solarize"]):
        values, counts = sizes[ops == op].abs().unique(return_counts=True)
        assert torch.equal(values, table[op].sort().values)
        assert excess(counts.double(), float(counts.sum()) / 31) < 4
    # a magnitude of 0 has no sign
    signs = cells(ops[sizes != 0], (sizes[sizes != 0] < 0).long())[SIGNED]
    assert excess(signs, signs.sum(1, keepdim=True) / 2, totals=9) < 4
    # of 31 bins, those that are rounded to 8, 7, ... 2 bits: (8 - bin / 5) to the nearest
    bits = torch.bincount(sizes[ops == NUMBER_OF["Posterize"]].long())[2:].double()
    shares = torch.tensor([3, 5, 5, 5, 5, 5, 3]) / 31
    assert excess(bits, bits.sum() * shares) < 4


@pytest.mark.parametrize("policy", list(POLICY), ids=lambda p: p.value)
def test_autoaugment_draws_pairs_and_their_chances(policy: POLICY) -> None:
    """25 pairs come alike; each of its operations is made with its chance, at its magnitude."""
    transform = v2.AutoAugment(policy)
    native = native_of(transform)
    params = native.draw(KEYS, SHAPE)
    made = params["op_index"] != 0
    counts = cells(params["policy_id"], *made.long().unbind(1))
    expected = torch.empty_like(counts)
    table, signs = native.magnitudes(SHAPE), []
    for i, pair in enumerate(transform._policies):
        (_, p, _), (_, q, _) = pair
        expected[i] = torch.tensor([[(1 - p) * (1 - q), (1 - p) * q], [p * (1 - q), p * q]])
        for k, (name, _, bin) in enumerate(pair):
            rows = (params["policy_id"] == i) & made[:, k]
            assert (params["op_index"][rows, k] == NUMBER_OF[name]).all()
            sizes = params["magnitude"][rows, k]
            assert (sizes.abs() == (0 if bin is None else table[NUMBER_OF[name], bin])).all()
            if NUMBER_OF[name] in SIGNED and bin and len(sizes):
                signs.append(torch.bincount((sizes < 0).long(), minlength=2).double())
            else:
                assert (sizes >= 0).all()
    by_sign = torch.stack(signs)
    assert excess(by_sign, by_sign.sum(1, keepdim=True) / 2, totals=len(signs)) < 4
    assert (counts[expected == 0] == 0).all()
    assert excess(counts[expected > 0], expected[expected > 0] * N / 25) < 4


@pytest.mark.parametrize("all_ops", [True, False])
def test_augmix_draws_chains(all_ops: bool) -> None:
    """Chains are 1 to 3 long, of 13 or 9 operations, with one of the first 4 magnitudes."""
    transform = v2.AugMix(severity=4, mixture_width=2, all_ops=all_ops)
    native = native_of(transform)
    params = native.draw(KEYS, SHAPE)
    made = params["op_index"] != 0
    depth = made.sum(2)
    # nothing is made beyond a chain's end
    assert torch.equal(made, torch.arange(3) < depth[:, :, None])
    assert excess(cells(*(depth - 1).unbind(1)), N / 9) < 4
    names = transform._AUGMENTATION_SPACE if all_ops else transform._PARTIAL_AUGMENTATION_SPACE
    ops, sizes = params["op_index"][made], params["magnitude"][made]
    values, counts = ops.unique(return_counts=True)
    assert [OPERATIONS[op] for op in values] == [n for n in OPERATIONS if n in names]
    assert excess(counts.double(), len(ops) / len(names)) < 4
    of_rotation = sizes[ops == NUMBER_OF["Rotate"]]
    values, counts = of_rotation.abs().unique(return_counts=True)
    assert values.tolist() == pytest.approx([0, 30 / 9, 60 / 9, 10])
    assert excess(counts.double(), len(of_rotation) / 4) < 4


def test_augmix_draws_weights() -> None:
    """With alpha 1, the image's weight is uniform, and one of three chains has Beta(1, 2)."""
    params = native_of(v2.AugMix()).draw(KEYS, SHAPE)
    for name, n in (("m", 2), ("weights", 3)):
        assert params[name].shape == (N, n)
        torch.testing.assert_close(params[name].sum(1), torch.ones(N, dtype=torch.float64))
    assert distance(params["m"][:, 0], lambda x: x) < 2
    for i in range(3):
        assert distance(params["weights"][:, i], lambda x: 1 - (1 - x) ** 2) < 2
    assert abs(float(np.corrcoef(params["m"][:, 0], params["weights"][:, 0])[0, 1])) < 0.03


def test_augmix_of_a_given_depth_and_concentrated_weights() -> None:
    """chain_depth is the length of every chain; a large alpha gives all nearly equal weights."""
    params = native_of(v2.AugMix(chain_depth=5, alpha=500.0)).draw(KEYS[:500], SHAPE)
    assert params["op_index"].shape == params["magnitude"].shape == (500, 3, 5)
    assert (params["op_index"] != 0).all()
    assert (params["m"] - 1 / 2).abs().max() < 0.1
    assert (params["weights"] - 1 / 3).abs().max() < 0.1


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (
            v2.RandAugment(num_magnitude_bins=1, magnitude=0),
            "has num_magnitude_bins=1, and a magnitude is a place between two bins",
        ),
        (
            v1.RandAugment(magnitude=31),
            "has magnitude=31; expected a whole number from -31 to 30",
        ),
        (
            v2.AugMix(mixture_width=0),
            "has mixture_width=0; expected a whole number, 1 or more",
        ),
        (
            v2.TrivialAugmentWide(interpolation="bicubic"),
            "has interpolation='bicubic'; expected one that torchvision has for tensors: nearest, "
            "bilinear",
        ),
    ],
    ids=["bins", "magnitude", "chains", "interpolation"],
)
def test_settings_without_a_native_form(transform: Any, reason: str) -> None:
    """What torchvision itself cannot do to a tensor is refused when the step is made."""
    with pytest.raises(NoNativeFormError) as caught:
        native_of(transform)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("images", "fill", "message"),
    [
        (
            torch.zeros(3, 8, 8),
            None,
            "images must be a batch [N, C, H, W], got a torch.float32 tensor of shape (3, 8, 8). "
            "Give a single image a batch dimension with images[None].",
        ),
        (
            torch.zeros(1, 4, 8, 8),
            None,
            "images must have 1 or 3 channels, got a torch.float32 tensor of shape (1, 4, 8, 8). "
            "Convert them to RGB or to grayscale first.",
        ),
        (
            torch.zeros(1, 3, 8, 8),
            [1, 2],
            "fill has 2 numbers, (1.0, 2.0), and images have 3 channels; expected None, one "
            "number, or one for each channel.",
        ),
    ],
    ids=["3 dimensions", "4 channels", "fill"],
)
@pytest.mark.parametrize("policy", [v2.RandAugment, v2.AugMix])
def test_images_that_do_not_fit(policy: Any, images: Tensor, fill: Any, message: str) -> None:
    """A wrong batch or fill is refused whatever was drawn: here, nothing that would meet it."""
    native = native_of(policy(fill=fill))
    params = native.draw(KEYS[: len(images)], SHAPE)
    params["op_index"] = torch.zeros_like(params["op_index"])
    with pytest.raises(ArgumentError) as caught:
        native.apply(images, params)
    assert str(caught.value) == message
