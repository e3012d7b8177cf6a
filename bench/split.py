"""How long does it take to divide a transform, trying callables included?

Each transform is divided over the sample photos, whose headers have been read before.
"""

from __future__ import annotations

import argparse
import statistics

import interleaved
import numpy as np
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image

import gpupreload as gp
from gpupreload.source import open_source
from gpupreload.table import Table
from gpupreload.timing import seconds_of

CROP = [v2.Resize(112), v2.CenterCrop(112)]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]


def add_noise(image: Image.Image) -> Image.Image:
    """Change an image with NumPy's global generator."""
    pixels = np.asarray(image).astype(np.int16) + np.random.randint(-9, 10)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def upside_down(image: Image.Image) -> Image.Image:
    """Turn an image, always in the same way."""
    return image.transpose(Image.Transpose.ROTATE_180)


TRANSFORMS = {
    "Resize, CenterCrop, flip, floats": [*CROP, v2.RandomHorizontalFlip(), *FLOATS],
    "floats first": [v1.ToTensor(), v1.Resize((112, 112)), v1.Normalize([0.5] * 3, [0.2] * 3)],
    "RandAugment, AugMix": [*CROP, v2.RandAugment(), v2.AugMix(), *FLOATS],
    "a random callable": [*CROP, add_noise, *FLOATS],
    "a deterministic callable": [*CROP, upside_down, *FLOATS],
    "a callable first": [upside_down, *CROP, *FLOATS],
    "nested containers": [v2.Compose([v2.RandomApply(CROP), v2.RandomChoice(CROP)]), *FLOATS],
}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, for tests")
    quick = parser.parse_args().quick
    source = open_source(gp.sample_photos("val" if quick else "train"))
    _ = source.specs
    rows = []
    for name, steps in TRANSFORMS.items():
        seconds = [_seconds(steps, source, name) for _ in range(1 if quick else 5)]
        rows.append((name, f"{statistics.median(seconds):.3f} s", f"{max(seconds):.3f} s"))
    print(interleaved.machine())
    title = f"dividing a transform over {len(source):,} photos"
    print(Table(tuple(rows), ("transform", "median", "slowest"), title=title, right=(1, 2)))


def _seconds(steps: list[object], source: object, name: str) -> float:
    store_size = (112, 112) if name == "nested containers" else None
    return seconds_of(lambda: gp.split_transform(steps, source, store_size=store_size))


if __name__ == "__main__":
    main()
