"""Why a file cannot be read, in one line: from what the system or Pillow raised, and its bytes."""

from __future__ import annotations

import os
import re

from PIL import Image, UnidentifiedImageError

from gpupreload.tree import printable

# How files that often lie among images begin, and what to say of them.
_NOT_IMAGES = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself with `git lfs pull`"),
    (b"<!doctype html", "a web page (HTML), perhaps a failed download"),
    (b"<html", "a web page (HTML), perhaps a failed download"),
    (b"<?xml", "XML or SVG, which Pillow does not read"),
    (b"<svg", "SVG, which Pillow does not read"),
    (b"%pdf", "a PDF file"),
    (b"pk\x03\x04", "a ZIP archive"),
)
_IMAGES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG", "PNG"),
    (b"GIF8", "GIF"),
    (b"RIFF", "WebP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"BM", "BMP"),
)


class RefusedError(ValueError):
    """An image that Pillow would read and we do not; its text says why."""


def why(path: str | os.PathLike[str], error: Exception) -> str:
    """Return one line of the path and the reason, for what opening or decoding it raised."""
    text = os.fsdecode(path)
    try:
        reason = _reason(text, error)
    except OSError as gone:  # since it was opened
        reason = _not_opened(text, gone)
    return f"{printable(text)}: {' '.join(reason.split())}"


def _reason(path: str, error: Exception) -> str:
    if isinstance(error, RefusedError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return _not_identified(path)
    if isinstance(error, Image.DecompressionBombError):
        return _bomb(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return _not_opened(path, error)
    if "truncated" in str(error).lower():
        n_bytes = os.stat(path).st_size  # noqa: PTH116 a path is text here
        return f"truncated: the file ends at byte {n_bytes:,}, before its image does"
    if isinstance(error, MemoryError):
        return "needs more memory to decode than this machine has free"
    return f"damaged: {str(error) or type(error).__name__}"


def _not_identified(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123 a path is text here
        head = file.read(32)
    if not head:
        return "empty (0 bytes)"
    for start, what in _NOT_IMAGES:
        if head.lower().startswith(start):
            return f"not an image: {what}"
    if head[4:8] == b"ftyp":
        return "not an image that Pillow reads here: HEIF or a video; convert it to JPEG or PNG"
    for start, name in _IMAGES:
        if head.startswith(start):
            return f"damaged: it begins as {name} does, but its header makes no sense"
    return f"not an image: its first bytes are {head[:12]!r}"


def _bomb(text: str) -> str:
    numbers = [int(digits) for digits in re.findall(r"\d+", text)]
    if len(numbers) != 2:
        return f"refused: {text}"
    return (
        f"refused as a decompression bomb: it claims {numbers[0]:,} pixels, and Pillow's limit is "
        f"{numbers[1]:,}; if you trust it, raise PIL.Image.MAX_IMAGE_PIXELS"
    )


def _not_opened(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):  # noqa: PTH114
            return f"a link to {printable(os.readlink(path))}, where there is no file"  # noqa: PTH115
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "a folder, not a file"
    if isinstance(error, PermissionError):
        return "permission denied: this account may not read it"
    return f"cannot be read: {error.strerror}"
