"""Run several ways of doing the same thing in turn, A B C A B C…, and compare their times."""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import PIL
import torch
import torchvision

from gpupreload.table import Table


def measure(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way in each round; one more round before them is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            gc.collect()
            start = time.perf_counter()
            way()
            elapsed = time.perf_counter() - start
            if number:
                seconds[name].append(elapsed)
    return seconds


def table(
    seconds: Mapping[str, list[float]],
    n_images: int,
    *,
    title: str,
    base: str,
    notes: Mapping[str, str] | None = None,
) -> Table:
    """Compare with one of the ways: median time, images/s, and the ratio within each round."""
    rows = []
    for name, times in seconds.items():
        ratios = sorted(b / t for b, t in zip(seconds[base], times, strict=True))
        rows.append(
            (
                name,
                f"{1e3 * statistics.median(times):,.1f} ms",
                f"{n_images / statistics.median(times):,.0f}",
                f"×{statistics.median(ratios):.2f}",
                f"×{ratios[0]:.2f} to ×{ratios[-1]:.2f}",
                (notes or {}).get(name, ""),
            )
        )
    headings = ("", "median", "images/s", "ratio", "in each round", "")
    return Table(tuple(rows), headings, title=title, right=(1, 2, 3, 4))


def machine() -> str:
    """Say on what all this was measured."""
    return (
        f"{date.today()}, {_processor()}, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor() or platform.machine()
    lines = cpuinfo.read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "CPU")
