"""The operations of torchvision's policies (RandAugment and its kin), one for each sample.

A magnitude means what it means to torchvision's `_apply_image_or_video_transform` of v2: the
tangent of a shear, pixels, degrees, what a factor has above 1, bits, or the share of white from
which values are inverted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import color, filter, grids, tone
from gpupreload.functional.chunks import check_batch, check_rows, put_rows, take_rows, white
from gpupreload.functional.moves import crop
from gpupreload.functional.sample import Fill
from gpupreload.functional.warp import warp_affine

OPERATIONS = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),
    *("Brightness", "Color", "Contrast", "Sharpness"),
    *("Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"),
)
"""What the numbers in `op_index` stand for, by torchvision's names."""

NUMBER_OF = {name: number for number, name in enumerate(OPERATIONS)}
"""The number of each operation."""

WARPS = ("ShearX", "ShearY", "Rotate")
MOVES = ("TranslateX", "TranslateY")
BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")

# all warps are one kernel with a matrix for each row, and both moves one with two numbers
_SHARED = dict.fromkeys(WARPS, "Rotate") | dict.fromkeys(MOVES, "TranslateX")
_KERNEL_OF = torch.tensor([NUMBER_OF[_SHARED.get(name, name)] for name in OPERATIONS])

_CHANGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Brightness": lambda images, m: color.adjust_brightness(images, 1 + m),
    "Color": lambda images, m: color.adjust_saturation(images, 1 + m),
    "Contrast": lambda images, m: color.adjust_contrast(images, 1 + m),
    "Sharpness": lambda images, m: filter.adjust_sharpness(images, 1 + m),
    "Posterize": lambda images, m: tone.posterize(images, m.to(torch.int64)),
    "Solarize": lambda images, m: tone.solarize(images, m * white(images)),
    "AutoContrast": lambda images, m: tone.autocontrast(images),
    "Equalize": lambda images, m: tone.equalize(images),
    "Invert": lambda images, m: tone.invert(images),
}


def apply_operations(
    images: Tensor,
    op_index: Tensor,
    magnitude: Tensor,
    *,
    interpolation: str = "nearest",
    fill: Fill = None,
) -> Tensor:
    """Apply K operations to each image, one after another.

    Rows that want the same operation go through its kernel together; which rows these are is known
    on the CPU, so that nothing waits for an accelerator.

    Args:
        images: batch [N, C, H, W], uint8 or floats of 0 to 1, C of 1 or 3.
        op_index: int64 [N, K] on the CPU, numbers in `OPERATIONS`.
        magnitude: float64 [N, K] on the CPU.
        interpolation: of shears and rotations, "nearest" or "bilinear".
        fill: the colour outside the image, a number or one for each channel; None for black.

    Returns:
        A new batch of the same shape, dtype, device and layout.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has not N rows, or `fill` has not a
            number for each channel.

    >>> images = torch.tensor([0, 200], dtype=torch.uint8).view(2, 1, 1, 1)
    >>> ops = torch.tensor([[NUMBER_OF["Invert"]], [NUMBER_OF["Brightness"]]])
    >>> apply_operations(images, ops, torch.tensor([[0.0], [-0.5]])).flatten()
    tensor([255, 100], dtype=torch.uint8)
    """
    check_batch(images, (1, 3))
    check_rows(images, op_index=op_index, magnitude=magnitude)
    _check_fill(fill, images.shape[1])
    out = images.clone()
    for ops, sizes in zip(op_index.unbind(1), magnitude.unbind(1), strict=True):
        for name, rows in _groups(ops):
            on_device = rows.to(images.device, non_blocking=True)
            part, which, m = take_rows(out, on_device), ops[rows], sizes[rows]
            if name in WARPS:
                matrices = warp_matrices(which, m, *images.shape[2:])
                part = warp_affine(part, matrices, interpolation=interpolation, fill=fill)
            elif name in MOVES:
                right, down = _split(which, m, MOVES)
                part = _moved(part, right, down, fill)
            else:
                part = _CHANGES[name](part, m)
            _put(out, on_device, part)
    return out


def warp_matrices(op_index: Tensor, magnitude: Tensor, height: int, width: int) -> Tensor:
    """The maps from output to input pixels of shears and rotations.

    Shears keep the top left corner where it is, rotations the middle; a shear's angle is the
    arctangent of its magnitude.

    Args:
        op_index: int64 [N] on the CPU, numbers in `OPERATIONS`.
        magnitude: float64 [N] on the CPU.
        height: of the images, in pixels.
        width: of the images, in pixels.

    Returns:
        float64 [N, 2, 3], as `warp_affine` takes them.
    """
    *shears, turn = _split(op_index, magnitude, WARPS)
    shear = torch.stack(shears, 1)
    corner = torch.tensor([-0.5 * width, -0.5 * height], dtype=torch.float64)
    return grids.inverse_affine_matrices(
        -(turn % 360),
        torch.zeros_like(shear),
        torch.ones_like(turn),
        torch.rad2deg(torch.atan(shear)),
        torch.where((shear != 0).any(1, keepdim=True), corner, 0.0),
    )


def _split(op_index: Tensor, magnitude: Tensor, names: tuple[str, ...]) -> list[Tensor]:
    """The magnitudes [N] that are meant for each of some operations, and 0 in the other rows."""
    return [torch.where(op_index == NUMBER_OF[name], magnitude, 0.0) for name in names]


def _moved(images: Tensor, right: Tensor, down: Tensor, fill: Fill) -> Tensor:
    """Move images by whole pixels, decimals cut off, as either interpolation does.

    Args:
        images: batch [N, C, H, W], N of 1 or more.
        right: float64 [N] on the CPU.
        down: float64 [N] on the CPU.
        fill: the colour outside the image.
    """
    x, y = right.to(torch.int64), down.to(torch.int64)
    reach = [int(pixels.abs().max()) for pixels in (x, y)]
    outside = _numbers(fill)
    if images.dtype == torch.uint8:
        # as torchvision rounds it where it warps
        outside = [float(round(v)) if math.isfinite(v) else v for v in outside]
    height, width = images.shape[2:]
    return crop(images, reach[1] - y, reach[0] - x, height, width, padding=reach, fill=outside)


def _numbers(fill: Fill) -> list[float]:
    return [fill or 0] if fill is None or isinstance(fill, int | float) else list(fill)


def _check_fill(fill: Fill, channels: int) -> None:
    """Refuse a fill of another number of channels, even where nothing drawn is filled."""
    n = len(_numbers(fill))
    if n not in (1, channels):
        raise ArgumentError(
            f"fill has {n} numbers, {fill!r}, and images have {channels} channels; expected None, "
            "one number, or one for each channel."
        )


def _groups(op_index: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The kernels that a step needs, each with its rows, int64 [K] on the CPU, ascending."""
    kernels = _KERNEL_OF[op_index]
    for number in kernels.unique().tolist():
        if number != NUMBER_OF["Identity"]:
            yield OPERATIONS[number], (kernels == number).nonzero().squeeze(1)


def _put(out: Tensor, rows: Tensor, values: Tensor) -> None:
    if out.device.type == "cpu":
        put_rows(out, rows, values)
    else:
        out.index_copy_(0, rows, values)
