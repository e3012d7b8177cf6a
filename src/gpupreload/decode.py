"""One image file: its size from the header, or its pixels, equal to what `ImageFolder` reads.

What Pillow warns of is handled one by one. "Palette images with Transparency" does not come up,
for what becomes of alpha is settled: it is dropped, as `ImageFolder` does. Warnings about metadata
(EXIF and TIFF tags, APNG and MPO headers) and `DecompressionBombWarning` go the way the caller's
own warning filters say: filters belong to the whole process and cannot be changed from a thread.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
from PIL import ExifTags, Image

from gpupreload import jpeg
from gpupreload.errors import ArgumentError, UnreadableError
from gpupreload.remarks import Remark, is_misnamed, remarks_on
from gpupreload.unreadable import RefusedError, why

Path = str | os.PathLike[str]

# opening a pipe would wait for a writer for ever
_READ_ONLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_MOST_AT_ONCE = 1 << 20
# a photo of 200 pixels takes about 15 kB
_SMALL = 64 << 10

_WIDE = {"I": "whole numbers of 32 bits", "F": "floating-point numbers"}

# Formats whose header states the size that the pixels will have. An icon file, for one, may not.
_SIZE_IN_HEADER = frozenset({"JPEG", "MPO", "PNG", "BMP", "DIB", "PPM", "TIFF", "WEBP", "GIF"})

# EXIF orientation: the value of the tag, and what makes such a picture upright.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDES_SWAPPED = frozenset({5, 6, 7, 8})


@dataclass(frozen=True)
class DecodeOptions:
    """How image files are read; the default is what `ImageFolder` does.

    Attributes:
        mode: "RGB" for three channels, "L" for one: the luma of the RGB picture, as
            torchvision's `Grayscale` takes it.
        exif_orientation: whether a photo is turned upright as its EXIF block says. Pillow itself
            turns TIFF, with or without this, and so does `ImageFolder`.

    >>> DecodeOptions(mode="RGBA")
    Traceback (most recent call last):
        ...
    gpupreload.errors.ArgumentError: mode is 'RGBA'; expected 'RGB' or 'L'.
    """

    mode: Literal["RGB", "L"] = "RGB"
    exif_orientation: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("RGB", "L"):
            raise ArgumentError(f"mode is {self.mode!r}; expected 'RGB' or 'L'.")


_LIKE_IMAGEFOLDER = DecodeOptions()


@dataclass(frozen=True, slots=True)
class Look:
    """What the header of a file says.

    Attributes:
        size: (width, height) in pixels of the image that `read` would give.
        remarks: what may surprise; see `gpupreload.remarks`.
    """

    size: tuple[int, int]
    remarks: tuple[Remark, ...] = ()


def look(path: Path, *, options: DecodeOptions = _LIKE_IMAGEFOLDER) -> Look:
    """Read the header of a file.

    Raises:
        UnreadableError: in one line, the path and why: no such file, not an image, a damaged
            header, more pixels than Pillow's limit, values that 8 bits cannot hold.
    """
    try:
        with _Descriptor(path) as number:
            header = jpeg.plain_header(os.read(number, jpeg.N_START))
            if header:
                misnamed = is_misnamed(os.fspath(path), "JPEG")
                return Look(header.size, ("suffix",) if misnamed else ())
            with _file(number) as file:
                image = _opened(file)
                size = _size(image, file, options)
                return Look(size, remarks_on(image, os.fspath(path), _orientation(image)))
    except Exception as error:
        raise UnreadableError(why(path, error)) from None


def size(path: Path, *, options: DecodeOptions = _LIKE_IMAGEFOLDER) -> tuple[int, int]:
    """Return (width, height) in pixels of the image that `read` would give, as `look` does."""
    return look(path, options=options).size


def small_file(path: Path) -> bytes | None:
    """Return what a file of less than 64 KiB holds; None for others, and where reading fails."""
    try:
        with _Descriptor(path) as number:
            data = os.read(number, _SMALL)
    except (OSError, ValueError):
        return None
    return data if len(data) < _SMALL else None


def read(
    path: Path, *, options: DecodeOptions = _LIKE_IMAGEFOLDER, data: bytes | None = None
) -> Image.Image:
    """Read an image file, whatever its suffix; safe to call from several threads.

    The pixels equal those of `torchvision.datasets.folder.pil_loader` (bit for bit), but for
    images of 16 bits in one channel: these are scaled to 8 bits by their high byte, where
    `pil_loader` clips nearly all values to 255.

    Args:
        path: of the file.
        options: what the pixels become.
        data: what `small_file` gave for it; the file is then read again only where it is no plain
            JPEG, or damaged.

    Returns:
        A `PIL.Image.Image` of mode `options.mode`, 8 bits a channel, independent of the file.
        Its `info` holds what `pil_loader` would leave there (EXIF, colour profile).

    Raises:
        UnreadableError: in one line, the path and why: what `size` refuses, and a file that is
            damaged or ends too early.
    """
    try:
        image = _plain(data) if data else None
        if image is None:
            image = _read_file(path, options)
        return image if image.mode == options.mode else image.convert(options.mode)
    except Exception as error:
        raise UnreadableError(why(path, error)) from None


def _read_file(path: Path, options: DecodeOptions) -> Image.Image:
    with _Descriptor(path) as number:
        data = os.read(number, _MOST_AT_ONCE)
        image = _plain(data + _rest(number, data))
        if image is None:
            with _file(number) as file:
                image = _read(_opened(file), file, options)
        return image


def _plain(data: bytes) -> Image.Image | None:
    """Decode a whole file if it is a plain JPEG, and nothing is wrong with it."""
    header = jpeg.plain_header(data[: jpeg.N_START])
    return jpeg.decode(data, header) if header else None


class _Descriptor:
    """An open file, as the system numbers it.

    Python's own file objects ask for more: of threads that decode, each call that lets go of
    the interpreter costs as much as the reading. Read so, 1,550 small photos took 13 ms, not 28.
    """

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, _READ_ONLY)

    def __enter__(self) -> int:
        mode = os.fstat(self._number).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            os.close(self._number)
            raise RefusedError("not a file with contents, but a pipe, a socket or a device")
        return self._number

    def __exit__(self, *_: object) -> None:
        os.close(self._number)


def _file(number: int) -> BinaryIO:
    """The file from its beginning, for Pillow; closing it leaves the descriptor open."""
    os.lseek(number, 0, os.SEEK_SET)
    return open(number, "rb", closefd=False)


def _rest(number: int, data: bytes) -> bytes:
    """What follows `data` in the file, which most photos are no longer than."""
    if len(data) < _MOST_AT_ONCE:
        return b""
    with open(number, "rb", closefd=False) as file:
        return file.read()


def _opened(file: BinaryIO) -> Image.Image:
    """Open by content, and refuse what cannot become 8 bits a channel."""
    image = Image.open(file)
    if image.format == "EPS":
        raise RefusedError(
            "not an image: PostScript (EPS), a program that another program must run"
        )
    if image.mode in _WIDE and not _is_wide_pgm(image):
        raise RefusedError(
            f"its values are {_WIDE[image.mode]} (Pillow's mode {image.mode}), and nothing says "
            "which range of them is black to white; convert it to 8 bits, or pass decode= a loader "
            "of your own"
        )
    return image


def _read(image: Image.Image, file: BinaryIO, options: DecodeOptions) -> Image.Image:
    header, decoded = jpeg.opened_header(image), None
    if header:
        file.seek(0)
        decoded = jpeg.decode(file.read(), header)
    if decoded is None:
        decoded = _decoded(image)
    return _upright(decoded, _orientation(image)) if options.exif_orientation else decoded


def _decoded(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode.startswith("I"):
        image = _high_byte(image)
    if isinstance(image.info.get("transparency"), bytes):
        # convert drops it with the same pixels, but warns
        del image.info["transparency"]
    return image.convert("RGB")


def _high_byte(image: Image.Image) -> Image.Image:
    """Scale one channel of 16 bits (or 12, in TIFF) to 8 by its highest 8 bits."""
    tags: Any = getattr(image, "tag_v2", {})
    values = np.asarray(image)
    n_bits = 12 if tags.get(ExifTags.Base.BitsPerSample) == (12,) else 16
    high = (values >> (n_bits - 8)).astype(np.uint8)
    if tags.get(ExifTags.Base.PhotometricInterpretation) == 0:
        high = 255 - high  # white is zero, which Pillow sees to only at 8 bits
    scaled = Image.fromarray(high)
    # a transparent value of 16 bits means nothing in 8
    scaled.info = {key: value for key, value in image.info.items() if key != "transparency"}
    return scaled


def _is_wide_pgm(image: Image.Image) -> bool:
    # Pillow scales a PGM of more than 8 bits to the 16 bits of its mode I
    return image.format == "PPM" and image.mode == "I"


def _size(image: Image.Image, file: BinaryIO, options: DecodeOptions) -> tuple[int, int]:
    if image.format not in _SIZE_IN_HEADER:
        image.load()
    width, height = image.size
    if options.exif_orientation:
        if image.format == "PNG" and _png_tells_more_at_its_end(file):
            image.load()
        if _orientation(image) in _SIDES_SWAPPED and image.format != "TIFF":
            return height, width
    return width, height


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation as far as it has been read, 1 (upright) without a usable one."""
    try:
        # PngImageFile's own getexif decodes the pixels to get at what follows them
        value = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except Exception:  # a damaged EXIF block raises many types; viewers show such a photo as it is
        return 1
    return value if value in _TURNS else 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    if orientation == 1:
        return image
    turned = image.transpose(_TURNS[orientation])
    # what said how to turn goes, so that nothing turns the image twice
    for key in ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"):
        turned.info.pop(key, None)
    return turned


def _png_tells_more_at_its_end(file: BinaryIO) -> bool:
    """Whether a chunk that may hold an orientation follows the pixels of a PNG file."""
    file.seek(8)
    after_pixels = False
    while len(head := file.read(8)) == 8:
        name = head[4:]
        if after_pixels and name in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
            return True
        after_pixels |= name == b"IDAT"
        file.seek(int.from_bytes(head[:4]) + 4, os.SEEK_CUR)
    return False
