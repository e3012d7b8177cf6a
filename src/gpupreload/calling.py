"""A step of the caller's, called so that an error names it, and no image is turned unseen."""

from __future__ import annotations

import inspect
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
        way_on = by_name(step, images, error)
        text = f"{name or name_of(step)} raised {type(error).__name__}: {error}\n{way_on}"
        raise TransformError(text.removesuffix("\n")) from error


def by_name(step: Any, image: Any, error: Exception) -> str:
    """How to call a step that takes its image as `image=`, as Albumentations does; "" for others.

    Args:
        step: any callable.
        image: what it was given: a PIL image, an array [H, W, C] or a tensor [C, H, W].
        error: what it raised.
    """
    if not _takes_image_by_name(step, error) or (isinstance(image, Tensor) and image.ndim != 3):
        return ""
    array, result = "np.asarray(image)", "{}"
    if isinstance(image, Tensor):
        array = "image.permute(1, 2, 0).cpu().numpy()"
        result = "torch.from_numpy({}).permute(2, 0, 1)"
    call = result.format(f'aug(image={array})["image"]')
    return f"It takes the image by name: put lambda image: {call} in its place."


def _takes_image_by_name(step: Any, error: Exception) -> bool:
    try:
        parameters = inspect.signature(step).parameters
    except (TypeError, ValueError):  # some built-in callables have none
        return False
    kinds = {parameter.kind for parameter in parameters.values()}
    if kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return False
    if inspect.Parameter.VAR_POSITIONAL in kinds:  # it may take the image so, and fail in itself
        return "named arguments" in str(error)
    return "image" in parameters or inspect.Parameter.VAR_KEYWORD in kinds


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
