"""What does one device do with a resident set: images/s, share of copying, launches, memory?

Written for a CUDA device, where it takes under five minutes and writes JSON to bench/results/.
Without one, or with `--quick`, fewer images run on the CPU, and JSON goes where `--json` says.

Each way gives normalised float32 batches on the device, from uint8 images that are there already
(airbench: float16). Rows without augmentation are compared with the images' own floats first;
augmented ones with torchvision's statistics. "of a copy" sets the batches' bytes per second against
a measured device-to-device copy's. "launches" are kernels a batch on a GPU, and operators that
PyTorch dispatches on a CPU. "memory" is the most that was allocated above what was there before
loading, the store included; it is not known on a CPU.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import airbench
import interleaved
import torch
import torchvision.transforms.v2 as v2
from epoch import FLOATS, NORMALIZE, MadeUp, Recipe
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import gpupreload as gp
from gpupreload.rows import Rows
from gpupreload.stages import Drawn
from gpupreload.table import Table, in_units
from gpupreload.timing import seconds_of

RESULTS = Path(__file__).parent / "results"
Loaders = dict[str, Callable[[], Iterable[Any]]]


class Kernels:
    """Our each-batch part with parameters that are drawn beforehand, as one function of tensors.

    It reads the same rows in the same order each time: what a GPU would do if drawing cost nothing.
    """

    def __init__(self, dataset: gp.GPUPreloadDataset, batch_size: int, compiled: str = "") -> None:
        self._images, self._stages = dataset.images, dataset.each_batch.stages
        self._run = torch.compile(self._apply, backend=compiled) if compiled else self._apply
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
        whole = order[: len(order) // batch_size * batch_size]  # one shape: compiled once
        self._batches = [self._prepared(dataset, rows) for rows in whole.split(batch_size)]

    def _prepared(self, dataset: gp.GPUPreloadDataset, indices: Tensor) -> tuple[Tensor, list[Any]]:
        rows, shape = Rows(0, 0, indices), tuple(dataset.images.shape[1:])
        drawn = [s.draw(rows, shape) if isinstance(s, Drawn) else None for s in self._stages]
        on_device = [
            p and {name: value.to(dataset.device) for name, value in p.items()} for p in drawn
        ]
        return indices.to(dataset.device), on_device

    def _apply(self, indices: Tensor, params: list[Any]) -> Tensor:
        images = self._images.index_select(0, indices)
        for stage, drawn in zip(self._stages, params, strict=True):
            images = stage(images, None) if drawn is None else stage.native.apply(images, drawn)
        return images

    def __iter__(self) -> Iterator[Tensor]:
        return (self._run(indices, params) for indices, params in self._batches)


def main() -> None:
    """Measure every case and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--quick", action="store_true", help="the reduced form on the CPU")
    asked = parser.parse_args()
    on_gpu = torch.cuda.is_available() and not asked.quick
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    sizes = ((10_000, 32, 500), (2_500, 112, 250)) if on_gpu else ((512, 32, 64), (96, 112, 32))
    copy = copied_bytes_per_second(device, (1 << 30) if on_gpu else (1 << 24))
    rows: list[dict[str, Any]] = []
    for n_images, side, batch_size in sizes:
        for name in ("plain", "augmented"):
            rows += case(name, n_images, side, batch_size, device)
    for row in rows:
        row["of_a_copy"] = row["bytes_per_second"] / copy
    machine = interleaved.machine(device)
    print(machine)
    print(table(rows, copy))
    path = asked.json or (RESULTS / f"{file_name(device)}.json" if on_gpu else None)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {"date": str(date.today()), "machine": machine, "copied": copy, "rows": rows}
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(f"written to {path.name}")


def file_name(device: torch.device) -> str:
    """A device's name in letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(device).lower()).strip("-")


def copied_bytes_per_second(device: torch.device, n_bytes: int) -> float:
    """What a copy from the device to itself writes: the best of ten, after one."""
    source = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = [seconds_of(lambda: target.copy_(source), device) for _ in range(11)]
    return n_bytes / min(seconds[1:])


def case(
    name: str, n_images: int, side: int, batch_size: int, device: torch.device
) -> list[dict[str, Any]]:
    """Measure every way for images of one size."""
    moves = [v2.RandomCrop(side, padding=side // 14), v2.RandomHorizontalFlip()]
    steps = [*FLOATS, NORMALIZE]
    if name == "augmented":
        steps = [*moves, *FLOATS, v2.RandomErasing(p=0.5), NORMALIZE]
    torch.compiler.reset()  # the case before has filled its cache
    data = MadeUp(n_images, side, transform=None)
    with tempfile.TemporaryDirectory() as folder:
        makers = ways(data, steps, batch_size, device, Path(folder))
        peaks = {key: peak(make, device) for key, make in makers.items()}
        loaders = {key: make() for key, make in makers.items()}
    check(loaders, data, name)
    times = gp.time_loaders(loaders, epochs=2 if device.type == "cpu" else 5, device=device)
    shape = f"{n_images:,} × 3×{side}×{side}, {name}"
    return [
        {
            "images": shape,
            "way": timed.name,
            "batch_size": batch_size,
            **times.to_dict()["loaders"][i],
            "bytes_per_second": timed.n_bytes / timed.n_images * timed.images_per_second.median,
            "launches": launches(loaders[timed.name], device),
            "peak_bytes": peaks[timed.name],
        }
        for i, timed in enumerate(times.loaders)
    ]


def ways(
    data: MadeUp, steps: list[Any], batch_size: int, device: torch.device, folder: Path
) -> Loaders:
    """How to make each loader, the per-sample recipe first."""
    backend = "inductor" if device.type == "cuda" else "aot_eager"
    transform, side = v2.Compose(steps), data.images.shape[-1]

    def recipe() -> DataLoader[Any]:
        images, labels = data.images.to(device), torch.zeros(len(data)).long().to(device)
        return DataLoader(Recipe(images, labels, transform), batch_size, shuffle=True)

    def ours() -> gp.GPUPreloadDataset:
        return gp.preload(data, steps, device=device, seed=0, progress=False)

    makers: Loaders = {
        "per-sample recipe": recipe,
        "DataLoader over ours": lambda: DataLoader(ours(), batch_size, shuffle=True),
        "gp.Loader": lambda: gp.Loader(ours(), batch_size, shuffle=True),
        "gp.Loader(reuse_buffers=True)": lambda: gp.Loader(
            ours(), batch_size, shuffle=True, reuse_buffers=True
        ),
        "ours, parameters ready": lambda: Kernels(ours(), batch_size),
        f"the same, torch.compile ({backend})": lambda: Kernels(ours(), batch_size, backend),
    }
    if side == 32:
        saved = {"images": data.images.permute(0, 2, 3, 1).contiguous(), "classes": ["one"]}
        torch.save(saved | {"labels": torch.zeros(len(data)).long()}, folder / "train.pt")
        aug = {"flip": True, "translate": 2} if len(steps) > len([*FLOATS, NORMALIZE]) else {}
        options = {"batch_size": batch_size, "aug": aug, "gpu": device, "drop_last": False}
        makers["airbench, float16, no erasing"] = lambda: airbench.CifarLoader(
            str(folder), **options
        )
    return makers


def peak(make: Callable[[], Iterable[Any]], device: torch.device) -> int | None:
    """Bytes allocated at the most while a loader is made and run once; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    for _batch in make():
        pass
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def launches(loader: Iterable[Any], device: torch.device) -> float:
    """Kernels that a batch starts on a GPU, or operators it dispatches on a CPU: a mean of ten."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiled:
        n_batches = sum(1 for _batch in islice(loader, 10))
    names = (event.name for event in profiled.events())
    wanted = ("cudaLaunchKernel", "cuLaunchKernel") if on_gpu else ("aten::",)
    return sum(name.startswith(wanted) for name in names) / n_batches


def check(loaders: dict[str, Iterable[Any]], data: MadeUp, name: str) -> None:
    """Refuse to time what does not give the same mean and deviation as the first way.

    Without augmentation these are the whole set's, but for rounding, whatever the order; with it,
    erased parts make them differ by chance. airbench normalises in float16 and erases nothing:
    bench/cifar.py compares it in its own form.
    """
    torch.manual_seed(0)
    found = {key: moments(loader) for key, loader in loaders.items() if "airbench" not in key}
    expected = next(iter(found.values()))
    whole = NORMALIZE(data.images[:500].float() / 255)
    bound = 1e-3 if name == "plain" else 0.15 * (len(data) / 96) ** -0.5
    for key, moment in found.items():
        # what leaves out the last, smaller batch has fewer images
        slack = 0.02 if "compile" in key or "ready" in key else 0.0
        assert torch.all((moment - expected).abs() < bound + slack), f"{key}: {moment}, {expected}"
    if name == "plain":
        assert torch.all((expected - torch.stack([whole.mean(), whole.std()])).abs() < 0.05)


def moments(loader: Iterable[Any]) -> Tensor:
    """Mean and deviation of all images of an epoch."""
    batches = (batch[0] if isinstance(batch, tuple | list) else batch for batch in loader)
    sums = [
        torch.stack([torch.tensor(float(x.numel())).to(x.device), x.sum(), x.square().sum()]).cpu()
        for x in (batch.double() for batch in batches)
    ]
    n, total, squares = torch.stack(sums).sum(0)
    return torch.stack([total / n, (squares / n - (total / n) ** 2).sqrt()])


def table(rows: list[dict[str, Any]], copy: float) -> Table:
    """One row a case and way."""
    shown = []
    for i, row in enumerate(rows):
        ratio, images = row["ratio"], row["images"]
        peak_bytes = row["peak_bytes"]
        shown.append(
            (
                images if not i or images != rows[i - 1]["images"] else "",
                row["way"],
                f"{row['images_per_second']['median']:,.0f}",
                f"×{ratio['median']:.2f}",
                f"×{ratio['low']:.2f} to ×{ratio['high']:.2f}",
                f"{100 * row['of_a_copy']:.1f} %",
                f"{row['launches']:,.0f}",
                "" if peak_bytes is None else in_units(peak_bytes),
            )
        )
    headings = ("", "", "median images/s", "ratio", "in each round", "of a copy", "launches")
    return Table(
        tuple(shown),
        (*headings, "memory"),
        title="Epochs of resident images; ratios to the per-sample recipe",
        note=f"A copy on the device writes {copy / 1e9:,.1f} GB/s.",
        right=tuple(range(2, 8)),
    )


if __name__ == "__main__":
    main()
