"""What about an image file may surprise, told from its header: alpha, frames, EXIF, suffix."""

from __future__ import annotations

import os
from typing import Literal

from PIL import Image

Remark = Literal["alpha", "frames", "turned", "profile", "suffix", "deep"]

_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})

# The formats that a suffix stands for, by Pillow's names. Of other suffixes nothing is said.
_FORMATS = {
    ".jpg": ("JPEG", "MPO"),
    ".jpeg": ("JPEG", "MPO"),
    ".jfif": ("JPEG", "MPO"),
    ".png": ("PNG",),
    ".ppm": ("PPM",),
    ".pgm": ("PPM",),
    ".bmp": ("BMP", "DIB"),
    ".tif": ("TIFF",),
    ".tiff": ("TIFF",),
    ".webp": ("WEBP",),
    ".gif": ("GIF",),
    ".avif": ("AVIF",),
}


def remarks_on(image: Image.Image, path: str, orientation: int) -> tuple[Remark, ...]:
    """Say what about an opened file may surprise; no pixel is decoded for it.

    Args:
        image: as `PIL.Image.open` gives it.
        path: of the file.
        orientation: of the EXIF block; 1 is upright.

    Returns:
        Of these: "alpha" (transparency, which is dropped), "frames" (more than one), "turned" (an
        EXIF orientation; Pillow turns TIFF by itself), "profile" (a colour profile, which is not
        applied), "suffix" (another format than the suffix says), "deep" (one channel of more than
        8 bits).
    """
    found: dict[Remark, bool] = {
        "alpha": image.mode in _ALPHA or "transparency" in image.info,
        "frames": _has_frames(image),
        "turned": orientation != 1 and image.format != "TIFF",
        "profile": "icc_profile" in image.info,
        "suffix": is_misnamed(path, image.format),
        "deep": image.mode.startswith("I"),
    }
    return tuple(remark for remark, is_so in found.items() if is_so)


def is_misnamed(path: str, format: str | None) -> bool:
    """Whether a file's suffix stands for another format than that of its content.

    >>> is_misnamed("cat.JPG", "JPEG"), is_misnamed("cat.jpg", "PNG"), is_misnamed("cat", "PNG")
    (False, True, False)
    """
    expected = _FORMATS.get(os.path.splitext(path)[1].lower())  # noqa: PTH122 faster
    return expected is not None and format not in expected


def _has_frames(image: Image.Image) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # a damaged second frame is nothing to us
        return False
