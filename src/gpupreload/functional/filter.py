"""Sharpness, Gaussian blur and Gaussian noise for batches, with one parameter a sample.

Each function takes a batch [N, C, H, W] of uint8 (0 to 255) or floats (0 to 1) on any device and
returns a new batch of the same dtype, device and layout. Row i is what torchvision's function of
the same name gives image i alone, within one level. Parameters are tensors with one row a sample,
best on the CPU; their values are taken as given. Where `mask` (bool [N]) is False, a row comes out
as it was. float16 and bfloat16 are calculated in float32 and rounded once.
"""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.chunks import (
    apply,
    check_batch,
    check_rows,
    column,
    exact,
    white,
    work_dtype,
)


def adjust_sharpness(images: Tensor, factor: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sharpen image i (factor above 1) or soften it (below 1).

    The soft version is the mean of each pixel, counted five times, and its eight neighbours. The
    outermost pixels, which have fewer, are left as they are.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 or 3.
        factor: [N], 0 or more; 0 gives the soft version, 1 leaves an image as it is.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.
    """
    check_batch(images, (1, 3))
    check_rows(images, factor=factor, mask=mask)
    kernel = partial(_sharpen, top=white(images))
    return apply(images, kernel, column(1 - exact(factor), images), mask=mask)


def gaussian_blur(
    images: Tensor, kernel_size: tuple[int, int], sigma: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Blur image i with a Gaussian of standard deviation `sigma[i]`, mirrored at the borders.

    The weights are torchvision's, who spaces them by 1 / sqrt(2) of a pixel.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        kernel_size: (width, height) of the kernel in pixels, odd, as torchvision has it.
        sigma: [N], or [N, 2] for (horizontal, vertical); above 0.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has not N rows, or the kernel is even
            or reaches further than the image does.
    """
    check_batch(images)
    check_rows(images, sigma=sigma, mask=mask)
    _check_kernel_size(images, kernel_size)
    sigmas = sigma.reshape(len(sigma), 1).expand(-1, 2) if sigma.ndim == 1 else sigma
    across, down = (
        column(_gaussian(size, sigmas[:, i], work_dtype(images)), images)
        for i, size in enumerate(kernel_size)
    )
    kernel = partial(_blur, top=white(images))
    return apply(images, kernel, across, down, mask=mask)


def gaussian_noise(
    images: Tensor,
    noise: Tensor,
    mean: Tensor,
    sigma: Tensor,
    *,
    clip: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """Add `mean[i] + sigma[i] * noise[i]` to image i.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        noise: floats [N, C, H, W], drawn from the standard normal distribution.
        mean: [N], on the scale of 0 to 1, for uint8 too.
        sigma: [N], 0 or more, on that scale.
        clip: cut off at black and white. Without it uint8 wraps around, as torchvision's does.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has not N rows, or `noise` has
            another shape than `images`.
    """
    check_batch(images)
    check_rows(images, mean=mean, sigma=sigma, mask=mask)
    if noise.shape != images.shape:
        raise ArgumentError(
            f"noise must have the shape of images, {tuple(images.shape)}, got "
            f"{tuple(noise.shape)}. Draw one number for each value of the batch."
        )
    top = white(images)
    noise = noise.to(images.device, work_dtype(images), non_blocking=True)
    mean, sigma = (column(exact(p) * top, images) for p in (mean, sigma))
    kernel = partial(_add_noise, top=top, clip=clip)
    return apply(images, kernel, noise, mean, sigma, mask=mask)


def _sharpen(x: Tensor, softness: Tensor, top: int) -> Tensor:
    inner = x[..., 1:-1, 1:-1]
    rows = (x[..., :-2, :] + x[..., 1:-1, :]).add_(x[..., 2:, :])
    soft = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:]).add_(inner, alpha=4).div_(13)
    if top == 255:
        # thirteenths are never halfway between two levels, so any order of adding rounds alike
        soft = soft.round_()
    inner.addcmul_(soft.sub_(inner), softness)
    return x.clamp_(0, top)


def _check_kernel_size(images: Tensor, kernel_size: tuple[int, int]) -> None:
    width, height = kernel_size
    if width % 2 == 0 or height % 2 == 0 or width < 1 or height < 1:
        raise ArgumentError(
            f"kernel_size is {(width, height)}; expected two odd numbers of pixels, width and "
            "height, such as (3, 3)."
        )
    if images.numel() and (width // 2 >= images.shape[3] or height // 2 >= images.shape[2]):
        raise ArgumentError(
            f"kernel_size is {(width, height)} (width, height), too large for images of "
            f"{images.shape[3]}×{images.shape[2]} pixels: half of it must be less than the image, "
            "which is mirrored at its borders. Choose a smaller kernel."
        )


def _gaussian(size: int, sigma: Tensor, dtype: torch.dtype) -> Tensor:
    """The weights [N, size] of a Gaussian kernel, which add up to 1."""
    reach = (size - 1) / (2 * math.sqrt(2))
    at = torch.linspace(-reach, reach, size, dtype=dtype, device=sigma.device)
    return torch.softmax(-((at / sigma.to(dtype)[:, None]) ** 2), dim=1)


def _blur(x: Tensor, across: Tensor, down: Tensor, top: int) -> Tensor:
    n, channels, height, width = x.shape
    side, above = across.shape[1] // 2, down.shape[1] // 2
    x = F.pad(x, (side, side, above, above), mode="reflect")
    # all planes as the channels of one image: each has a kernel of its own
    x = x.reshape(1, n * channels, height + 2 * above, width + 2 * side)
    vertical, horizontal = down.transpose(1, 2), across.transpose(1, 3)
    # of 3 x 3, one pass takes half the time of two; of 5 x 5, as long; above that, longer
    small = across.shape[1] * down.shape[1] < 25
    for weights in (vertical * horizontal,) if small else (vertical, horizontal):
        x = F.conv2d(x, weights.repeat_interleave(channels, dim=0), groups=n * channels)
    x = x.view(n, channels, height, width)
    return x.round_() if top == 255 else x


def _add_noise(
    x: Tensor, noise: Tensor, mean: Tensor, sigma: Tensor, top: int, clip: bool
) -> Tensor:
    added = (noise * sigma).add_(mean)
    # towards zero, in whole levels, before it is added
    x = x.add_(added.to(torch.int16) if top == 255 else added)
    if clip:
        return x.clamp_(0, top)
    # a float below 0 has no defined conversion to uint8
    return x.remainder_(256) if top == 255 else x
