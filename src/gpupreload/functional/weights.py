"""The weights with which a resized line is mixed from pixels, one matrix for each sample.

Resizing a box of an image is two matrix products, one for each axis; a matrix over the whole line,
which is 0 outside its box, makes all products of a batch one size. The filters are those of
`torch.nn.functional.interpolate` with `align_corners=False`: with antialias, a triangle or a cubic
(a = -0.5, as in Pillow) that is stretched where the box shrinks; without, straight lines or cubics
(a = -0.75) through the nearest 2 or 4 pixels. The cubic is that of R. G. Keys, "Cubic convolution
interpolation for digital image processing", 1981.
"""

from __future__ import annotations

import torch
from torch import Tensor


def resampling_weights(
    start: Tensor, length: Tensor, n_in: int, n_out: int, *, cubic: bool, antialias: bool
) -> Tensor:
    """The matrices that take a line of `n_in` pixels to the `n_out` pixels of its resized box.

    Args:
        start: float32 or float64 [N], the box's first pixel.
        length: the same [N], its pixels, at least 1.
        n_in: pixels of the line.
        n_out: pixels of the result.
        cubic: bicubic instead of bilinear.
        antialias: whether to take in all pixels where the box shrinks.

    Returns:
        Weights [N, n_out, n_in] of the dtype of `start`; each row's sum is 1.

    >>> two, four = torch.tensor([2.0]), torch.tensor([4.0])
    >>> resampling_weights(two, four, 6, 2, cubic=False, antialias=True)[0]
    tensor([[0.0000, 0.0000, 0.4286, 0.4286, 0.1429, 0.0000],
            [0.0000, 0.0000, 0.0000, 0.1429, 0.4286, 0.4286]])
    """
    place = torch.arange(n_out, dtype=start.dtype, device=start.device) + 0.5
    pixel = torch.arange(n_in, dtype=start.dtype, device=start.device) - start[:, None, None]
    length = length[:, None, None]
    scale = length / n_out
    center = scale * place[:, None]
    if antialias:
        return _stretched(center, pixel, length, scale.clamp(min=1), cubic)
    return _interpolated(center - 0.5, pixel, length, cubic)


def in_fixed_point(weights: Tensor) -> Tensor:
    """Round weights to the precision in which torch resizes uint8 images on the CPU.

    It keeps them as whole numbers of 16 bits, each matrix with as many binary places as its largest
    weight leaves room for. With 8-bit pixels their products and sums are exact in float32.

    Args:
        weights: [N, n_out, n_in].

    Returns:
        Weights of the same shape and dtype.
    """
    largest = weights.flatten(1).amax(1)[:, None, None]
    one = torch.exp2(torch.log2(32767.5 / largest).floor_().clamp_(max=22))
    return (weights * one).add_(0.5).floor_().div_(one)


def _stretched(
    center: Tensor, pixel: Tensor, length: Tensor, stretch: Tensor, cubic: bool
) -> Tensor:
    reach = stretch * (2 if cubic else 1)
    first = (center - reach + 0.5).trunc().clamp(min=0)
    end = torch.minimum((center + reach + 0.5).trunc(), length)
    distance = (pixel - center + 0.5).div_(stretch).abs_()
    weights = _cubic(distance, -0.5) if cubic else (1 - distance).clamp_(min=0)
    weights *= (pixel >= first) & (pixel < end)
    return weights.div_(weights.sum(-1, keepdim=True))


def _interpolated(place: Tensor, pixel: Tensor, length: Tensor, cubic: bool) -> Tensor:
    if not cubic:
        place = place.clamp(min=0)
    floor = place.floor()
    weights = place.new_zeros((*place.shape[:2], pixel.shape[2]))
    for offset in range(-1, 3) if cubic else range(2):
        near = floor + offset
        distance = (place - near).abs()
        weight = _cubic(distance, -0.75) if cubic else 1 - distance
        weights += weight * (pixel == torch.minimum(near.clamp(min=0), length - 1))
    return weights


def _cubic(distance: Tensor, a: float) -> Tensor:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = (((distance - 5) * distance + 8) * distance - 4) * a
    return torch.where(distance < 1, near, far).mul_(distance < 2)
