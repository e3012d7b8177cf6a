"""A hundred images that are their own numbers, so that what is served tells in which order."""

from __future__ import annotations

import torch
from torch import Tensor

import gpupreload as gp

LABELS = [0] * 60 + [1] * 30 + [2] * 10


def numbered_images() -> gp.GPUPreloadDataset:
    """A hundred images that are their own numbers, in classes of 60, 30 and 10."""
    data = [(torch.full((1, 1, 1), i, dtype=torch.uint8), label) for i, label in enumerate(LABELS)]
    return gp.preload(data, device="cpu", seed=0, progress=False)


def epoch_of(loader: gp.Loader) -> Tensor:
    """All images of one epoch."""
    return torch.cat([images.clone() for images, *_ in loader])


def numbers(loader: gp.Loader) -> list[int]:
    """The order in which one epoch serves images that are their own numbers."""
    return epoch_of(loader).flatten().tolist()
