"""Image files of every kind that tests need: formats, modes, EXIF, more than 8 bits, damage.

Each function gives bytes, so that a test writes them under whatever name it likes. Nothing here
is random from run to run.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 29, 23


def picture(mode: str = "RGB", width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """A smooth picture with some noise; in mode P with a palette of 64 of its own colours."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:height, :width]
    channels = [128 + 100 * np.sin(x / (4 + k)) * np.cos(y / (5 - k)) for k in range(4)]
    noisy = np.stack(channels, -1) + rng.normal(0, 6, (height, width, 4))
    rgba = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
    if mode == "P":
        return rgba.convert("RGB").quantize(64)
    if mode == "CMYK":
        return Image.frombytes("CMYK", rgba.size, rgba.tobytes())
    return rgba if mode == "RGBA" else rgba.convert(mode)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    """Save an image to bytes with Pillow."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def exif(orientation: int) -> Image.Exif:
    """An EXIF block that holds an orientation."""
    block = Image.Exif()
    block[274] = orientation
    return block


def healthy() -> dict[str, bytes]:
    """Files that Pillow reads with 8 bits a channel, by name."""
    return jpegs() | pngs() | tiffs() | others()


def jpegs() -> dict[str, bytes]:
    """JPEG: colours, subsampling, progressive, and what may stand in a header."""
    rgb, files = picture(), {}
    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            name = f"sub{subsampling}{'-progressive' if progressive else ''}.jpg"
            options = {"subsampling": subsampling, "progressive": progressive}
            files[name] = encoded(rgb, "JPEG", **options)
    files["grey.jpg"] = encoded(picture("L"), "JPEG")
    files["grey-progressive.jpeg"] = encoded(picture("L"), "JPEG", progressive=True)
    files["cmyk.jpg"] = encoded(picture("CMYK"), "JPEG")
    files["ycck.jpg"] = files["cmyk.jpg"].replace(b"Adobe\0d\0\0\0\0\0", b"Adobe\0d\0\0\0\0\2")
    files["rgb-adobe.jpg"] = encoded(rgb, "JPEG", keep_rgb=True)
    files["exif.jpg"] = encoded(rgb, "JPEG", exif=exif(6))
    files["profile.jpg"] = encoded(rgb, "JPEG", icc_profile=b"profile" * 40)
    files["comment.jpg"] = encoded(rgb, "JPEG", comment=b"CREATOR: a test", dpi=(72, 96))
    files["long-comment.jpg"] = encoded(rgb, "JPEG", comment=b"words " * 4000)
    files["restarts.jpg"] = encoded(rgb, "JPEG", restart_marker_rows=1)
    files["wide-tables.jpg"] = encoded(rgb, "JPEG", qtables=[[1000] * 64], subsampling=0)
    files["tail.jpg"] = files["sub2.jpg"] + b"left over"
    files["mpo.jpg"] = encoded(rgb, "MPO", save_all=True, append_images=[rgb])
    files["one.jpg"] = encoded(picture(width=1, height=1), "JPEG")
    return files


def pngs() -> dict[str, bytes]:
    """PNG: every mode, with and without transparency, more than 8 bits a colour, animated."""
    files = {f"{m}.png": encoded(picture(m), "PNG") for m in ("1", "L", "LA", "P", "RGB", "RGBA")}
    files["P-alpha.png"] = encoded(picture("P"), "PNG", transparency=bytes(range(0, 256, 4)))
    files["P-index.png"] = encoded(picture("P"), "PNG", transparency=3)
    files["L-key.png"] = encoded(picture("L"), "PNG", transparency=128)
    files["RGB-key.png"] = encoded(picture(), "PNG", transparency=(1, 2, 3))
    files["P-4bits.png"] = encoded(picture().quantize(16), "PNG", bits=4)
    files["exif.png"] = encoded(picture(), "PNG", exif=exif(8))
    files["RGB-16bits.png"] = png16(ramp16(3), colour=2)
    files["RGBA-16bits.png"] = png16(ramp16(4), colour=6)
    files["LA-16bits.png"] = png16(ramp16(2), colour=4)
    other = picture().transpose(Image.Transpose.ROTATE_180)
    files["frames.png"] = encoded(picture(), "PNG", save_all=True, append_images=[other])
    return files


def tiffs() -> dict[str, bytes]:
    """TIFF: every mode, compressions, orientation (which Pillow itself applies), two pages."""
    modes = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK")
    files = {f"{m}.tif": encoded(picture(m), "TIFF") for m in modes}
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        files[f"{compression}.tiff"] = encoded(picture(), "TIFF", compression=compression)
    files["turned.tif"] = encoded(picture(), "TIFF", exif=exif(6))
    files["pages.tif"] = encoded(picture(), "TIFF", save_all=True, append_images=[picture("L")])
    return files


def others() -> dict[str, bytes]:
    """BMP, PPM, WebP and, under the suffix of another format, GIF and ICO."""
    files = {f"{m}.bmp": encoded(picture(m), "BMP") for m in ("1", "L", "P", "RGB", "RGBA")}
    files |= {f"{m}.ppm": encoded(picture(m), "PPM") for m in ("1", "L", "RGB", "RGBA")}
    files["text.pgm"] = b"P2\n# a comment\n3 2\n7\n0 1 2 3 4 7\n"
    files["10bits.ppm"] = b"P6 2 1 1023 " + struct.pack(">6H", 0, 3, 4, 511, 1020, 1023)
    files["lossy.webp"] = encoded(picture(), "WEBP")
    files["lossless.webp"] = encoded(picture("RGBA"), "WEBP", lossless=True)
    files["exif.webp"] = encoded(picture(), "WEBP", exif=exif(5))
    files["frames.webp"] = encoded(picture(), "WEBP", save_all=True, append_images=[picture("L")])
    files["a-gif.jpg"] = encoded(picture("P"), "GIF")
    files["a-png.jpg"] = encoded(picture(), "PNG")
    files["a-jpeg.png"] = encoded(picture(), "JPEG")
    icon = bytearray(encoded(picture(width=16, height=16), "ICO", sizes=[(16, 16)]))
    icon[6:8] = 32, 32  # the directory's width and height, which the picture need not have
    files["an-icon.bmp"] = bytes(icon)
    return files


def ramp16(channels: int = 1) -> np.ndarray:
    """Values over the whole range of 16 bits, uint16 of shape [HEIGHT, WIDTH, channels]."""
    n = HEIGHT * WIDTH * channels
    return np.linspace(0, 65535, n).astype(np.uint16).reshape(HEIGHT, WIDTH, channels)


def png16(values: np.ndarray, colour: int) -> bytes:
    """A PNG of 16 bits a channel, which Pillow writes only in grey."""
    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(name, body)
        for name, body in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def chunk(name: bytes, body: bytes) -> bytes:
    """One chunk of a PNG file."""
    check = zlib.crc32(name + body)
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)


def grey_tiff(data: bytes, bits: int, *, photometric: int = 1, sample_format: int = 1) -> bytes:
    """An uncompressed little-endian TIFF of one channel, WIDTH x HEIGHT."""
    tags = {256: WIDTH, 257: HEIGHT, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1}
    tags |= {278: HEIGHT, 279: len(data), 339: sample_format}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 99))


def damaged() -> dict[str, dict[str, bytes]]:
    """For each kind, files by name: cut at 10 places, one bit flipped at 50; and wrong contents."""
    files = {kind: _cut(kind, data) | _flipped(kind, data) for kind, data in _to_damage().items()}
    files["contents"] = {"zeros.jpg": bytes(5000), "text.png": b"a line of text\n" * 50}
    return files


def _cut(kind: str, data: bytes) -> dict[str, bytes]:
    return {f"cut-{k}-{kind}": data[: len(data) * k // 10] for k in range(10)}


def _flipped(kind: str, data: bytes) -> dict[str, bytes]:
    files = {}
    for k in range(50):
        flipped = bytearray(data)
        flipped[len(data) * k // 50] ^= 1 << k % 8
        files[f"flip-{k}-{kind}"] = bytes(flipped)
    return files


def _to_damage() -> dict[str, bytes]:
    return {
        "plain.jpg": encoded(picture(), "JPEG"),
        "progressive.jpg": encoded(picture(), "JPEG", progressive=True),
        "exif.jpg": encoded(picture(), "JPEG", exif=exif(6)),
        "rgb.png": encoded(picture(), "PNG"),
        "palette.png": encoded(picture("P"), "PNG", transparency=3),
        "rgb.bmp": encoded(picture(), "BMP"),
        "rgb.tif": encoded(picture(), "TIFF"),
        "rgb.webp": encoded(picture(), "WEBP"),
        "rgb.ppm": encoded(picture(), "PPM"),
    }
