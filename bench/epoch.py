"""How fast is an epoch of resident images, beside what people write by hand?

Every way gives the same shuffled batches of 64, normalised float32, bit for bit (checked first).
The recipe and the `TensorDataset` keep float32 images, four times the memory of ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import interleaved
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gpupreload as gp

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH_SIZE = 64
TRANSFORM = v2.Compose(
    [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
)


class MadeUp(Dataset[tuple[Tensor, int]]):
    """Random uint8 images of one size: the numbers do not change the work."""

    def __init__(self, n_images: int, side: int) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (n_images, 3, side, side)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self.transform = TRANSFORM

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), index % 10


class Recipe(Dataset[tuple[Tensor, Tensor]]):
    """The preload class that people write by hand: a float32 store, read sample by sample."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


def main() -> None:
    """Measure both sizes and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few images and rounds, for tests")
    quick = parser.parse_args().quick
    print(interleaved.machine())
    for n_images, side in ((500, 32), (64, 112)) if quick else ((50_000, 32), (1_550, 112)):
        print()
        print(compare(n_images, side, rounds=2 if quick else 15))


def compare(n_images: int, side: int, rounds: int) -> object:
    """Measure every way on images of one size."""
    data = MadeUp(n_images, side)
    ours = gp.preload(data, seed=0, device="cpu", progress=False)
    floats = ours.as_tensor_dataset()
    check_equal(ours, floats)
    ways = ways_of(ours, floats)
    seconds = interleaved.measure(ways, rounds)
    title = f"{n_images:,} × 3×{side}×{side}, batch {BATCH_SIZE}, shuffled, to normalised float32"
    return interleaved.table(seconds, n_images, title=title, base="per-sample recipe")


def ways_of(ours: gp.GPUPreloadDataset, floats: TensorDataset) -> dict[str, Callable[[], object]]:
    """Every way to go through one epoch."""

    def read(loader: Iterable[object]) -> Callable[[], object]:
        return lambda: [None for _ in loader]

    def plain(dataset: Dataset[object]) -> Callable[[], object]:
        return read(DataLoader(dataset, BATCH_SIZE, shuffle=True))

    images, labels = floats.tensors
    buffer = torch.empty_like(images[:BATCH_SIZE])

    def copy() -> None:
        for batch in images.split(BATCH_SIZE):
            buffer[: len(batch)].copy_(batch)

    return {
        "per-sample recipe": plain(Recipe(images, labels)),
        "TensorDataset + DataLoader": plain(floats),
        "DataLoader over ours": plain(ours),
        "gp.Loader": read(gp.Loader(ours, BATCH_SIZE, shuffle=True)),
        "gp.Loader(reuse_buffers=True)": read(
            gp.Loader(ours, BATCH_SIZE, shuffle=True, reuse_buffers=True)
        ),
        "limit: copying the float32 bytes": copy,
    }


def check_equal(ours: gp.GPUPreloadDataset, floats: TensorDataset) -> None:
    """Refuse to time loaders that do not give the same floats."""
    images, labels = floats.tensors
    for reuse in (False, True):
        loader = gp.Loader(ours, BATCH_SIZE, reuse_buffers=reuse)
        for k, (batch, batch_labels) in enumerate(loader):
            rows = slice(k * BATCH_SIZE, (k + 1) * BATCH_SIZE)
            assert torch.equal(batch, images[rows]), "the batches differ"
            assert torch.equal(batch_labels, labels[rows]), "the labels differ"


if __name__ == "__main__":
    main()
