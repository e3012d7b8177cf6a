"""torchvision's steps that change each value of an image by itself: conversions and Normalize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from torch import Tensor

from gpupreload.calling import call_named
from gpupreload.errors import TransformError
from gpupreload.settings import name_of

UNCHANGED_ON_TENSORS = (v1.PILToTensor, v2.PILToTensor, v2.ToImage, v2.ToPureTensor, v2.Identity)
PIXELWISE = (
    *UNCHANGED_ON_TENSORS,
    v1.ToTensor,
    v2.ToTensor,
    v1.ConvertImageDtype,
    v2.ConvertImageDtype,
    v2.ToDtype,
    v1.Normalize,
    v2.Normalize,
)


def is_pixelwise(step: Callable[..., Any]) -> bool:
    """Whether a step is one of torchvision's that change each value by itself: no subclass.

    A `ToDtype` with a dtype for each type of tensor is none: what it does depends on that type.
    """
    by_type = isinstance(step, v2.ToDtype) and not isinstance(step.dtype, torch.dtype)
    return type(step) in PIXELWISE and not by_type


def apply_step(step: Callable[..., Any], images: Tensor) -> Tensor:
    """Run one pixelwise torchvision step on a batch, as torchvision runs it on each image.

    Args:
        step: an instance of one of the classes in `PIXELWISE`.
        images: [N, C, H, W], on any device; never written to.

    Returns:
        A tensor [N, C, H, W]; the input itself where the step has nothing to do.
    """
    if type(step) in UNCHANGED_ON_TENSORS:
        return images
    if isinstance(step, v1.ToTensor | v2.ToTensor):
        # torchvision's ToTensor takes no tensors; these are its two operations on an array
        return images.to(torch.get_default_dtype()).div_(255) if is_uint8(images) else images
    if isinstance(step, v1.Normalize | v2.Normalize):
        _check_normalize(step, images)
    if getattr(step, "inplace", False):
        images = images.clone()
    result: Tensor = call_named(step, images)
    return result


def why_unusable_pixelwise(step: Any) -> str | None:
    """Say what is wrong with a pixelwise step for images of any kind, after its name; or None."""
    if isinstance(step, v1.Normalize | v2.Normalize):
        means, stds = _as_numbers(step.mean), _as_numbers(step.std)
        if not means:
            return f"has mean={step.mean!r}; expected a number for each channel"
        if not stds or 0 in stds:
            return f"has std={step.std!r}; expected a number for each channel, none of them 0"
        if len(means) != len(stds) and 1 not in (len(means), len(stds)):
            return f"has {len(means)} means and {len(stds)} standard deviations; expected as many"
    dtype = getattr(step, "dtype", None)
    if hasattr(step, "dtype") and not isinstance(dtype, torch.dtype):
        return f"has dtype={dtype!r}; expected a dtype of images, such as torch.float32"
    return None


def channels_after(step: Any, channels: int) -> int:
    """How many channels a pixelwise step makes of so many: of one, v2's `Normalize` makes more."""
    if not isinstance(step, v2.Normalize) or step.inplace:
        return channels
    return max(channels, _count(step.mean), _count(step.std))


def _as_numbers(values: Any) -> list[float]:
    """The numbers of a setting of `Normalize`, or none where they are no numbers."""
    try:
        return [float(number) for number in torch.as_tensor(values).flatten()]
    except (TypeError, ValueError, RuntimeError):
        return []


def _check_normalize(step: Any, images: Tensor) -> None:
    """Refuse what `Normalize` fails with for this batch."""
    if not images.is_floating_point():
        raise TransformError(
            f"{name_of(step)} got {images.dtype} images; expected floats. Put "
            "v2.ToDtype(torch.float32, scale=True) before it."
        )
    channels = images.shape[1]
    for name in ("mean", "std"):
        n = _count(getattr(step, name))
        # v2's makes as many channels of one as it has numbers
        of_gray = channels == 1 and isinstance(step, v2.Normalize) and not step.inplace
        if n not in (1, channels) and not of_gray:
            raise TransformError(
                f"{name_of(step)} has {n} numbers in {name}, but the images have {channels} "
                f"channel{'s'[: channels > 1]}. Give one number for each channel, or one for all."
            )


def is_uint8(images: Tensor) -> bool:
    """Whether values are whole numbers of 0 to 255, 8 bits a channel."""
    return images.dtype == torch.uint8


def _count(values: Any) -> int:
    """How many numbers a setting holds; where a graph is made, without a tensor of them."""
    if isinstance(values, Tensor):
        return values.numel()
    return len(values) if hasattr(values, "__len__") else 1
