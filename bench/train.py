"""How long does a training take to the same accuracy, from disk and resident?

A small network learns the sample photos with random crops, flips and erasing, from an
`ImageFolder` with 0 and 2 workers and from `gp.Loader`, for the same number of epochs from the
same first weights; each takes an epoch in turn. Each way draws its own augmentation, so accuracies
differ by chance. The accuracy that counts is the best one of the worst training: all reach it, and
the time to it is told, loading included. Waiting is what an epoch takes more than the same number
of training steps on one batch that stays in memory. Validation is not timed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

import interleaved
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader

import gpupreload as gp
from gpupreload.table import Table
from gpupreload.timing import seconds_of

BATCH_SIZE = 64
SIZE = [v2.Resize(112), v2.CenterCrop(112)]
MOVES = [v2.RandomCrop(112, padding=8), v2.RandomHorizontalFlip()]
FLOATS = [
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]
TRANSFORM = v2.Compose([*SIZE, *MOVES, *FLOATS, v2.RandomErasing(p=0.25)])
PLAIN = v2.Compose([*SIZE, *FLOATS])

Batches = Iterable[tuple[Tensor, Tensor]]


class Network:
    """A small network with its optimiser, and its first weights from a fixed seed."""

    def __init__(self, n_classes: int, n_steps: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            *(nn.Conv2d(3, 16, 5, stride=4), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * 32, n_classes)),
        ).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.01, n_steps)
        self.device = device

    def train(self, batches: Batches) -> None:
        """Take a step for each batch."""
        self.model.train()
        for images, labels in batches:
            outputs = self.model(images.to(self.device, non_blocking=True))
            loss = nn.functional.cross_entropy(outputs, labels.to(self.device, non_blocking=True))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()

    @torch.no_grad()
    def accuracy(self, photos: gp.GPUPreloadDataset) -> float:
        """Per cent of the photos that it knows."""
        self.model.eval()
        hits = [self.model(x).argmax(1) == y for x, y in gp.Loader(photos, 100)]
        return 100 * torch.cat(hits).float().mean().item()


@dataclass
class Run:
    """A training: its loading and epochs in seconds, and its accuracies after each, in per cent."""

    network: Network
    loader: Batches
    load: float
    epochs: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def go_on(self, val: gp.GPUPreloadDataset) -> None:
        """Train for one epoch more, and look at the accuracy."""
        self.epochs.append(seconds_of(lambda: self.network.train(self.loader), val.device))
        self.accuracies.append(self.network.accuracy(val))

    def n_epochs_to(self, accuracy: float) -> int:
        """The number of the first epoch after which this accuracy was reached."""
        return 1 + next(i for i, reached in enumerate(self.accuracies) if reached >= accuracy)

    def seconds_to(self, accuracy: float) -> float:
        """Loading, and all epochs until this accuracy was reached."""
        return self.load + sum(self.epochs[: self.n_epochs_to(accuracy)])


def main() -> None:
    """Check, train with each way, print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", nargs="?", help="class folders; the sample photos if left out")
    parser.add_argument("val", nargs="?", help="class folders of the same names to validate on")
    parser.add_argument("--epochs", type=int, default=10, help="of each training")
    parser.add_argument("--quick", action="store_true", help="one epoch of few photos, for tests")
    asked = parser.parse_args()
    root = asked.train or str(gp.sample_photos("val" if asked.quick else "train"))
    val = gp.preload(asked.val or gp.sample_photos("val"), PLAIN, progress=False)
    check(val)
    print(interleaved.machine(val.device))
    print(compare(root, val, 1 if asked.quick else asked.epochs))


def check(val: gp.GPUPreloadDataset) -> None:
    """Refuse to compare what does not give the same images where nothing is random."""
    from_disk = [(PLAIN(default_loader(path)), n) for path, n in val.samples[::10]]
    for k, (image, label) in enumerate(from_disk):
        assert torch.equal(val[10 * k][0].cpu(), image), "the images differ"
        assert val[10 * k][1] == label, "the labels differ"


def compare(root: str, val: gp.GPUPreloadDataset, n_epochs: int) -> Table:
    """Train from disk and resident, the same number of epochs."""
    loaded: list[gp.GPUPreloadDataset] = []

    def load() -> None:
        loaded.append(gp.preload(root, TRANSFORM, seed=0, progress=False))

    load_seconds = seconds_of(load, val.device)
    resident = gp.Loader(loaded[0], BATCH_SIZE, shuffle=True)
    ways = {
        "ImageFolder, 0 workers": (0.0, from_disk(root, 0)),
        "ImageFolder, 2 workers": (0.0, from_disk(root, 2)),
        "gp.Loader": (load_seconds, resident),
    }
    floor = seconds_of_steps(resident, val)
    runs = {
        name: Run(Network(len(val.classes), n_epochs * len(loader), val.device), loader, seconds)
        for name, (seconds, loader) in ways.items()
    }
    for _ in range(n_epochs):
        for run in runs.values():
            run.go_on(val)
    return table(runs, floor)


def from_disk(root: str, n_workers: int) -> Batches:
    """What most notebooks do; workers live on from epoch to epoch."""
    options = {"num_workers": n_workers, "persistent_workers": n_workers > 0}
    return DataLoader(ImageFolder(root, TRANSFORM), BATCH_SIZE, shuffle=True, **options)


def seconds_of_steps(loader: gp.Loader, val: gp.GPUPreloadDataset) -> float:
    """Seconds of an epoch's training steps alone: the median of five, after one."""
    network = Network(len(val.classes), 6 * len(loader), val.device)
    batch = tuple(part.clone() for part in next(iter(loader)))
    batches = [batch] * len(loader)
    seconds = [seconds_of(lambda: network.train(batches), val.device) for _ in range(6)]
    return statistics.median(seconds[1:])


def table(runs: dict[str, Run], floor: float) -> Table:
    """One row a way."""
    goal = min(max(run.accuracies) for run in runs.values())
    disk = min(run.seconds_to(goal) for name, run in runs.items() if name != "gp.Loader")
    rows = []
    for name, run in runs.items():
        epoch = statistics.median(run.epochs)
        rows.append(
            (
                name,
                f"{run.load:.2f} s",
                f"{epoch:.3f} s",
                f"{100 * max(0.0, 1 - floor / epoch):.0f} %",
                f"{run.accuracies[-1]:.1f} %",
                f"{run.n_epochs_to(goal)}",
                f"{run.seconds_to(goal):.2f} s",
                f"×{disk / run.seconds_to(goal):.2f}",
            )
        )
    n_epochs, to_goal = len(run.epochs), f"to {goal:.1f} %"
    headings = ("", "loading", "median epoch", "waiting", "at the end", "epochs", to_goal, "ratio")
    return Table(
        tuple(rows),
        headings,
        title=f"Training a small network for {n_epochs} epochs, and its accuracy on new photos",
        note=f"an epoch's training steps alone: {floor:.3f} s; ratio to the faster from disk",
        right=tuple(range(1, 8)),
    )


if __name__ == "__main__":
    main()
