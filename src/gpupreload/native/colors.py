"""ColorJitter and its kin, GaussianBlur and GaussianNoise, drawn for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.functional import color, filter
from gpupreload.functional.jitter import color_jitter, photometric_distort
from gpupreload.native.noise import normal_noise
from gpupreload.native.ranges import Range, draw_between
from gpupreload.native.reading import (
    UnusableSettingError,
    number_of,
    probability_of,
    range_of,
    unusable,
)
from gpupreload.native.step import Native, Params, Shape

FACTORS = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
"""The factors of the four changes, in torchvision's order."""

# with these factors nothing changes
_NEUTRAL = (1.0, 1.0, 1.0, 0.0)
_SETTINGS = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True)
class ColorJitter(Native):
    """Changes of brightness, contrast, saturation and hue, in random order.

    Args:
        ranges: the least and the greatest factor of each change, in this order; None for no change.
    """

    ranges: tuple[Range | None, ...]

    @classmethod
    def of(cls, transform: Any) -> ColorJitter:
        """Read a ColorJitter of v1 or v2."""
        return cls(
            tuple(
                None if getattr(transform, name) is None else range_of(transform, name)
                for name in _SETTINGS
            )
        )

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`fn_idx`, int64 [N, 4], the order; and the `FACTORS` that are drawn, float64 [N]."""
        ranges = [limits or (x, x) for limits, x in zip(self.ranges, _NEUTRAL, strict=True)]
        factors = draw_between(keys, ranges, first=4)
        drawn = {name: factors[:, i] for i, name in enumerate(FACTORS) if self.ranges[i]}
        return {"fn_idx": draws.permutations(keys, 4), **drawn}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Change the colours."""
        order = params["fn_idx"]
        columns = [
            params[name] if name in params else torch.full((len(order),), x, dtype=torch.float64)
            for name, x in zip(FACTORS, _NEUTRAL, strict=True)
        ]
        enabled = torch.tensor([name in params for name in FACTORS])
        return color_jitter(images, order, torch.stack(columns, 1), enabled)


@dataclass(frozen=True)
class RandomPhotometricDistort(Native):
    """Each change of ColorJitter with a probability, and a permutation of the channels.

    Args:
        ranges: the least and the greatest factor of each change, in ColorJitter's order.
        p: the probability of each change.
    """

    ranges: tuple[Range, ...]
    p: float

    @classmethod
    def of(cls, transform: Any) -> RandomPhotometricDistort:
        """Read a RandomPhotometricDistort."""
        ranges = tuple(range_of(transform, name) for name in _SETTINGS)
        lowest = min(low for low, _ in ranges[:3])
        if lowest < 0 or ranges[3][0] < -0.5 or ranges[3][1] > 0.5:
            settings = [(name, getattr(transform, name)) for name in _SETTINGS]
            raise UnusableSettingError(
                f"has {', '.join(f'{name}={value!r}' for name, value in settings)}; expected a hue "
                "from -0.5 to 0.5, and the others 0 or more"
            )
        return cls(ranges, probability_of(transform))

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """The `FACTORS`, float64 [N]; `contrast_before`, bool [N]; `channel_permutation`.

        A factor is NaN where torchvision has None: that change is not made. The permutation,
        int64 [N, C], is 0 to C - 1 where torchvision has None.
        """
        channels = shape[0]
        drawn = draws.uniform(keys, 6, first=4)
        factors = draw_between(keys, self.ranges)
        factors = torch.where(drawn[:, :4] < self.p, factors, torch.nan)
        order = draws.permutations(keys, channels, first=10)
        permuted = drawn[:, 5:] < self.p
        return {
            **dict(zip(FACTORS, factors.unbind(1), strict=True)),
            "contrast_before": drawn[:, 4] < 0.5,
            "channel_permutation": torch.where(permuted, order, torch.arange(channels)),
        }

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Change the colours."""
        factors = torch.stack([params[name] for name in FACTORS], 1)
        enabled = ~factors.isnan()
        neutral = torch.tensor(_NEUTRAL, dtype=torch.float64)
        return photometric_distort(
            images,
            torch.where(enabled, factors, neutral),
            enabled,
            params["contrast_before"],
            params["channel_permutation"],
        )


@dataclass(frozen=True)
class RandomChannelPermutation(Native):
    """The channels in random order."""

    @classmethod
    def of(cls, transform: Any) -> RandomChannelPermutation:
        """Read a RandomChannelPermutation, which has no settings."""
        return cls()

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`permutation`, int64 [N, C]."""
        return {"permutation": draws.permutations(keys, shape[0])}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Permute the channels."""
        return color.permute_channels(images, params["permutation"])


@dataclass(frozen=True)
class GaussianBlur(Native):
    """A blur of random width.

    Args:
        kernel_size: (width, height) in pixels.
        sigma: the least and the greatest standard deviation, in torchvision's units.
    """

    kernel_size: tuple[int, int]
    sigma: Range

    @classmethod
    def of(cls, transform: Any) -> GaussianBlur:
        """Read a GaussianBlur of v1 or v2."""
        width, height = transform.kernel_size
        return cls((int(width), int(height)), range_of(transform, "sigma"))

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`sigma`, float64 [N], for both directions."""
        return {"sigma": draw_between(keys, [self.sigma])[:, 0]}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Blur the images."""
        return filter.gaussian_blur(images, self.kernel_size, params["sigma"])


@dataclass(frozen=True)
class GaussianNoise(Native):
    """Normal noise on every value.

    Args:
        mean: on the scale of 0 to 1, for uint8 too.
        sigma: standard deviation on that scale.
        clip: cut off at black and white.
    """

    mean: float
    sigma: float
    clip: bool

    @classmethod
    def of(cls, transform: Any) -> GaussianNoise:
        """Read a GaussianNoise."""
        mean, sigma = number_of(transform, "mean"), number_of(transform, "sigma")
        if not sigma >= 0:
            raise unusable("sigma", transform.sigma, "a number, 0 or more")
        return cls(mean, sigma, bool(transform.clip))

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """`noise_key`, int64 [N]."""
        return {"noise_key": draws.child(keys, 0)}

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Add the noise."""
        mean, sigma = (
            torch.full((len(images),), value, dtype=torch.float64)
            for value in (self.mean, self.sigma)
        )
        noise = normal_noise(params["noise_key"], images.shape[1:], images.device)
        return filter.gaussian_noise(images, noise, mean, sigma, clip=self.clip)

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """With `noise`, float32 [N, C, H, W], standard normal."""
        return {"noise": normal_noise(params["noise_key"], shape, torch.device("cpu"))}
