"""Orders of an epoch: samplers, and the numbers of the samples they serve."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from numbered_images import LABELS, epoch_of, numbered_images, numbers
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.rows import occurrences


@pytest.fixture(scope="module")
def numbered() -> gp.GPUPreloadDataset:
    """A hundred images that are their own numbers, in classes of 60, 30 and 10."""
    return numbered_images()


@pytest.fixture(scope="module")
def drawn(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve photos with a random crop."""
    transform = v2.Compose([v2.Resize((20, 20)), v2.RandomCrop(8), v2.ToImage()])
    return gp.preload(photo_folder, transform, device="cpu", seed=1, progress=False)


# --- samplers


SAMPLERS = {
    "sequential": SequentialSampler(range(100)),
    "random": RandomSampler(range(100), generator=torch.Generator().manual_seed(3)),
    "subset": SubsetRandomSampler([5, 3, 8], generator=torch.Generator().manual_seed(3)),
    "weighted": WeightedRandomSampler([1.0] * 100, 250, generator=torch.Generator().manual_seed(3)),
    "a list": [3, -1, 3],
    "tensors": list(torch.tensor([7, 9])),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_any_sampler_says_the_order(numbered: gp.GPUPreloadDataset, sampler: Any) -> None:
    """A Loader serves what the sampler gives, in its order, in batches of the size asked for."""
    generator = getattr(sampler, "generator", None)
    if generator is not None:
        generator.manual_seed(3)
    expected = [int(i) % 100 for i in sampler]
    if generator is not None:
        generator.manual_seed(3)
    loader = gp.Loader(numbered, 4, sampler=sampler)
    assert numbers(loader) == expected
    assert len(loader) == -(-len(expected) // 4)
    assert [len(images) for images, _ in loader][:-1] == [4] * (len(loader) - 1)


def test_drop_last_holds_for_samplers(numbered: gp.GPUPreloadDataset) -> None:
    """drop_last leaves out what of a sampler makes no whole batch."""
    assert numbers(gp.Loader(numbered, 4, sampler=range(9), drop_last=True)) == list(range(8))
    assert list(gp.Loader(numbered, 4, sampler=[])) == []


def test_a_sampler_with_set_epoch_is_told_the_epoch(numbered: gp.GPUPreloadDataset) -> None:
    """A DistributedSampler shuffles anew in each epoch, though nobody calls its set_epoch."""
    sampler = DistributedSampler(range(100), num_replicas=2, rank=1, seed=4)
    loader = gp.Loader(numbered, 16, sampler=sampler)
    found = [numbers(loader) for _ in range(2)]
    for epoch, listed in enumerate(found):
        sampler.set_epoch(epoch)
        assert listed == list(sampler)
    assert found[0] != found[1]


def test_repeats_of_a_sampler_are_drawn_anew(drawn: gp.GPUPreloadDataset) -> None:
    """A sampler with replacement gives a sample another picture each time."""
    images = epoch_of(gp.Loader(drawn, 2, sampler=[5] * 9))
    assert len({image.numpy().tobytes() for image in images}) > 6
    assert torch.equal(images[8:], drawn.replay(0, [5], occurrence=8))


def without_end() -> Any:
    """Give numbers once."""
    yield 0


WRONG = {
    "a generator": (without_end(), "generator"),
    "batches": (
        BatchSampler(range(9), 3, drop_last=False),
        "torch.utils.data.sampler.BatchSampler",
    ),
    "a number": (3, "int"),
}


@pytest.mark.parametrize(("sampler", "what"), WRONG.values(), ids=WRONG)
def test_samplers_that_cannot_be_used(
    numbered: gp.GPUPreloadDataset, sampler: Any, what: str
) -> None:
    """What gives batches, or can be gone through once, is no sampler."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(numbered, sampler=sampler)
    assert str(raised.value) == (
        f"sampler is {what}; expected a torch.utils.data.Sampler of sample numbers, or another "
        "iterable of ints that each epoch can go through anew, such as a list. Leave making "
        "batches to the Loader's batch_size."
    )


def test_a_sampler_that_gives_no_numbers(numbered: gp.GPUPreloadDataset) -> None:
    """What a sampler gives must be numbers of samples that are there."""
    with pytest.raises(gp.ArgumentError) as raised:
        next(iter(gp.Loader(numbered, sampler=[[0, 1]])))
    assert str(raised.value) == (
        "sampler gave list; expected an int, the number of a sample. Leave making batches to the "
        "Loader's batch_size."
    )
    with pytest.raises(IndexError, match=r"index 100 is out of range for 100 images\."):
        next(iter(gp.Loader(numbered, sampler=[100])))


@pytest.mark.parametrize(
    ("other", "named"), [({"shuffle": True}, "shuffle=True"), ({"weights": [1] * 100}, "weights")]
)
def test_one_order_at_a_time(
    numbered: gp.GPUPreloadDataset, other: dict[str, Any], named: str
) -> None:
    """A sampler excludes shuffle and weights."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(numbered, sampler=[0], **other)
    assert str(raised.value) == (
        f"sampler and {named} were both given, and each says in which order samples are served. "
        "Pass one of them."
    )


# --- indices


@pytest.mark.parametrize(
    "settings",
    [{}, {"shuffle": True}, {"weights": "balanced"}, {"sampler": [4, 4, 99]}],
    ids=["in order", "shuffled", "weights", "sampler"],
)
def test_indices_come_with_the_batch(
    numbered: gp.GPUPreloadDataset, settings: dict[str, Any]
) -> None:
    """with_indices adds which samples these are; writing to them changes nothing."""
    for images, labels, indices in gp.Loader(numbered, 7, with_indices=True, **settings):
        assert indices.dtype == torch.int64
        assert torch.equal(images.flatten().long(), indices)
        assert labels.tolist() == [LABELS[i] for i in indices]
        indices.zero_()


def test_indices_are_the_loaders_datasets(numbered: gp.GPUPreloadDataset) -> None:
    """Of a subset, indices count in the subset, so that loader.dataset takes them."""
    loader = gp.Loader(numbered.subset([70, 20, 90]), 2, shuffle=True, with_indices=True)
    for images, _, indices in loader:
        assert torch.equal(loader.dataset.images[indices], images)


def test_indices_come_with_mixed_batches(drawn: gp.GPUPreloadDataset) -> None:
    """Mixing leaves the indices as they are, and soft labels keep their place."""
    floats = drawn.with_transform(None)
    floats.transform = v2.Compose([v2.Resize((20, 20)), v2.ToImage(), v2.ToDtype(torch.float32)])
    loader = gp.Loader(floats, 5, mix=v2.CutMix(num_classes=3), with_indices=True)
    found = list(loader)
    assert [tuple(labels.shape) for _, labels, _ in found] == [(5, 3), (5, 3), (2, 3)]
    assert torch.cat([indices for _, _, indices in found]).tolist() == list(range(12))


@pytest.mark.parametrize("n", [0, 1, 5, 999, 1000, 5000])
def test_occurrences_of_many(n: int) -> None:
    """However many samples there are, each occurrence is counted as by hand."""
    generator = torch.Generator().manual_seed(n)
    indices = torch.randint(0, max(1, n // 3), (n,), generator=generator)
    seen: Counter[int] = Counter()
    expected = []
    for index in indices.tolist():
        expected.append(seen[index])
        seen[index] += 1
    found = occurrences(indices)
    assert (found.tolist() if isinstance(found, Tensor) else [found] * n) == expected
