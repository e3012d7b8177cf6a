"""`gp.check`: everything decoded, nothing kept, every file accounted for."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import zoo
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp


@pytest.fixture
def photos(photo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the shared photos with two damaged ones and a text."""
    root = Path(shutil.copytree(photo_folder, tmp_path / "photos"))
    (root / "cat" / "b.png").write_bytes(b"")
    cut = (root / "dog" / "b.jpg").read_bytes()[:700]
    (root / "dog" / "b.jpg").write_bytes(cut)
    (root / "dog" / "notes.txt").write_text("notes")
    return root


def test_everything_is_decoded(photos: Path) -> None:
    """Files that cannot be read are named, whether their header or their pixels are damaged."""
    report = gp.check(photos, progress=False)
    assert (report.n_files, report.n_samples) == (13, 10)
    assert report.unreadable == (
        f"{photos}/cat/b.png: empty (0 bytes)",
        f"{photos}/dog/b.jpg: truncated: the file ends at byte 700, before its image does",
    )
    skipping = {"device": "cpu", "progress": False, "on_error": "skip"}
    assert gp.preload(photos, v2.Resize((8, 8)), **skipping).report == report
    assert not [t for t in threading.enumerate() if t.name.startswith("gpupreload")]


@pytest.mark.parametrize("workers", [1, 3])
def test_images_need_no_one_size(photos: Path, workers: int) -> None:
    """A check asks for no transform: images of many sizes and all files are looked at."""
    whole = ImageFolder(photos)
    assert gp.check(whole, workers=workers, progress=False).n_samples == 10
    assert gp.check(Subset(whole, [0, 1]), workers=workers, progress=False).n_samples == 1


def test_nothing_readable_is_a_report_too(photos: Path) -> None:
    """Where no file can be read, they are all named."""
    for path in photos.rglob("*.*"):
        path.write_bytes(b"")
    report = gp.check(photos, progress=False)
    assert (report.n_samples, len(report.unreadable), report.n_files) == (0, 12, 13)
    assert report.notices == ("Classes without an image: cat, dog, owl.",)


def test_a_bar_is_shown_where_asked(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bar counts files; it can be switched off."""
    gp.check(photos)
    assert "12/12" in capsys.readouterr().err
    gp.check(photos, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        (
            "/no/such/folder",
            {"on_error": "skip"},
            "on_error= was given, but check reports every file that cannot be read, and raises for "
            "none. Leave on_error= out.",
        ),
        (
            [(zoo.picture(), 0)],
            {},
            "data is list; expected the path of a folder of class folders, or an ImageFolder: only "
            "files can be checked.",
        ),
        (
            "/no/such/folder",
            {"workers": 0},
            "workers is 0; expected the number of decoding threads, 1 or more, or None for one a "
            "CPU.",
        ),
    ],
    ids=["on_error", "data", "workers"],
)
def test_what_cannot_be_checked(data: Any, options: dict[str, Any], text: str) -> None:
    """Arguments that make no sense are refused before any file is read."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.check(data, **options)
    assert str(raised.value) == text
