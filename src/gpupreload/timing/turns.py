"""Ways of doing the same thing, run in turn: A B C A B C…, each by a clock that waits for devices.

A machine's speed drifts with its temperature and its other work. Run in turn, all ways meet the
same drift, and the ratio within a round is free of most of it.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing: their median, the least and the greatest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Sum up one or more measurements.

        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.0, high=3.0)
        """
        numbers = list(values)
        return cls(statistics.median(numbers), min(numbers), max(numbers))

    def contains(self, value: float) -> bool:
        """Whether a value lies within what was measured."""
        return self.low <= value <= self.high


def in_turn(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    device: torch.device | None = None,
) -> dict[str, tuple[float, ...]]:
    """Run every way once in each round, and return the seconds of each way, round by round.

    The garbage that a run has left is collected before the next, so that none pays for another's.

    Args:
        ways: what to call, by name.
        rounds: how often to call each; drop the first to leave warm-up out.
        device: what is waited for before each reading of the clock; None waits for nothing.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(seconds_of(way, device))
    return {name: tuple(times) for name, times in seconds.items()}


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """Divide pair by pair, round by round, and sum up.

    >>> ratios([2.0, 3.0, 8.0], to=[1.0, 2.0, 2.0])
    Spread(median=2.0, low=1.5, high=4.0)
    """
    return Spread.of(a / b for a, b in zip(of, to, strict=True))


def synchronize(device: torch.device | None) -> None:
    """Wait until a device has done all that it was given; a CPU has done it already."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device is not None and device.type == "mps":
        torch.mps.synchronize()


def seconds_of(way: Callable[[], object], device: torch.device | None = None) -> float:
    """Return the seconds that one call takes, until the device has done all its work."""
    gc.collect(1)  # all generations would take 0.15 s, for torch's own modules are looked at too
    synchronize(device)
    start = perf_counter()
    way()
    synchronize(device)
    return perf_counter() - start
