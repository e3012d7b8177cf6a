"""Fair timing: loaders against each other, in turn; and whether preloading would help at all."""

from gpupreload.timing.compare import LoaderTimes, TimedLoader, time_loaders
from gpupreload.timing.machine import machine
from gpupreload.timing.outlook import Outlook, will_it_help
from gpupreload.timing.turns import Spread, in_turn, ratios, seconds_of

__all__ = [
    "LoaderTimes",
    "Outlook",
    "Spread",
    "TimedLoader",
    "in_turn",
    "machine",
    "ratios",
    "seconds_of",
    "time_loaders",
    "will_it_help",
]
