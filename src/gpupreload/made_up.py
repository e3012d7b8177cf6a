"""Made-up images, on which a transform is tried when it is split without data."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from gpupreload.source import Source

Like = Literal["RGB photo", "uint8 tensor", "grey photo"]

# lying and standing, equal neither in their longer nor in their shorter side
_SIZES = ((480, 360), (300, 400))


class MadeUp(Source):
    """Two images of noise, of different sizes.

    Args:
        like: what the images are: PIL images of mode RGB or L, or uint8 tensors [3, H, W].
    """

    classes = class_to_idx = samples = None

    def __init__(self, like: Like) -> None:
        self.name = f"made-up {like}s"
        self._like = like

    def __len__(self) -> int:
        return len(_SIZES)

    def read(self, index: int) -> tuple[Any, int]:
        """Return an image of noise, and 0."""
        return self._images[index], 0

    def where(self, index: int) -> str:
        """Say that the image is made up, and its size in pixels."""
        width, height = _SIZES[index]
        return f"a made-up {self._like} of {width}×{height}"

    @cached_property
    def _images(self) -> list[Any]:
        generator = np.random.default_rng(0)
        return [self._make(generator, *size) for size in _SIZES]

    def _make(self, generator: np.random.Generator, width: int, height: int) -> Any:
        noise = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        if self._like == "uint8 tensor":
            return torch.from_numpy(noise).permute(2, 0, 1).contiguous()
        return Image.fromarray(noise if self._like == "RGB photo" else noise[..., 0])
