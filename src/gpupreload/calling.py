"""A step of the caller's, called so that an error names it, and no image is turned unseen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpupreload.errors import GPUPreloadError, TransformError
from gpupreload.settings import name_of


def call_named(step: Any, images: Any, name: str = "") -> Any:
    """Call a step on an image or a batch.

    Args:
        step: any callable.
        images: what it is given.
        name: of the step, for the message; "" for the one that `name_of` finds.

    Raises:
        TransformError: the step raised an error, which is its cause. This library's own come out
            as they are, and so does that of a device without memory, which a caller may catch.
    """
    if torch.compiler.is_compiling():  # what is raised then, the compiler reports in its own way
        return step(images)
    try:
        return step(images)
    except (GPUPreloadError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise TransformError(
            f"{name or name_of(step)} raised {type(error).__name__}: {error}"
        ) from error


def check_layout(name: str, image: Any, result: Any) -> None:
    """Refuse an array that was made of a tensor [C, H, W] and seems to be [C, H, W] still.

    An array is read as [H, W, C], as `ToTensor` reads it, so its dimensions would change places.

    Args:
        name: of the step that was called, for the message.
        image: what it was given.
        result: what it returned.

    Raises:
        TransformError: the result is such an array.
    """
    if not (isinstance(result, np.ndarray) and result.ndim == 3 and isinstance(image, Tensor)):
        return
    n_channels, (first, _, last) = image.shape[0], result.shape
    if last != n_channels or first == n_channels:
        raise TransformError(
            f"{name} was given a tensor [C, H, W] and returned a NumPy array "
            f"{list(result.shape)}. Arrays are read as [H, W, C], and this one seems to be "
            "[C, H, W]; return a tensor, such as torch.from_numpy(array), instead."
        )
