"""The main job without a browser: plan, preload, time against `ImageFolder`, save a picture.

Run it with `make demo`, or `python demo.py [folder of class folders]`.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import gpupreload as gp
from gpupreload.table import Table
from gpupreload.timing import ratios, seconds_of

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

    loaded: list[gp.GPUPreloadDataset] = []
    seconds_to_load = seconds_of(lambda: loaded.append(gp.preload(root, TRANSFORM, seed=0)))
    train = loaded[0]
    print(train, end="\n\n")
    print(f"pixels equal to ImageFolder's, bit for bit: {equal_to_imagefolder(train, root)}\n")

    loaders = {
        "ImageFolder, 0 workers": from_disk(root, 0),
        "ImageFolder, 2 workers": from_disk(root, 2),
        "gpupreload": gp.Loader(train, BATCH_SIZE, shuffle=True, reuse_buffers=True),
    }
    times = gp.time_loaders(loaders, epochs=EPOCHS, warm_up=0)
    print(table(times, seconds_to_load))
    save_picture(train, times, Path("demo.png"))
    print("\nsaved demo.png")


def from_disk(root: str | Path, workers: int) -> DataLoader[tuple[Tensor, int]]:
    """What most notebooks do: every epoch decodes the files again."""
    return DataLoader(ImageFolder(root, TRANSFORM), BATCH_SIZE, shuffle=True, num_workers=workers)


def equal_to_imagefolder(train: gp.GPUPreloadDataset, root: str | Path) -> bool:
    """Compare every image and label with what `ImageFolder` gives on the CPU."""
    expected = ImageFolder(root, TRANSFORM)
    batches = gp.Loader(train, batch_size=1)
    return all(
        torch.equal(images[0].cpu(), image) and labels[0] == label
        for (images, labels), (image, label) in zip(batches, expected, strict=True)
    )


def table(times: gp.LoaderTimes, seconds_to_load: float) -> Table:
    """The first epoch (ours with the load in it) apart from the later ones."""
    faster = min(times.loaders[:2], key=seconds_of_an_epoch)
    rows = []
    for loader in times.loaders:
        ratio = ratios(faster.epochs, to=loader.epochs)
        load = seconds_to_load if loader.name == "gpupreload" else 0.0
        rows.append(
            (
                loader.name,
                f"{load + loader.first_epoch:.2f} s",
                f"{seconds_of_an_epoch(loader):.3f} s",
                f"{loader.images_per_second.median:,.0f}",
                f"×{ratio.median:.1f}",
                f"×{ratio.low:.1f} to ×{ratio.high:.1f}",
            )
        )
    first = times.loaders[0]
    headings = ("", "first epoch", "later epochs", "images/s", f"against {faster.name}", "spread")
    return Table(
        tuple(rows),
        headings,
        title=f"{first.n_images:,} photos to {first.n_batches} batches on {times.device}",
        note=f"gpupreload's first epoch includes loading. Later epochs: the medians of {EPOCHS}, "
        f"run in turn.\n{times.machine}",
        right=(1, 2, 3, 4, 5),
    )


def seconds_of_an_epoch(loader: gp.TimedLoader) -> float:
    """The median of the epochs after the first."""
    return statistics.median(loader.epochs)


def save_picture(train: gp.GPUPreloadDataset, times: gp.LoaderTimes, path: Path) -> None:
    """Save a grid of photos beside a bar chart of the times."""
    figure, (photos, bars) = plt.subplots(
        1, 2, figsize=(11, 4.6), width_ratios=(1.1, 1), layout="constrained"
    )
    photos.imshow(grid(train, rows=4, columns=6))
    photos.set_title(f"{len(train):,} photos, decoded once")
    photos.axis("off")

    names = [loader.name for loader in times.loaders]
    seconds = [seconds_of_an_epoch(loader) for loader in times.loaders]
    bars.barh(names, seconds, color=["#9aa5b1"] * 2 + ["#1f77b4"])
    for y, length in enumerate(seconds):
        bars.annotate(f" {length:.3f} s", (length, y), va="center", fontsize=10)
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
