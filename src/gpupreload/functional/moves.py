"""Flips, crops and padding: pixels are moved and none is changed, with one place for each sample.

Each function takes a batch [N, C, H, W] of uint8 or floats on any device and returns a new batch of
the same dtype, device and layout (contiguous or channels_last). Row i equals what torchvision's
function of the same name gives image i alone, exactly. Parameters are tensors with one row a
sample, best on the CPU; nothing here waits for an accelerator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms.v2.functional import pad_image

from gpupreload.errors import ArgumentError
from gpupreload.functional.choose import choose
from gpupreload.functional.chunks import (
    check_batch,
    check_rows,
    column,
    in_one_piece,
    put_rows,
    take_rows,
)
from gpupreload.functional.pieces import in_pieces, layout, new_batch, pieces

# what a CPU thread copies at a time: it stays in cache
_BYTES_A_THREAD = 1 << 20
# up to here a batch is padded in one go; more would be fresh memory each time (above 32 MiB the C
# library keeps none), which costs the CPU as much as filling it
_BYTES_AT_ONCE = 16 << 20

PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


def horizontal_flip(images: Tensor, flip: Tensor) -> Tensor:
    """Mirror the rows in which `flip` is True, left to right.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        flip: bool [N].

    Raises:
        ArgumentError: `images` is no such batch, or `flip` has not N rows.

    >>> images = torch.tensor([1, 2, 1, 2], dtype=torch.uint8).view(2, 1, 1, 2)
    >>> horizontal_flip(images, torch.tensor([True, False])).flatten(1)
    tensor([[2, 1],
            [1, 2]], dtype=torch.uint8)
    """
    return _flip(images, flip, -1)


def vertical_flip(images: Tensor, flip: Tensor) -> Tensor:
    """Mirror the rows in which `flip` is True, top to bottom.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        flip: bool [N].

    Raises:
        ArgumentError: `images` is no such batch, or `flip` has not N rows.
    """
    return _flip(images, flip, -2)


def pad(
    images: Tensor,
    padding: int | Sequence[int],
    *,
    fill: float | Sequence[float] = 0,
    padding_mode: str = "constant",
) -> Tensor:
    """Pad all images alike, as torchvision's `pad`, without its detour by way of float32.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        padding: pixels on all sides, or (left and right, top and bottom), or (left, top, right,
            bottom).
        fill: the value of "constant" padding, or one for each channel.
        padding_mode: "constant", "edge" (the outermost pixel), "reflect" (a mirror on the outermost
            pixel) or "symmetric" (a mirror beside it).

    Returns:
        The batch [N, C, H + top + bottom, W + left + right].

    Raises:
        ArgumentError: an unknown mode, a `fill` that does not go with the channels, or more
            padding than the image has pixels to mirror.

    >>> row = torch.tensor([1, 2, 3], dtype=torch.uint8).view(1, 1, 1, 3)
    >>> pad(row, (2, 0), padding_mode="reflect").flatten()
    tensor([3, 2, 1, 2, 3, 2, 1], dtype=torch.uint8)
    """
    check_batch(images)
    if padding_mode not in PADDING_MODES:
        raise ArgumentError(
            f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}."
        )
    if padding_mode == "constant":
        fill = fill if isinstance(fill, int | float) else list(fill)
        if isinstance(fill, list) and len(fill) not in (1, images.shape[1]):
            raise ArgumentError(
                f"fill is {fill}, of {len(fill)} values, but the images have {images.shape[1]} "
                "channels. Give one number, or one for each channel."
            )
        _check_range(fill, images)
        constant: Tensor = pad_image(images, padding=_four(padding), fill=fill)
        return constant
    left, top, right, bottom = _four(padding)
    wide = _extend(images, -1, left, right, padding_mode)
    padded = _extend(wide, -2, top, bottom, padding_mode)
    return padded.contiguous(memory_format=layout(images))


def _check_range(fill: float | list[float], images: Tensor) -> None:
    values = fill if isinstance(fill, list) else [fill]
    if images.dtype == torch.uint8 and not all(0 <= value < 256 for value in values):
        raise ArgumentError(
            f"fill is {fill}, but the images are uint8; expected a colour from 0 to 255. Give "
            "another fill, or put the step after the one that makes floats."
        )


def crop(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: int,
    width: int,
    *,
    padding: int | Sequence[int] | None = None,
    fill: float | Sequence[float] = 0,
    padding_mode: str = "constant",
) -> Tensor:
    """Cut a window of one size out of each image, at a place of its own.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        top: int64 [N], the first line of each window, counted in the padded image.
        left: int64 [N], the first column, likewise.
        height: lines of the windows.
        width: columns of the windows.
        padding: what `pad` takes; None for none.
        fill: what `pad` takes.
        padding_mode: what `pad` takes.

    Returns:
        The batch [N, C, height, width]; what lies outside the padded image is 0.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has not N rows, or `pad` refuses.

    >>> images = torch.arange(8, dtype=torch.uint8).view(2, 1, 1, 4)
    >>> crop(images, torch.tensor([0, 0]), torch.tensor([2, -1]), 1, 2).flatten(1)
    tensor([[2, 3],
            [0, 4]], dtype=torch.uint8)
    """
    check_batch(images)
    check_rows(images, top=top, left=left)
    on_cpu = top.device.type == left.device.type == "cpu" and not in_one_piece(images)
    cut = _crop_by_windows if on_cpu else crop_by_gather

    def piece(rows: slice) -> Tensor:
        part = images[rows]
        if padding is not None:
            part = pad(part, padding, fill=fill, padding_mode=padding_mode)
        return cut(part, top[rows], left[rows], height, width)

    if not on_cpu or padding is None or len(images) * _bytes(images) <= _BYTES_AT_ONCE:
        return piece(slice(None))
    return in_pieces(new_batch(images, (height, width)), piece, _bytes(images), _BYTES_A_THREAD)


def crop_by_gather(images: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """Do what `crop` does by the number of each pixel, without ever reading the parameters.

    The way for accelerators and inside `torch.compile`; on the CPU the other way is faster.
    """
    n, c, h, w = images.shape
    y = _lines(top, height, images)
    x = _lines(left, width, images)
    inside = ((y >= 0) & (y < h))[:, :, None] & ((x >= 0) & (x < w))[:, None, :]
    number = y.clamp(0, h - 1)[:, :, None] * w + x.clamp(0, w - 1)[:, None, :]
    pixels = images.flatten(2).gather(2, number.flatten(1)[:, None].expand(-1, c, -1))
    cropped = choose(inside[:, None], pixels.view(n, c, height, width), images.new_zeros(()))
    return cropped.contiguous(memory_format=layout(images))


def _flip(images: Tensor, flip: Tensor, dim: int) -> Tensor:
    check_batch(images)
    check_rows(images, flip=flip)
    if in_one_piece(images) or flip.device.type != "cpu":
        return choose(column(flip, images, torch.bool), images.flip(dim), images)
    out = images.clone()
    flipped = flip.nonzero().squeeze(1)
    for start, stop in pieces(images, len(flipped), _bytes(images), _BYTES_A_THREAD):
        rows = flipped[start:stop]
        put_rows(out, rows, take_rows(images, rows).flip(dim))
    return out


def _bytes(images: Tensor) -> int:
    return images.shape[1:].numel() * images.element_size()


def _four(padding: int | Sequence[int]) -> list[int]:
    sides = [padding] if isinstance(padding, int) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ArgumentError(
            f"padding must be 1, 2 or 4 numbers of pixels, got {len(sides)}: {padding!r}."
        )
    return sides * (4 // len(sides))


def _extend(images: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    size = images.shape[dim]
    most = {"edge": max(before, after), "reflect": size - 1, "symmetric": size}[mode]
    if min(before, after) < 0 or max(before, after) > most:
        raise ArgumentError(
            f"padding of {before} and {after} pixels in mode {mode!r} does not go with images of "
            f"{size} pixels; expected 0 to {most}. Use less, or padding_mode='edge'."
        )
    outside = torch.arange(-before, 0), torch.arange(size, size + after)
    ends = [images.index_select(dim, _reflected(i, size, mode).to(images.device)) for i in outside]
    return torch.cat([ends[0], images, ends[1]], dim)


def _reflected(position: Tensor, size: int, mode: str) -> Tensor:
    """The pixel that stands for each position outside 0 to size - 1."""
    if mode == "edge":
        return position.clamp(0, size - 1)
    beside = 1 if mode == "symmetric" else 0  # a mirror beside the last pixel, or on it
    below = -position - beside
    above = 2 * (size - 1) - position + beside
    return torch.where(position < 0, below, above)


def _lines(first: Tensor, count: int, images: Tensor) -> Tensor:
    first = first.to(torch.int64).to(images.device, non_blocking=True)
    return first[:, None] + torch.arange(count, device=images.device)


def _crop_by_windows(images: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """Look at the batch as one long line on which every start is a window, and pick N of them."""
    n, c, _, _ = images.shape
    if n == 0:
        return new_batch(images, (height, width))
    order = layout(images)
    images, top, left = _with_zeros_around(images, top, left, height, width)
    images = images.contiguous(memory_format=order)
    h, w = images.shape[2:]
    planes, pixel = (c, 1) if order == torch.contiguous_format else (1, c)
    line = w * pixel
    span = (planes - 1) * h * line + (height - 1) * line + width * pixel
    windows = images.as_strided(
        (images.numel() - span + 1, planes, height, width * pixel), (1, h * line, line, 1)
    )
    start = torch.arange(n) * (c * h * w) + (top * w + left) * pixel
    picked = windows.index_select(0, start)
    if planes == 1:
        return picked.view(n, height, width, c).permute(0, 3, 1, 2)
    return picked


def _with_zeros_around(
    images: Tensor, top: Tensor, left: Tensor, height: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Add the black border that the windows reach into, and count from its corner."""
    h, w = images.shape[2:]
    # farther out a window is as black as it is one step outside
    top, left = top.to(torch.int64).clamp(-height, h), left.to(torch.int64).clamp(-width, w)
    above, before = max(0, -int(top.min())), max(0, -int(left.min()))
    below, after = int(top.max()) + height - h, int(left.max()) + width - w
    if above or before or below > 0 or after > 0:
        images = pad(images, (before, above, max(0, after), max(0, below)))
    return images, top + above, left + before
