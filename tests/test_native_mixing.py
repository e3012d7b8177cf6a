"""MixUp and CutMix: torchvision's results, with a weight of its own for every row."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.errors import ArgumentError, TransformError
from gpupreload.native.mixing import Mixing, is_mixing, mixing_of, partners
from gpupreload.native.step import rows_of

SHAPE = (3, 13, 18)
CLASSES = 5
N = 20_000
KEYS = draws.keys(8, 4, torch.arange(N))
MIXUP, CUTMIX = v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)
TRANSFORMS = [MIXUP, CUTMIX, v2.RandomChoice([CUTMIX, MIXUP]), v1.RandomChoice([MIXUP, CUTMIX])]


def label(transform: Any) -> str:
    """A transform's name for pytest."""
    return f"{type(transform).__module__.split('.')[2]}.{type(transform).__name__}"


def batch(n: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Images of noise and their labels."""
    generator = torch.Generator().manual_seed(n)
    images = torch.randint(0, 256, (n, *SHAPE), generator=generator).to(torch.uint8)
    labels = torch.randint(0, CLASSES, (n,), generator=generator)
    return (images if dtype == torch.uint8 else images.to(dtype) / 255), labels


def probabilities(labels: Tensor) -> Tensor:
    """Soft labels."""
    return torch.nn.functional.one_hot(labels, CLASSES) * 0.9 + 0.02


class ReplayedMixUp(v2.MixUp):
    """torchvision's MixUp with a given λ."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Return the parameters that were given."""
        return self.drawn


class ReplayedCutMix(v2.CutMix):
    """torchvision's CutMix with a given box."""

    make_params = ReplayedMixUp.make_params


def expected_row(
    transform: Any, images: Tensor, labels: Tensor, params: dict[str, Tensor], i: int
) -> tuple[Tensor, Tensor]:
    """Row i of torchvision's result for the whole batch, mixed by the parameters of row i."""
    if "choice" in params:
        number = int(params["choice"][i])
        transform = transform.transforms[number]
        prefix = f"{number}."
        params = {k[2:]: v for k, v in params.items() if k.startswith(prefix)}
    replayed = (ReplayedMixUp if isinstance(transform, v2.MixUp) else ReplayedCutMix)(
        num_classes=transform.num_classes
    )
    replayed.drawn = {name: values[i].tolist() for name, values in params.items()}
    mixed, soft = replayed(images, labels)
    return mixed[i], soft[i]


@pytest.mark.parametrize("soft", [False, True], ids=["numbers", "probabilities"])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_each_row_is_torchvisions(transform: Any, soft: bool) -> None:
    """Row i, its label too, is torchvision's for the batch and the parameters of row i."""
    images, labels = batch(24)
    labels = probabilities(labels) if soft else labels
    mixing = mixing_of(transform)
    params = mixing.draw(KEYS[:24], SHAPE)
    mixed, targets = mixing.apply(images, labels, params)
    assert mixed.dtype == targets.dtype == torch.float32
    assert targets.shape == (24, CLASSES)
    for i in range(24):
        image, target = expected_row(transform, images, labels, params, i)
        assert torch.equal(mixed[i], image)
        assert torch.equal(targets[i], target)


def test_cutmix_takes_uint8() -> None:
    """CutMix moves pixels and changes none, so that whole levels stay whole levels."""
    images, labels = batch(24, torch.uint8)
    mixing = mixing_of(CUTMIX)
    params = mixing.draw(KEYS[:24], SHAPE)
    mixed, _ = mixing.apply(images, labels, params)
    for i in range(24):
        assert torch.equal(mixed[i], expected_row(CUTMIX, images, labels, params, i)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_soft_labels_have_torchvisions_dtype(dtype: torch.dtype) -> None:
    """Probabilities keep their float dtype; whole numbers [N, num_classes] become float32."""
    images, labels = batch(6)
    given = torch.nn.functional.one_hot(labels, CLASSES).to(dtype)
    found = mixing_of(MIXUP).apply(images, given, {"lam": torch.full((6,), 0.25).double()})[1]
    replayed = ReplayedMixUp(num_classes=CLASSES)
    replayed.drawn = {"lam": 0.25}
    expected = replayed(images, given)[1]
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_probabilities_need_no_num_classes() -> None:
    """Without num_classes, labels [N, K] say K themselves, as in torchvision."""
    images, labels = batch(6)
    mixing = mixing_of(v2.MixUp())
    params = mixing.draw(KEYS[:6], SHAPE)
    with_number = mixing_of(MIXUP).apply(images, probabilities(labels), params)
    without = mixing.apply(images, probabilities(labels), params)
    assert all(torch.equal(a, b) for a, b in zip(with_number, without, strict=True))


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_no_image_and_one_image_are_batches_too(transform: Any, n: int) -> None:
    """None gives none; a single image is its own partner."""
    images, labels = batch(n)
    mixing = mixing_of(transform)
    mixed, targets = mixing.apply(images, labels, mixing.draw(KEYS[:n], SHAPE))
    torch.testing.assert_close(mixed, images)
    torch.testing.assert_close(targets, torch.nn.functional.one_hot(labels, CLASSES).float())


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_each_sample_has_its_own_draw(transform: Any) -> None:
    """64 rows get at least 20 weights; some of the rows get the same ones without the others."""
    mixing, rows = mixing_of(transform), torch.tensor([60, 2, 33])
    params = mixing.draw(KEYS[:64], SHAPE)
    assert len(mixing.lam(params).unique()) >= 20
    some = mixing.draw(KEYS[rows], SHAPE)
    assert all(torch.equal(some[name], values) for name, values in rows_of(params, rows).items())


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_inputs_and_global_generators_are_left_alone(transform: Any) -> None:
    """No input is written to or returned, and no global generator moves."""
    (images, labels), mixing = batch(20), mixing_of(transform)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]
    params = mixing.draw(KEYS[:20], SHAPE)
    mixed, _ = mixing.apply(images, labels, params)
    assert all(torch.equal(a, b) for a, b in zip((images, labels), batch(20), strict=True))
    assert mixed.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[2]) == states[1:]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_layout_is_kept(transform: Any) -> None:
    """A channels_last batch stays one, with the same values."""
    (images, labels), mixing = batch(20), mixing_of(transform)
    params = mixing.draw(KEYS[:20], SHAPE)
    last = images.to(memory_format=torch.channels_last)
    found = mixing.apply(last, labels, params)[0]
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, mixing.apply(images, labels, params)[0])


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_nothing_waits_for_the_device(transform: Any) -> None:
    """No value is read back from the device: mixing runs on images that have none."""
    (images, labels), mixing = batch(20), mixing_of(transform)
    params = mixing.draw(KEYS[:20], SHAPE)
    mixed, targets = mixing.apply(images.to("meta"), labels.to("meta"), params)
    assert (mixed.shape, targets.shape) == (images.shape, (20, CLASSES))


@pytest.mark.needs_cuda
@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_an_accelerator_gives_what_the_cpu_gives(transform: Any) -> None:
    """Images and labels on a GPU are mixed as on the CPU, without waiting for it."""
    (images, labels), mixing = batch(20), mixing_of(transform)
    params = mixing.draw(KEYS[:20], SHAPE)
    on_device = images.cuda(), labels.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = mixing.apply(*on_device, params)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for ours, expected in zip(found, mixing.apply(images, labels, params), strict=True):
        torch.testing.assert_close(ours.cpu(), expected)


def distance(a: Tensor, b: Tensor) -> float:
    """Kolmogorov and Smirnov's distance of two samples of N, scaled; above 2.0 with 0.0007."""
    at = torch.cat([a, b]).unique().double()
    ranks = [torch.searchsorted(x.double().sort().values, at, right=True) for x in (a, b)]
    return float((ranks[0] - ranks[1]).abs().max()) / math.sqrt(2 * N)


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_mixup_draws_a_beta_distribution(alpha: float) -> None:
    """λ is distributed as torch's Beta(alpha, alpha)."""
    found = mixing_of(v2.MixUp(alpha=alpha, num_classes=2)).draw(KEYS, SHAPE)["lam"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = torch.distributions.Beta(alpha, alpha).sample((N,))
    # near 1, torch's float32 numbers are all 1
    assert distance(found.float(), expected) < 2


def test_cutmix_draws_torchvisions_boxes() -> None:
    """Corners, sides and the share that is left are distributed as torchvision's."""
    transform = v2.CutMix(alpha=0.7, num_classes=2)
    found = mixing_of(transform).draw(KEYS, SHAPE)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [transform.make_params([torch.empty(1, *SHAPE)]) for _ in range(N)]
    expected = torch.tensor([params["box"] for params in drawn])
    for ours, theirs in zip(found["box"].unbind(1), expected.unbind(1), strict=True):
        assert distance(ours, theirs) < 2
    x, y = (found["box"][:, i + 2] - found["box"][:, i] for i in (0, 1))
    u, v = (expected[:, i + 2] - expected[:, i] for i in (0, 1))
    assert distance(x, u) < 2
    assert distance(y, v) < 2
    left = torch.tensor([params["lam_adjusted"] for params in drawn])
    assert distance(found["lam_adjusted"].float(), left.float()) < 2
    assert torch.equal(found["lam_adjusted"], 1 - (x * y).double() / (13 * 18))


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(("p", "share"), [(None, 0.5), ([1, 3], 0.25)])
def test_choices_have_their_chances(module: Any, p: Any, share: float) -> None:
    """RandomChoice takes its steps with the chances `p`, or all alike."""
    choice = mixing_of(module.RandomChoice([CUTMIX, MIXUP], p=p)).draw(KEYS, SHAPE)["choice"]
    first = float((choice == 0).double().mean())
    assert abs(first - share) < 4 * math.sqrt(share * (1 - share) / N)
    assert choice.max() == 1


def test_partners_are_torchvisions() -> None:
    """Row i is mixed with row i - 1, and the first with the last."""
    replayed = ReplayedMixUp(num_classes=1)
    replayed.drawn = {"lam": 0.0}
    images = torch.arange(7.0).reshape(7, 1, 1, 1)
    mixed, _ = replayed(images, torch.zeros(7, dtype=torch.int64))
    assert mixed.flatten().tolist() == partners(7).tolist()


def test_what_mixes_is_known() -> None:
    """MixUp, CutMix and a RandomChoice with one of them mix; other transforms do not."""
    assert all(is_mixing(transform) for transform in TRANSFORMS)
    assert is_mixing(v2.RandomChoice([v2.RandomChoice([MIXUP]), v2.Identity()]))
    assert not is_mixing(v2.RandomChoice([v2.Identity(), v2.RandomInvert()]))
    assert not is_mixing(v2.Compose([MIXUP]))
    assert isinstance(mixing_of(v2.RandomChoice([v2.RandomChoice([MIXUP]), CUTMIX])), Mixing)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            v2.RandomChoice([MIXUP, v2.Identity()]),
            "Identity() mixes no images and labels; expected v2.MixUp, v2.CutMix, or a "
            "RandomChoice that holds nothing else. Steps on single images belong before the "
            "mixing.",
        ),
        (
            v2.RandomHorizontalFlip(),
            "RandomHorizontalFlip(p=0.5) mixes no images and labels; expected v2.MixUp, "
            "v2.CutMix, or a RandomChoice that holds nothing else. Steps on single images belong "
            "before the mixing.",
        ),
        (
            v2.RandomChoice([MIXUP, v2.CutMix(num_classes=3)]),
            "RandomChoice holds steps of [3, 5] num_classes; expected one number, for the soft "
            "labels of a batch have one length.",
        ),
    ],
    ids=["choice", "flip", "classes"],
)
def test_what_does_not_mix_is_refused(transform: Any, message: str) -> None:
    """Only steps that mix, and agree on the number of classes, can be used."""
    with pytest.raises(TransformError) as caught:
        mixing_of(transform)
    assert str(caught.value) == message


LABELS = torch.tensor([0, 1, 4, 2])
WRONG = [
    (
        MIXUP,
        LABELS + 1,
        "labels run from 1 to 5; expected 0 to 4, for num_classes is 5. Correct the labels or "
        "num_classes.",
    ),
    (
        MIXUP,
        LABELS.float(),
        "labels is a torch.float32 tensor of shape (4,); expected the numbers of classes as "
        "int64, or probabilities [N, num_classes]. Convert them with labels.long().",
    ),
    (
        v2.CutMix(),
        LABELS,
        "num_classes is None and labels are numbers of classes; expected "
        "num_classes=<number of classes> in the transform, or labels as probabilities "
        "[N, num_classes].",
    ),
    (
        CUTMIX,
        LABELS[:3],
        "labels is a torch.int64 tensor of shape (3,) for 4 images; expected a tensor with one "
        "label for each.",
    ),
    (
        CUTMIX,
        torch.zeros(4, 6),
        "labels is a torch.float32 tensor of shape (4, 6) and num_classes is 5; expected labels "
        "[N] with num_classes, or probabilities [N, num_classes].",
    ),
]


@pytest.mark.parametrize(("transform", "labels", "message"), WRONG)
def test_wrong_labels_are_refused(transform: Any, labels: Tensor, message: str) -> None:
    """Labels that are no classes, or do not go with the batch, are named and refused."""
    mixing = mixing_of(transform)
    with pytest.raises(ArgumentError) as caught:
        mixing.apply(batch(4)[0], labels, mixing.draw(KEYS[:4], SHAPE))
    assert str(caught.value) == message


@pytest.mark.parametrize("transform", [MIXUP, *TRANSFORMS[2:]], ids=label)
def test_mixup_refuses_uint8(transform: Any) -> None:
    """A mean of whole levels is none: floats are asked for, whatever a choice has drawn."""
    mixing = mixing_of(transform)
    params = mixing.draw(KEYS[:4], SHAPE)
    if "choice" in params:
        params["choice"][:] = transform.transforms.index(CUTMIX)
    with pytest.raises(ArgumentError) as caught:
        mixing.apply(batch(4, torch.uint8)[0], LABELS, params)
    assert str(caught.value) == (
        "images must be floats to be mixed, got a torch.uint8 tensor of shape (4, 3, 13, 18). "
        "Convert them before, with v2.ToDtype(torch.float32, scale=True)."
    )
