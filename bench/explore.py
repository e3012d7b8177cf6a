"""How much kernel time does one step of the explorer's epoch slider take?

Sixteen draws of one sample photo of 112 pixels, drawn, laid out, encoded and set in the widget. The
processor's time is that of this process alone, whatever else runs on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time

import interleaved
import torch
import torchvision.transforms.v2 as v2

import gpupreload as gp
from gpupreload.explore.explorer import Explorer
from gpupreload.explore.pictures import VIEWS, Look, render
from gpupreload.explore.recipe import Recipe
from gpupreload.table import Table

SIZE = [v2.Resize(112), v2.CenterCrop(112)]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
CROP = [v2.RandomResizedCrop(112), v2.RandomHorizontalFlip()]

TRANSFORMS = {
    "crop, flip": [*SIZE, *CROP, *FLOATS],
    "crop, flip, colour, rotation, erasing": [
        *(*SIZE, *CROP, v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.RandomRotation(20)),
        *(*FLOATS, v2.RandomErasing()),
    ],
    "RandAugment": [*SIZE, v2.RandAugment(), *FLOATS],
}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, for tests")
    quick = parser.parse_args().quick
    photos = gp.sample_photos("val" if quick else "train")
    rows = []
    for name, steps in TRANSFORMS.items():
        dataset = gp.preload(photos, v2.Compose(steps), device="cpu", seed=0, progress=False)
        for view in VIEWS:
            explorer = gp.explore(dataset)
            explorer.view.value = view
            _check_what_is_shown(explorer, dataset)
            seconds = _seconds(explorer, quick)
            rows.append((name, view, *(f"{1e3 * t:.1f} ms" for t in seconds)))
            explorer.close()
    print(interleaved.machine())
    headings = ("random steps", "view", "median", "slowest", "processor, median")
    title = "kernel time of one step of the epoch slider"
    print(Table(tuple(rows), headings, title=title, right=(2, 3, 4)))


def _check_what_is_shown(explorer: Explorer, dataset: gp.GPUPreloadDataset) -> None:
    look = Look(explorer.view.value, seed=0)
    assert explorer.error == ""
    assert render(dataset, Recipe.of(dataset), look).says in explorer._status.value


def _seconds(explorer: Explorer, quick: bool) -> tuple[float, float, float]:
    """The median and the longest time of a step, and the processor's; the first is not counted."""
    times, cpu_times = [], []
    for epoch in range(1, 5 if quick else 61):
        start, cpu_start = time.perf_counter(), time.process_time()
        explorer.epoch.value = epoch
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    return statistics.median(times[1:]), max(times[1:]), statistics.median(cpu_times[1:])


if __name__ == "__main__":
    main()
