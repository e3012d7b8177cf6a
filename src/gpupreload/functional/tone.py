"""Invert, posterize, solarize, autocontrast and equalize for batches, chosen by sample.

Each function takes a batch [N, C, H, W] of uint8 (0 to 255) or floats (0 to 1) on any device and
returns a new batch of the same dtype, device and layout. Row i equals what torchvision's function
of the same name gives image i alone. Parameters are tensors with one row a sample, best on the
CPU; their values are taken as given. Where `mask` (bool [N]) is False, a row comes out as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpupreload.functional.chunks import (
    apply,
    as_stored,
    check_batch,
    check_rows,
    column,
    in_one_piece,
    put_rows,
    spans,
    take_rows,
    white,
    work_dtype,
)


def invert(images: Tensor, mask: Tensor | None = None) -> Tensor:
    """Turn black into white and white into black.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or `mask` has not N rows.

    >>> invert(torch.tensor([0, 100], dtype=torch.uint8).reshape(1, 1, 1, 2)).flatten()
    tensor([255, 155], dtype=torch.uint8)
    """
    check_batch(images)
    check_rows(images, mask=mask)
    if images.dtype != torch.uint8:
        return apply(images, _invert_floats, mask=mask)
    mask = torch.ones(len(images), dtype=torch.bool) if mask is None else mask
    # on the CPU, picking bits takes a hundredth of the time of `torch.where` on bytes
    return images ^ column(mask * 255, images, torch.uint8)


def posterize(images: Tensor, bits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Keep the upper `bits[i]` bits of the values of image i.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        bits: int64 [N], from 0 to 8; 8 leaves uint8 as it is.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.

    >>> image = torch.tensor([100, 255], dtype=torch.uint8).reshape(1, 1, 1, 2)
    >>> posterize(image, torch.tensor([2])).flatten()
    tensor([ 64, 192], dtype=torch.uint8)
    """
    check_batch(images)
    check_rows(images, bits=bits, mask=mask)
    if images.dtype != torch.uint8:
        return apply(images, _posterize_floats, column(2**bits, images), mask=mask)
    kept = 256 - 2 ** (8 - bits)
    kept = kept if mask is None else torch.where(mask.to(kept.device), kept, 255)
    return images & column(kept, images, torch.uint8)


def solarize(images: Tensor, threshold: Tensor, mask: Tensor | None = None) -> Tensor:
    """Invert the values of image i that are `threshold[i]` or above.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        threshold: [N], on the images' scale; above white, nothing changes.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.

    >>> image = torch.tensor([100, 200], dtype=torch.uint8).reshape(1, 1, 1, 2)
    >>> solarize(image, torch.tensor([128])).flatten()
    tensor([100,  55], dtype=torch.uint8)
    """
    check_batch(images)
    check_rows(images, threshold=threshold, mask=mask)
    if images.dtype != torch.uint8:
        return apply(images, _solarize_floats, column(threshold, images), mask=mask)
    reached = threshold <= 255
    mask = reached if mask is None else mask.to(reached.device) & reached
    # rounded to float32 first, as torchvision compares bytes with a number; a whole value that is
    # not below that is not below the next whole number
    lowest = threshold.to(torch.float32).ceil().clamp(0, 255)
    # in place, comparing with one number an image takes a thirtieth of the time on the CPU
    above = images.clone().ge_(column(lowest, images, torch.uint8))
    return above.mul_(column(mask * 255, images, torch.uint8)).bitwise_xor_(images)


def autocontrast(images: Tensor, mask: Tensor | None = None) -> Tensor:
    """Stretch each channel of each image so that it runs from black to white.

    For uint8 the brightest value becomes 254 as often as 255: torchvision cuts off the decimals.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 or 3. A channel of one value is left.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or `mask` has not N rows.

    >>> image = torch.tensor([50, 61, 72], dtype=torch.uint8).reshape(1, 1, 1, 3)
    >>> autocontrast(image).flatten()
    tensor([  0, 127, 255], dtype=torch.uint8)
    """
    check_batch(images, (1, 3))
    check_rows(images, mask=mask)
    top = white(images)

    def stretch(x: Tensor) -> Tensor:
        low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        uniform = low == high
        scale = torch.where(uniform, 1, (high - low).mul_(1 / top))
        return x.sub_(torch.where(uniform, 0, low)).div_(scale).clamp_(0, top)

    return apply(images, stretch, mask=mask)


def equalize(images: Tensor, mask: Tensor | None = None) -> Tensor:
    """Equalize the histogram of each channel of each image, by the rule of Pillow and torchvision.

    Floats are brought to 256 levels first.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, or `mask` has not N rows.
    """
    check_batch(images)
    check_rows(images, mask=mask)
    if in_one_piece(images):
        result = _from_levels(_equalized(_to_levels(images)), images)
        if mask is not None:
            result = torch.where(column(mask, images, torch.bool), result, images)
        return torch.empty_like(images).copy_(result)
    rows = torch.arange(len(images)) if mask is None else mask.nonzero().squeeze(1)
    out = images.clone()
    for start, stop in spans(images, len(rows)):
        part = take_rows(images, rows[start:stop])
        put_rows(out, rows[start:stop], _from_levels(_equalized(_to_levels(part)), part))
    return out


def _invert_floats(x: Tensor) -> Tensor:
    return x.neg_().add_(1)


def _posterize_floats(x: Tensor, levels: Tensor) -> Tensor:
    steps = x.mul_(levels).floor_().clamp_(min=0)
    return torch.minimum(steps, levels - 1).mul_(1 / levels)


def _solarize_floats(x: Tensor, threshold: Tensor) -> Tensor:
    return torch.where(x >= threshold, 1 - x, x)


def _to_levels(images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return images
    # a product in float16 would round 255.999 to 256, which wraps to black
    return as_stored(images.to(work_dtype(images)).mul(255.999), torch.uint8)


def _from_levels(levels: Tensor, like: Tensor) -> Tensor:
    if like.dtype == torch.uint8:
        return levels
    return levels.to(like.dtype).mul_(1 / 255)


def _equalized(levels: Tensor) -> Tensor:
    planes = levels.flatten(2).long()
    counts = planes.new_zeros((*planes.shape[:2], 256), dtype=torch.int32)
    counts.scatter_add_(2, planes, counts.new_ones(()).expand(planes.shape))
    table = _equalizing_table(counts)
    return table.gather(2, planes).view(levels.shape)


def _equalizing_table(counts: Tensor) -> Tensor:
    """The new level of each level, uint8 [N, C, 256], from histograms int32 [N, C, 256].

    In pixels a level, `step` is what is left of the brightest level that occurs, over 255. A level
    gets the number of pixels darker than it, over `step`, rounded. Where `step` is 0, all stay.
    """
    up_to = counts.cumsum(2, dtype=torch.int32)
    brightest = up_to.argmax(2, keepdim=True)
    step = (up_to[..., -1:] - counts.gather(2, brightest)).div_(255, rounding_mode="floor")
    darker = up_to - counts
    table = (darker + step // 2).div_(step.clamp(min=1), rounding_mode="floor").clamp_(0, 255)
    identity = torch.arange(256, dtype=torch.int32, device=counts.device)
    return torch.where(step == 0, identity, table).to(torch.uint8)
