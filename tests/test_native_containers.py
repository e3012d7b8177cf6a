"""RandomApply, RandomChoice and RandomOrder on batches, whatever they hold."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from native_examples import JITTER, keys, native
from scipy.stats import binomtest, chisquare
from torch import Tensor, nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.errors import TransformError
from gpupreload.native.containers import RandomOrder
from gpupreload.native.step import Native, Params, rows_of, without_prefix

N = 20_000
SHAPE = (3, 9, 8)
# with a fixed seed, a value this unlikely is a fault and no accident
UNLIKELY = 1e-4


def noise(n: int, size: tuple[int, int] = (9, 8), dtype: torch.dtype = torch.uint8) -> Tensor:
    """Images of noise with 3 channels, n of them."""
    images = torch.randint(0, 256, (n, 3, *size), generator=torch.Generator().manual_seed(0))
    return images.to(torch.uint8) if dtype == torch.uint8 else images.to(dtype) / 255


def run(step: Native, images: Tensor) -> tuple[Params, Tensor]:
    """The parameters of all images, and what comes of them."""
    params = step.draw(keys(len(images)), (3, *images.shape[2:]))
    return params, step.apply(images, params)


def held(step: Native, images: Tensor, params: Params, i: int, number: int) -> Tensor:
    """Image i through step `number` of a container, with the parameters drawn for it there."""
    row = rows_of(without_prefix(str(number), params), torch.tensor([i]))
    return step.apply(images, row)


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("p", [0.3, 0.8])
def test_random_apply_changes_a_share_of_the_samples(module: Any, p: float) -> None:
    """The share of changed samples is p, by binomial test."""
    step = native(module.RandomApply([module.RandomInvert(p=1.0)], p=p))
    params, found = run(step, torch.zeros((N, 3, 1, 1), dtype=torch.uint8))
    changed = int((found.flatten(1)[:, 0] == 255).sum())
    assert binomtest(changed, N, p).pvalue > UNLIKELY
    assert torch.equal(params["applied"], found[:, 0, 0, 0] == 255)


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("p", [None, [1, 2, 5], [0.0, 0.25, 0.75]])
def test_random_choice_takes_each_step_by_its_weight(module: Any, p: list[float] | None) -> None:
    """The steps' shares are the weights', by chi-square test; a weight of 0 is never drawn."""
    steps = [module.RandomInvert(p=1.0), module.RandomPosterize(1, p=1.0), module.Pad(0)]
    params, found = run(native(module.RandomChoice(steps, p)), torch.full((N, 3, 1, 1), 200).byte())
    counts = Counter(found[:, 0, 0, 0].tolist())
    weights = np.array(p or [1, 1, 1]) / sum(p or [1, 1, 1])
    drawn = np.array([counts[55], counts[128], counts[200]])
    assert drawn.sum() == N
    assert (drawn[weights == 0] == 0).all()
    assert chisquare(drawn[weights > 0], weights[weights > 0] * N).pvalue > UNLIKELY
    assert params["choice"].bincount(minlength=3).tolist() == drawn.tolist()


@pytest.mark.parametrize("module", [v1, v2])
def test_random_order_is_a_uniform_permutation(module: Any) -> None:
    """Each of the six orders of three steps has the same share, by chi-square test."""
    names = ["RandomInvert", "RandomPosterize", "RandomSolarize"]
    made = [functools.partial(getattr(module, name), p=1.0) for name in names]
    steps = [made[0](), made[1](1), made[2](100)]
    params, found = run(native(module.RandomOrder(steps)), torch.full((N, 3, 1, 1), 90).byte())
    orders = Counter(map(tuple, params["order"].tolist()))
    assert len(orders) == 6
    assert chisquare(list(orders.values())).pvalue > UNLIKELY
    for order in orders:
        value = torch.full((3, 1, 1), 90).byte()
        for number in order:
            value = steps[number](value)
        same = (params["order"] == torch.tensor(order)).all(1)
        assert (found[same] == value).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_each_row_goes_its_own_way(dtype: torch.dtype, layout: torch.memory_format) -> None:
    """A row of a container is what its steps make of that image alone, in the row's own order."""
    parts = [v2.RandomRotation(40), v2.RandomApply([v2.RandomErasing(1, value="random")], 0.5)]
    parts.append(v2.RandomChannelPermutation())
    images = noise(40, dtype=dtype).contiguous(memory_format=layout)
    order, choice = RandomOrder(tuple(map(native, parts))), native(v2.RandomChoice(parts))
    assert native(v2.RandomOrder(parts)) == order
    (ordered, in_order), (chosen, one) = run(order, images), run(choice, images)
    for i in range(40):
        image = images[i : i + 1]
        number = int(chosen["choice"][i])
        assert torch.equal(one[i], held(order.steps[number], image, chosen, i, number)[0])
        for number in ordered["order"][i].tolist():
            image = held(order.steps[number], image, ordered, i, number)
        assert torch.equal(in_order[i], image[0])
    for found in (in_order, one):
        assert found.is_contiguous(memory_format=layout)
        assert found.dtype == dtype


CONTAINERS = [
    v2.RandomApply([v2.ColorJitter(**JITTER), v2.RandomHorizontalFlip()], p=0.7),
    v1.RandomApply(nn.ModuleList([v1.RandomAffine(20)]), p=0.5),
    v2.RandomApply([v2.Identity(), v2.Resize((9, 8))], p=1.0),
    v2.RandomApply([v2.RandomInvert(p=1.0)], p=0.0),
    v1.RandomApply([], p=1.0),
    v1.RandomChoice([v1.RandomCrop(7), v1.RandomResizedCrop(7), v1.CenterCrop(7)]),
    v2.RandomChoice([v2.RandomRotation(30), v2.Compose([v2.Pad(2), v2.RandomCrop((9, 8))])]),
    v2.RandomOrder([v2.RandomErasing(1, value="random"), v2.GaussianBlur(3), v2.Identity()]),
    v2.RandomApply([v2.RandomApply([v2.RandomApply([v2.RandomInvert()])]), v2.GaussianNoise()]),
    v2.RandomApply([nn.Sequential(v2.RandomInvert(), v2.RandomVerticalFlip())]),
    v2.RandomChoice([v2.RandAugment(), v2.AugMix(), v2.TrivialAugmentWide()]),
]


@pytest.mark.parametrize("transform", CONTAINERS, ids=lambda t: str(t).replace("\n", " "))
def test_containers_keep_the_rules_of_steps(transform: Any) -> None:
    """Draws are the sample's own; the input is left alone; batches have any size."""
    step, images = native(transform), noise(30)
    given = images.clone()
    params, together = run(step, images)
    assert torch.equal(images, given)
    assert together.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()
    assert together.shape == (30, *step.output_shape((3, 9, 8)))
    rows = torch.tensor([17, 3])
    some = step.draw(keys(30)[rows], SHAPE)
    assert all(torch.equal(some[name], params[name][rows]) for name in params)
    for n in (2, 1, 0):
        found = step.apply(images[rows[:n]], rows_of(params, rows[:n]))
        assert torch.equal(found, together[rows[:n]])
    full = step.in_full(params, SHAPE)
    assert not [name for name in full if name.endswith("noise_key")]
    assert all(len(values) == 30 for values in full.values())


def test_steps_inside_draw_independently() -> None:
    """Two equal steps in one container have draws of their own, and so have its other draws."""
    inner = v2.RandomApply([v2.RandomRotation(10), v2.RandomRotation(10)])
    params = native(v2.RandomOrder([inner, inner])).draw(keys(N), SHAPE)
    assert list(params) == [
        "order",
        *("0.applied", "0.0.angle", "0.1.angle", "1.applied", "1.0.angle", "1.1.angle"),
    ]
    values = torch.stack([*(v.double() for v in params.values() if v.ndim == 1)])
    values = torch.cat([values, params["order"][:, :1].T.double()])
    off_diagonal = values.corrcoef() - torch.eye(len(values))
    assert off_diagonal.abs().max() < 0.03  # 1 / sqrt(N) is 0.007


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (v2.RandomApply([v2.Resize(5)]), "RandomApply gives some images the shape (3, 5, 5)"),
        (v2.RandomApply([v2.Grayscale()]), "RandomApply gives some images the shape (1, 9, 8)"),
        (v2.RandomChoice([v2.Pad(1), v2.RandomCrop(9)]), "RandomChoice gives some images the"),
    ],
)
def test_one_shape_must_come_out(transform: Any, message: str) -> None:
    """A container that gives different shapes says so before anything is drawn."""
    step = native(transform)
    with pytest.raises(TransformError) as error:
        step.draw(keys(3), (3, 9, 8))
    assert str(error.value).startswith(message)
    assert str(error.value).endswith(
        "; the images of a batch need one. Put a step at the end of each way that gives it, such "
        "as v2.CenterCrop(112)."
    )


def test_a_chain_can_be_compiled_without_a_break() -> None:
    """Drawing and applying are one graph, containers included, with the uncompiled result."""
    steps = [v2.RandomCrop((9, 8), padding=2), v2.RandomApply([v2.RandomErasing(1)], 0.8)]
    steps.append(v2.RandomChoice([v2.RandomResizedCrop((9, 8)), v2.GaussianNoise()]))
    transform = v2.Compose([*steps, v2.RandomOrder([v2.RandomInvert(), v2.RandomSolarize(99)])])
    step = native(transform)

    def forward(images: Tensor, seed: int) -> Tensor:
        params = step.draw(draws.keys(seed, 0, torch.arange(12)), (3, 9, 8))
        return step.apply(images, params)

    compiled = torch.compile(forward, fullgraph=True, backend="eager")
    apart = (compiled(noise(12), 3).int() - forward(noise(12), 3).int()).abs()
    assert apart.max() <= 1
