"""How fast is preloading, beside the obvious loop over an `ImageFolder`?

The loop is `for i in range(len(ds)): store[i] = ds[i][0]` over an `ImageFolder` with `ToTensor`,
into a float32 store. Every store is compared with it before anything is timed: bit for bit, and for
`decode="fast"` by the greatest difference, which is printed.

Three sets of photos: the sample photos of about 140 pixels; the same cut to 112×112 and saved as
such; and some of about 400×533 (cut from scikit-image's photographs), through `Resize(128)` and
`CenterCrop(112)`. Or a folder of class folders of your own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import interleaved
import large_photos
import torch
import torchvision.transforms as T
from process_memory import high_water
from torch import Tensor
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder

import gpupreload as gp
from gpupreload.decode import read
from gpupreload.table import Table

SIDE = 112
N_LARGE, N_LARGE_QUICK = 600, 30


@dataclass(frozen=True)
class Job:
    """A folder of photos, and the number that `Resize` is given before the crop.

    Attributes:
        name: of the photos.
        root: the folder.
        resize: of the shorter side, in pixels.
    """

    name: str
    root: str
    resize: int

    @property
    def transform(self) -> T.Compose:
        """The whole transform, as an ImageFolder takes it."""
        return T.Compose([T.Resize(self.resize), T.CenterCrop(SIDE), T.ToTensor()])

    def loop(self) -> Tensor:
        """The obvious loop."""
        dataset = ImageFolder(self.root, self.transform)
        store = torch.empty((len(dataset), 3, SIDE, SIDE))
        for i in range(len(dataset)):
            store[i] = dataset[i][0]
        return store

    def list_and_stack(self) -> Tensor:
        """A list of images, stacked at the end."""
        dataset = ImageFolder(self.root, self.transform)
        return torch.stack([dataset[i][0] for i in range(len(dataset))])

    def preload(self, **options: object) -> gp.GPUPreloadDataset:
        """Ours."""
        return gp.preload(self.root, self.transform, device="cpu", progress=False, **options)

    def decode_all(self) -> None:
        """The limit of exact reading: decoding alone, in this thread."""
        for path, _ in ImageFolder(self.root).samples:
            read(path)


def main() -> None:
    """Check, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="class folders; two sets of photos if left out")
    parser.add_argument("--quick", action="store_true", help="few photos and rounds, for tests")
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(peak_here(arguments.folder, arguments.peak))
        return
    print(interleaved.machine())
    with jobs(arguments.folder, arguments.quick) as wanted:
        for job in wanted:
            print(f"\n{compare(job, rounds=1 if arguments.quick else 5)}")
        print(f"\n{peaks(wanted[0])}")


@contextmanager
def jobs(folder: str | None, is_quick: bool) -> Iterator[list[Job]]:
    """The photos to be measured on; those that are made here are deleted at the end."""
    if folder:
        yield [Job(folder, folder, 128)]
        return
    with tempfile.TemporaryDirectory(prefix="gpupreload-bench-") as made:
        large = large_photos.write(Path(made) / "large", N_LARGE_QUICK if is_quick else N_LARGE)
        small = gp.sample_photos("val" if is_quick else "train")
        yield [
            Job("the sample photos", str(small), SIDE),
            Job("photos of 112×112", str(cut(small, Path(made) / "cut")), SIDE),
            Job("photos of about 400×533", str(large), 128),
        ]


def cut(root: Path, to: Path) -> Path:
    """Save the photos of a folder again as JPEG files of exactly the size that is stored."""
    steps = T.Compose([T.Resize(SIDE), T.CenterCrop(SIDE)])
    for path, _ in ImageFolder(root).samples:
        target = to / Path(path).relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        steps(read(path)).save(target, quality=90)
    return to


def compare(job: Job, rounds: int) -> Table:
    """Measure every way on one set of photos."""
    difference = check(job)
    with tempfile.TemporaryDirectory(prefix="gpupreload-cache-") as cache:
        job.preload(cache=cache).free()
        hit = job.preload(cache=cache)
        assert hit.report.cache.startswith("Cache: hit"), hit.report.cache
        n_images, _ = len(hit), hit.free()
        ways: dict[str, Callable[[], object]] = {
            "ImageFolder loop": job.loop,
            "list + torch.stack": job.list_and_stack,
            "gp.preload, 1 thread": lambda: job.preload(workers=1).free(),
            "gp.preload": lambda: job.preload().free(),
            'gp.preload, decode="fast"': lambda: job.preload(decode="fast").free(),
            "gp.preload, second load from the cache": lambda: job.preload(cache=cache).free(),
            "limit: decoding alone, 1 thread": job.decode_all,
        }
        seconds = interleaved.measure(ways, rounds)
    title = f"{n_images:,}: {job.name}, Resize({job.resize}), CenterCrop({SIDE}), ToTensor"
    return interleaved.table(
        seconds,
        n_images,
        title=title,
        base="ImageFolder loop",
        notes={'gp.preload, decode="fast"': difference},
    )


def check(job: Job) -> str:
    """Compare all stores with the loop's; say in words how far fast reading is from it."""
    expected = job.loop()
    with tempfile.TemporaryDirectory() as cache:
        for options in ({}, {"cache": cache}, {"cache": cache}):
            with job.preload(**options) as ours:
                assert torch.equal(ours.as_tensor_dataset().tensors[0], expected), "they differ"
    with job.preload(decode="fast") as fast:
        levels = (fast.images.float() - 255 * expected).abs()
    assert levels.max() < 2.5, "fast reading is more than two levels off"
    return f"at most {levels.max():.0f} of 255 off, {levels.mean():.4f} on average"


# --- memory: each way in a process of its own, for what one has freed hides what the next takes

PEAKS = ("ImageFolder loop", "gp.preload", "first load with a cache", "second load from the cache")


def peaks(job: Job) -> Table:
    """The most memory that each way takes beyond what was there before it."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpupreload-cache-") as cache:
        for way in PEAKS:
            command = [sys.executable, __file__, f"{job.root}|{job.resize}|{cache}", "--peak", way]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            peak, store = map(int, run.stdout.split())
            rows.append((way, f"{peak / 2**20:.1f} MiB", f"{store / 2**20:.1f} MiB"))
    headings = ("", "peak beyond the start", "of which stays")
    return Table(tuple(rows), headings, title=f"Memory: {job.name}", right=(1, 2))


def peak_here(place: str, way: str) -> str:
    """Load in this process; return the peak of its memory and what the store takes, in bytes."""
    root, resize, cache = place.split("|")
    job = Job(root, root, int(resize))
    few = Subset(ImageFolder(root, job.transform), range(8))
    gp.preload(few, device="cpu", progress=False, workers=2).free()  # what the first use loads
    before = high_water(anew=True)
    if way == "ImageFolder loop":
        n_bytes = job.loop().nbytes
    else:
        options = {} if way == "gp.preload" else {"cache": cache}
        ours = job.preload(**options)
        n_bytes = ours.images.nbytes + ours.labels.nbytes
    return f"{high_water() - before} {n_bytes}"


if __name__ == "__main__":
    main()
