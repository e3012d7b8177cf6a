"""What the benchmarks share: ways run in turn, one table of them, and the machine's name."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from datetime import date

import torch

from gpupreload import timing
from gpupreload.table import Table
from gpupreload.timing import Spread, ratios


def measure(
    ways: Mapping[str, Callable[[], object]], rounds: int, device: torch.device | None = None
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each way in each round; one more round before them is not counted."""
    seconds = timing.in_turn(ways, 1 + rounds, device)
    return {name: times[1:] for name, times in seconds.items()}


def table(
    seconds: Mapping[str, tuple[float, ...]],
    n_images: int,
    *,
    title: str,
    base: str,
    notes: Mapping[str, str] | None = None,
) -> Table:
    """Compare with one of the ways: median time, images/s, and the ratio within each round."""
    rows = []
    for name, times in seconds.items():
        ratio = ratios(seconds[base], to=times)
        rows.append(
            (
                name,
                f"{1e3 * statistics.median(times):,.1f} ms",
                f"{n_images / statistics.median(times):,.0f}",
                f"×{ratio.median:.2f}",
                in_words(ratio),
                (notes or {}).get(name, ""),
            )
        )
    headings = ("", "median", "images/s", "ratio", "in each round", "")
    return Table(tuple(rows), headings, title=title, right=(1, 2, 3, 4))


def in_words(ratio: Spread) -> str:
    """The least and the greatest ratio of all rounds."""
    return f"×{ratio.low:.2f} to ×{ratio.high:.2f}"


def machine(device: torch.device | None = None) -> str:
    """Say when and on what all this was measured."""
    return f"{date.today()}, {timing.machine(device)}"
