"""Orders of an epoch by weights: of samples, of classes, balanced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from numbered_images import epoch_of, numbered_images, numbers
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.order import Weighted


@pytest.fixture(scope="module")
def numbered() -> gp.GPUPreloadDataset:
    """A hundred images that are their own numbers, in classes of 60, 30 and 10."""
    return numbered_images()


@pytest.fixture(scope="module")
def drawn(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve photos with a random crop."""
    transform = v2.Compose([v2.Resize((20, 20)), v2.RandomCrop(8), v2.ToImage()])
    return gp.preload(photo_folder, transform, device="cpu", seed=1, progress=False)


def test_weights_draw_in_proportion(numbered: gp.GPUPreloadDataset) -> None:
    """Over many epochs each sample comes as often as its weight says; of weight 0, never.

    Counts are binomial: 5 deviations are exceeded once in 1.7 million.
    """
    weights = [0.0] * 50 + [1.0] * 25 + [3.0] * 25
    loader = gp.Loader(numbered, 64, weights=weights)
    found = Counter(i for _ in range(200) for i in numbers(loader))
    assert sum(found.values()) == 200 * 100
    for i in range(100):
        p = weights[i] / 100
        assert abs(found[i] - 20_000 * p) <= 5 * (20_000 * p * (1 - p)) ** 0.5
    assert len(loader) == 2


def test_balanced_draws_every_class_as_often(numbered: gp.GPUPreloadDataset) -> None:
    """With "balanced" each class comes to a third, whatever its size; also of a subset."""
    for data in (numbered, numbered.subset(slice(20, 95))):
        loader = gp.Loader(data, 64, weights="balanced")
        labels = [label for _ in range(100) for _, batch in loader for label in batch.tolist()]
        n = len(labels)
        assert all(abs(c - n / 3) < 5 * (n * 2 / 9) ** 0.5 for c in Counter(labels).values())


def test_an_epoch_by_weights_is_a_function_of_seed_and_epoch(
    numbered: gp.GPUPreloadDataset,
) -> None:
    """Weighted epochs differ from each other, and are the same in every run and batch size."""
    before = torch.get_rng_state()
    one, two = (gp.Loader(numbered, n, weights=torch.ones(100), seed=4) for n in (7, 50))
    epochs = [numbers(one) for _ in range(2)]
    assert epochs == [numbers(two) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert numbers(gp.Loader(numbered, 7, weights=torch.ones(100), seed=5)) != epochs[0]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sample_that_comes_again_is_drawn_anew(drawn: gp.GPUPreloadDataset) -> None:
    """Each occurrence in an epoch has its own picture, also across batches and blocks."""
    loader = gp.Loader(drawn, 1, weights=[0.0] * 5 + [1.0] + [0.0] * 6)
    images = epoch_of(loader)
    assert len({image.numpy().tobytes() for image in images}) > 8
    assert torch.equal(images, epoch_of(gp.Loader(drawn, 5, weights=[0] * 5 + [1] + [0] * 6)))
    for k in (0, 3, 11):
        assert torch.equal(images[k : k + 1], drawn.replay(0, [5], occurrence=k))


def test_weights_have_no_limit_at_24_bits() -> None:
    """Of more than 2**24 weights, where torch.multinomial gives up, each can be drawn."""
    n = 2**24 + 50
    weights = torch.zeros(n, dtype=torch.float64)
    weights[-40:] = 1
    found = Weighted(lambda: weights, 2000).of(seed=0, epoch=0)
    assert sorted(set(found.tolist())) == list(range(n - 40, n))


def test_weights_that_record_gradients_are_numbers_too(numbered: gp.GPUPreloadDataset) -> None:
    """A parameter's values are drawn by, and keep their gradient out of it."""
    weights = torch.zeros(100).index_fill(0, torch.tensor([7]), 1.0).requires_grad_()
    assert numbers(gp.Loader(numbered, weights=weights)) == [7] * 100


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        ("class", "weights is 'class'; "),
        (3, "weights is 3; "),
        ([1.0] * 99, "weights has the shape (99,); "),
        (torch.ones(100, 1), "weights has the shape (100, 1); "),
        ([-1.0] + [1.0] * 99, "weights run from -1 to 1; "),
        ([0.0] * 100, "weights run from 0 to 0; "),
        ([float("nan")] * 100, "weights run from nan to nan; "),
        ([float("inf")] * 100, "weights run from inf to inf; "),
        ({"0": -1}, "weights run from -1 to 1; "),
        ({"0": "a"}, "weights is dict, which cannot be read as numbers; "),
        (["a"] * 100, "weights is list, which cannot be read as numbers; "),
    ],
    ids=str,
)
def test_weights_that_cannot_be_used(
    numbered: gp.GPUPreloadDataset, weights: Any, what: str
) -> None:
    """Weights are checked when the loader is made."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(numbered, weights=weights)
    assert str(raised.value) == (
        f"{what}expected one number for each of the 100 samples, 0 or more, not all of them 0, a "
        "dict of such numbers by class, as {'0': 2}, or 'balanced'."
    )


def test_weights_by_class(drawn: gp.GPUPreloadDataset) -> None:
    """A dict gives each sample the weight of its class, and 1 where the class is not named."""
    for data in (drawn, drawn.subset([9, 3, 5])):
        by_class = gp.Loader(data, weights={"owl": 2.5, "cat": 0})
        each = [{0: 0, 1: 1, 2: 2.5}[label] for label in data.targets]
        for one, two in zip(by_class, gp.Loader(data, weights=each), strict=True):
            assert torch.equal(one[0], two[0])
            assert torch.equal(one[1], two[1])


@pytest.mark.parametrize(("name", "such"), [("owls", "'owl'"), (1, "'cat', 'dog', 'owl'")])
def test_weights_of_a_class_that_is_not_there(
    drawn: gp.GPUPreloadDataset, name: Any, such: str
) -> None:
    """A misspelt class would keep its weight of 1 unseen; it is refused with the nearest."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(drawn, weights={name: 2.0})
    assert str(raised.value) == (
        f"weights names the class {name!r}; expected names from dataset.classes, such as {such}. "
        "A class that is not named has the weight 1."
    )


def test_a_number_of_draws(numbered: gp.GPUPreloadDataset) -> None:
    """num_samples says how many draws an epoch has, fewer or more than there are samples."""
    for n in (3, 250):
        loader = gp.Loader(numbered, 100, weights="balanced", num_samples=n)
        assert len(numbers(loader)) == n
        assert len(loader) == -(-n // 100)
    longer = numbers(gp.Loader(numbered, weights="balanced", num_samples=250))
    assert longer[:100] == numbers(gp.Loader(numbered, weights="balanced"))


def test_a_number_of_draws_is_part_of_the_order(numbered: gp.GPUPreloadDataset) -> None:
    """An epoch cannot be gone on with where it has another number of draws."""
    loader = gp.Loader(numbered, 10, weights="balanced", num_samples=50)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(gp.ArgumentError, match="Resume with the same shuffle, weights or sampler"):
        gp.Loader(numbered, 10, weights="balanced", num_samples=60).load_state_dict(state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"weights": "balanced", "num_samples": 0},
            "num_samples is 0; expected how many samples an epoch draws by weights, 1 or more, or "
            "None for as many as there are.",
        ),
        (
            {"shuffle": True, "num_samples": 40},
            "num_samples is 40, but only draws by weights have a number of their own. Pass "
            "weights= too, or sampler=torch.utils.data.RandomSampler(dataset, num_samples=40).",
        ),
        (
            {"weights": "balanced", "shuffle": True},
            "weights and shuffle=True were both given, and each says in which order samples are "
            "served. Pass one of them. (Draws by weights come in random order.)",
        ),
    ],
    ids=["none", "shuffle", "both"],
)
def test_numbers_of_draws_that_cannot_be(
    numbered: gp.GPUPreloadDataset, settings: dict[str, Any], message: str
) -> None:
    """What an epoch draws is said by weights alone."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(numbered, **settings)
    assert str(raised.value) == message


def test_a_shard_has_its_own_number_of_draws() -> None:
    """With shard= an epoch is what each process holds, and num_samples is refused."""
    data = [(torch.zeros(1, 1, 1, dtype=torch.uint8), 0) for _ in range(6)]
    ours = gp.preload(data, device="cpu", progress=False, seed=0, shard=(0, 2))
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(ours, weights="balanced", num_samples=4)
    assert str(raised.value) == (
        "num_samples is 4, but the dataset was loaded with shard=, where an epoch has as many "
        "samples as each process holds. Leave num_samples= out."
    )
