"""What a person hands to a module of steps, looked at before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpupreload.catalog import expects_0_to_1, is_normalize, kind_of
from gpupreload.errors import ArgumentError
from gpupreload.parts import Step
from gpupreload.source import describe

# an antialiased resize of floats leaves 0 to 1 by its rounding
_SLACK = 1e-3


def check_batch(images: Any) -> None:
    """Raise `ArgumentError` unless images are a batch [N, C, H, W] of uint8 or plain floats."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        is_one = isinstance(images, Tensor) and images.ndim == 3
        advice = " Give a single image a batch dimension with images[None]." if is_one else ""
        raise ArgumentError(f"images is {describe(images)}; expected a batch [N, C, H, W].{advice}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ArgumentError(
            f"images is {describe(images)}; expected uint8 (0 to 255) or floats (0 to 1). "
            "Convert it with images.to(torch.uint8)."
        )
    if 0 in images.shape[1:]:
        raise ArgumentError(
            f"images is {describe(images)}; expected images of one pixel or more, and one channel "
            "or more. Look at how the batch was cut."
        )
    if images.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            f"images is {describe(images)} that requires a gradient; expected one that does not, "
            "for most steps pass none on. Give images.detach(), or call in torch.no_grad()."
        )


def as_numbers(indices: Any) -> Tensor:
    """Return sample numbers as a tensor, of the dtype that they have.

    Raises:
        ArgumentError: they are nothing that a tensor can be made of, such as a generator.
    """
    if isinstance(indices, Tensor):
        return indices
    try:
        numbers = torch.as_tensor(indices, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"indices is {describe(indices)}; expected the number of each sample, as an int64 "
            "tensor or a list of int. Of anything that yields numbers, pass list(...)."
        ) from None
    return numbers if numbers.numel() else numbers.to(torch.int64)  # an empty list tells no dtype


def checked_indices(indices: Tensor | Sequence[int] | None, images: Tensor) -> Tensor:
    """Return the sample number of each row, int64 [N] on the CPU; None numbers the rows from 0.

    Raises:
        ArgumentError: there is not one int64 for each image.
    """
    if indices is None:
        return torch.arange(len(images), device="cpu")
    numbers = as_numbers(indices)
    if numbers.dtype != torch.int64 or numbers.shape != images.shape[:1]:
        raise ArgumentError(
            f"indices is {describe(numbers)}; expected an int64 tensor of shape "
            f"({len(images)},), the sample number of each row of images."
        )
    return numbers.cpu()


def first_of_0_to_1(steps: Sequence[Step]) -> str | None:
    """Name the first step that takes floats as lying between 0 and 1, as the batch came in.

    None where there is none, or where a `Normalize` or a callable of the caller's own comes before
    it: what these make is not known from the batch.
    """
    for step in steps:
        if is_normalize(step.transform) or kind_of(step.transform) not in (
            "deterministic",
            "random",
        ):
            return None
        if expects_0_to_1(step.transform):
            return step.name
    return None


def check_0_to_1(images: Tensor, step: str | None) -> None:
    """Raise `ArgumentError` for floats on the CPU that lie outside of what a step expects.

    On an accelerator nothing is looked at, for it would have to be waited for.
    """
    unseen = images.device.type != "cpu" or torch.compiler.is_compiling()
    if step is None or unseen or not images.is_floating_point() or not images.numel():
        return
    low, high = (float(end) for end in images.detach().aminmax())
    if not (low >= -_SLACK and high <= 1 + _SLACK):
        raise ArgumentError(
            f"images run from {low:.3g} to {high:.3g}, but {step} takes floats as colours from 0 "
            "to 1. Put it before Normalize; floats up to 255 are brought there by images / 255."
        )


def check_labels(labels: Tensor | None, mix: str | None) -> None:
    """Raise `ArgumentError` where labels are missing, or nothing would be done with them."""
    if mix is not None and labels is None:
        raise ArgumentError(
            f"labels is None, but {mix} mixes them with the images; expected (images, labels), "
            "with one label for each image."
        )
    if mix is None and labels is not None:
        raise ArgumentError(
            "labels were given, but no step mixes them; expected images alone. Leave labels out, "
            "or put v2.MixUp or v2.CutMix at the end of the transform."
        )
