"""The short way to Pillow's JPEG decoder: which files take it, and that its answer is Pillow's."""

from __future__ import annotations

import io
import struct

import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpupreload import jpeg

FILES = zoo.jpegs()
PLAIN = [
    *(name for name in FILES if name.startswith("sub")),
    "grey.jpg",
    "grey-progressive.jpeg",
    "comment.jpg",
    "restarts.jpg",
    "tail.jpg",
    "one.jpg",
]


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_header_holds_what_pillow_reads(name: str) -> None:
    """Size, mode and info of a JPEG without EXIF or profile are found without Pillow's reader."""
    header = jpeg.plain_header(FILES[name][: jpeg.N_START])
    image = Image.open(io.BytesIO(FILES[name]))
    assert header == jpeg.Header(image.size, image.mode, image.info)


@pytest.mark.parametrize("name", [name for name in FILES if name not in PLAIN])
def test_what_is_unusual_is_left_to_pillow(name: str) -> None:
    """EXIF, profiles, CMYK, several pictures, wide tables and long headers are no plain header."""
    assert jpeg.plain_header(FILES[name][: jpeg.N_START]) is None


@pytest.mark.parametrize("name", ["cmyk.jpg", "ycck.jpg", "mpo.jpg"])
def test_what_only_pillow_decodes_gives_no_header(name: str) -> None:
    """CMYK and files of several pictures go through Pillow's reader altogether."""
    assert jpeg.opened_header(Image.open(io.BytesIO(FILES[name]))) is None


def test_resolution_is_found_in_both_units() -> None:
    """Dots per inch and per centimetre become dpi, as in Pillow."""
    for unit in (0, 1, 2):
        data = bytearray(zoo.encoded(zoo.picture(), "JPEG", dpi=(72, 96)))
        data[13] = unit
        header = jpeg.plain_header(bytes(data))
        assert header is not None
        assert header.info == Image.open(io.BytesIO(data)).info


def test_a_file_that_ends_early_is_not_decoded() -> None:
    """A file cut anywhere after its header gives no image."""
    data = FILES["sub2.jpg"]
    header = jpeg.plain_header(data)
    assert header is not None
    for n in range(650, len(data)):
        assert jpeg.decode(data[:n], header) is None


def segment(marker: int, body: bytes, extra: int = 0) -> bytes:
    """One segment of a JPEG header, its stated length wrong by `extra`."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2 + extra) + body


TABLE = segment(0xDB, bytes(65))
FRAME = segment(0xC0, bytes([8, 0, 9, 0, 9, 1, 1, 0x11, 0]))
SCAN = segment(0xDA, bytes([1, 1, 0, 0, 63, 0]))


@pytest.mark.parametrize(
    ("segments", "is_plain"),
    [
        pytest.param(TABLE + FRAME + SCAN, True, id="plain"),
        pytest.param(segment(0xDB, bytes(130)) + FRAME + SCAN, True, id="two tables"),
        pytest.param(segment(0xDB, bytes(64)) + FRAME + SCAN, False, id="short table"),
        pytest.param(
            segment(0xDB, b"\x10" + bytes(64)) + FRAME + SCAN, False, id="table of 16 bits"
        ),
        pytest.param(TABLE + FRAME + FRAME + SCAN, False, id="two frames"),
        pytest.param(
            TABLE + segment(0xC0, bytes([8, 0, 9, 0, 9, 1, 1, 0x11, 0, 0])) + SCAN,
            False,
            id="long frame",
        ),
        pytest.param(TABLE + segment(0xFE, b"", -1) + FRAME + SCAN, False, id="length 1"),
        pytest.param(TABLE + b"\0" + FRAME[1:] + SCAN, False, id="no marker"),
        pytest.param(TABLE + segment(0xE0, b"JFXX\0\x10") + FRAME + SCAN, False, id="no JFIF"),
        pytest.param(TABLE + SCAN, False, id="no frame"),
        pytest.param(TABLE + FRAME, False, id="no scan"),
    ],
)
def test_only_a_header_without_fault_is_plain(segments: bytes, is_plain: bool) -> None:
    """A header with a fault that Pillow might see otherwise is left to Pillow."""
    assert (jpeg.plain_header(b"\xff\xd8" + segments) is not None) == is_plain


@pytest.mark.parametrize("size", [(0, 9), (9, 0)])
def test_an_image_without_pixels_is_no_plain_header(size: tuple[int, int]) -> None:
    """A width or height of 0 is left to Pillow, which refuses it."""
    data = FILES["grey.jpg"]
    start = data.index(b"\xff\xc0\0\x0b\x08") + 5
    changed = data[:start] + struct.pack(">HH", *size) + data[start + 4 :]
    assert jpeg.plain_header(changed) is None


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_nothing_is_accepted_that_pillow_refuses(name: str, data: st.DataObject) -> None:
    """Whatever bytes change in a header: if it is plain, Pillow opens it to the same facts."""
    changed = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(changed), 700) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    header = jpeg.plain_header(bytes(changed[: jpeg.N_START]))
    if header is None:
        return
    with Image.open(io.BytesIO(changed)) as image:
        assert header == jpeg.Header(image.size, image.mode, image.info)
        decoded = jpeg.decode(bytes(changed), header)
        if decoded is not None:
            assert decoded.tobytes() == image.tobytes()
