"""The sample photos: what is cut from where, and how the folder comes to be on disk."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from gpupreload import photos
from gpupreload.errors import ArgumentError, DataError
from gpupreload.photos import PHOTOS, PIXELS_SHA256, crops, pictures, sample_photos

SPLITS = ("train", "val")
# fmt: off
CLASSES = ["astronaut", "brick", "camera", "cat", "coffee",
           "coins", "galaxies", "grass", "gravel", "retina"]
# fmt: on
GREY = {"brick", "camera", "coins", "grass", "gravel"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with both splits, written once; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("photos")
    for split in SPLITS:
        sample_photos(split, folder)
    return folder


@pytest.fixture
def copy_of_val(root, tmp_path):
    """A copy of the smaller split, to be damaged."""
    return Path(shutil.copytree(root / "val", tmp_path / "val"))


def files_below(folder):
    """Each file's path below the folder, and its bytes."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def skimage_data():
    """The folder in which scikit-image's wheel has its photographs."""
    return Path(find_spec("skimage").submodule_search_locations[0]) / "data"


# ---- what is in the folder


@pytest.mark.parametrize(("split", "n"), [("train", 1550), ("val", 300)])
def test_is_an_image_folder(root, split, n):
    """ImageFolder reads 1,550 files to train on and 300 to validate with, ten classes in both."""
    data = ImageFolder(root / split)
    assert len(data) == n
    assert data.classes == CLASSES
    assert {image.mode for image, _ in (data[i] for i in range(0, n, 50))} == {"RGB"}


@pytest.mark.parametrize(("split", "fewest", "most"), [("train", 130, 170), ("val", 25, 33)])
def test_no_class_dominates(root, split, fewest, most):
    """The classes differ a little in size, and none has twice the files of another."""
    counts = Counter(ImageFolder(root / split).targets).values()
    assert (min(counts), max(counts)) == (fewest, most)


@pytest.mark.parametrize("split", SPLITS)
def test_sides_are_a_little_larger_than_112(root, split):
    """Every side is between 113 and 176 pixels, and neither all equal nor all square."""
    sizes = []
    for path in sorted((root / split).glob("*/*.jpg")):
        with Image.open(path) as image:
            sizes.append(image.size)
    assert min(map(min, sizes)) > 112
    assert max(map(max, sizes)) == 176
    assert len(set(sizes)) > 100
    assert sum(width != height for width, height in sizes) > len(sizes) / 2


def test_grey_photographs_stay_grey(root):
    """A photograph without colour gives files without colour."""
    for path in sorted((root / "val").glob("*/*_0000.jpg")):
        with Image.open(path) as image:
            assert image.mode == ("L" if path.parent.name in GREY else "RGB"), path


def test_files_hold_the_pixels_of_the_crops(root):
    """Each file is its crop, but for what JPEG loses."""
    for name, image in list(pictures("val"))[::10]:
        with Image.open(root / "val" / name) as decoded:
            error = np.asarray(decoded, dtype=float) - np.asarray(image, dtype=float)
        assert np.abs(error).mean() < 6, name


# ---- what is cut from where


def covered(split, photo):
    """Which pixels of a photograph the crops of a split use, as an array [H, W] of bool."""
    width, height = photo.size
    mask = np.zeros((height, width), dtype=bool)
    for crop in crops(split):
        if crop.photo is photo:
            left, top, right, bottom = crop.box
            assert 0 <= left < right <= width, crop
            assert 0 <= top < bottom <= height, crop
            mask[top:bottom, left:right] = True
    return mask


@pytest.mark.parametrize("photo", PHOTOS, ids=lambda photo: photo.label)
def test_splits_share_no_pixel(photo):
    """No pixel of a photograph is in a crop to train on and in one to validate with."""
    train, val = covered("train", photo), covered("val", photo)
    assert train.any()
    assert val.any()
    assert not (train & val).any()


def test_no_two_crops_are_the_same():
    """Every crop of a class is a piece of its own."""
    pieces = [(crop.photo.label, crop.box) for split in SPLITS for crop in crops(split)]
    assert len(set(pieces)) == len(pieces) == 1850


@pytest.mark.parametrize("split", SPLITS)
def test_pixels_are_the_same_everywhere(split):
    """A crop is the mean of n x n pixels, rounded half up; all together have a known SHA-256."""
    photographs = {}
    for photo in PHOTOS:
        with Image.open(skimage_data() / photo.file) as photograph:
            photographs[photo.label] = np.asarray(photograph)
    digest = hashlib.sha256()
    for crop, (name, image) in zip(crops(split), pictures(split), strict=True):
        left, top, right, bottom = crop.box
        n = crop.factor
        cut = photographs[crop.photo.label][top:bottom, left:right].astype(np.int64)
        blocks = cut.reshape((bottom - top) // n, n, (right - left) // n, n, -1)
        expected = (blocks.sum(axis=(1, 3)) + n * n // 2) // (n * n)
        assert crop.name == name
        assert np.array_equal(np.asarray(image).reshape(expected.shape), expected), name
        digest.update(expected.astype(np.uint8).tobytes())
    assert digest.hexdigest() == PIXELS_SHA256[split]


@pytest.mark.parametrize("split", SPLITS)
def test_no_crop_is_flat(split):
    """Every crop shows something: the standard deviation of its grey levels is above 8 of 255."""
    for name, image in pictures(split):
        assert np.asarray(image.convert("L"), dtype=float).std() > 8, name


# ---- how it comes to be on disk


def test_second_call_does_not_write(root, monkeypatch):
    """A folder that is whole is returned as it is, without scikit-image."""
    monkeypatch.setitem(sys.modules, "skimage", None)
    stamps = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert sample_photos("train", root) == root / "train"
    assert sample_photos("val", str(root)) == root / "val"
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == stamps


def test_only_the_split_asked_for_is_written(tmp_path):
    """Asking for one split writes that split alone, and leaves nothing beside it."""
    folder = sample_photos("val", tmp_path / "new" / "photos")
    assert [path.name for path in folder.parent.iterdir()] == ["val"]


def test_root_may_start_with_the_home_folder(root, monkeypatch):
    """A root of "~" is the user's home folder."""
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("USERPROFILE", str(root))
    assert sample_photos("val", "~") == root / "val"


ONE_OF_TWO = """
import sys, time
from pathlib import Path
from gpupreload.photos import sample_photos

here, number, other = Path(sys.argv[1]), *sys.argv[2:]
for name in ("new", "damaged"):
    (here / f"{name}-{number}").touch()
    while not (here / f"{name}-{other}").exists():
        time.sleep(0.001)
    folder = sample_photos("val", here / name)
    print(name, len(list(folder.glob("*/*.jpg"))), "skimage" in sys.modules)
"""


def test_two_processes_at_once(root, tmp_path):
    """Two processes that ask at once both get a whole set, also where a damaged one is there."""
    lose_a_class(Path(shutil.copytree(root / "val", tmp_path / "damaged" / "val")))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_OF_TWO, str(tmp_path), *numbers],
            stdout=subprocess.PIPE,
            text=True,
        )
        for numbers in (("0", "1"), ("1", "0"))
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert outputs == ["new 300 False\ndamaged 300 False\n"] * 2
    for name in ("new", "damaged"):
        assert [path.name for path in (tmp_path / name).iterdir()] == ["val"]
        assert files_below(tmp_path / name / "val") == files_below(root / "val")


def test_the_process_that_ends_second_keeps_the_set_that_is_there(root, tmp_path, monkeypatch):
    """A set that another process has put in the meantime is not touched."""
    stamps = {}

    def other_process_ends_first(split):
        folder = Path(shutil.copytree(root / split, tmp_path / split))
        stamps.update({path: path.stat().st_mtime_ns for path in folder.rglob("*")})
        return pictures(split)

    monkeypatch.setattr(photos, "pictures", other_process_ends_first)
    folder = sample_photos("val", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == stamps
    assert len(stamps) == 300 + 10 + 1
    assert [path.name for path in tmp_path.iterdir()] == ["val"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    """Whoever interrupts the first call finds no half of a set."""

    def interrupted(split):
        for i, picture in enumerate(pictures(split)):
            if i == 20:
                raise KeyboardInterrupt
            yield picture

    monkeypatch.setattr(photos, "pictures", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample_photos("val", tmp_path)
    assert list(tmp_path.iterdir()) == []


def lose_a_file(folder):
    """Take one file away."""
    (folder / "cat" / "cat_0003.jpg").unlink()


def lose_a_class(folder):
    """Take one class folder away."""
    shutil.rmtree(folder / "coins")


def cut_a_file_off(folder):
    """Leave the first 100 bytes of a file."""
    path = folder / "grass" / "grass_0000.jpg"
    path.write_bytes(path.read_bytes()[:100])


def be_of_another_format(folder):
    """Look like a set of an older version, with a class and a file that are no more."""
    marker = folder / ".gpupreload-photos"
    marker.write_text(marker.read_text().replace("format 1", "format 0"))
    (folder / "clock").mkdir()
    shutil.copy(folder / "cat" / "cat_0000.jpg", folder / "clock" / "clock_0000.jpg")
    shutil.copy(folder / "cat" / "cat_0000.jpg", folder / "cat" / "cat_9999.jpg")


@pytest.mark.parametrize(
    "damage", [lose_a_file, lose_a_class, cut_a_file_off, be_of_another_format]
)
def test_a_damaged_set_is_made_whole(root, copy_of_val, damage):
    """Missing and cut-off files come back; files and classes of another format go."""
    damage(copy_of_val)
    assert sample_photos("val", copy_of_val.parent) == copy_of_val
    assert files_below(copy_of_val) == files_below(root / "val")
    assert ImageFolder(copy_of_val).classes == CLASSES


def test_other_files_in_a_damaged_set_stay(copy_of_val):
    """What is not named as ours is never deleted."""
    lose_a_file(copy_of_val)
    (copy_of_val / "cat" / "notes.txt").write_text("mine")
    (copy_of_val / "cat" / "my_cat.jpg").write_bytes(b"mine")
    sample_photos("val", copy_of_val.parent)
    assert (copy_of_val / "cat" / "notes.txt").read_text() == "mine"
    assert (copy_of_val / "cat" / "my_cat.jpg").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", None, "home/.cache/gpupreload/photos"),
        ("linux", "XDG_CACHE_HOME", "elsewhere/gpupreload/photos"),
        ("darwin", None, "home/Library/Caches/gpupreload/photos"),
        ("win32", None, "home/AppData/Local/gpupreload/photos"),
        ("win32", "LOCALAPPDATA", "elsewhere/gpupreload/photos"),
    ],
)
def test_cache_folder(root, tmp_path, monkeypatch, platform, variable, folder):
    """Without a root, the photos are in the folder that the system has for caches."""
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    monkeypatch.setattr(sys, "platform", platform)
    shutil.copytree(root / "val", tmp_path / folder / "val")
    assert sample_photos("val") == tmp_path / folder / "val"


# ---- what can go wrong


def message_of(error_type, *args):
    """The text of the error that these arguments give."""
    with pytest.raises(error_type) as caught:
        sample_photos(*args)
    return str(caught.value)


def test_split_must_be_train_or_val(tmp_path):
    """There are two splits, and no other name is taken."""
    text = 'split is \'test\'; expected "train" or "val".'
    assert message_of(ArgumentError, "test", tmp_path) == text


def test_scikit_image_must_be_installed(tmp_path, monkeypatch):
    """Without scikit-image there is nothing to cut from, and the message says what to install."""
    monkeypatch.setitem(sys.modules, "skimage", None)
    assert message_of(ImportError, "val", tmp_path) == (
        "sample_photos cuts its images from the photographs that come with scikit-image, "
        'which is not installed. Install it: pip install "gpupreload[lab]"'
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("problem", ["is missing", "cannot be read", "has 7 x 5 pixels"])
def test_scikit_image_must_hold_the_photographs(tmp_path, monkeypatch, problem):
    """A scikit-image without one of the photographs is named, with the way to a whole one."""
    path = tmp_path / "site" / "skimage" / "data" / "astronaut.png"
    path.parent.mkdir(parents=True)
    (path.parent.parent / "__init__.py").touch()
    if problem == "cannot be read":
        path.write_bytes(b"no image")
    elif problem != "is missing":
        Image.new("RGB", (7, 5)).save(path)
    monkeypatch.delitem(sys.modules, "skimage", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert message_of(DataError, "val", tmp_path / "photos") == (
        f"{path} {problem}; expected the photograph of 512 x 512 pixels that comes in "
        "scikit-image's wheel. Install it anew: "
        "pip install --force-reinstall --no-deps scikit-image"
    )


def test_root_must_be_a_folder_that_can_be_written(tmp_path):
    """A root that is no folder is refused, with the system's reason."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "val"
    assert message_of(ArgumentError, "val", tmp_path / "file") in {
        f"root: the folder {folder} cannot be written ({reason}). "
        "Pass root= with a folder that can."
        for reason in ("Not a directory", "File exists")
    }


def test_files_of_others_are_not_touched(tmp_path):
    """A folder of that name with other files in it is refused and left as it was."""
    folder = tmp_path / "val"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "cat_0000.jpg").write_bytes(b"mine")
    assert message_of(ArgumentError, "val", tmp_path) == (
        f"root: the folder {folder} holds files that sample_photos did not write. "
        "Pass root= with another folder, or move them away."
    )
    assert files_below(folder) == {"cat/cat_0000.jpg": b"mine"}
