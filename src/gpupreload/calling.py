"""A step of the caller's, called so that an error names it."""

from __future__ import annotations

from typing import Any

import torch

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
