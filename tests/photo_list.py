"""A map-style dataset of noisy pictures in memory, which counts how often it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image


class Photos:
    """Pictures of noise with the label 0.

    Args:
        sizes: (width, height) of each.
        mode: Pillow's mode, or "tensor" for uint8 tensors [3, H, W].
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], mode: str = "RGB") -> None:
        rng = np.random.default_rng(3)
        self.images = [self._make(rng, size, mode) for size in sizes]
        self.n_reads = 0

    @staticmethod
    def _make(rng: np.random.Generator, size: tuple[int, int], mode: str) -> Any:
        noise = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        if mode == "tensor":
            return torch.from_numpy(noise).permute(2, 0, 1).contiguous()
        return Image.fromarray(noise).convert(mode)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.n_reads += 1
        return self.images[index], 0


def of_one_size(mode: str = "RGB") -> Photos:
    """Five pictures of 40×30."""
    return Photos([(40, 30)] * 5, mode)


def of_many_sizes(mode: str = "RGB") -> Photos:
    """Four pictures of three sizes, lying, standing and square."""
    return Photos([(40, 30), (30, 40), (36, 36), (40, 30)], mode)
