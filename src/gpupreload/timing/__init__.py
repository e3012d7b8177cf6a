"""Fair timing: loaders against each other, in turn; and whether preloading would help at all."""

from gpupreload.timing.compare import LoaderTimes, TimedLoader, time_loaders
from gpupreload.timing.machine import machine
from gpupreload.timing.turns import Spread, in_turn, ratios

__all__ = [
    "LoaderTimes",
    "Spread",
    "TimedLoader",
    "in_turn",
    "machine",
    "ratios",
    "time_loaders",
]
