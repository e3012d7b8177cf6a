"""Hundreds of files of every kind, whole and damaged: none hangs a load, kills it or leaks."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import psutil
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import decode

# of damaged metadata Pillow warns in many ways
pytestmark = pytest.mark.filterwarnings("ignore")

SIZE = v2.Resize((16, 16))
SMALL = {
    name: zoo.healthy()[name]
    for name in ("sub2.jpg", "exif.jpg", "RGB.png", "P-index.png", "RGB.bmp", "lossy.webp")
}


def everything() -> dict[str, bytes]:
    """All files of the zoo, by a name of its own each."""
    damaged = [(name, data) for files in zoo.damaged().values() for name, data in files.items()]
    return zoo.healthy() | dict(damaged)


def answer(path: Path) -> Image.Image | None:
    """What torchvision's loader gives, None where it raises."""
    try:
        return pil_loader(str(path))
    except Exception:
        return None


def test_every_file_is_equal_or_named(tmp_path: Path) -> None:
    """Of over 500 files each is what ImageFolder reads, or is named with a reason."""
    (tmp_path / "a").mkdir()
    files = everything()
    for name, data in files.items():
        (tmp_path / "a" / name).write_bytes(data)
    ours = gp.preload(tmp_path, SIZE, device="cpu", progress=False, on_error="skip")
    kept = {Path(path).name: pixels for (path, _), pixels in zip(ours.samples, ours.images)}  # noqa: B905
    named = {Path(line.split(": ")[0]).name for line in ours.report.unreadable}
    assert ours.report.n_files == len(files) > 500
    assert not named & kept.keys()
    assert named | kept.keys() == files.keys()
    for name in files:
        expected = answer(tmp_path / "a" / name)
        assert (expected is None) == (name in named), name
        if expected is not None:
            pixels = np.asarray(SIZE(expected)).transpose(2, 0, 1)
            assert np.array_equal(kept[name].numpy(), pixels), name
    assert 100 < len(named) < len(files) - 100
    assert gp.check(tmp_path, progress=False).unreadable == tuple(sorted(ours.report.unreadable))


@settings(deadline=None, derandomize=True, max_examples=150, database=None)
@given(
    st.sampled_from(sorted(SMALL)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6),
    st.floats(0, 1),
    st.binary(max_size=40),
)
def test_any_damage_is_judged_as_torchvision_judges_it(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    changes: list[tuple[float, int]],
    end: float,
    tail: bytes,
) -> None:
    """Bytes changed anywhere, a file cut anywhere, something behind it: equal, or an error."""
    data = bytearray(SMALL[name])
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.getbasetemp() / f"any-{name}"
    path.write_bytes(data[: int(end * len(data)) + 1] + tail)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = answer(path)
        if expected is None:
            with pytest.raises(gp.UnreadableError):
                decode.read(path)
        else:
            image = decode.read(path)
            assert (image.size, image.tobytes()) == (expected.size, expected.tobytes())


def test_a_bomb_is_refused_by_name_and_size(tmp_path: Path) -> None:
    """An image that claims billions of pixels is refused from its header, or left out."""
    before = Image.MAX_IMAGE_PIXELS
    (tmp_path / "a").mkdir()
    bomb = tmp_path / "a" / "bomb.png"
    bomb.write_bytes(zoo.png_header(60000, 50000))
    zoo.picture().save(tmp_path / "a" / "fine.png")
    line = (
        f"{bomb}: refused as a decompression bomb: it claims 3,000,000,000 pixels, and Pillow's "
        "limit is 178,956,970; if you trust it, raise PIL.Image.MAX_IMAGE_PIXELS"
    )
    for call in (gp.plan, gp.preload):
        with pytest.raises(gp.UnreadableError) as raised:
            call(tmp_path, SIZE, device="cpu")
        assert line in str(raised.value)
    skipping = gp.preload(tmp_path, SIZE, device="cpu", progress=False, on_error="skip")
    assert (len(skipping), skipping.report.unreadable) == (1, (line,))
    assert before == Image.MAX_IMAGE_PIXELS


def test_five_hundred_truncated_files_leak_no_memory(tmp_path: Path) -> None:
    """A load of 500 truncated photos leaves memory flat: to 32 MiB, where 229 would leak."""
    # 229 MiB = 500 x 400 x 300 pixels x 4 bytes, as Pillow keeps RGB
    (tmp_path / "a").mkdir()
    data = zoo.encoded(zoo.picture(width=400, height=300), "JPEG")
    for k in range(500):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(data[: len(data) // 2])
    process = psutil.Process()
    gp.check(tmp_path, progress=False)
    before = process.memory_info().rss
    report = gp.check(tmp_path, progress=False)
    assert len(report.unreadable) == 500
    assert process.memory_info().rss - before < 32 << 20
