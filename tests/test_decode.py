"""One file to pixels or size: equal to torchvision's own loader, or one line that says why not."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import zoo
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError
from torchvision.datasets.folder import pil_loader

from gpupreload import decode
from gpupreload.decode import DecodeOptions
from gpupreload.errors import ArgumentError, UnreadableError

# the icon's directory and its picture disagree, and Pillow says so
pytestmark = pytest.mark.filterwarnings("ignore:Image was not the expected size")

HEALTHY = zoo.healthy()
DAMAGED = zoo.damaged()

Put = Callable[[str, bytes], str]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write bytes to a file of the given name and return its path."""

    def write(name: str, data: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


def facts(image: Image.Image) -> tuple[str, tuple[int, int], bytes]:
    """All that makes two images equal."""
    return image.mode, image.size, image.tobytes()


def all_damaged() -> dict[str, bytes]:
    """The damaged files of all kinds, by name."""
    return {name: data for files in DAMAGED.values() for name, data in files.items()}


def torchvision_answer(path: str) -> tuple[str, tuple[int, int], bytes] | None:
    """What torchvision's loader gives, None where it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return facts(pil_loader(path))
        except Exception:
            return None


def why_not(path: str) -> str:
    """The text of the error that reading a file raises."""
    with pytest.raises(UnreadableError) as caught:
        decode.read(path)
    return str(caught.value)


@pytest.mark.parametrize("name", HEALTHY)
def test_pixels_equal_torchvisions_loader(put: Put, name: str) -> None:
    """Every format and mode of 8 bits a channel is read as torchvision's loader reads it."""
    path = put(name, HEALTHY[name])
    assert facts(decode.read(path)) == torchvision_answer(path)


@pytest.mark.parametrize("name", HEALTHY)
def test_size_is_that_of_the_pixels(put: Put, name: str) -> None:
    """`size` gives the width and height that `read` will give."""
    path = put(name, HEALTHY[name])
    assert decode.size(path) == decode.read(path).size


@pytest.mark.parametrize("name", HEALTHY)
def test_metadata_stay_for_the_callers_steps(put: Put, name: str) -> None:
    """EXIF, profile and other `info` are there as torchvision's loader leaves them."""
    path = put(name, HEALTHY[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = pil_loader(path)
    assert decode.read(path).info == expected.info
    assert dict(decode.read(path).getexif()) == dict(expected.getexif())


def test_size_decodes_no_pixel(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size comes from the header, for every format that ImageFolder lists."""
    paths = [put(name, data) for name, data in HEALTHY.items() if name != "an-icon.bmp"]
    expected = [Image.open(path).size for path in paths]

    def no_pixels(*_: object) -> None:
        pytest.fail("a pixel was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", no_pixels)
    monkeypatch.setattr(Image.Image, "frombytes", no_pixels)
    assert [decode.size(path) for path in paths] == expected
    for path in paths:
        decode.size(path, options=DecodeOptions(exif_orientation=True))


def test_the_suffix_says_nothing(put: Put) -> None:
    """A file is read by its contents, whatever its name."""
    for suffix in (".jpg", ".png", ".tif", ".txt", ""):
        path = put(f"image{suffix}", HEALTHY["lossy.webp"])
        assert facts(decode.read(path)) == torchvision_answer(path)


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_judged_as_pillow_judges_it(put: Put, kind: str) -> None:
    """A damaged file gives what torchvision's loader gives, or an error just where that raises."""
    for name, data in DAMAGED[kind].items():
        path = put(name, data)
        expected = torchvision_answer(path)
        if expected is None:
            message = why_not(path)
            assert message.startswith(f"{path}: "), name
            assert "\n" not in message, name
        else:
            assert facts(decode.read(path)) == expected, name


def test_size_fails_only_where_the_header_is_unreadable(put: Put) -> None:
    """A damaged file has a size exactly when Pillow can open it."""
    for name, data in all_damaged().items():
        path = put(name, data)
        try:
            with Image.open(path) as image:
                expected = image.size
        except Exception:
            with pytest.raises(UnreadableError):
                decode.size(path)
        else:
            assert decode.size(path) == expected, name


def test_sixteen_bits_are_scaled_by_their_high_byte(put: Put) -> None:
    """One channel of 16 bits becomes 8 by its high byte, in PNG, TIFF and PGM."""
    values = zoo.ramp16()[..., 0]
    high = (values // 256).astype(np.uint8)
    little, big = values.astype("<u2").tobytes(), values.astype(">u2").tobytes()
    files = {
        "grey.png": zoo.encoded(Image.fromarray(values), "PNG"),
        "grey.tif": zoo.grey_tiff(little, 16),
        "grey.pgm": b"P5 29 23 65535\n" + big,
        "key.png": zoo.encoded(Image.fromarray(values), "PNG", transparency=40000),
    }
    for name, data in files.items():
        path = put(name, data)
        assert np.array_equal(np.asarray(decode.read(path)), np.stack([high] * 3, -1)), name
        assert decode.size(path) == (29, 23)


def test_where_white_is_zero_sixteen_bits_are_turned_over(put: Put) -> None:
    """A TIFF of 16 bits whose zero is white comes out with its zero white."""
    values = zoo.ramp16()[..., 0]
    path = put("grey.tif", zoo.grey_tiff(values.astype("<u2").tobytes(), 16, photometric=0))
    assert np.array_equal(np.asarray(decode.read(path))[..., 0], 255 - values // 256)


def test_twelve_bits_are_scaled_by_their_highest_eight(put: Put) -> None:
    """A TIFF of 12 bits uses the whole range of 8 bits too."""
    # two values of 12 bits in three bytes: 0xFFF and 0x000; a row of 29 ends in half of these
    row = (b"\xff\xf0\x00" * 15)[:44]
    path = put("grey.tif", zoo.grey_tiff(row * 23, 12))
    grey = np.asarray(decode.read(path))[..., 0]
    assert np.array_equal(grey, np.tile([255, 0] * 14 + [255], (23, 1)))


@pytest.mark.parametrize(
    ("bits", "sample_format", "mode", "what"),
    [
        (32, 3, "F", "floating-point numbers"),
        (32, 2, "I", "whole numbers of 32 bits"),
        (16, 2, "I", "whole numbers of 32 bits"),
    ],
)
def test_values_without_a_known_range_are_refused(
    put: Put, bits: int, sample_format: int, mode: str, what: str
) -> None:
    """Floats and 32-bit integers are refused by name, from the header on, with the way on."""
    data = bytes(29 * 23 * bits // 8)
    path = put("wide.tif", zoo.grey_tiff(data, bits, sample_format=sample_format))
    expected = (
        f"{path}: its values are {what} (Pillow's mode {mode}), and nothing says which range of "
        "them is black to white; convert it to 8 bits, or pass decode= a loader of your own"
    )
    assert why_not(path) == expected
    with pytest.raises(UnreadableError) as caught:
        decode.size(path)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("empty.jpg", b"", "empty (0 bytes)"),
        ("notes.jpg", b"some text here", "not an image: its first bytes are b'some text he'"),
        ("page.png", b"<!DOCTYPE html><p>", "not an image: a web page (HTML), perhaps a failed "
         "download"),
        ("lfs.jpg", b"version https://git-lfs.github.com/spec/v1\n", "not an image: a Git LFS "
         "pointer; fetch the file itself with `git lfs pull`"),
        ("photo.jpg", b"\0\0\0\x18ftypheic\0\0\0\0", "not an image that Pillow reads here: HEIF or "
         "a video; convert it to JPEG or PNG"),
        ("head.jpg", b"\xff\xd8\xff\xe0\0\x01JFIF" + bytes(99), "damaged: it begins as JPEG does, "
         "but its header makes no sense"),
        ("cut.jpg", HEALTHY["sub2.jpg"][:700], "truncated: the file ends at byte 700, before its "
         "image does"),
        ("cut.png", HEALTHY["RGB.png"][:700], "truncated: the file ends at byte 700, before its "
         "image does"),
        ("huge.png", zoo.png_header(60000, 50000), "refused as a decompression bomb: it claims "
         "3,000,000,000 pixels, and Pillow's limit is 178,956,970; if you trust it, raise "
         "PIL.Image.MAX_IMAGE_PIXELS"),
        ("drawing.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
         "not an image: PostScript (EPS), a program that another program must run"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[-5:] else "",
)  # fmt: skip
def test_what_is_no_image_is_named_with_the_reason(
    put: Put, name: str, data: bytes, why: str
) -> None:
    """A file that cannot be read is one line: its path and why."""
    path = put(name, data)
    assert why_not(path) == f"{path}: {why}"


def test_a_path_without_a_file_says_what_is_there(tmp_path: Path) -> None:
    """A missing file, a link to nothing and a folder are each told apart."""
    missing, link, folder = (str(tmp_path / name) for name in ("no.jpg", "link.jpg", "folder.jpg"))
    Path(link).symlink_to("gone.jpg")
    Path(folder).mkdir()
    assert why_not(missing) == f"{missing}: no such file"
    assert why_not(link) == f"{link}: a link to gone.jpg, where there is no file"
    assert why_not(folder) == f"{folder}: a folder, not a file"


def test_a_file_that_may_not_be_read_says_so(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose permissions forbid reading is named, as any other unreadable file."""
    path = put("secret.jpg", HEALTHY["sub2.jpg"])

    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", forbidden)
    assert why_not(path) == f"{path}: permission denied: this account may not read it"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("two\n  lines"), "damaged: two lines"),
        (KeyError(), "damaged: KeyError"),
        (MemoryError(), "needs more memory to decode than this machine has free"),
        (OSError(5, "Input/output error"), "cannot be read: Input/output error"),
        (
            OSError("Truncated File Read"),
            "truncated: the file ends at byte 4, before its image does",
        ),
        (Image.DecompressionBombError("too big"), "refused: too big"),
    ],
    ids=repr,
)
def test_whatever_pillow_raises_becomes_one_line(
    put: Put, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    """An exception of any type, with any text, is one line that names the file."""
    path = put("image.png", b"data")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Image, "open", fail)
    assert why_not(path) == f"{path}: {why}"


def test_a_file_that_vanishes_meanwhile_is_missing(
    put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is deleted while it is read is reported as missing."""
    path = put("image.png", b"data")

    def delete(*_: object) -> None:
        Path(path).unlink()
        raise UnidentifiedImageError

    monkeypatch.setattr(Image, "open", delete)
    assert why_not(path) == f"{path}: no such file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    """A pipe under the name of an image is refused, not waited for."""
    path = str(tmp_path / "pipe.jpg")
    os.mkfifo(path)
    expected = f"{path}: not a file with contents, but a pipe, a socket or a device"
    assert why_not(path) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a file name")
def test_a_name_of_any_bytes_makes_a_message_that_prints(tmp_path: Path) -> None:
    """File names with line ends or broken Unicode are escaped, so that a line stays a line."""
    path = os.fsencode(tmp_path) + b"/two\nlines\xff.jpg"
    Path(os.fsdecode(path)).write_bytes(b"")
    message = why_not(os.fsdecode(path))
    assert message == f"{tmp_path}/two\\nlines\\udcff.jpg: empty (0 bytes)"
    assert message.encode("utf-8")


def test_a_bomb_leaves_pillows_limit_alone(put: Put) -> None:
    """Pillow's limit on pixels is obeyed, never changed, and the caller may raise it."""
    before = Image.MAX_IMAGE_PIXELS
    decode_size = decode.size(put("a.png", zoo.png_header(13000, 6000)))
    with pytest.raises(UnreadableError):
        decode.size(put("b.png", zoo.png_header(60000, 50000)))
    assert decode_size == (13000, 6000)
    assert before == Image.MAX_IMAGE_PIXELS


def test_above_pillows_limit_a_jpeg_warns_as_pillow_does(
    put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow's warning of a very large image reaches the caller for JPEG too."""
    path = put("large.jpg", HEALTHY["sub2.jpg"])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 29 * 23 - 1)
    with pytest.warns(Image.DecompressionBombWarning):
        decode.read(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 29 * 23)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode.read(path)


def test_dropped_alpha_does_not_warn(put: Put) -> None:
    """A palette with transparency is read without Pillow's advice on how to convert it."""
    path = put("alpha.png", HEALTHY["P-alpha.png"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode.read(path)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_upright_when_asked(put: Put, format: str, orientation: int) -> None:
    """`exif_orientation=True` turns each of the eight orientations upright, in every format."""
    path = put("photo", zoo.encoded(zoo.picture(), format, exif=zoo.exif(orientation)))
    options = DecodeOptions(exif_orientation=True)
    with Image.open(path) as image:
        expected = ImageOps.exif_transpose(image).convert("RGB")
    image = decode.read(path, options=options)
    assert facts(image) == facts(expected)
    assert decode.size(path, options=options) == expected.size
    assert facts(ImageOps.exif_transpose(image)) == facts(expected)  # nothing is left to turn


def test_orientation_after_the_pixels_counts(put: Put) -> None:
    """A PNG may state its orientation at its end, and still has the right size."""
    data = zoo.encoded(zoo.picture(), "PNG")
    block = zoo.exif(6).tobytes().removeprefix(b"Exif\0\0")
    end = len(data) - 12
    path = put("late.png", data[:end] + zoo.chunk(b"eXIf", block) + data[end:])
    options = DecodeOptions(exif_orientation=True)
    expected = zoo.picture().transpose(Image.Transpose.ROTATE_270)
    assert facts(decode.read(path, options=options)) == facts(expected)
    assert decode.size(path, options=options) == (23, 29)
    assert decode.size(path) == (29, 23)


def test_a_damaged_exif_block_turns_nothing(put: Put) -> None:
    """A photo whose EXIF block is damaged is read as it lies."""
    data = zoo.encoded(zoo.picture(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\xff\xff")
    path = put("photo.jpg", data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = decode.read(path, options=DecodeOptions(exif_orientation=True))
    assert facts(image) == torchvision_answer(path)


@pytest.mark.parametrize("name", HEALTHY)
def test_one_channel_is_the_luma_of_the_colours(put: Put, name: str) -> None:
    """`mode="L"` gives what Pillow's conversion makes of torchvision's RGB image."""
    path = put(name, HEALTHY[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = pil_loader(path).convert("L")
    assert facts(decode.read(path, options=DecodeOptions(mode="L"))) == facts(expected)


def test_an_unknown_mode_is_refused() -> None:
    """A mode that is neither RGB nor L is an error before any file is read."""
    with pytest.raises(ArgumentError) as caught:
        DecodeOptions(mode="CMYK")  # type: ignore[arg-type]
    assert str(caught.value) == "mode is 'CMYK'; expected 'RGB' or 'L'."


def test_threads_give_the_same_pixels(put: Put) -> None:
    """Reading from eight threads at once gives what one thread gives."""
    paths = [put(name, data) for name, data in HEALTHY.items()] * 3
    expected = [facts(decode.read(path)) for path in paths]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda path: facts(decode.read(path)), paths)) == expected


@pytest.mark.parametrize("name", [*HEALTHY, *all_damaged()])
def test_what_was_read_before_makes_no_difference(put: Put, name: str) -> None:
    """With its bytes at hand, a file is read, or refused, in the same words as without."""
    path = put(name, (HEALTHY | all_damaged())[name])
    try:
        expected: object = facts(decode.read(path))
    except UnreadableError as error:
        expected = str(error)
    try:
        found: object = facts(decode.read(path, data=decode.small_file(path)))
    except UnreadableError as error:
        found = str(error)
    assert found == expected


def test_a_plain_jpeg_at_hand_is_not_opened_again(put: Put) -> None:
    """The bytes that were read before are what is decoded."""
    path = put("a.jpg", HEALTHY["sub0.jpg"])
    expected, data = facts(decode.read(path)), decode.small_file(path)
    Path(path).unlink()
    assert facts(decode.read(path, data=data)) == expected


def test_only_small_files_are_held(put: Put, tmp_path: Path) -> None:
    """Of what is 64 KiB or longer, missing, or no file with contents, nothing is held."""
    n_bytes = 64 << 10
    assert decode.small_file(put("small", bytes(n_bytes - 1))) == bytes(n_bytes - 1)
    assert decode.small_file(put("large", bytes(n_bytes))) is None
    assert decode.small_file(tmp_path / "missing") is None
    assert decode.small_file(tmp_path) is None
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert decode.small_file(tmp_path / "pipe") is None


def test_no_file_stays_open(put: Put) -> None:
    """A file is closed when its pixels are there, and when it turns out unreadable."""
    for name, data in (HEALTHY | all_damaged()).items():
        path = put("kept", data)
        try:
            kept = decode.read(path), decode.size(path)
        except UnreadableError as error:
            kept = error
        open_files = [file.path for file in psutil.Process().open_files()]
        assert path not in open_files, (name, kept)


def test_truncated_files_leak_no_memory(put: Put) -> None:
    """Five hundred reads of a truncated JPEG leave memory flat: to 32 MiB, where 229 would leak."""
    # 229 MiB = 500 x 400 x 300 pixels x 4 bytes, as Pillow keeps RGB
    data = zoo.encoded(zoo.picture(width=400, height=300), "JPEG")
    path = put("cut.jpg", data[: len(data) // 2])
    process = psutil.Process()
    for _ in range(20):
        why_not(path)
    before = process.memory_info().rss
    for _ in range(500):
        why_not(path)
    assert process.memory_info().rss - before < 32 << 20
