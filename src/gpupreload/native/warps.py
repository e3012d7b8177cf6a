"""Rotations, affine maps, perspectives and elastic deformations, drawn for each sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.errors import TransformError
from gpupreload.functional import warp
from gpupreload.functional.filter import gaussian_blur
from gpupreload.functional.grids import perspective_coefficients
from gpupreload.functional.sample import Fill
from gpupreload.native.noise import uniform_noise
from gpupreload.native.ranges import Range, draw_below, draw_between
from gpupreload.native.reading import (
    WARPING,
    NoNativeFormError,
    center_of,
    fill_of,
    interpolation_of,
    number_of,
    numbers_of,
    probability_of,
    range_of,
    unusable,
)
from gpupreload.native.step import Native, Params, Shape

Center = tuple[float, float] | None


@dataclass(frozen=True)
class RandomRotation(Native):
    """A turn by a random angle, in an image that keeps its size.

    Args:
        degrees: the least and the greatest angle, counter-clockwise.
        interpolation: "nearest" or "bilinear".
        center: the fixed point (x, y) in pixels from the top left corner; None for the middle.
        fill: the colour outside the image.
    """

    degrees: Range
    interpolation: str
    center: Center
    fill: Fill

    @classmethod
    def of(cls, transform: Any) -> RandomRotation:
        """Read a RandomRotation of v1 or v2."""
        if transform.expand:
            raise NoNativeFormError("has expand=True, which gives each image a size of its own")
        return cls(
            range_of(transform, "degrees"),
            interpolation_of(transform, WARPING),
            center_of(transform),
            fill_of(transform),
        )

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`angle`, float64 [N], degrees."""
        return {"angle": draw_between(keys, [self.degrees])[:, 0]}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Turn the images."""
        return warp.rotate(
            images,
            params["angle"],
            interpolation=self.interpolation,
            fill=self.fill,
            center=self.center,
        )


@dataclass(frozen=True)
class RandomAffine(Native):
    """A random rotation, move, scaling and shear.

    Args:
        degrees: the least and the greatest angle, clockwise.
        translate: the farthest moves, as shares of the width and of the height.
        scale: the least and the greatest factor.
        shear: the least and the greatest angle along x and along y, in degrees.
        interpolation: "nearest" or "bilinear".
        center: the fixed point (x, y) in pixels from the top left corner; None for the middle.
        fill: the colour outside the image.
    """

    degrees: Range
    translate: tuple[float, float]
    scale: Range
    shear: tuple[Range, Range]
    interpolation: str
    center: Center
    fill: Fill

    @classmethod
    def of(cls, transform: Any) -> RandomAffine:
        """Read a RandomAffine of v1 or v2."""
        shear = [*(transform.shear or (0, 0)), 0, 0]
        return cls(
            range_of(transform, "degrees"),
            tuple(transform.translate or (0.0, 0.0)),
            range_of(transform, "scale", transform.scale or (1, 1)),
            (range_of(transform, "shear", shear[:2]), range_of(transform, "shear", shear[2:4])),
            interpolation_of(transform, WARPING),
            center_of(transform),
            fill_of(transform),
        )

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`angle` and `scale`, float64 [N]; `translate`, int64 [N, 2]; `shear`, float64 [N, 2]."""
        farthest = self.translate[0] * shape[2], self.translate[1] * shape[1]
        moves = [(-most, most) for most in farthest]
        drawn = draw_between(keys, [self.degrees, *moves, self.scale, *self.shear])
        return {
            "angle": drawn[:, 0],
            "translate": drawn[:, 1:3].round().to(torch.int64),
            "scale": drawn[:, 3],
            "shear": drawn[:, 4:],
        }

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Map the images."""
        return warp.affine(
            images,
            params["angle"],
            params["translate"],
            params["scale"],
            params["shear"],
            interpolation=self.interpolation,
            fill=self.fill,
            center=self.center,
        )


@dataclass(frozen=True)
class RandomPerspective(Native):
    """A random perspective: each corner moves inwards.

    Args:
        distortion_scale: how far at most, as a share of half the width and half the height.
        p: the probability.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image.
    """

    distortion_scale: float
    p: float
    interpolation: str
    fill: Fill

    @classmethod
    def of(cls, transform: Any) -> RandomPerspective:
        """Read a RandomPerspective of v1 or v2."""
        scale = number_of(transform, "distortion_scale")
        if not 0 <= scale < math.inf:
            raise unusable("distortion_scale", transform.distortion_scale, "a number from 0 to 1")
        return cls(
            scale,
            probability_of(transform),
            interpolation_of(transform, WARPING),
            fill_of(transform),
        )

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`applied`, bool [N]; `endpoints`, int64 [N, 4, 2]; `coefficients`, float64 [N, 8].

        The endpoints are where the corners (x, y) come to lie: top left, top right, bottom right,
        bottom left. The coefficients follow from them.
        """
        _, height, width = shape
        right, bottom = width - 1, height - 1
        corners = torch.tensor([[0, 0], [right, 0], [right, bottom], [0, bottom]])
        bounds = torch.tensor([int(self.distortion_scale * (n // 2)) + 1 for n in (width, height)])
        uniform = draws.uniform(keys, 8, first=1).view(-1, 4, 2)
        # from the first column and line, or from the last `bounds` of them
        first = torch.where(corners > 0, corners + 1 - bounds, 0)
        applied = draws.bernoulli(keys, self.p)
        endpoints = draw_below(uniform, bounds) + first
        return {
            "applied": applied,
            "endpoints": endpoints,
            "coefficients": self._coefficients(corners, endpoints, applied),
        }

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Distort the samples that were drawn."""
        return warp.perspective(
            images,
            params["coefficients"],
            interpolation=self.interpolation,
            fill=self.fill,
            mask=params["applied"],
        )

    def _coefficients(self, corners: Tensor, endpoints: Tensor, applied: Tensor) -> Tensor:
        # samples that are not changed must not fail, as they do not in torchvision
        ends = torch.where(applied[:, None, None], endpoints, corners)
        try:
            # LinAlgError, a RuntimeError, where the equations have no solution
            return perspective_coefficients(corners, ends)
        except RuntimeError as error:
            raise TransformError(
                f"RandomPerspective(distortion_scale={self.distortion_scale:g}) moved the corners "
                f"of an image of {int(corners[2, 1]) + 1}×{int(corners[2, 0]) + 1} pixels (height "
                "× width) onto one line. Give a smaller distortion_scale."
            ) from error


@dataclass(frozen=True)
class ElasticTransform(Native):
    """A random smooth displacement of all pixels.

    Args:
        alpha: how strong, in pixels along x and along y.
        sigma: how smooth: the standard deviation of a blur in pixels, along x and along y; 0 for
            both is no blur.
        interpolation: "nearest" or "bilinear".
        fill: the colour outside the image.
    """

    alpha: tuple[float, float]
    sigma: tuple[float, float]
    interpolation: str
    fill: Fill

    @classmethod
    def of(cls, transform: Any) -> ElasticTransform:
        """Read an ElasticTransform of v1 or v2."""
        alpha_x, alpha_y = numbers_of(transform.alpha, "alpha", 2)
        sigma_x, sigma_y = numbers_of(transform.sigma, "sigma", 2)
        if not math.isfinite(sigma_x + sigma_y) or (sigma_x > 0) != (sigma_y > 0):
            raise unusable("sigma", transform.sigma, "two finite numbers above 0, or two of 0")
        return cls(
            (alpha_x, alpha_y),
            (max(sigma_x, 0.0), max(sigma_y, 0.0)),
            interpolation_of(transform, WARPING),
            fill_of(transform),
        )

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`noise_key`, int64 [N], of which `displacement` makes the displacements."""
        smallest = min(shape[1:])
        if self.sigma[0] and _kernel_size(max(self.sigma)) // 2 >= smallest:
            raise TransformError(
                f"ElasticTransform(sigma={max(self.sigma):g}) smooths over "
                f"{_kernel_size(max(self.sigma)) // 2} pixels to each side, and mirrors images of "
                f"{shape[1]}×{shape[2]} pixels at their borders, which must be larger than that. "
                "Give a smaller sigma."
            )
        return {"noise_key": draws.child(keys, 0)}

    def displacement(self, noise_keys: Tensor, shape: Shape, device: torch.device) -> Tensor:
        """Make the displacements: float32 [N, H, W, 2], along x and y, in halves of the image.

        Args:
            noise_keys: int64 [N].
            shape: (C, H, W) of the images.
            device: where to make them.
        """
        _, height, width = shape
        noise = uniform_noise(noise_keys, (2, height, width), device).mul_(2).sub_(1)
        smooth = self._smoothed(noise) if self.sigma[0] else noise
        x, y = smooth.unbind(1)
        return torch.stack([x * self.alpha[0] / width, y * self.alpha[1] / height], -1)

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Displace the pixels."""
        _, *shape = images.shape
        displacement = self.displacement(
            params["noise_key"], (shape[0], shape[1], shape[2]), images.device
        )
        return warp.elastic(images, displacement, interpolation=self.interpolation, fill=self.fill)

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """With `displacement`, float32 [N, H, W, 2]."""
        return {"displacement": self.displacement(params["noise_key"], shape, torch.device("cpu"))}

    def _smoothed(self, noise: Tensor) -> Tensor:
        """Blur [N, 2, H, W] both ways by the two sigmas, each plane in a square of its own size."""
        sizes = [_kernel_size(sigma) for sigma in self.sigma]
        sigma = torch.tensor([self.sigma], dtype=torch.float64).expand(len(noise), 2)
        # both planes at a time: of a batch of one plane, the last bits are not those it has in a
        # larger one
        blurred = {size: gaussian_blur(noise, (size, size), sigma) for size in set(sizes)}
        return torch.stack([blurred[size][:, i] for i, size in enumerate(sizes)], 1)


def _kernel_size(sigma: float) -> int:
    """Four sigmas to each side, in an odd number of pixels."""
    return int(8 * sigma + 1) | 1
