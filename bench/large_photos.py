"""A folder of photos of about 400×533 pixels, cut from scikit-image's bundled photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

PHOTOGRAPHS = ("astronaut", "coffee", "chelsea", "rocket", "hubble_deep_field", "retina")


def write(folder: Path, n_photos: int) -> Path:
    """Write class folders of JPEG files, each another cut of its photograph, always the same."""
    rng = np.random.default_rng(0)
    whole = {name: Image.fromarray(getattr(skimage.data, name)()) for name in PHOTOGRAPHS}
    for k in range(n_photos):
        name = PHOTOGRAPHS[k % len(PHOTOGRAPHS)]
        width, height = int(rng.integers(500, 567)), int(rng.integers(380, 421))
        path = folder / name / f"{k:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        box = _cut(rng, whole[name].size, width / height)
        cut = whole[name].convert("RGB").resize((width, height), Image.Resampling.BICUBIC, box)
        cut.save(path, quality=90)
    return folder


def _cut(
    rng: np.random.Generator, size: tuple[int, int], aspect: float
) -> tuple[float, float, float, float]:
    """Draw a box of an aspect that lies in a picture, at least six tenths of what fits there."""
    fits = min(size[0], size[1] * aspect)
    width = fits * rng.uniform(0.6, 1)
    height = width / aspect
    left, top = rng.uniform(0, size[0] - width), rng.uniform(0, size[1] - height)
    return left, top, left + width, top + height
