"""The main job without a browser: plan, preload, time against `ImageFolder`, save a picture.

Run it with `make demo`, or `python demo.py [folder of class folders]`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import gpupreload as gp
from gpupreload.table import Table

EPOCHS = 3
BATCH_SIZE = 64
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRANSFORM = v2.Compose(
    [
        v2.Resize(112),
        v2.CenterCrop(112),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
)


def main() -> None:
    """Do the main job on the sample photos, or on the folder given."""
    root = sys.argv[1] if len(sys.argv) > 1 else gp.sample_photos("train")
    print(gp.plan(root, TRANSFORM), end="\n\n")

    start = time.perf_counter()
    train = gp.preload(root, TRANSFORM, seed=0)
    seconds_to_load = time.perf_counter() - start
    print(train, end="\n\n")
    print(f"pixels equal to ImageFolder's, bit for bit: {equal_to_imagefolder(train, root)}\n")

    seconds = {f"ImageFolder, {n} workers": epochs(from_disk(root, n), train) for n in (0, 2)}
    resident = epochs(gp.Loader(train, BATCH_SIZE, shuffle=True, reuse_buffers=True), train)
    seconds["gpupreload"] = [seconds_to_load + resident[0], *resident[1:]]

    print(table(seconds, len(train)))
    save_picture(train, seconds, Path("demo.png"))
    print("\nsaved demo.png")


def from_disk(root: str | Path, workers: int) -> DataLoader[tuple[Tensor, int]]:
    """What most notebooks do: every epoch decodes the files again."""
    return DataLoader(ImageFolder(root, TRANSFORM), BATCH_SIZE, shuffle=True, num_workers=workers)


def epochs(loader: Iterable[tuple[Tensor, Tensor]], train: gp.GPUPreloadDataset) -> list[float]:
    """Go through the loader a few times, to batches on the device; seconds of each epoch."""
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for images, labels in loader:
            images.to(train.device), labels.to(train.device)
        if train.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def equal_to_imagefolder(train: gp.GPUPreloadDataset, root: str | Path) -> bool:
    """Compare every image and label with what `ImageFolder` gives on the CPU."""
    expected = ImageFolder(root, TRANSFORM)
    batches = gp.Loader(train, batch_size=1)
    return all(
        torch.equal(images[0].cpu(), image) and labels[0] == label
        for (images, labels), (image, label) in zip(batches, expected, strict=True)
    )


def table(seconds: dict[str, list[float]], n_images: int) -> Table:
    """The first epoch (ours with the load in it) apart from the later ones."""
    disk = min(min(times[1:]) for name, times in seconds.items() if name != "gpupreload")
    rows = [
        (
            name,
            f"{times[0]:.2f} s",
            f"{min(times[1:]):.3f} s",
            f"{n_images / min(times[1:]):,.0f}",
            f"×{disk / min(times[1:]):.1f}",
        )
        for name, times in seconds.items()
    ]
    headings = ("", "first epoch", "later epochs", "images/s", "against the faster from disk")
    return Table(
        tuple(rows),
        headings,
        title=f"{n_images:,} photos to batches of {BATCH_SIZE} on {_device_name()}",
        note="gpupreload's first epoch includes loading; later epochs are the fastest of two.",
        right=(1, 2, 3, 4),
    )


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"


def save_picture(train: gp.GPUPreloadDataset, seconds: dict[str, list[float]], path: Path) -> None:
    """Save a grid of photos beside a bar chart of the times."""
    figure, (photos, bars) = plt.subplots(
        1, 2, figsize=(11, 4.6), width_ratios=(1.1, 1), layout="constrained"
    )
    photos.imshow(grid(train, rows=4, columns=6))
    photos.set_title(f"{len(train):,} photos, decoded once")
    photos.axis("off")

    names = list(seconds)
    bars.barh(
        names, [min(times[1:]) for times in seconds.values()], color=["#9aa5b1"] * 2 + ["#1f77b4"]
    )
    for y, times in enumerate(seconds.values()):
        bars.annotate(f" {min(times[1:]):.3f} s", (min(times[1:]), y), va="center", fontsize=10)
    bars.invert_yaxis()
    bars.margins(x=0.2)
    bars.spines[["top", "right"]].set_visible(False)
    bars.set_title("one epoch after the first")
    bars.set_xlabel("seconds (less is better)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def grid(train: gp.GPUPreloadDataset, rows: int, columns: int) -> Tensor:
    """Tile evenly spaced photos, [H, W, 3] uint8 on the CPU."""
    every = len(train) // (rows * columns)
    images = train.images[:: max(1, every)][: rows * columns].cpu()
    return torch.cat(
        [torch.cat(list(row), dim=2) for row in images.split(columns) if len(row) == columns],
        dim=1,
    ).permute(1, 2, 0)


if __name__ == "__main__":
    main()
