"""Rectangles erased from a batch, one for each sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.choose import choose
from gpupreload.functional.chunks import check_batch, check_rows, column, in_one_piece
from gpupreload.source import describe


def erase(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    value: float | Sequence[float] | Tensor = 0,
) -> Tensor:
    """Overwrite a rectangle of each image, as torchvision's `erase` does to one.

    Args:
        images: batch [N, C, H, W], uint8 or floats, on any device.
        top: int64 [N], the first line of each rectangle.
        left: int64 [N], its first column.
        height: int64 [N], its lines; 0 leaves an image as it is.
        width: int64 [N], its columns; 0 leaves an image as it is.
        value: what to write: a number, C numbers (one for each channel), or a tensor that
            broadcasts to [N, C, H, W], such as noise. A pixel takes the noise that lies at its own
            place in the image, not counted from the rectangle's corner. It is cast to the images'
            dtype as `Tensor.to` does, which cuts decimals off.

    Returns:
        A new batch [N, C, H, W] of the same dtype, device and layout.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has not N rows, or `value` does not
            go with the images' shape.

    >>> images = torch.ones(2, 1, 1, 3)
    >>> zero, one = torch.tensor([0, 0]), torch.tensor([1, 1])
    >>> erase(images, zero, torch.tensor([0, 1]), one, torch.tensor([0, 2])).flatten(1)
    tensor([[1., 1., 1.],
            [1., 0., 0.]])
    """
    check_batch(images)
    check_rows(images, top=top, left=left, height=height, width=width)
    h, w = images.shape[2:]
    lines = _between(top, height, h, images)[:, :, :, None]
    columns = _between(left, width, w, images)[:, :, None, :]
    if not in_one_piece(images):
        # as bytes: the CPU's loop over two broadcast bools takes 10 times as long
        lines, columns = lines.view(torch.uint8), columns.view(torch.uint8)
    erased = (lines & columns).view(torch.bool)
    return choose(erased, _as_pixels(value, images), images)


def _between(first: Tensor, count: Tensor, size: int, images: Tensor) -> Tensor:
    first, count = (column(v, images, torch.int64)[..., 0] for v in (first, count))
    position = torch.arange(size, device=images.device)
    return (position >= first) & (position < first + count)


def _as_pixels(value: float | Sequence[float] | Tensor, images: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        value = torch.tensor(value, dtype=torch.float32)
    value = value.view(-1, 1, 1) if value.ndim == 1 else value
    try:
        fits = torch.broadcast_shapes(value.shape, images.shape) == images.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"value must be a number, {images.shape[1]} numbers (one for each channel) or a tensor "
            f"that broadcasts to the images' shape {tuple(images.shape)}, got {describe(value)}."
        )
    return value.to(images.device, non_blocking=True).to(images.dtype)
