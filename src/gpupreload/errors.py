"""The ways gpupreload can fail.

Each message says what was expected, what came, and what to do next.
Every class here derives from `GPUPreloadError`, and from the built-in exception that a caller
of torchvision or PyTorch would already be catching in the same place.
"""


class GPUPreloadError(Exception):
    """The base of every error that gpupreload raises on purpose."""


class DataError(GPUPreloadError, ValueError):
    """The data cannot be used as they are: a label out of range, an item that is no image."""


class FolderError(DataError, FileNotFoundError):
    """A folder is missing, holds no class folders, or holds a class without images.

    A `FileNotFoundError` too, as `torchvision.datasets.ImageFolder` raises.
    """

    # OSError's own __str__ is used unless it is overridden, and drops nothing here: one argument.


class UnreadableError(DataError):
    """One or more image files cannot be read; the message names them and says why."""


class SizeError(DataError):
    """The images do not come out of the deterministic steps in one size."""


class TransformError(GPUPreloadError, ValueError):
    """A transform, or one step of it, cannot be used here; the message names the step."""


class FrozenAugmentationError(TransformError):
    """A random step stands where it would run once and be frozen for every epoch."""


class DoesNotFitError(GPUPreloadError, MemoryError):
    """The images need more memory than the device has free."""


class DeviceError(GPUPreloadError, RuntimeError):
    """The device asked for is not there."""


class FreedError(GPUPreloadError, RuntimeError):
    """The dataset's memory was given back with `free()`; it has nothing left to serve."""


class LoadingError(GPUPreloadError, RuntimeError):
    """What was asked for does not go with where the images are: on the device, or below it."""


class ArgumentError(GPUPreloadError, ValueError):
    """An argument has a value that cannot be used, such as `batch_size=0`."""
