"""The options for a folder given by its path, through plan, preload and the explicit form."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torchvision.transforms.v2 as v2
from torchvision.datasets import ImageFolder

import gpupreload as gp

SMALL = v2.Resize((6, 5))


@pytest.fixture
def folder(photo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the photos in which things can be moved: cat, dog and owl, four files each."""
    return Path(shutil.copytree(photo_folder, tmp_path / "photos"))


def preload(data: object, **options: object) -> gp.GPUPreloadDataset:
    """Preload small images to the CPU."""
    return gp.preload(data, SMALL, device="cpu", progress=False, **options)


def test_a_validation_set_takes_the_training_sets_numbers(folder: Path) -> None:
    """Classes= a dataset gives its numbering, also where a class has no folder here."""
    train = preload(folder)
    shutil.rmtree(folder / "dog")
    val = preload(folder, classes=train)
    assert val.class_to_idx == {"cat": 0, "dog": 1, "owl": 2}
    assert val.targets == [0] * 4 + [2] * 4
    assert gp.plan(folder, SMALL, classes=["cat", "dog", "owl"]).class_counts["dog"] == 0


def test_an_empty_class_keeps_its_number_where_asked(folder: Path) -> None:
    """allow_empty=True counts a class folder without images as a class."""
    (folder / "bat").mkdir()
    with pytest.raises(gp.FolderError):
        preload(folder)
    assert preload(folder, allow_empty=True).classes == ["bat", "cat", "dog", "owl"]


def test_other_suffixes_are_read_where_asked(folder: Path) -> None:
    """extensions= adds what ImageFolder passes over; the file is read by its content."""
    (folder / "cat" / "a.jpg").rename(folder / "cat" / "a.jfif")
    assert len(preload(folder)) == 11
    assert len(preload(folder, extensions=[".jpg", ".png", ".jfif"])) == 12


def test_an_unknown_class_is_skipped_where_asked(folder: Path) -> None:
    """on_unknown="skip" leaves out class folders that classes= does not name."""
    options = {"classes": ["owl", "cat"], "on_unknown": "skip"}
    ours = gp.GPUPreloadDataset(folder, SMALL, device="cpu", progress=False, **options)
    assert ours.classes == ["owl", "cat"]
    assert ours.targets == [1] * 4 + [0] * 4  # files in the order of the names, as ImageFolder


def test_the_plan_counts_what_is_passed_over(folder: Path, photo_folder: Path) -> None:
    """Files that are no samples are counted by the kind of the reason."""
    for name in ("cat/.hidden.jpg", "cat/notes.txt", "dog/more.txt", "readme.md"):
        (folder / name).touch()
    plan = gp.plan(folder, SMALL)
    assert dict(plan.passed_over) == {"hidden": 1, "suffix": 2, "root": 1}
    assert "4 files: " in str(plan)
    assert "2 with a suffix that is no image's" in str(plan)
    assert "passed over" not in str(gp.plan(photo_folder, SMALL))


def test_options_for_other_data_are_refused(folder: Path) -> None:
    """How to list a folder says nothing about data that are listed already."""
    with pytest.raises(gp.ArgumentError) as caught:
        preload(ImageFolder(folder), allow_empty=True)
    assert str(caught.value) == (
        "allow_empty= says how to list a folder, but data is "
        "torchvision.datasets.folder.ImageFolder. Pass the folder's path, or leave "
        "allow_empty= out."
    )
