"""Several processes: shares of an epoch, shards, and real gloo processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp

N_IMAGES = 1551
TRANSFORM = v2.Compose(
    [v2.RandomCrop(4), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32)]
)


class Numbered(Dataset[tuple[Tensor, int]]):
    """Images of 6×6 pixels of noise, each begun from its own number; labels known beforehand."""

    def __init__(self, n_images: int = N_IMAGES) -> None:
        self.targets = [i % 7 for i in range(n_images)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 256, (1, 6, 6), dtype=torch.uint8, generator=noise)
        return pixels, self.targets[index]


def preload(data: Any, transform: Any = TRANSFORM, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    return gp.preload(data, transform, **{"device": "cpu", "progress": False, "seed": 3} | settings)


@pytest.fixture(scope="module")
def whole() -> gp.GPUPreloadDataset:
    """1,551 images with random steps."""
    return preload(Numbered())


Epoch = tuple[list[int], Tensor, Tensor, list[Tensor]]


def epoch_of(loader: gp.Loader) -> Epoch:
    """Sizes of the batches, and all indices, labels and images of one epoch."""
    found = [(indices, labels, images.clone()) for images, labels, indices in loader]
    columns = zip(*found, strict=True)
    indices, labels, images = (torch.cat(column) for column in columns)
    return [len(batch) for batch, _, _ in found], indices, labels, images


def in_processes(n: int, work: Callable[[], Any], tmp_path: Path) -> list[Any]:
    """Run a function in n processes that are joined by gloo, and return what each returned."""

    def main(rank: int) -> None:
        torch.set_num_threads(1)
        meeting = f"file://{tmp_path / 'meeting'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=n)
        torch.save(work(), tmp_path / f"{rank}.pt")
        dist.destroy_process_group()

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=main, args=(rank,)) for rank in range(n)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * n
    return [torch.load(tmp_path / f"{rank}.pt") for rank in range(n)]


# --- every process holds all


@pytest.mark.parametrize("n", [2, 4])
def test_training_in_several_processes(whole: gp.GPUPreloadDataset, tmp_path: Path, n: int) -> None:
    """Each sample at most once an epoch, as many batches each, and what one process would draw."""

    def work() -> list[Epoch]:
        loader = gp.Loader(whole, 64, shuffle=True, with_indices=True)
        return [epoch_of(loader) for _ in range(2)]

    by_rank = in_processes(n, work, tmp_path)
    for epoch in range(2):
        found = [epochs[epoch] for epochs in by_rank]
        assert len({tuple(sizes) for sizes, *_ in found}) == 1
        served = [i for _, indices, *_ in found for i in indices.tolist()]
        assert len(served) == len(set(served)) == N_IMAGES // n * n
        for _, indices, labels, images in found:
            assert torch.equal(images, whole.replay(epoch, indices))
            assert labels.tolist() == [whole.targets[i] for i in indices]
    assert all(not torch.equal(epochs[0][1], epochs[1][1]) for epochs in by_rank)


@pytest.mark.parametrize("n", [2, 4])
def test_evaluation_in_several_processes(
    whole: gp.GPUPreloadDataset, tmp_path: Path, n: int
) -> None:
    """Without shuffle every sample is served once over all ranks, and none twice."""

    def work() -> Epoch:
        return epoch_of(gp.Loader(whole, 64, with_indices=True))

    served = [i for _, indices, *_ in in_processes(n, work, tmp_path) for i in indices.tolist()]
    assert sorted(served) == list(range(N_IMAGES))


def test_all_ranks_together_are_one_process(whole: gp.GPUPreloadDataset) -> None:
    """Ranks take turns in the order of one process: rank r of n has every n-th sample."""
    for settings in ({"shuffle": True}, {"weights": "balanced"}, {}):
        alone = epoch_of(gp.Loader(whole, 64, with_indices=True, **settings))
        for rank in range(3):
            of = {"rank": rank, "world_size": 3, "uneven": "exact", **settings}
            sizes, *found = epoch_of(gp.Loader(whole, 64, with_indices=True, **of))
            for one, all_of_them in zip(found, alone[1:], strict=True):
                assert torch.equal(one, all_of_them[rank::3])
            assert sum(sizes) == N_IMAGES // 3


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("uneven", ["drop", "exact"])
@pytest.mark.parametrize("n_images", [3, 4, 9, 10, 11, 12])
def test_lengths(n_images: int, uneven: str, drop_last: bool) -> None:
    """len() of a loader is the number of its batches; with "drop" it is the same on every rank."""
    ours = preload(Numbered(n_images))
    lengths = []
    for rank in range(3):
        loader = gp.Loader(
            ours, 2, rank=rank, world_size=3, uneven=uneven, drop_last=drop_last, shuffle=True
        )
        lengths.append(len(loader))
        assert len(list(loader)) == len(loader)
    each, rest = divmod(n_images, 3)
    n_samples = [each + (uneven == "exact" and rank < rest) for rank in range(3)]
    assert lengths == [n // 2 if drop_last else -(-n // 2) for n in n_samples]


def test_the_default_follows_shuffle(whole: gp.GPUPreloadDataset) -> None:
    """A shuffled or weighted loader drops the rest, another serves it."""
    of = {"rank": 0, "world_size": 2}
    assert len(epoch_of(gp.Loader(whole, 64, with_indices=True, **of))[1]) == 776
    for settings in ({"shuffle": True}, {"weights": "balanced"}):
        assert len(epoch_of(gp.Loader(whole, 64, with_indices=True, **of, **settings))[1]) == 775


def test_a_loader_may_be_made_before_the_processes_meet(
    whole: gp.GPUPreloadDataset, tmp_path: Path
) -> None:
    """The ranks are asked for when an epoch begins, not when the loader is made."""
    loader = gp.Loader(whole, 64, shuffle=True, with_indices=True)
    assert len(loader) == 25
    lengths = in_processes(2, lambda: [len(loader), sum(epoch_of(loader)[0])], tmp_path)
    assert lengths == [[13, 775]] * 2


def test_training_with_ddp(whole: gp.GPUPreloadDataset, tmp_path: Path) -> None:
    """Under DistributedDataParallel the ranks end with one model, as of one process's gradients."""
    if "GPUPRELOAD_FRESH" not in os.environ:
        # a process that has used autograd before cannot fork others that use it
        node = f"{__file__}::{test_training_with_ddp.__name__}"
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", node],
            env=os.environ | {"GPUPRELOAD_FRESH": "1"},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout
        return
    plain = whole.with_transform(None)

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 7)).double()

    def trained(net: Any, loader: gp.Loader) -> Any:
        optimizer = torch.optim.SGD(net.parameters(), 1e-5)
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in net.parameters()]

    settings: dict[str, Any] = {"shuffle": True, "drop_last": True, "dtype": torch.float64}
    found = in_processes(
        2,
        lambda: trained(DistributedDataParallel(model()), gp.Loader(plain, 32, **settings)),
        tmp_path,
    )
    expected = trained(model(), gp.Loader(plain, 64, **settings))
    for one, two, alone in zip(*found, expected, strict=True):
        assert torch.equal(one, two)
        assert torch.allclose(one, alone, rtol=1e-9, atol=1e-12)


def test_samples_do_not_overlap_by_accident() -> None:
    """Where each process drew a seed of its own, their orders do not fit: that is an error."""
    drawn = preload(Numbered(10), seed=None)
    message = (
        "seed is None, and each of the 2 processes drew another: their orders would not fit "
        "together. Pass the same seed= to gpupreload.Loader, or to gpupreload.preload, in all of "
        "them."
    )
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(drawn, shuffle=True, rank=0, world_size=2)
    assert str(raised.value) == message
    gp.Loader(drawn, shuffle=True, rank=0, world_size=2, seed=4)
    gp.Loader(drawn.with_transform(None), rank=0, world_size=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"rank": 1},
            "rank is 1 and world_size is None; expected both, or neither, to take them from "
            "torch.distributed.",
        ),
        (
            {"rank": 2, "world_size": 2},
            "rank is 2 and world_size is 2; expected the number of this process, from 0, and how "
            "many processes there are.",
        ),
        (
            {"rank": 0.0, "world_size": 2},
            "rank is 0.0 and world_size is 2; expected the number of this process, from 0, and how "
            "many processes there are.",
        ),
        (
            {"uneven": "pad"},
            "uneven is 'pad'; expected 'drop', for as many samples on each rank, 'exact', for "
            "every sample once, or None: 'drop' with shuffle=True or weights=.",
        ),
        (
            {"sampler": [1], "rank": 0, "world_size": 2},
            "sampler and rank were both given, and a sampler says by itself what this process "
            "serves. Leave rank= and world_size= out, or use shuffle=True or weights= instead.",
        ),
    ],
    ids=["rank alone", "out of range", "no int", "uneven", "sampler"],
)
def test_ranks_that_cannot_be_used(
    whole: gp.GPUPreloadDataset, settings: dict[str, Any], message: str
) -> None:
    """What is said about processes is checked when the loader is made."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(whole, **settings)
    assert str(raised.value) == message


def test_a_sampler_says_what_a_process_serves(whole: gp.GPUPreloadDataset, tmp_path: Path) -> None:
    """With a sampler nothing is divided once more."""
    loader = gp.Loader(whole, 2, sampler=[5, 6, 7], with_indices=True)
    found = in_processes(2, lambda: epoch_of(loader)[1].tolist(), tmp_path)
    assert found == [[5, 6, 7]] * 2


# --- every process holds a shard


@pytest.mark.parametrize("n", [2, 4])
def test_shards_in_several_processes(whole: gp.GPUPreloadDataset, tmp_path: Path, n: int) -> None:
    """Shards have all samples between them, train in as many batches, and draw as the whole."""

    def work() -> tuple[list[int], Epoch, Epoch]:
        part = preload(Numbered(), shard=True)
        loader = gp.Loader(part, 64, shuffle=True, with_indices=True)
        epoch_of(loader)
        return part.indices.tolist(), epoch_of(loader), epoch_of(gp.Loader(part, with_indices=True))

    found = in_processes(n, work, tmp_path)
    assert sorted(i for numbers, *_ in found for i in numbers) == list(range(N_IMAGES))
    assert len({tuple(training[0]) for _, training, _ in found}) == 1
    for numbers, (sizes, indices, labels, images), evaluation in found:
        in_whole = torch.tensor(numbers)[indices]
        assert sum(sizes) == len(set(in_whole.tolist())) == N_IMAGES // n
        assert torch.equal(images, whole.replay(1, in_whole))
        assert labels.tolist() == [whole.targets[i] for i in in_whole]
        assert torch.equal(evaluation[3], whole.replay(0, numbers))


def test_a_shard_of_files(photo_folder: Path) -> None:
    """A shard decodes its own files, knows all classes, and tells its report whose they are."""
    files = ImageFolder(photo_folder)
    steps = [v2.Resize((8, 8)), v2.RandomCrop(6), v2.ToImage()]
    everything = preload(photo_folder, v2.Compose(steps))
    parts = [preload(photo_folder, v2.Compose(steps), shard=(rank, 5)) for rank in range(5)]
    assert [len(part) for part in parts] == [3, 3, 2, 2, 2]
    assert sorted(sample for part in parts for sample in part.samples) == files.samples
    for rank, part in enumerate(parts):
        assert part.classes == files.classes
        assert torch.equal(part.images, everything.images[part.indices])
        assert part.targets == [files.targets[i] for i in part.indices]
        assert part.report.name == f"shard {rank} of 5 of {photo_folder}"
        assert torch.equal(part.replay(2, [0]), everything.replay(2, part.indices[:1]))
        again = preload(photo_folder, v2.Compose(steps), shard=(rank, 5))
        assert again.view.store is part.view.store
        part.transform = v2.Compose([steps[0], v2.ToImage()])
    assert len({tuple(part.indices.tolist()) for part in parts}) == 5


def test_shards_are_kept_by_the_cache(photo_folder: Path, tmp_path: Path) -> None:
    """Each shard has a cache of its own, which the next run reads."""
    for expected in ("Written", "Cache: hit"):
        for rank in range(2):
            part = preload(photo_folder, v2.Resize((8, 8)), shard=(rank, 2), cache=tmp_path)
            assert expected in part.report.cache
            part.free()


def test_classes_of_a_shard_without_the_last_class() -> None:
    """Every shard has as many classes as the whole, though it holds no sample of some."""
    data = Numbered(12)
    data.targets = [0] * 11 + [9]
    parts = [preload(data, shard=(rank, 3)) for rank in range(3)]
    assert [len(part.classes) for part in parts] == [10] * 3


def test_a_part_of_a_shard(whole: gp.GPUPreloadDataset) -> None:
    """A subset of a shard draws by the numbers of the whole; it cannot promise equal batches."""
    part = preload(Numbered(), shard=(1, 2)).subset([4, 0])
    numbers = part.indices.tolist()
    images = epoch_of(gp.Loader(part, with_indices=True))[3]
    assert torch.equal(images, whole.replay(0, numbers))
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(part, shuffle=True)
    assert str(raised.value) == (
        "the dataset is a part of a shard, and how large the parts of other processes are is not "
        "known here, so uneven='drop' cannot give each as many batches. Pass uneven='exact', or "
        "preload without shard=."
    )
    assert len(gp.Loader(part, 1, shuffle=True, uneven="exact")) == 2


def test_a_shard_is_resumed_from_any_ranks_state() -> None:
    """The state of one shard's loader is that of all: each goes on in its own samples."""
    loaders = [
        gp.Loader(preload(Numbered(21), shard=(rank, 2)), 3, shuffle=True, with_indices=True)
        for rank in range(2)
    ]
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    resumed = gp.Loader(loaders[1].dataset, 3, shuffle=True, with_indices=True)
    resumed.load_state_dict(loaders[0].state_dict())
    left = [indices for _, _, indices in iterators[1]]
    assert torch.equal(epoch_of(resumed)[1], torch.cat(left))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"shard": 2},
            "shard is 2; expected True, to take the processes from torch.distributed, a pair "
            "(rank, world_size), or False.",
        ),
        (
            {"shard": (2, 2)},
            "rank is 2 and world_size is 2; expected the number of this process, from 0, and how "
            "many processes there are.",
        ),
        (
            {"shard": (0, 20)},
            "shard deals 12 images out to 20 processes; expected one or more for each. Preload "
            "without shard=: every process then holds them all.",
        ),
        (
            {"shard": (0, 2), "on_error": "skip"},
            "on_error is 'skip', but with shard= each process must know how many samples the "
            "others have. Leave unreadable files out of the folder, or preload without shard=.",
        ),
    ],
    ids=["no pair", "out of range", "too many", "skip"],
)
def test_shards_that_cannot_be_had(
    photo_folder: Path, settings: dict[str, Any], message: str
) -> None:
    """What cannot be dealt out is refused before any image is decoded."""
    with pytest.raises(gp.ArgumentError) as raised:
        preload(photo_folder, v2.Resize((8, 8)), **settings)
    assert str(raised.value) == message


def test_a_rank_beside_a_shard() -> None:
    """A shard is a process's share already."""
    part = preload(Numbered(20), shard=(1, 2))
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(part, rank=1, world_size=2)
    assert str(raised.value) == (
        "rank is 1, but the dataset is shard 1 of 2 already, all of which this process serves. "
        "Leave rank= and world_size= out."
    )


def test_shards_are_shuffled_within(whole: gp.GPUPreloadDataset) -> None:
    """Each epoch has another order of a shard, and a shard is no stretch of the dataset."""
    part = preload(Numbered(), shard=(0, 3))
    loader = gp.Loader(part, 64, shuffle=True, with_indices=True)
    first, second = (epoch_of(loader)[1] for _ in range(2))
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(517))
    assert not torch.equal(first, second)
    assert {b - a for a, b in pairwise(part.indices.tolist())} > {1, 2, 3, 4, 5}
