"""Accelerate and Lightning over a preloaded dataset: loaders of torch's and of ours.

Both are imported in functions: Lightning takes seconds, also where only another file is tested.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

import gpupreload as gp

N_IMAGES = 16
BATCH = 4
STEPS = v2.Compose([v2.RandomCrop(8, padding=3), v2.ToDtype(torch.float32, scale=True)])


class Numbered(Dataset[tuple[Tensor, int]]):
    """Images of 8×8 pixels of noise, whose labels are their numbers."""

    def __len__(self) -> int:
        return N_IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.Generator().manual_seed(index)
        return torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8, generator=noise), index


@pytest.fixture
def train() -> gp.GPUPreloadDataset:
    """Sixteen images with a random step; a label is the number of its sample."""
    return gp.preload(Numbered(), STEPS, device="cpu", progress=False, seed=3)


Seen = list[tuple[int, Tensor, Tensor]]


def check_epoch(train: gp.GPUPreloadDataset, seen: Seen, epoch: int) -> None:
    """Every sample came once in the epoch, as it is to look in that epoch."""
    batches = [(images, labels) for number, images, labels in seen if number == epoch]
    images, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    assert sorted(labels.tolist()) == list(range(N_IMAGES))
    assert torch.equal(images, train.replay(epoch, labels))


def network() -> nn.Sequential:
    """The same small network every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, N_IMAGES))


# --- Accelerate


def accelerator() -> Any:
    """Accelerate's way in, on the CPU."""
    from accelerate import Accelerator

    return Accelerator(cpu=True)


def accelerated(loader: Any, n_epochs: int = 2) -> tuple[Seen, list[Tensor]]:
    """Train as Accelerate's own examples do; what the model saw, and its weights."""
    prepared, net = accelerator(), network()
    model, optimizer, batches = prepared.prepare(net, torch.optim.SGD(net.parameters()), loader)
    seen: Seen = []
    for epoch in range(n_epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            prepared.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            seen.append((epoch, images.clone(), labels.clone()))
    return seen, [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("kind", ["DataLoader", "Loader"])
def test_accelerate(train: gp.GPUPreloadDataset, kind: str) -> None:
    """Accelerate takes both loaders, and each epoch is drawn for by its number."""
    loader = {"DataLoader": DataLoader, "Loader": gp.Loader}[kind](train, BATCH, shuffle=True)
    seen, weights = accelerated(loader)
    assert len(seen) == 2 * N_IMAGES // BATCH
    for epoch in range(2):
        check_epoch(train, seen, epoch)
    assert any(
        not torch.equal(new, old) for new, old in zip(weights, network().parameters(), strict=True)
    )


def test_accelerate_over_a_subset(train: gp.GPUPreloadDataset) -> None:
    """Of a torch Subset the dataset is told no epoch: a sample is drawn anew in each."""
    seen, _ = accelerated(DataLoader(Subset(train, range(N_IMAGES)), N_IMAGES))
    (_, first, _), (_, second, _) = seen
    assert train.epoch is None
    assert not torch.equal(first, second)


def test_accelerate_keeps_the_place_of_a_loader(
    train: gp.GPUPreloadDataset, tmp_path: Path
) -> None:
    """A Loader that is registered goes on, after `load_state`, with the batches that were left."""
    prepared, loader = accelerator(), gp.Loader(train, BATCH, shuffle=True)
    prepared.register_for_checkpointing(loader)
    batches = iter(loader)
    next(batches)
    prepared.save_state(str(tmp_path))
    expected = list(batches)
    prepared.load_state(str(tmp_path))
    for found, left in zip(loader, expected, strict=True):
        assert all(map(torch.equal, found, left))


# --- Lightning


def new_module(*, steps_by_hand: bool = False) -> Any:
    """A module that trains the network, and keeps what it saw; by hand it takes no step."""
    from pytorch_lightning import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.seen = network(), Seen()
            self.automatic_optimization = not steps_by_hand

        def training_step(self, batch: Any, number: int) -> Tensor:
            images, labels = batch
            self.seen.append((self.current_epoch, images.clone(), labels.clone()))
            return nn.functional.cross_entropy(self.net(images), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-3)

    return Module()


def trainer(**settings: Any) -> Any:
    """A quiet trainer on the CPU."""
    from pytorch_lightning import Trainer

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    plain = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, **quiet}
    return Trainer(**plain | settings)


def tell_epoch() -> Any:
    """The callback of the README: a plain DataLoader's dataset is told the epoch."""
    from pytorch_lightning import Callback

    class TellEpoch(Callback):
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            trainer.train_dataloader.dataset.set_epoch(trainer.current_epoch)

    return TellEpoch()


@pytest.mark.parametrize("kind", ["DataLoader", "Loader"])
def test_lightning(train: gp.GPUPreloadDataset, kind: str) -> None:
    """Lightning takes both loaders; a callback tells a DataLoader's dataset the epoch."""
    loader = {"DataLoader": DataLoader, "Loader": gp.Loader}[kind](train, BATCH, shuffle=True)
    module = new_module()
    trainer(callbacks=[tell_epoch()] if kind == "DataLoader" else []).fit(module, loader)
    assert len(module.seen) == 2 * N_IMAGES // BATCH
    for epoch in range(2):
        check_epoch(train, module.seen, epoch)
    pairs = zip(module.net.parameters(), network().parameters(), strict=True)
    assert any(not torch.equal(new, old) for new, old in pairs)


def test_lightning_without_a_callback(train: gp.GPUPreloadDataset) -> None:
    """Where nobody tells the epoch, a sample is drawn anew in each: nothing is frozen."""
    module = new_module()
    trainer().fit(module, DataLoader(train, N_IMAGES))
    (_, first, _), (_, second, _) = module.seen
    assert train.epoch is None
    assert not torch.equal(first, second)


def test_lightning_keeps_the_place_of_a_loader(train: gp.GPUPreloadDataset, tmp_path: Path) -> None:
    """A run that goes on from a checkpoint within an epoch sees the batches that were left."""
    from pytorch_lightning.callbacks import ModelCheckpoint

    whole, resumed = new_module(), new_module()
    each_third = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=3)
    settings: dict[str, Any] = {"callbacks": [each_third], "enable_checkpointing": True}
    trainer(**settings).fit(whole, gp.Loader(train, BATCH, shuffle=True))
    checkpoint = tmp_path / "step=6.ckpt"  # in the middle of the second epoch
    trainer().fit(resumed, gp.Loader(train, BATCH, shuffle=True), ckpt_path=checkpoint)
    for (_, *found), (_, *expected) in zip(resumed.seen, whole.seen[6:], strict=True):
        assert all(map(torch.equal, found, expected))
    for found, expected in zip(resumed.net.parameters(), whole.net.parameters(), strict=True):
        assert torch.equal(found, expected)


# --- two processes


Work = Callable[[], Seen]


def in_two_processes(work: Work, folder: Path) -> list[Seen]:
    """Run a function in two processes, joined by gloo as torchrun would; what each returned."""

    def main(rank: int) -> None:
        torch.set_num_threads(1)
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")  # asked for, and not used
        meeting = f"file://{folder / 'meeting'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
        torch.save(work(), folder / f"{rank}.pt")
        dist.destroy_process_group()

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=main, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def served_by_accelerate(train: gp.GPUPreloadDataset, loader: Any) -> Seen:
    """What one process is served in two epochs, without training."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # it knows of one process until now
    prepared = accelerator()
    assert prepared.num_processes == 2
    batches = prepared.prepare(loader)
    return [(e, images.clone(), labels) for e in range(2) for images, labels in batches]


def served_by_lightning(train: gp.GPUPreloadDataset, loader: Any) -> Seen:
    """What one process is served in two epochs; without a step back, for the fork's sake."""
    from pytorch_lightning.plugins.environments import TorchElasticEnvironment

    module = new_module(steps_by_hand=True)
    callbacks = [tell_epoch()] if isinstance(loader, DataLoader) else []
    settings = {"devices": 2, "strategy": "ddp", "plugins": [TorchElasticEnvironment()]}
    trainer(callbacks=callbacks, **settings).fit(module, loader)
    return module.seen


@pytest.mark.parametrize("kind", ["DataLoader", "Loader"])
@pytest.mark.parametrize("served", [served_by_accelerate, served_by_lightning])
def test_two_processes(
    train: gp.GPUPreloadDataset, tmp_path: Path, served: Callable[..., Seen], kind: str
) -> None:
    """Both frameworks divide an epoch among processes: each sample comes once, on one of them."""
    loader = {"DataLoader": DataLoader, "Loader": gp.Loader}[kind](train, BATCH, shuffle=True)
    one, two = in_two_processes(lambda: served(train, loader), tmp_path)
    assert len(one) == len(two) == N_IMAGES // BATCH
    for epoch in range(2):
        check_epoch(train, one + two, epoch)
