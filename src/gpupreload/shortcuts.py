"""Steps of the once-part done to PIL images at less cost, with the same pixels.

torchvision's `Resize` ends in Pillow's `Image.resize`, and its `CenterCrop` in `Image.crop`. What
comes before that took 10 µs and 20 µs an image (v2: 20 µs and 35 µs), and the crop itself 9 µs, all
of it under Python's lock: as much as two thirds of decoding a photo of 112 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from gpupreload.catalog import is_center_crop, is_resize

_MODES = ("RGB", "L")
# torchvision's v1 keeps an InterpolationMode, its v2 also the name
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


def shortened(steps: Sequence[Callable[[Any], Any]]) -> list[Callable[[Any], Any]]:
    """Return what does the same as each of the steps; the last may give an array [H, W, C].

    >>> from torchvision.transforms import v2
    >>> [type(step).__name__ for step in shortened([v2.Resize(128), v2.CenterCrop(112)])]
    ['ResizeBySize', 'CropOfPixels']
    """
    quick = [ResizeBySize(step) if _is_plain_resize(step) else step for step in steps]
    if steps and is_center_crop(steps[-1]) and _is_pair(getattr(steps[-1], "size", None)):
        quick[-1] = CropOfPixels(steps[-1])
    return quick


class ResizeBySize:
    """A `Resize` that is asked once for each size of images what becomes of it.

    Args:
        resize: the step.
    """

    def __init__(self, resize: Any) -> None:
        self._resize = resize
        self._filter = _FILTERS[_mode_of(resize)]
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}

    def __call__(self, image: Any) -> Any:
        """Resize a PIL image; anything else as the step itself does."""
        if not isinstance(image, Image.Image) or image.mode not in _MODES:
            return self._resize(image)
        size = self._sizes.get(image.size)
        if size is None:
            resized = self._resize(image)
            self._sizes[image.size] = resized.size
            return resized
        return image if size == image.size else image.resize(size, self._filter)


class CropOfPixels:
    """A `CenterCrop` that gives a part of an image's pixels, without a copy of that part.

    Args:
        crop: the step.
    """

    def __init__(self, crop: Any) -> None:
        self._crop = crop
        self._height, self._width = crop.size

    def __call__(self, image: Any) -> Any:
        """Return uint8 pixels [H, W, C], or [H, W] of one channel; or what the step itself does.

        The step itself crops what it must pad, and what is much smaller than the whole.
        """
        if not isinstance(image, Image.Image) or image.mode not in _MODES:
            return self._crop(image)
        width, height = image.size
        n_cut = self._width * self._height
        if width < self._width or height < self._height or 2 * n_cut < width * height:
            return self._crop(image)
        top, left = round((height - self._height) / 2), round((width - self._width) / 2)
        return np.asarray(image)[top : top + self._height, left : left + self._width]


def _is_plain_resize(step: Any) -> bool:
    return is_resize(step) and _mode_of(step) in _FILTERS


def _is_pair(size: Any) -> bool:
    return isinstance(size, list | tuple) and len(size) == 2


def _mode_of(resize: Any) -> Any:
    return getattr(resize.interpolation, "value", resize.interpolation)
