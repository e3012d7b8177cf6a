"""Brightness, contrast, saturation, hue, grayscale and channel order, one parameter a sample.

Each function takes a batch [N, C, H, W] of uint8 (0 to 255) or floats (0 to 1) on any device and
returns a new batch of the same dtype, device and layout. Row i is what torchvision's function of
the same name gives image i alone: equal for uint8 and float32, but for hue (within one level).
Parameters are tensors with one row a sample, best on the CPU; their values are taken as given.
Where `mask` (bool [N]) is False, a row comes out as it was. float16 and bfloat16 are calculated in
float32 and rounded once.

The functions whose names end in an underscore are the same operations on a float batch that they
overwrite, with parameters in the form that `weights` and `angles` give.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.chunks import apply, check_batch, check_rows, column, exact, white


def adjust_brightness(images: Tensor, factor: Tensor, mask: Tensor | None = None) -> Tensor:
    """Multiply all values of image i by `factor[i]`, cut off at black and white.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 or 3.
        factor: [N], 0 or more; 1 leaves an image as it is.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.

    >>> images = torch.full((2, 3, 1, 1), 100, dtype=torch.uint8)
    >>> adjust_brightness(images, torch.tensor([0.5, 3.0]))[:, 0].flatten()
    tensor([ 50, 255], dtype=torch.uint8)
    """
    check_batch(images, (1, 3))
    check_rows(images, factor=factor, mask=mask)
    kernel = partial(brightness_, top=white(images))
    return apply(images, kernel, column(factor, images), mask=mask)


def adjust_contrast(images: Tensor, factor: Tensor, mask: Tensor | None = None) -> Tensor:
    """Move all values of image i away from (or towards) the mean of its gray version.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 or 3.
        factor: [N], 0 or more; 0 gives uniform gray, 1 leaves an image as it is.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.
    """
    check_batch(images, (1, 3))
    check_rows(images, factor=factor, mask=mask)
    kernel = partial(contrast_, top=white(images))
    return apply(images, kernel, column(weights(factor), images), mask=mask)


def adjust_saturation(images: Tensor, factor: Tensor, mask: Tensor | None = None) -> Tensor:
    """Move each pixel of image i away from (or towards) its gray version.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 (left as they are) or 3.
        factor: [N], 0 or more; 0 gives gray, 1 leaves an image as it is.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.
    """
    check_batch(images, (1, 3))
    check_rows(images, factor=factor, mask=mask)
    if images.shape[1] == 1:
        return images.clone()
    kernel = partial(saturation_, top=white(images))
    return apply(images, kernel, column(weights(factor), images), mask=mask)


def adjust_hue(images: Tensor, factor: Tensor, mask: Tensor | None = None) -> Tensor:
    """Turn the hue of image i by `factor[i]` of a full turn, as in HSV.

    Within one level of torchvision, whose arithmetic is longer: about 1 value in 100,000 differs,
    and for no factor tried more than 2 in 10,000. Rows whose factor is 0 come out as they are.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 (left as they are) or 3.
        factor: [N], from -0.5 to 0.5.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.

    >>> red = torch.tensor([255, 0, 0], dtype=torch.uint8).reshape(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([1 / 3])).flatten()  # a third of a turn: green
    tensor([  0, 255,   0], dtype=torch.uint8)
    """
    check_batch(images, (1, 3))
    check_rows(images, factor=factor, mask=mask)
    if images.shape[1] == 1:
        return images.clone()
    turned = factor != 0 if mask is None else mask.to(factor.device) & (factor != 0)
    kernel = partial(turn_hue, top=white(images))
    return apply(images, kernel, column(angles(factor), images), mask=turned)


def grayscale(
    images: Tensor, mask: Tensor | None = None, num_output_channels: int | None = None
) -> Tensor:
    """Make images gray, with the weights 0.2989, 0.587 and 0.114 of torchvision.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 or 3.
        mask: bool [N]: which rows to change; None for all.
        num_output_channels: 1 or 3 equal ones; by default as many as come in.

    Raises:
        ArgumentError: `images` is no such batch, `mask` has not N rows, or it would leave rows
            with another number of channels than the gray ones.
    """
    check_batch(images, (1, 3))
    check_rows(images, mask=mask)
    channels = num_output_channels or images.shape[1]
    if channels not in (1, 3) or (mask is not None and channels != images.shape[1]):
        raise ArgumentError(
            f"num_output_channels is {channels} for images of {images.shape[1]} channels"
            f"{'' if mask is None else ' and a mask'}; expected 1 or 3, and with a mask the "
            "number that the images have, for the other rows keep theirs."
        )
    if images.shape[1] == 1:
        return torch.empty_like(images.expand(-1, channels, -1, -1)).copy_(images)
    out = None if channels == 3 else torch.empty_like(images[:, :1])
    return apply(images, gray, mask=mask, out=out)


def permute_channels(images: Tensor, order: Tensor) -> Tensor:
    """Give image i the channels `images[i, order[i]]`, as torchvision's `permute_channels`.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        order: int64 [N, C], a permutation of 0 to C - 1 in each row.

    Raises:
        ArgumentError: `images` is no such batch, or `order` is not [N, C].
    """
    check_batch(images)
    check_rows(images, order=order)
    n, channels, height, width = images.shape
    if order.shape != (n, channels):
        raise ArgumentError(
            f"order must be [N, C], here [{n}, {channels}], got shape {tuple(order.shape)}. "
            "Give each image one permutation of its channels."
        )
    order = order.to(images.device, non_blocking=True)
    if not images.is_contiguous():
        index = order[:, :, None, None].expand(images.shape)
        return torch.empty_like(images).copy_(images.gather(1, index))
    planes = (order + torch.arange(n, device=order.device)[:, None] * channels).flatten()
    return images.view(-1, height * width).index_select(0, planes).view(images.shape)


def weights(factor: Tensor) -> Tensor:
    """The weights [N, 2] of an image and of its gray version in a blend: factor and 1 - factor."""
    factor = exact(factor)
    return torch.stack((factor, 1 - factor), dim=1)


def angles(factor: Tensor) -> Tensor:
    """How far to turn a hue [N] until it would be pure red, green and blue, in sixths of a turn.

    The result [N, 3] lies in -3 to 3, half a turn either way.
    """
    factor = exact(factor)
    turns = torch.stack((factor, factor - 1 / 3, factor + 1 / 3), dim=1)
    return (turns - turns.round()) * 6


def gray(x: Tensor) -> Tensor:
    """The gray version [n, 1, H, W] of a float batch [n, 3, H, W], not rounded."""
    red, green, blue = x.unbind(1)
    # scalar weights, one after another: torchvision's order and its fused multiply-adds
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(1)


def brightness_(x: Tensor, factor: Tensor, top: int) -> Tensor:
    """Change the brightness of a float batch [n, C, H, W] of 0 to `top`; factor [n, 1, 1, 1]."""
    return x.mul_(factor).clamp_(0, top)


def contrast_(x: Tensor, blend: Tensor, top: int) -> Tensor:
    """Change the contrast of a float batch [n, C, H, W] of 0 to `top`; weights [n, 2, 1, 1]."""
    mean = mean_gray(whole_gray(x, top) if x.shape[1] == 3 else x)
    # a plane, not a number an image: addcmul is vectorised for one broadcast operand, not two
    return _blend_(x, mean.expand(-1, -1, *x.shape[2:]).contiguous(), blend, top)


def saturation_(x: Tensor, blend: Tensor, top: int) -> Tensor:
    """Change the saturation of a float batch [n, 3, H, W] of 0 to `top`; weights [n, 2, 1, 1]."""
    return _blend_(x, whole_gray(x, top), blend, top)


def whole_gray(x: Tensor, top: int) -> Tensor:
    """The gray version [n, 1, H, W] as blends take it: in whole levels for uint8."""
    return gray(x).floor_() if top == 255 else gray(x)


def mean_gray(x: Tensor) -> Tensor:
    """The mean [n, 1, 1, 1] of each image."""
    return x.mean((1, 2, 3), keepdim=True)


def turn_hue(x: Tensor, turn: Tensor, top: int) -> Tensor:
    """Turn the hue of a float batch [n, 3, H, W] of 0 to `top`; turn [n, 3, 1, 1] from `angles`.

    With the hue h in sixths of a turn from red, a channel whose pure colour stands at angle a has
    the value `low + chroma * f`, where f is 1 up to 1 from a, 0 from 2 on, and linear between (the
    hexagon of HSV: A. R. Smith, "Color gamut transform pairs", 1978). No pixel is sorted into one
    of six cases: |h| * chroma = green + blue - red - low + chroma, with the sign of green - blue.
    """
    red, green, blue = x.unbind(1)
    low = torch.minimum(red, torch.minimum(green, blue))
    chroma = torch.maximum(red, torch.maximum(green, blue)).sub_(low)
    hue = (green + blue).sub_(red).sub_(low).add_(chroma)
    # where chroma is 0, so is the numerator
    hue = hue.div_(chroma.clamp(min=1e-12)).copysign_(green - blue)
    base = low.sub_(chroma)
    if top == 255:
        # torchvision goes from floats to levels with this factor, and cuts off the decimals
        base, chroma = base.mul_(255.999 / 255), chroma.mul_(255.999 / 255)
    # |hue + turn| is at most 6, so that folding it at 3 gives 3 less the distance on the circle
    nearness = (hue.unsqueeze(1) + turn).abs_().sub_(3).abs_().clamp_(1, 2)
    return torch.addcmul(base.unsqueeze(1), nearness, chroma.unsqueeze(1))


def _blend_(x: Tensor, other: Tensor, blend: Tensor, top: int) -> Tensor:
    return x.mul_(blend[:, :1]).addcmul_(other, blend[:, 1:]).clamp_(0, top)
