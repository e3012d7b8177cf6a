"""Reading for `decode="fast"`: from a JPEG file to a resized image without Pillow in between.

torchvision's kernel for uint8 tensors resizes several times as fast as Pillow (one photo of 533×400
to 170×128, one thread: 0.45 ms instead of 2.7 ms), and rounds otherwise. To feed it, simplejpeg
decoded in 1.9 ms; Pillow's decoder and the copy out of Pillow's memory took 2.9 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from gpupreload import jpeg
from gpupreload.catalog import is_resize
from gpupreload.cover import ResizeToCover

# torchvision's v1 keeps an InterpolationMode, its v2 the name
_SMOOTH = ("bilinear", "bicubic")

Pixels = NDArray[np.uint8]


def quickened(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what does a step of the once-part faster, or the step itself where nothing does.

    >>> from torchvision.transforms import v2
    >>> type(quickened(v2.Resize(112))).__name__, type(quickened(v2.CenterCrop(112))).__name__
    ('TensorResize', 'CenterCrop')
    """
    mode = getattr(transform, "interpolation", None)
    is_smooth = getattr(mode, "value", mode) in _SMOOTH
    if isinstance(transform, ResizeToCover) or (is_resize(transform) and is_smooth):
        return TensorResize(transform)
    return transform


class TensorResize:
    """Resizes the uint8 tensor of an image, and gives a PIL image, as the steps after it expect.

    Args:
        resize: the step: a `Resize` with smooth interpolation, or a `ResizeToCover`.
    """

    def __init__(self, resize: Any) -> None:
        self._resize = resize

    def __call__(self, image: Any) -> Any:
        """Resize a PIL image of 8 bits a channel, or its pixels; else as the step itself does."""
        if isinstance(image, np.ndarray):
            return self._from_pixels(image)
        if not isinstance(image, Image.Image) or image.mode not in ("RGB", "L"):
            return self._resize(image)
        resized = self._from_pixels(np.array(image))
        resized.info = image.info
        return resized

    def _from_pixels(self, pixels: Pixels) -> Image.Image:
        # [H, W, C] in memory, which the kernel for bytes reads without a copy
        tensor = torch.from_numpy(pixels)
        if tensor.ndim == 2:
            return Image.fromarray(self.resized(tensor[None])[0].numpy())
        resized = self.resized(tensor.permute(2, 0, 1))
        return Image.fromarray(resized.permute(1, 2, 0).contiguous().numpy())

    def resized(self, tensor: Tensor) -> Tensor:
        """Resize a uint8 tensor [C, H, W] on any device, antialiased."""
        step = self._resize
        if isinstance(step, ResizeToCover):
            return cast("Tensor", step(tensor))
        # PIL images are antialiased whatever the step says
        how = {"interpolation": step.interpolation, "max_size": step.max_size, "antialias": True}
        return cast("Tensor", F.resize(tensor, step.size, **how))


def pixels_of_jpeg(path: str) -> Pixels | None:
    """Decode a plain JPEG file in colour, or return None for any other file, and any fault.

    Returns:
        The pixels, uint8 [H, W, 3], writable; equal to what `decode.read` gives.
    """
    import simplejpeg

    try:
        if not os.path.isfile(path):  # noqa: PTH113 a pipe would be waited for
            return None
        data = Path(path).read_bytes()
        header = jpeg.plain_header(data[: jpeg.N_START])
        if header is None or header.mode != "RGB":
            return None
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB")
    except (OSError, ValueError):
        return None
    return pixels if pixels.shape[1::-1] == header.size else None
