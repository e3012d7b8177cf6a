"""A plain torch DataLoader over a preloaded dataset."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)
from torchvision.datasets import ImageFolder
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.fetched import Batch, Fetched, Item

STEPS = [v1.Resize((16, 16)), v1.ToTensor()]
RANDOM = [v2.Resize((16, 16)), v2.RandomResizedCrop(8), v1.ToTensor()]


def preload(root: Path, *steps: Any, seed: int = 0) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    return gp.preload(root, v1.Compose(list(steps)), device="cpu", progress=False, seed=seed)


@pytest.fixture
def plain(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Photos without a random step."""
    return preload(photo_folder, *STEPS)


@pytest.fixture
def drawn(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Photos with random steps."""
    return preload(photo_folder, *RANDOM)


@pytest.fixture(scope="module")
def expected(photo_folder: Path) -> Tensor:
    """The images as ImageFolder gives them."""
    folder = ImageFolder(photo_folder, v1.Compose(STEPS))
    return torch.stack([image for image, _ in folder])


def images_of(loader: Iterable[Any]) -> Tensor:
    """All images of one epoch."""
    return torch.cat([images for images, _ in loader])


def labels_of(loader: Iterable[Any]) -> list[int]:
    """All labels of one epoch."""
    return [label for _, labels in loader for label in labels.tolist()]


LABELS = [0] * 4 + [1] * 4 + [2] * 4


def test_a_batch(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """A batch is a list of images [N, C, H, W] and int64 labels [N], as from an ImageFolder."""
    batch = next(iter(DataLoader(plain, batch_size=5)))
    assert isinstance(batch, list)
    images, labels = batch
    assert torch.equal(images, expected[:5])
    assert torch.equal(labels, torch.tensor([0, 0, 0, 0, 1]))


@pytest.mark.parametrize("batch_size", [1, 5, 12, 100])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_sizes(
    plain: gp.GPUPreloadDataset, expected: Tensor, batch_size: int, drop_last: bool
) -> None:
    """Batches are of the size asked for, and in order."""
    loader = DataLoader(plain, batch_size, drop_last=drop_last)
    sizes = [len(images) for images, _ in loader]
    assert len(sizes) == len(loader)
    if sizes:
        assert torch.equal(images_of(loader), expected[: sum(sizes)])
    assert sum(sizes) == (12 - 12 % batch_size if drop_last else 12)


def test_one_fetch_a_batch(plain: gp.GPUPreloadDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is one gather: no item is read or collated by itself."""
    calls: list[int] = []
    fetch = gp.GPUPreloadDataset.__getitems__

    def counted(self: gp.GPUPreloadDataset, indices: list[int]) -> Fetched:
        calls.append(len(indices))
        return fetch(self, indices)

    monkeypatch.setattr(gp.GPUPreloadDataset, "__getitems__", counted)
    monkeypatch.setattr(Fetched, "__iter__", None)
    assert len(images_of(DataLoader(Subset(plain, range(10)), 4, shuffle=True))) == 10
    assert calls == [4, 4, 2]


def test_the_gathered_batch_is_not_copied(plain: gp.GPUPreloadDataset) -> None:
    """The default collate passes the ready batch on as it is."""
    fetched = plain.__getitems__([1, 2])
    images, labels = default_collate(fetched)
    assert images is fetched.images
    assert labels is fetched.labels


def test_shuffle(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """With shuffle, images and labels stay together."""
    loader = DataLoader(plain, 5, shuffle=True, generator=torch.Generator().manual_seed(0))
    images, labels = next(iter(loader))
    for image, label in zip(images, labels, strict=True):
        [number] = [i for i in range(12) if torch.equal(expected[i], image)]
        assert label == LABELS[number]


SAMPLERS = {
    "a list": [3, 1, 11],
    "negative": [-1, -12],
    "repeated": [2, 2, 2, 2, 2, 2],
    "an array": torch.tensor([4, 0]).numpy(),
    "weights": WeightedRandomSampler([0.0] * 4 + [1.0] * 4 + [0.0] * 4, 20),
    "with replacement": RandomSampler(range(12), replacement=True, num_samples=30),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_samplers(plain: gp.GPUPreloadDataset, expected: Tensor, sampler: Any) -> None:
    """Any sampler of indices will do."""
    torch.manual_seed(0)
    indices = list(sampler)
    torch.manual_seed(0)
    images = torch.cat([images for images, _ in DataLoader(plain, 4, sampler=indices)])
    assert torch.equal(images, expected[torch.as_tensor(indices)])
    assert len(images_of(DataLoader(plain, 4, sampler=sampler))) == len(indices)


def test_weighted_sampling_draws_each_copy_anew(drawn: gp.GPUPreloadDataset) -> None:
    """A sample that a weighted sampler takes many times is drawn as often."""
    sampler = WeightedRandomSampler([1.0] + [0.0] * 11, 10)
    images = images_of(DataLoader(drawn, 5, sampler=sampler))
    assert len({image.numpy().tobytes() for image in images}) == 10


def test_a_sample_that_comes_again_in_an_epoch_that_was_set(drawn: gp.GPUPreloadDataset) -> None:
    """Other batches see it as before, whoever read between; one batch, and a Loader, anew."""
    order = [5, 5, 2, 5, 2, 5]
    by_epoch = []
    for epoch in range(2):
        for ours in (drawn, Subset(drawn, range(12))):
            drawn.set_epoch(epoch)
            batches = iter(DataLoader(ours, 2, sampler=order))
            first = next(batches)[0]
            preview = drawn[5][0]
            second, third = (images for images, _ in batches)
            assert torch.equal(first, drawn.replay(epoch, [5, 5], occurrence=torch.tensor([0, 1])))
            assert torch.equal(second, drawn.replay(epoch, [2, 5]))
            assert torch.equal(third, second)
            assert torch.equal(preview, first[0])
        by_epoch.append(first)
    assert not torch.equal(*by_epoch)
    counted = images_of(gp.Loader(drawn, 2, sampler=order))
    occurrence = torch.tensor([0, 1, 0, 2, 1, 3])
    assert torch.equal(counted, drawn.replay(0, order, occurrence=occurrence))


def test_batch_samplers(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """Batches may come from a batch sampler, or from the sampler itself."""
    batches = BatchSampler(range(12), 5, drop_last=False)
    assert torch.equal(images_of(DataLoader(plain, batch_sampler=batches)), expected)
    one_by_one = list(DataLoader(plain, batch_size=None))
    assert torch.equal(torch.stack([image for image, _ in one_by_one]), expected)
    assert [label for _, label in one_by_one] == LABELS


def test_subsets(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """Subset and random_split pass the ready batch through."""
    assert torch.equal(images_of(DataLoader(Subset(plain, [7, 3]), 2)), expected[[7, 3]])
    nested = Subset(Subset(plain, [5, 6, 7]), [2, 0])
    assert torch.equal(images_of(DataLoader(nested, 2)), expected[[7, 5]])
    parts = random_split(plain, [8, 4], torch.Generator().manual_seed(0))
    found = [images_of(DataLoader(part, 3)) for part in parts]
    indices = [i for part in parts for i in part.indices]
    assert torch.equal(torch.cat(found), expected[indices])


def test_concatenated(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """ConcatDataset reads one by one, with the same result."""
    both = ConcatDataset([plain, Subset(plain, [1, 2])])
    loader = DataLoader(both, 5)
    assert torch.equal(images_of(loader), torch.cat([expected, expected[[1, 2]]]))
    assert labels_of(loader) == [*LABELS, 0, 0]
    assert next(iter(loader))[1].dtype == torch.int64


class Wrapped(Dataset[Any]):
    """A dataset of a user's own around another one."""

    def __init__(self, data: Dataset[Any]) -> None:
        self.data = data

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.data[index], index, {"item": self.data[index]}


def test_items_within_items(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """Items that stand in tuples and dicts of a user's own are collated as pairs."""
    (images, labels), numbers, named = next(iter(DataLoader(Wrapped(plain), 4)))
    assert torch.equal(images, expected[:4])
    assert labels.tolist() == [0] * 4
    assert numbers.tolist() == [0, 1, 2, 3]
    assert torch.equal(named["item"][0], expected[:4])


def mixed(batch: Any) -> Any:
    """Collate by default, then change the batch: how MixUp is added to a loader."""
    images, labels = default_collate(batch)
    return images.flip(0), labels


def unzipped(batch: Any) -> Any:
    """Collate by hand, as in the examples."""
    images, labels = zip(*batch, strict=True)
    return torch.stack(images), torch.tensor(labels)


def listed(batch: Any) -> Any:
    """Collate by way of lists."""
    assert all(type(item) is Item and type(item[1]) is int for item in batch)
    return default_collate([(item[0], item[1]) for item in list(batch)])


@pytest.mark.parametrize("collate_fn", [mixed, unzipped, listed])
def test_a_collate_function_of_ones_own(
    plain: gp.GPUPreloadDataset, expected: Tensor, collate_fn: Any
) -> None:
    """A custom collate_fn sees a sequence of pairs (image, label), labels being ints."""
    images, labels = next(iter(DataLoader(plain, 5, collate_fn=collate_fn)))
    assert torch.equal(images, expected[:5].flip(0) if collate_fn is mixed else expected[:5])
    assert labels.tolist() == [0, 0, 0, 0, 1]


def test_other_batches_are_collated_as_ever(plain: gp.GPUPreloadDataset) -> None:
    """The collate of other data is left alone, tuples included."""
    assert next(iter(DataLoader(list(zip(range(3), "abc", strict=True)), 3)))[1] == ("a", "b", "c")
    assert default_collate([(torch.zeros(2), 1)] * 2)[0].shape == (2, 2)


@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
class Negative(gp.GPUPreloadDataset):
    """A dataset that reads in a way of its own."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return -image, label, index


def test_a_subclass_with_a_reading_of_its_own(photo_folder: Path) -> None:
    """A DataLoader reads as the subclass does, also through a Subset; a Loader refuses it."""
    negative = Negative(photo_folder, v1.Compose(STEPS), device="cpu", progress=False)
    expected = torch.stack([negative[i][0] for i in range(12)])
    assert expected.max() <= 0
    for data in (negative, Subset(negative, range(12))):
        images, labels, indices = next(iter(DataLoader(data, 12)))
        assert torch.equal(images, expected)
        assert labels.tolist() == negative.targets
        assert indices.tolist() == list(range(12))
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(negative)
    assert str(raised.value) == (
        "dataset is test_dataloader.Negative, whose class has a __getitem__ of its own, which a "
        "Loader would pass over. Put what it does into the transform, or use "
        "torch.utils.data.DataLoader."
    )


def test_pinned_memory_on_the_cpu(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """A store on the CPU may be pinned; without an accelerator torch warns, and goes on."""
    assert torch.equal(images_of(DataLoader(plain, 5, pin_memory=True)), expected)


def test_pinning_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pinned is a plain list of the two pinned tensors."""
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor + 1)
    pinned = Batch([torch.zeros(2), torch.ones(2)]).pin_memory()
    assert [tensor.tolist() for tensor in pinned] == [[1, 1], [2, 2]]


# --- worker processes


def test_workers_read_a_cpu_store(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """Worker processes serve a CPU store; forked ones see the very memory."""
    batches = list(DataLoader(plain, 5, num_workers=2, multiprocessing_context="fork"))
    assert torch.equal(torch.cat([images for images, _ in batches]), expected)
    assert [label for _, labels in batches for label in labels.tolist()] == LABELS
    assert not plain.images.is_shared()


def test_workers_with_subsets_and_pairs(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """Subset, ConcatDataset and a collate function of one's own work in workers, too."""
    workers: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}
    subset = DataLoader(Subset(plain, [7, 3, 1]), 2, **workers)
    assert torch.equal(images_of(subset), expected[[7, 3, 1]])
    both = DataLoader(ConcatDataset([plain, plain]), 5, collate_fn=unzipped, **workers)
    assert torch.equal(images_of(both), torch.cat([expected, expected]))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_draw_anew(drawn: gp.GPUPreloadDataset, persistent: bool) -> None:
    """Without set_epoch, each worker and each epoch has its own draws."""
    torch.manual_seed(0)  # of the workers' seeds: two of twelve crops are equal in one try of 12
    loader = DataLoader(
        drawn,
        1,
        sampler=[3, 3, 3, 3],
        num_workers=2,
        multiprocessing_context="fork",
        persistent_workers=persistent,
    )
    images = torch.cat([images_of(loader) for _ in range(3)])
    assert len({image.numpy().tobytes() for image in images}) == 12


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_set_epoch_reaches_workers_that_live_on(drawn: gp.GPUPreloadDataset, method: str) -> None:
    """With persistent workers set_epoch holds in each epoch, and workers draw as this process.

    Spawning sends the dataset to the worker, with its store in shared memory.
    """
    loader = DataLoader(
        drawn, 5, num_workers=1, multiprocessing_context=method, persistent_workers=True
    )
    found = []
    for epoch in (0, 1, 0, None):
        drawn.set_epoch(epoch)
        found.append((images_of(loader), drawn.__getitems__(range(12)).images))
    for here, there in found[:3]:
        assert torch.equal(here, there)
    assert torch.equal(found[0][0], found[2][0])
    assert not torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[3][0], found[0][0])
    assert drawn.images.is_shared() is (method == "spawn")


@pytest.mark.parametrize("placement", ["device", "host", "mixed"])
def test_crops_and_flips_made_while_gathering(photo_folder: Path, placement: Any) -> None:
    """Batches of a DataLoader are those that `replay` makes step by step, of a subset too."""
    steps = [v2.Resize((16, 16)), v2.RandomCrop(16, padding=3), v2.RandomHorizontalFlip()]
    whole = gp.preload(
        photo_folder,
        v2.Compose([*steps, v1.ToTensor()]),
        device="cpu",
        progress=False,
        seed=3,
        placement=placement,
    )
    for ours in (whole, whole.subset([7, 3, 3, 11, 0])):
        ours.set_epoch(2)
        order = list(range(len(ours)))[::-1]
        images = images_of(DataLoader(ours, len(ours), sampler=order))
        occurrence = torch.tensor([int(i == 1 and ours is not whole) for i in order])
        assert torch.equal(images, ours.replay(2, order, occurrence=occurrence))
        assert torch.equal(ours[4][0], ours.replay(2, [4])[0])


def test_processes_that_train_side_by_side_have_epochs_of_their_own(
    drawn: gp.GPUPreloadDataset,
) -> None:
    """A process forked from one that loaded the images sets an epoch of its own."""
    drawn.set_epoch(4)
    expected = [drawn.replay(epoch, range(12)) for epoch in range(6)]
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def other_process() -> None:
        torch.set_num_threads(1)
        begun_with = drawn.epoch
        drawn.set_epoch(5)
        answers.put((begun_with, torch.equal(images_of(DataLoader(drawn, 4)), expected[5])))

    child = context.Process(target=other_process)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == (4, True)
    assert drawn.epoch == 4
    assert torch.equal(images_of(DataLoader(drawn, 4)), expected[4])


def test_workers_cannot_write_into_the_store(plain: gp.GPUPreloadDataset, expected: Tensor) -> None:
    """What a worker serves is a copy in shared memory, which the caller may write to."""
    loader = DataLoader(plain, 5, num_workers=1, multiprocessing_context="fork")
    for images, labels in loader:
        images.zero_()
        labels.zero_()
    assert torch.equal(images_of(loader), expected)


def test_the_loader_may_outlive_a_free(plain: gp.GPUPreloadDataset) -> None:
    """A DataLoader whose dataset was freed says so, in the process or in a worker."""
    loaders = [
        DataLoader(plain, 5),
        DataLoader(plain, 5, num_workers=1, multiprocessing_context="fork"),
    ]
    assert len(loaders[0]) == 3
    plain.free()
    for loader in loaders:
        with pytest.raises(gp.FreedError):
            list(loader)
