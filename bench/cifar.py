"""How does `gp.Loader` compare with airbench's `CifarLoader`, which is made for CIFAR-10 alone?

airbench 0.1.8 keeps float16 images, channels last; ours are asked for in the same form. Both get
the same 50,000 images of 3×32×32: CIFAR-10 where a folder with airbench's `train.pt` and `test.pt`
is given, else patches of the sample photos, which are made here.

airbench is used as it comes. Its loader takes `gpu="cpu"`, for it only makes a `torch.device` of
it, and its float16 steps run on a CPU. Its `train` does not: it times with CUDA events, and reads
the folder "cifar10". So both are trained by the same few lines here. In each epoch it makes one
augmented copy of the whole set, and serves batches of that.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import airbench
import interleaved
import torch
import torchvision.transforms.v2 as v2
from process_memory import field
from torch import Tensor, nn
from torch.utils.data import Dataset

import gpupreload as gp
from gpupreload.table import Table, in_units
from gpupreload.timing import Spread, seconds_of

BATCH_SIZE = 500
QUIET = {"device": "cpu", "progress": False, "seed": 0}
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
NORMALIZE = v2.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
FLIP = v2.RandomHorizontalFlip()
CUTOUT = v2.RandomErasing(p=1, scale=(144 / 1024, 144 / 1024), ratio=(1, 1))  # 12 × 12 of 32 × 32
# the settings of airbench94 and airbench96, and torchvision's steps that do the same
AUGMENTATIONS = {
    "flip, translate by 2": (
        {"flip": True, "translate": 2},
        [v2.RandomCrop(32, padding=2, padding_mode="reflect"), FLIP, *FLOATS, NORMALIZE],
    ),
    "flip, translate by 4, cut out 12": (
        {"flip": True, "translate": 4, "cutout": 12},
        [v2.RandomCrop(32, padding=4, padding_mode="reflect"), FLIP, *FLOATS, NORMALIZE, CUTOUT],
    ),
}


class Saved(Dataset[tuple[Tensor, int]]):
    """The images that airbench reads from a file, one by one as uint8 [3, 32, 32]."""

    def __init__(self, file: Path) -> None:
        saved = torch.load(file)
        self.images, self.targets = saved["images"].permute(0, 3, 1, 2), saved["labels"].tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], self.targets[index]


def main() -> None:
    """Check, then measure images/s, peak memory and a training with each loader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="with train.pt and test.pt")
    parser.add_argument("--quick", action="store_true", help="few images and rounds, for tests")
    arguments = parser.parse_args()
    quick = arguments.quick
    print(f"{interleaved.machine()}, airbench {version('airbench')}")
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or made_folder(Path(made), 2_000 if quick else 50_000)
        for name in AUGMENTATIONS:
            check(folder, name)
            print(f"\n{epochs(folder, name, rounds=1 if quick else 9)}")
        n_epochs, seeds = (1, (0,)) if quick else (3, (0, 1, 2))
        print(f"\n{trainings(folder, n_epochs, seeds)}")


def made_folder(folder: Path, n_images: int) -> Path:
    """Save patches of the sample photos as airbench keeps CIFAR-10."""
    for name, part, n in (("train", "train", n_images), ("test", "val", n_images // 5)):
        photos = gp.preload(gp.sample_photos(part), [v2.Resize(64), v2.CenterCrop(64)], **QUIET)
        generator = torch.Generator().manual_seed(0)
        rows, tops, lefts = (
            torch.randint(0, high, (n,), generator=generator).tolist()
            for high in (len(photos), 33, 33)
        )
        patches = torch.stack(
            [
                photos.images[i, :, y : y + 32, x : x + 32]
                for i, y, x in zip(rows, tops, lefts, strict=True)
            ]
        )
        images = patches.permute(0, 2, 3, 1).contiguous()
        saved = {"images": images, "labels": photos.labels[rows], "classes": photos.classes}
        torch.save(saved, folder / f"{name}.pt")
    return folder


def theirs(folder: Path, name: str | None, **options: object) -> airbench.CifarLoader:
    """Return airbench's loader, on the CPU."""
    aug = AUGMENTATIONS[name][0] if name else {}
    return airbench.CifarLoader(str(folder), batch_size=BATCH_SIZE, aug=aug, gpu="cpu", **options)


def ours(folder: Path, name: str | None, *, shuffle: bool = True, seed: int = 0) -> gp.Loader:
    """Return our loader, of the same images in the same form."""
    steps = AUGMENTATIONS[name][1] if name else [*FLOATS, NORMALIZE]
    train = gp.preload(Saved(folder / "train.pt"), steps, **QUIET)
    form = {"dtype": torch.float16, "memory_format": torch.channels_last}
    return gp.Loader(train, BATCH_SIZE, shuffle=shuffle, drop_last=True, seed=seed, **form)


def check(folder: Path, name: str) -> None:
    """Refuse to compare what does not give the same: numbers, then moves of equal images."""
    plain = zip(theirs(folder, None, shuffle=False), ours(folder, None, shuffle=False), strict=True)
    for (a, labels_a), (b, labels_b) in plain:
        assert torch.equal(labels_a, labels_b), "the labels differ"
        torch.testing.assert_close(a, b, atol=0.01, rtol=0)  # they normalise in float16
        assert a.stride() == b.stride(), "the memory formats differ"
    with tempfile.TemporaryDirectory() as marked:
        n_images = 10_000
        columns = torch.arange(32, dtype=torch.uint8).mul(7).expand(32, 32)
        image = torch.stack([columns, columns.T, torch.full_like(columns, 99)], dim=-1)
        saved = {"images": image.repeat(n_images, 1, 1, 1), "labels": torch.zeros(n_images).long()}
        torch.save(saved | {"classes": ["one"]}, Path(marked) / "train.pt")
        torch.manual_seed(0)
        a, b = (where(make(Path(marked), name)) for make in (theirs, ours))
    assert torch.all((a - b).abs() < 4 * (2 / n_images) ** 0.5), f"{a} against {b}"


def where(loader: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Mean and deviation of what one pixel shows, its column and its row; the share cut out.

    What a pixel shows deviates by less than 1, so these means over n images do by less than
    n ** -0.5; cut out is exactly one square in each image, 1 here, or none.
    """
    images = torch.cat([images.float() for images, _ in loader])
    cut = images.eq(0).all(1).float().mean((1, 2)).mul(1024 / 144)
    column, row, _ = images[:, :, 9, 12].T
    return torch.stack([column.mean(), column.std(), row.mean(), row.std(), cut.mean()])


def epochs(folder: Path, name: str, rounds: int) -> Table:
    """Measure an epoch of each loader, and the peak of memory from reading the file on."""
    loaders = {"airbench": theirs(folder, name), "gp.Loader": ours(folder, name)}
    n_images = len(loaders["airbench"]) * BATCH_SIZE
    ways = {key: lambda loader=loader: [None for _ in loader] for key, loader in loaders.items()}
    seconds = interleaved.measure(ways, rounds)
    notes = {key: f"peak {peak_in_a_new_process(key, folder, name)}" for key in loaders}
    title = f"{n_images:,} × 3×32×32 in batches of {BATCH_SIZE}, float16: {name}"
    return interleaved.table(seconds, n_images, title=title, base="airbench", notes=notes)


def peak_in_a_new_process(key: str, folder: Path, name: str) -> str:
    """Two epochs in a process that does nothing else."""
    code = f"import cifar; print(cifar.peak({key!r}, cifar.Path({str(folder)!r}), {name!r}))"
    command = [sys.executable, "-c", code]
    here = Path(__file__).parent
    printed = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout
    return in_units(int(printed)) if int(printed) else "not known here"


def peak(key: str, folder: Path, name: str) -> int:
    """The most memory in use while a loader is made and run, above what was in use before."""
    before = field("VmRSS")
    loader = {"airbench": theirs, "gp.Loader": ours}[key](folder, name)
    for _ in range(2):
        for _batch in loader:
            pass
    return field("VmHWM") - before


def trainings(folder: Path, n_epochs: int, seeds: tuple[int, ...]) -> Table:
    """Train the same network with each loader; time, and accuracy on images not trained on."""
    name = next(iter(AUGMENTATIONS))
    test = theirs(folder, None, train=False)
    results: dict[str, list[tuple[float, float]]] = {"airbench": [], "gp.Loader": []}
    for seed in seeds:
        for key, result in results.items():
            torch.manual_seed(seed)
            model = network(len(test.classes))
            loader = theirs(folder, name) if key == "airbench" else ours(folder, name, seed=seed)
            seconds = seconds_of(functools.partial(train, model, loader, n_epochs))
            result.append((seconds, accuracy(model, test)))
    rows = []
    for key, result in results.items():
        times, hits = (Spread.of(column) for column in zip(*result, strict=True))
        spread = f"{hits.low:.1f} to {hits.high:.1f} %"
        rows.append((key, f"{times.median:.2f} s", f"{hits.median:.1f} %", spread))
    title = f"training a small network for {n_epochs} epochs with {name}, {len(seeds)} times each"
    headings = ("", "median time", "median accuracy", "spread")
    return Table(tuple(rows), headings, title=title, right=(1, 2, 3))


def network(n_classes: int) -> nn.Module:
    """A network small enough to learn in seconds on a CPU."""
    return nn.Sequential(
        *(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.BatchNorm2d(48), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * 48, n_classes)),
    )


def train(model: nn.Module, loader: Iterable[tuple[Tensor, Tensor]], n_epochs: int) -> None:
    """Adam with a fixed rate: the same budget for both."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(n_epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.float()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, test: airbench.CifarLoader) -> float:
    """Per cent of the test images."""
    model.eval()
    hits = [(model(x.float()).argmax(1) == y).float() for x, y in test]
    return 100 * torch.cat(hits).mean().item()


if __name__ == "__main__":
    main()
