"""Put an image-classification dataset on the GPU once, and serve every batch from there.

import gpupreload as gp

gp.plan("photos/train", transform)             # headers only: how many bytes, does it fit
train = gp.preload("photos/train", transform)  # decode once, keep the pixels on the device
for images, labels in gp.Loader(train, batch_size=64, shuffle=True, seed=0):
    ...                                        # on the device, augmented for each sample
"""

from importlib.metadata import version

from gpupreload.cache import clear_cache
from gpupreload.check import check
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import (
    ArgumentError,
    DataError,
    DeviceError,
    DoesNotFitError,
    FolderError,
    FreedError,
    FrozenAugmentationError,
    GPUPreloadError,
    LoadingError,
    SizeError,
    TransformError,
    UnreadableError,
)
from gpupreload.explore import explore, explore_plan
from gpupreload.frozen import FrozenReport, find_frozen
from gpupreload.loader import Loader
from gpupreload.parameters import Parameters, StepParameters, parameters_of
from gpupreload.per_sample import per_sample
from gpupreload.photos import sample_photos
from gpupreload.plan import plan
from gpupreload.planned import Plan
from gpupreload.preloading import preload
from gpupreload.report import LoadReport
from gpupreload.shared import SharedReport, shares_draws
from gpupreload.show import show_augmented, show_batch
from gpupreload.steps import Step, Steps, batched, live, once, split_transform
from gpupreload.timing import LoaderTimes, Outlook, TimedLoader, time_loaders, will_it_help

__version__ = version("gpupreload")

__all__ = [
    "ArgumentError",
    "DataError",
    "DeviceError",
    "DoesNotFitError",
    "FolderError",
    "FreedError",
    "FrozenAugmentationError",
    "FrozenReport",
    "GPUPreloadDataset",
    "GPUPreloadError",
    "LoadReport",
    "Loader",
    "LoaderTimes",
    "LoadingError",
    "Outlook",
    "Parameters",
    "Plan",
    "SharedReport",
    "SizeError",
    "Step",
    "StepParameters",
    "Steps",
    "TimedLoader",
    "TransformError",
    "UnreadableError",
    "batched",
    "check",
    "clear_cache",
    "explore",
    "explore_plan",
    "find_frozen",
    "live",
    "once",
    "parameters_of",
    "per_sample",
    "plan",
    "preload",
    "sample_photos",
    "shares_draws",
    "show_augmented",
    "show_batch",
    "split_transform",
    "time_loaders",
    "will_it_help",
]
