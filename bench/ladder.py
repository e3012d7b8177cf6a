"""How fast is an epoch from each rung of the ladder: device, both sides, host's memory, file?

Every rung gives the same shuffled batches, cropped, flipped and normalised; that is checked first,
bit for bit. The file is in the operating system's page cache; one that is larger than memory is
read from the disk itself, at the disk's speed. Then a process of its own loads a larger set to a
file, goes through an epoch of it, and tells how far its anonymous memory (RssAnon) rose.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import interleaved
import torch
import torchvision.transforms.v2 as v2
from process_memory import field
from torch import Tensor
from torch.utils.data import Dataset

import gpupreload as gp
from gpupreload.table import in_units

BATCH_SIZE = 64
RUNGS = ("device", "mixed", "host", "disk")
STEPS = [
    v2.RandomCrop(112, padding=8),
    v2.RandomHorizontalFlip(),
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]


class MadeUp(Dataset[tuple[Tensor, int]]):
    """Random uint8 images of one size: the numbers do not change the work."""

    def __init__(self, n_images: int) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (n_images, 3, 112, 112)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], index % 10


def main() -> None:
    """Measure every rung on the best device there is: one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few images and rounds, for tests")
    arguments = parser.parse_args()
    n_images, rounds = (200, 2) if arguments.quick else (1550, 15)
    with tempfile.TemporaryDirectory() as folder:
        data = MadeUp(n_images)
        stores = {rung: preload(data, rung, folder) for rung in RUNGS}
        device = stores["device"].device
        print(interleaved.machine(device))
        for reuse in (False, True):
            print(f"\n{epochs(stores, n_images, rounds, device, reuse=reuse)}")
    print(f"\n{memory_of_disk(n_images if arguments.quick else 57_100)}")


def preload(data: Dataset[tuple[Tensor, int]], rung: str, folder: str) -> gp.GPUPreloadDataset:
    """The same images, drawn from the same seed, on one rung."""
    transform = v2.Compose(STEPS)
    return gp.preload(data, transform, seed=0, progress=False, placement=rung, cache=folder)


def epochs(
    stores: dict[str, gp.GPUPreloadDataset],
    n_images: int,
    rounds: int,
    device: torch.device,
    *,
    reuse: bool,
) -> object:
    """Measure epochs of `gp.Loader`, with and without memory that is used again."""
    loaders = {
        rung: gp.Loader(store, BATCH_SIZE, shuffle=True, reuse_buffers=reuse)
        for rung, store in stores.items()
    }
    check_equal(loaders)
    ways = {rung: epoch(loader) for rung, loader in loaders.items()}
    seconds = interleaved.measure(ways, rounds, device)
    notes = {rung: store.store.where for rung, store in stores.items()}
    title = (
        f"{n_images:,} × 3×112×112, batch {BATCH_SIZE}, crop + flip + normalise, "
        f"gp.Loader(reuse_buffers={reuse})"
    )
    return interleaved.table(seconds, n_images, title=title, base="device", notes=notes)


def epoch(loader: gp.Loader) -> Callable[[], object]:
    """Go through a loader once."""
    return lambda: [None for _ in loader]


def check_equal(loaders: dict[str, gp.Loader]) -> None:
    """Refuse to time rungs whose batches differ in a single bit."""
    for batches in zip(*loaders.values(), strict=True):
        images, labels = batches[0]
        for other_images, other_labels in batches[1:]:
            assert torch.equal(images, other_images), "the batches differ"
            assert torch.equal(labels, other_labels), "the labels differ"


def memory_of_disk(n_images: int) -> str:
    """Say what loading to a file, and an epoch from it, take in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        code = f"import ladder; ladder.load_and_watch({n_images}, {folder!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.rstrip()


class Counted(Dataset[tuple[Tensor, int]]):
    """Images of one colour each, which take no memory themselves."""

    def __init__(self, n_images: int) -> None:
        self.n_images = n_images

    def __len__(self) -> int:
        return self.n_images

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3, 112, 112), index % 256, dtype=torch.uint8), index % 10


def load_and_watch(n_images: int, folder: str) -> None:
    """Load to a file, go through an epoch, and print by how much anonymous memory rose."""
    for _batch in gp.Loader(preload(Counted(BATCH_SIZE), "disk", folder), BATCH_SIZE):
        pass  # what is imported and started on the first use is no part of the set
    watch = Watch()
    ours = preload(Counted(n_images), "disk", folder)
    for _batch in gp.Loader(ours, BATCH_SIZE, shuffle=True):
        pass
    rise = in_units(watch.rise()) if watch.peak else "not known here"
    store = in_units(ours.images.nbytes)
    print(f'anonymous memory of "disk", loading and an epoch, for a store of {store}: {rise}')


class Watch(threading.Thread):
    """Reads the anonymous memory of this process every two milliseconds; 0 where not on Linux."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = field("RssAnon")
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until it is told to stop."""
        while not self.done.wait(0.002):
            self.peak = max(self.peak, field("RssAnon"))

    def rise(self) -> int:
        """Stop, and return the bytes between the start and the peak."""
        self.done.set()
        self.join()
        return max(self.peak, field("RssAnon")) - self.before


if __name__ == "__main__":
    main()
