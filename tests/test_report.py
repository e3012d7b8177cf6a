"""The load report: every file a sample, passed over or unreadable, and what may surprise."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import zoo
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import remarks
from gpupreload.report import LoadReport
from gpupreload.tree import PassedOver

SIZE = v2.Resize((6, 5))


def preload(data: Any, **options: Any) -> gp.GPUPreloadDataset:
    """Preload small images to the CPU."""
    return gp.preload(data, SIZE, **{"device": "cpu", "progress": False} | options)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A tree with everything that real folders hold."""
    root = tmp_path / "hostile"
    for folder in ("cat", "dog", ".ipynb_checkpoints", "cat/__MACOSX", "10", "9", "owl"):
        (root / folder).mkdir(parents=True)
    rgb = zoo.picture()
    files = {
        "cat/plain.jpg": zoo.encoded(rgb, "JPEG"),
        "cat/alpha.png": zoo.encoded(zoo.picture("RGBA"), "PNG"),
        "cat/index.png": zoo.encoded(zoo.picture("P"), "PNG", transparency=3),
        "cat/phone.jpg": zoo.encoded(rgb, "JPEG", exif=zoo.exif(6), icc_profile=b"x" * 200),
        "cat/pages.tif": zoo.encoded(rgb, "TIFF", save_all=True, append_images=[rgb]),
        "cat/gif.jpg": zoo.encoded(zoo.picture("P"), "GIF"),
        "cat/jpeg.png": zoo.encoded(rgb, "JPEG"),
        "cat/deep.png": zoo.encoded(Image.fromarray(zoo.ramp16()[..., 0]), "PNG"),
        "cat/cut.jpg": zoo.encoded(rgb, "JPEG")[:700],
        "cat/empty.jpg": b"",
        "cat/page.jpg": b"<!DOCTYPE html><p>404",
        "cat/._plain.jpg": b"\0\5\x16\7",
        "cat/Thumbs.db": b"thumbs",
        "cat/__MACOSX/a.jpg": b"",
        "cat/notes.txt": b"notes",
        "cat/more.TXT": b"notes",
        "cat/photo.heic": b"\0\0\0\x18ftypheic",
        "cat/README": b"read me",
        "dog/plain.jpg": zoo.encoded(rgb, "JPEG"),
        "10/a.jpg": zoo.encoded(rgb, "JPEG"),
        "9/a.jpg": zoo.encoded(rgb, "JPEG"),
        ".ipynb_checkpoints/a.jpg": zoo.encoded(rgb, "JPEG"),
        "labels.csv": b"a,b\n",
        ".DS_Store": b"",
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    (root / "cat" / "up").symlink_to("..")
    (root / "dog" / "again.jpg").symlink_to("plain.jpg")
    (root / "dog" / "gone.jpg").symlink_to("nowhere.jpg")
    return root


def walked(root: Path) -> int:
    """How many things that are no real folders lie below a folder."""
    links = sum((Path(top) / d).is_symlink() for top, ds, _ in os.walk(root) for d in ds)
    return links + sum(len(files) for _, _, files in os.walk(root))


def test_every_file_is_accounted_for(hostile: Path) -> None:
    """Files seen = samples + files passed over + unreadable ones, and each is named once."""
    ours = preload(hostile, on_error="skip", allow_empty=True)
    report = ours.report
    assert report.n_files == walked(hostile) == 27
    assert report.n_samples == len(ours) == 11
    assert report.n_samples + len(report.passed_over) + len(report.unreadable) == report.n_files
    named = [passed.path for passed in report.passed_over]
    named += [path for path, _ in ours.samples or ()]
    named += [line.split(": ")[0] for line in report.unreadable]
    assert len(set(named)) == report.n_files


def test_files_passed_over_are_grouped_by_reason(hostile: Path) -> None:
    """Each reason names its files, and suffixes are counted."""
    report = preload(hostile, on_error="skip", allow_empty=True).report
    names = {
        why: sorted(str(Path(path).relative_to(hostile)) for path in paths)
        for why, paths in report.reasons.items()
    }
    assert names == {
        "a hidden file": [".DS_Store", "cat/._plain.jpg"],
        "in a hidden folder, .ipynb_checkpoints": [".ipynb_checkpoints/a.jpg"],
        "a system file": ["cat/Thumbs.db"],
        "in a system folder, __MACOSX": ["cat/__MACOSX/a.jpg"],
        "it has no suffix, which is not among the extensions": ["cat/README"],
        "its suffix .txt is not among the extensions": ["cat/more.TXT", "cat/notes.txt"],
        "its suffix .heic is not among the extensions": ["cat/photo.heic"],
        "beside the class folders, in none of them": ["labels.csv"],
        "a link that leads back up or repeats what is counted": ["cat/up", "dog/again.jpg"],
    }
    assert report.suffixes == {".txt": 2, "": 1, ".heic": 1}


def test_unreadable_files_are_named_with_the_reason(hostile: Path) -> None:
    """What on_error="skip" leaves out is one line a file: those of headers, then of pixels."""
    report = preload(hostile, on_error="skip", allow_empty=True).report
    assert report.unreadable == (
        f"{hostile}/cat/empty.jpg: empty (0 bytes)",
        f"{hostile}/cat/page.jpg: not an image: a web page (HTML), perhaps a failed download",
        f"{hostile}/dog/gone.jpg: a link to nowhere.jpg, where there is no file",
        f"{hostile}/cat/cut.jpg: truncated: the file ends at byte 700, before its image does",
    )


def test_what_may_surprise_is_remarked(hostile: Path) -> None:
    """Alpha, frames, orientation, profile, wrong suffix and depth are found from headers."""
    report = preload(hostile, on_error="skip", allow_empty=True).report
    found = {what: [Path(path).name for path in paths] for what, paths in report.remarks.items()}
    assert found == {
        "alpha": ["alpha.png", "index.png"],
        "suffix": ["gif.jpg", "jpeg.png"],
        "deep": ["deep.png"],
        "frames": ["pages.tif"],
        "turned": ["phone.jpg"],
        "profile": ["phone.jpg"],
    }


def test_notices_of_classes_are_told(tmp_path: Path) -> None:
    """Numeric names sorted as text and classes without an image are said in sentences."""
    for name in ("9", "10", "11"):
        (tmp_path / name).mkdir()
    for name in ("9", "10"):
        zoo.picture().save(tmp_path / name / "a.png")
    assert preload(tmp_path, allow_empty=True).report.notices == (
        "The class names are numbers, but are sorted as text: class 0 is '10', not '9'. "
        "classes=[...] gives them another order.",
        "Classes without an image: 11.",
    )


def test_a_class_of_unreadable_files_is_empty(hostile: Path) -> None:
    """Where skipping leaves a class without an image, the report says so as for an empty one."""
    (hostile / "owl" / "a.jpg").write_bytes(b"")
    report = preload(hostile, on_error="skip").report
    assert report.notices == ("Classes without an image: owl.",)


def test_the_table_shows_it_all(tmp_path: Path) -> None:
    """The report prints as one table: counts, reasons and remarks with examples, notices."""
    why = "its suffix .txt is not among the extensions"
    report = LoadReport(
        name="photos",
        n_samples=1200,
        passed_over=tuple(PassedOver(f"photos/a/{i}.txt", why, "suffix") for i in range(5)),
        unreadable=("photos/cat/a.jpg: empty (0 bytes)", "photos/cat/c.jpg: no such file"),
        remarks={"turned": ("photos/cat/b.jpg",)},
        notices=("Classes without an image: owl.",),
        cache="Cache: off.",
    )
    shown = """
Report on photos
                                                          files  for example
--------------------------------------------------------  -----  -----------------------------------
files seen                                                1,207
samples                                                   1,200
passed over: its suffix .txt is not among the extensions      5  a/0.txt, a/1.txt, a/2.txt, 2 more
left out: cannot be read                                      2  cat/a.jpg: empty (0 bytes)
                                                                 cat/c.jpg: no such file
samples with an EXIF orientation, not applied                 1  cat/b.jpg
Classes without an image: owl.
Cache: off."""
    assert "".join(str(report).split("-")) == "".join(shown.strip().split("-"))
    assert repr(report) == str(report)
    assert "<td" in report._repr_html_()
    assert "1,207" in report._repr_html_()


def test_the_readme_shows_the_report_of_this_tree(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report that README.md shows is the one that this tree has."""
    monkeypatch.chdir(hostile.parent)
    report = str(preload("hostile", on_error="skip", allow_empty=True).report)
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"```\n{report}\n```" in readme


def test_orientation_is_told_as_it_was_treated(hostile: Path) -> None:
    """The report says whether photos were turned upright."""
    lying = preload(hostile, on_error="skip", allow_empty=True).report
    upright = preload(hostile, on_error="skip", allow_empty=True, exif_orientation=True).report
    assert "an EXIF orientation, not applied " in str(lying)
    assert "an EXIF orientation, applied " in str(upright)


@pytest.mark.parametrize("progress", [True, False])
def test_news_is_shown_with_the_progress(
    hostile: Path, capsys: pytest.CaptureFixture[str], progress: bool
) -> None:
    """Where a bar is shown, so is the report; without one nothing is printed."""
    report = preload(hostile, on_error="skip", allow_empty=True, progress=progress).report
    out, err = capsys.readouterr()
    assert out == ""
    assert (str(report) in err) is progress


def test_no_news_is_no_noise(photo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a folder of samples, and perhaps hidden files, no report is printed."""
    report = preload(photo_folder, progress=True).report
    assert not report.has_news
    assert "files seen" not in capsys.readouterr().err
    assert "files seen" in str(report)


def test_in_jupyter_it_is_displayed(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook the report is shown as HTML."""
    import IPython
    import IPython.display

    class Shell:
        kernel = "a notebook's"

    shown: list[Any] = []
    monkeypatch.setattr(IPython, "get_ipython", Shell)
    monkeypatch.setattr(IPython.display, "display", shown.append)
    ours = preload(hostile, on_error="skip", allow_empty=True, progress=True)
    assert shown == [ours.report]


def test_data_of_other_kinds_have_a_report(photo_folder: Path) -> None:
    """An ImageFolder and a plain list have a report of their samples."""
    assert preload(ImageFolder(photo_folder)).report == LoadReport(str(photo_folder), 12)
    of_a_list = preload([(zoo.picture(), 0)] * 3).report
    assert of_a_list == LoadReport("list", 3, is_of_files=False)
    assert of_a_list.n_files == 0
    assert str(of_a_list) == "Report on list\nsamples  3"


def test_the_report_is_plain_data(hostile: Path) -> None:
    """A report can be pickled, and cannot be changed."""
    report = preload(hostile, on_error="skip", allow_empty=True).report
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(AttributeError):
        report.n_samples = 3  # type: ignore[misc]


def test_a_shared_store_has_the_same_report(hostile: Path) -> None:
    """Preloading the same again, from memory, tells the same."""
    first = preload(hostile, on_error="skip", allow_empty=True)
    again = preload(hostile, on_error="skip", allow_empty=True)
    assert first.images is again.images
    assert first.report == again.report


def test_a_broken_second_frame_is_no_remark(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong behind the first frame does not keep a file from being a sample."""
    gif = zoo.encoded(zoo.picture("P"), "GIF", save_all=True, append_images=[zoo.picture("P")] * 2)
    (tmp_path / "a").mkdir()
    for k in range(20):
        (tmp_path / "a" / f"{k:02}.bmp").write_bytes(gif[: len(gif) - k * len(gif) // 40])
    shutil.copy(photo_folder / "cat" / "a.jpg", tmp_path / "a" / "photo.jpg")
    assert gp.plan(tmp_path, SIZE).n_images == 21


@pytest.mark.parametrize("name", zoo.healthy())
def test_remarks_follow_pillow(name: str, tmp_path: Path) -> None:
    """Alpha and frames are remarked just where Pillow's image has them."""
    from gpupreload.decode import look

    path = tmp_path / name
    path.write_bytes(zoo.healthy()[name])
    with Image.open(path) as image:
        expected = {
            "alpha": "A" in image.getbands() or "transparency" in image.info,
            "frames": getattr(image, "n_frames", 1) > 1,
            "profile": bool(image.info.get("icc_profile")),
        }
    found = look(path).remarks
    assert {what: what in found for what in expected} == expected
    assert set(found) <= set(remarks.Remark.__args__)  # type: ignore[attr-defined]
