"""Where each output pixel comes from: one map for each sample, as matrices and as grids.

A grid [n, H, W, 2] holds, for each output pixel, the place (x, y) in the input where it is sampled,
from -1 to 1 over the image's width and height, edges included, as
`torch.nn.functional.grid_sample` takes it with `align_corners=False`.

Sampling the nearest pixel turns a difference in a grid's last bit into another pixel. So the grids
are calculated as torchvision 0.29 does it, in float32 and in the same order of operations (each
product rounded before it is added), but without a matrix product for each image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gpupreload.functional.chunks import in_one_piece, work_dtype


def inverse_affine_matrices(
    angle: Tensor, translate: Tensor, scale: Tensor, shear: Tensor, center: Tensor | None = None
) -> Tensor:
    """The maps from output to input pixels of rotated, sheared, scaled and moved images.

    The image is sheared by `shear` along x and y, scaled, rotated clockwise by `angle` about
    `center`, and moved by `translate`; the matrix is the inverse of that, in coordinates whose
    origin is the middle of the image. The formula is that of torchvision's
    `_get_inverse_affine_matrix`.

    Args:
        angle: float [N], degrees.
        translate: float [N, 2], pixels to the right and down.
        scale: float [N], greater than 0; 2 doubles the size.
        shear: float [N, 2], degrees along x and along y.
        center: float [N, 2] or [2], pixels to the right and down of the middle; None for (0, 0).

    Returns:
        The matrices [N, 2, 3], of the dtype of `angle`.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> zeros = torch.zeros(1, 2, dtype=torch.float64)
    >>> inverse_affine_matrices(0 * one, zeros + 3, 2 * one, zeros)[0].abs()
    tensor([[0.5000, 0.0000, 1.5000],
            [0.0000, 0.5000, 1.5000]], dtype=torch.float64)
    """
    center = torch.zeros_like(translate) if center is None else center.to(translate)
    rotation = angle * (math.pi / 180)
    shear_x, shear_y = (shear * (math.pi / 180)).unbind(1)
    a = torch.cos(rotation - shear_y) / torch.cos(shear_y)
    b = -(a * torch.tan(shear_x) + torch.sin(rotation))
    c = torch.sin(rotation - shear_y) / torch.cos(shear_y)
    d = torch.cos(rotation) - c * torch.tan(shear_x)
    linear = torch.stack([d, -b, -c, a], 1).view(-1, 2, 2) / scale[:, None, None]
    center = center.expand_as(translate)
    moved_x, moved_y = (center + translate)[:, None].unbind(2)
    offset = center - linear[:, :, 0] * moved_x - linear[:, :, 1] * moved_y
    return torch.cat([linear, offset[:, :, None]], 2)


def perspective_coefficients(startpoints: Tensor, endpoints: Tensor) -> Tensor:
    """The eight numbers of the perspective maps that take four points to four others.

    Output pixel (x, y) is taken from x' = (ax + by + c) / (gx + hy + 1) and
    y' = (dx + ey + f) / (gx + hy + 1). The equations are those of torchvision's
    `_get_perspective_coeffs`, solved for all samples at once.

    Args:
        startpoints: [N, 4, 2] or [4, 2], the corners (x, y) in the original image: top left, top
            right, bottom right, bottom left.
        endpoints: [N, 4, 2], where they lie in the result.

    Returns:
        (a, b, c, d, e, f, g, h) for each sample: float64 [N, 8] with float32's precision, as
        torchvision passes them on.

    >>> corners = torch.tensor([[0, 0], [9, 0], [9, 4], [0, 4]])
    >>> perspective_coefficients(corners, corners[None]).round(decimals=4).abs()
    tensor([[1., 0., 0., 0., 1., 0., 0., 0.]], dtype=torch.float64)
    """
    end = endpoints.double()
    start = startpoints.double().expand_as(end)
    known = torch.cat([end, torch.ones_like(end[..., :1])], -1)
    nothing = torch.zeros_like(known)
    products = -start[..., :, None] * end[..., None, :]
    for_x = torch.cat([known, nothing, products[..., 0, :]], -1)
    for_y = torch.cat([nothing, known, products[..., 1, :]], -1)
    equations = torch.stack([for_x, for_y], -2).view(-1, 8, 8)
    wanted = start.reshape(-1, 8, 1)
    solution: Tensor = torch.linalg.lstsq(equations, wanted, driver="gels").solution
    return solution.squeeze(-1).float().double()


class Maps(Protocol):
    """The maps of N samples from output to input places, of which any rows can be asked for."""

    def grid(self, rows: slice | Tensor, room: Tensor) -> Tensor:
        """The grid [n, H, W, 2] of some rows.

        Args:
            rows: which rows, as a slice or as int64 [n] on the maps' device.
            room: [2, at least n, H, W, 2] to be written to; the result may be a view of it.
        """
        ...


@dataclass(frozen=True)
class AffineMaps:
    """Affine maps in a grid's units, multiplied by all x and all y already.

    On the CPU a pair (x, y) is held as a complex number, so that both are added in one go: with a
    last dimension of 2 in between, its loops take 20 times as long.

    Args:
        by_x: [N, 1, W] complex or [N, 1, W, 2], the part of both coordinates that depends on x.
        by_y: [N, H, 1] complex or [N, H, 1, 2], the part that depends on y.
        added: [N, 1, 1] complex or [N, 1, 1, 2], the part that depends on neither.
    """

    by_x: Tensor
    by_y: Tensor
    added: Tensor

    @classmethod
    def from_matrices(cls, matrices: Tensor, images: Tensor) -> AffineMaps:
        """Take matrices [N, 2, 3] in pixels from the middle, and the batch that they are for."""
        h, w = images.shape[2:]
        return cls._of(_in_grid_units(matrices, images), 0.5 - 0.5 * w, 0.5 - 0.5 * h, images)

    @classmethod
    def _of(cls, terms: Tensor, first_x: float, first_y: float, images: Tensor) -> AffineMaps:
        """Take terms [N, 3, 2]: for (x, y), a factor of x, a factor of y and what is added."""
        h, w = images.shape[2:]
        x = torch.arange(w, dtype=terms.dtype, device=terms.device) + first_x
        y = torch.arange(h, dtype=terms.dtype, device=terms.device) + first_y
        by_x, by_y, added = terms[:, None, None].unbind(3)
        return cls(_pairs(x[:, None] * by_x), _pairs(y[:, None, None] * by_y), _pairs(added))

    def grid(self, rows: slice | Tensor, room: Tensor) -> Tensor:
        """The grid [n, H, W, 2] of some rows: `by_x + by_y`, rounded, `+ added`, rounded."""
        by_x, by_y, added = self.by_x[rows], self.by_y[rows], self.added[rows]
        if in_one_piece(room):
            return (by_x + by_y).add_(added)
        out = torch.view_as_complex(room[0, : len(added)])
        return torch.view_as_real(torch.add(by_x, by_y, out=out).add_(added))


@dataclass(frozen=True)
class PerspectiveMaps:
    """Perspective maps: an affine map divided by another."""

    above: AffineMaps
    below: AffineMaps

    @classmethod
    def from_coefficients(cls, coefficients: Tensor, images: Tensor) -> PerspectiveMaps:
        """Take coefficients [N, 8] in pixels from the corner, and the batch that they are for."""
        above, below = coefficients[:, :6].reshape(-1, 2, 3), coefficients[:, 6:]
        below = torch.cat([below, torch.ones_like(below[:, :1])], 1)
        below = below.to(work_dtype(images)).to(images.device, non_blocking=True)
        return cls(
            AffineMaps._of(_in_grid_units(above, images), 0.5, 0.5, images),
            AffineMaps._of(below[:, :, None].expand(-1, -1, 2), 0.5, 0.5, images),
        )

    def grid(self, rows: slice | Tensor, room: Tensor) -> Tensor:
        """The grid [n, H, W, 2] of some rows."""
        above, below = self.above.grid(rows, room[:1]), self.below.grid(rows, room[1:])
        return above.div_(below).sub_(1)


@dataclass(frozen=True)
class ElasticMaps:
    """Maps to a place displaced by a vector of its own.

    Args:
        displacement: [N, H, W, 2] in a grid's units.
        identity: [H, W, 2], the grid that displaces nothing.
    """

    displacement: Tensor
    identity: Tensor

    @classmethod
    def from_displacement(cls, displacement: Tensor, images: Tensor) -> ElasticMaps:
        """Take displacements [N, H, W, 2] in a grid's units, and the batch that they are for."""
        h, w = images.shape[2:]
        dtype = work_dtype(images)
        # calculated on the CPU, for linspace's last bits are each device's own
        x, y = (torch.linspace((1 - n) / n, (n - 1) / n, n, dtype=dtype) for n in (w, h))
        identity = torch.stack([x.expand(h, -1), y[:, None].expand(-1, w)], -1)
        return cls(
            displacement.to(dtype).to(images.device, non_blocking=True),
            identity.to(images.device, non_blocking=True),
        )

    def grid(self, rows: slice | Tensor, room: Tensor) -> Tensor:
        """The grid [n, H, W, 2] of some rows."""
        displacement = self.displacement[rows]
        if in_one_piece(room):
            return displacement + self.identity
        return torch.add(displacement, self.identity, out=room[0, : len(displacement)])


def _pairs(values: Tensor) -> Tensor:
    if in_one_piece(values):
        return values
    # a clone, for an empty tensor's contiguous() may keep strides that cannot be paired
    return torch.view_as_complex(values.clone(memory_format=torch.contiguous_format))


def _in_grid_units(matrices: Tensor, images: Tensor) -> Tensor:
    """Scale matrices [N, 2, 3] from pixels, and turn them into terms [N, 3, 2] on the device."""
    h, w = images.shape[2:]
    matrices = matrices.to(work_dtype(images)).to(images.device, non_blocking=True)
    halves = torch.tensor([0.5 * w, 0.5 * h], dtype=matrices.dtype)
    return matrices.transpose(1, 2) / halves.to(images.device, non_blocking=True)
