"""Affine maps, rotations, perspectives and elastic deformations, with parameters for each sample.

Each function takes a batch [N, C, H, W] of uint8 or floats on any device and returns a new batch of
the same shape, dtype, device and layout. Row i is what torchvision's function of the same name
(v2, on a tensor) gives image i alone with parameter i. On the CPU it is equal to the last bit, for
both interpolations; where a matrix product of the machine does not round every product by itself,
as MKL's does, and on accelerators, a place on the border of two pixels may fall to either side.
Two exceptions: quarter turns of floats, which torchvision makes without interpolation, are within
0.0001; and float16 and bfloat16 are calculated in float32, whereas torchvision calculates their
grids in that precision, which moves pixels.

Parameters are tensors with one row a sample, best on the CPU and in float64, in which torchvision's
Python floats are. Where `mask` (bool [N]) is False, a row comes out as it was. None of these
functions has a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode

from gpupreload.errors import ArgumentError
from gpupreload.functional import grids, sample
from gpupreload.functional.chunks import (
    check_batch,
    check_rows,
    column,
    exact,
    in_one_piece,
    put_rows,
    take_rows,
    work_dtype,
)
from gpupreload.functional.pieces import pieces
from gpupreload.functional.sample import Fill
from gpupreload.source import describe

Center = Sequence[float] | Tensor | None

# pixels a CPU thread works on at a time: the float copies of 4 images of 3 x 112 x 112, or the
# pixel numbers of 16, are as much as stays in its cache (half or twice as many take longer)
_PIXELS_A_THREAD = {"bilinear": 4 * 112 * 112, "nearest": 16 * 112 * 112}


def affine(
    images: Tensor,
    angle: Tensor,
    translate: Tensor,
    scale: Tensor,
    shear: Tensor,
    *,
    interpolation: str | InterpolationMode = "nearest",
    fill: Fill = None,
    center: Center = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Rotate, move, scale and shear each image by parameters of its own.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        angle: float [N], degrees clockwise.
        translate: float [N, 2], pixels to the right and down.
        scale: float [N], greater than 0.
        shear: float [N, 2], degrees along x and along y.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image, a number or one for each channel; None for black.
        center: the fixed point (x, y) in pixels from the top left corner, for all images or
            [N, 2]; None for the middle.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has another shape, or the
            interpolation or the fill cannot be used.
    """
    check_batch(images)
    shapes = {"angle": angle, "translate": translate, "scale": scale, "shear": shear}
    for name, values in shapes.items():
        _check_shape(name, values, images, 2 if name in ("translate", "shear") else None)
    matrices = grids.inverse_affine_matrices(
        exact(angle), exact(translate), exact(scale), exact(shear), _from_middle(center, images)
    )
    return warp_affine(images, matrices, interpolation=interpolation, fill=fill, mask=mask)


def rotate(
    images: Tensor,
    angle: Tensor,
    *,
    interpolation: str | InterpolationMode = "nearest",
    fill: Fill = None,
    center: Center = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Rotate each image by an angle of its own; what leaves the image's frame is cut off.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        angle: float [N], degrees counter-clockwise.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image, a number or one for each channel; None for black.
        center: the fixed point (x, y) in pixels from the top left corner, for all images or
            [N, 2]; None for the middle.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, `angle` has not N rows, or the interpolation or
            the fill cannot be used.

    >>> images = torch.tensor([1, 2, 3, 4], dtype=torch.uint8).view(1, 1, 2, 2)
    >>> rotate(images, torch.tensor([90.0]))[0, 0]
    tensor([[2, 4],
            [1, 3]], dtype=torch.uint8)
    """
    check_batch(images)
    _check_shape("angle", angle, images)
    angle = exact(angle)
    nothing = torch.zeros_like(angle)[:, None].expand(-1, 2)
    matrices = grids.inverse_affine_matrices(
        -(angle % 360), nothing, torch.ones_like(angle), nothing, _from_middle(center, images)
    )
    return warp_affine(images, matrices, interpolation=interpolation, fill=fill, mask=mask)


def warp_affine(
    images: Tensor,
    matrices: Tensor,
    *,
    interpolation: str | InterpolationMode = "nearest",
    fill: Fill = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Map each image by a matrix of its own.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        matrices: float [N, 2, 3], from places in the result to places in the image, in pixels from
            the middle, as `grids.inverse_affine_matrices` gives them.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image, a number or one for each channel; None for black.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, `matrices` or `mask` have another shape, or the
            interpolation or the fill cannot be used.
    """
    check_batch(images)
    _check_shape("matrices", matrices, images, 2, 3)
    maps = grids.AffineMaps.from_matrices(matrices, images)
    return _warp(images, maps, interpolation, fill, mask)


def perspective(
    images: Tensor,
    coefficients: Tensor,
    *,
    interpolation: str | InterpolationMode = "bilinear",
    fill: Fill = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Look at each image from a place of its own.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        coefficients: float [N, 8], as `grids.perspective_coefficients` gives them.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image, a number or one for each channel; None for black.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, `coefficients` or `mask` have another shape, or
            the interpolation or the fill cannot be used.
    """
    check_batch(images)
    _check_shape("coefficients", coefficients, images, 8)
    maps = grids.PerspectiveMaps.from_coefficients(coefficients, images)
    return _warp(images, maps, interpolation, fill, mask)


def elastic(
    images: Tensor,
    displacement: Tensor,
    *,
    interpolation: str | InterpolationMode = "bilinear",
    fill: Fill = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Take each pixel from a place displaced by a vector of its own.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        displacement: float [N, H, W, 2], along x and y, where 2 is the image's width or height.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image, a number or one for each channel; None for black.
        mask: bool [N]: which rows to change; None for all.

    Raises:
        ArgumentError: `images` is no such batch, `displacement` or `mask` have another shape, or
            the interpolation or the fill cannot be used.
    """
    check_batch(images)
    _check_shape("displacement", displacement, images, *images.shape[2:], 2)
    maps = grids.ElasticMaps.from_displacement(displacement, images)
    return _warp(images, maps, interpolation, fill, mask)


def _warp(
    images: Tensor,
    maps: grids.Maps,
    interpolation: str | InterpolationMode,
    fill: Fill,
    mask: Tensor | None,
) -> Tensor:
    check_rows(images, mask=mask)
    mode = sample.mode_name(interpolation, ("nearest", "bilinear"))
    if mask is None or in_one_piece(images):
        out = torch.empty_like(images)
        _warp_rows(images, maps, mode, fill, out, None)
        return out if mask is None else torch.where(column(mask, images, torch.bool), out, images)
    out = images.clone()
    _warp_rows(images, maps, mode, fill, out, mask.nonzero().squeeze(1))
    return out


def _warp_rows(
    images: Tensor, maps: grids.Maps, mode: str, fill: Fill, out: Tensor, rows: Tensor | None
) -> None:
    """Warp some rows (None for all) of `images` into the same rows of `out`, piece by piece."""
    n, size = len(images) if rows is None else len(rows), images.shape[2:]
    spans = list(pieces(images, n, size.numel(), _PIXELS_A_THREAD[mode]))
    at_once = max((stop - start for start, stop in spans), default=0)
    read = (sample.Nearest if mode == "nearest" else sample.Bilinear)(images, at_once, fill)
    # kept for all pieces: fresh memory costs the CPU as much as filling it
    room = images.new_empty((2, at_once, *size, 2), dtype=work_dtype(images))
    for start, stop in spans:
        if rows is None:
            piece = slice(start, stop)
            read(images[piece], maps.grid(piece, room), out[piece])
        else:
            picked = rows[start:stop]
            part = take_rows(images, picked)
            # read from and written to: the readers copy their input first
            read(part, maps.grid(picked, room), part)
            put_rows(out, picked, part)


def _check_shape(name: str, values: Tensor, images: Tensor, *after: int | None) -> None:
    expected = (len(images), *(n for n in after if n is not None))
    if values.shape != expected:
        raise ArgumentError(
            f"{name} must have the shape {expected}, one row for each of the {len(images)} images, "
            f"got {describe(values)}."
        )


def _from_middle(center: Center, images: Tensor) -> Tensor | None:
    """Turn a center in pixels from the top left corner into pixels from the middle."""
    if center is None:
        return None
    if not isinstance(center, Tensor):
        center = torch.tensor(center, dtype=torch.float64)
    if center.shape not in ((2,), (len(images), 2)):
        raise ArgumentError(
            f"center must be (x, y), or a tensor of shape {(len(images), 2)}, got "
            f"{describe(center)}."
        )
    h, w = images.shape[2:]
    return exact(center) - center.new_tensor([w * 0.5, h * 0.5])
