"""How fast is preloading, beside the obvious loop over an `ImageFolder`?

The loop is `for i in range(len(ds)): store[i] = ds[i][0]` over an `ImageFolder` with `ToTensor`,
into a float32 store. Both stores are compared bit for bit before anything is timed.
"""

from __future__ import annotations

import argparse

import interleaved
import torch
import torchvision.transforms as T
from torch import Tensor
from torchvision.datasets import ImageFolder

import gpupreload as gp
from gpupreload.decode import read

ONCE = [T.Resize(112), T.CenterCrop(112)]
TRANSFORM = T.Compose([*ONCE, T.ToTensor()])


def plain_loop(root: str) -> Tensor:
    """The obvious loop."""
    dataset = ImageFolder(root, TRANSFORM)
    store = torch.empty((len(dataset), 3, 112, 112))
    for i in range(len(dataset)):
        store[i] = dataset[i][0]
    return store


def list_and_stack(root: str) -> Tensor:
    """A list of images, stacked at the end."""
    dataset = ImageFolder(root, TRANSFORM)
    return torch.stack([dataset[i][0] for i in range(len(dataset))])


def preload(root: str, workers: int | None = None) -> gp.GPUPreloadDataset:
    """Ours."""
    return gp.preload(root, TRANSFORM, device="cpu", workers=workers, progress=False)


def main() -> None:
    """Check, measure, print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="class folders; the sample photos if left out")
    parser.add_argument("--quick", action="store_true", help="few rounds, for tests")
    arguments = parser.parse_args()
    root = arguments.folder or str(gp.sample_photos("val" if arguments.quick else "train"))
    print(interleaved.machine())
    print(compare(root, rounds=1 if arguments.quick else 5))


def compare(root: str, rounds: int) -> object:
    """Measure every way on one folder."""
    with preload(root) as ours:
        assert torch.equal(ours.as_tensor_dataset().tensors[0], plain_loop(root)), "they differ"
        n_images = len(ours)
        shape = "×".join(str(side) for side in ours.images.shape[1:])
    paths = [path for path, _ in ImageFolder(root).samples]
    ways = {
        "ImageFolder loop": lambda: plain_loop(root),
        "list + torch.stack": lambda: list_and_stack(root),
        "gp.preload, 1 thread": lambda: preload(root, workers=1).free(),
        "gp.preload": lambda: preload(root).free(),
        "limit: decoding alone, 1 thread": lambda: [read(path) for path in paths],
    }
    seconds = interleaved.measure(ways, rounds)
    title = f"{n_images:,} photos to {shape} (Resize, CenterCrop, ToTensor)"
    return interleaved.table(seconds, n_images, title=title, base="ImageFolder loop")


if __name__ == "__main__":
    main()
