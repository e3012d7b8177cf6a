"""The names of classes, also where a target_transform makes labels that the names do not reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import v2

import gpupreload as gp

SIZE = v2.Resize((6, 5))
BEYOND = (
    "The labels go up to 12, beyond the 3 class names, so that classes are named by their numbers. "
    "If that is not meant, look at target_transform."
)


def shifted(photo_folder: Path, change: Callable[[int], int] = lambda label: label + 10) -> object:
    """An ImageFolder of three classes, whose labels are changed."""
    return ImageFolder(photo_folder, SIZE, target_transform=change)


def preload(data: object, **options: object) -> gp.GPUPreloadDataset:
    """Preload to the CPU, without a bar."""
    return gp.preload(data, **{"device": "cpu", "progress": False} | options)  # type: ignore[arg-type]


def test_labels_beyond_the_names_are_told(photo_folder: Path) -> None:
    """The plan and the report say when labels go beyond the class names."""
    data = shifted(photo_folder)
    plan, report = gp.plan(data, device="cpu"), preload(data).report
    assert plan.notices == report.notices == (BEYOND,)
    assert BEYOND in str(plan)
    assert BEYOND in plan._repr_html_()
    assert report.has_news
    assert gp.check(data, progress=False).notices == (BEYOND,)


def test_labels_beyond_the_names_are_named_by_number(photo_folder: Path) -> None:
    """Every label has a name, so that pictures and models have as many as there are labels."""
    ours = preload(shifted(photo_folder))
    assert ours.classes == [str(number) for number in range(13)]
    assert ours.class_to_idx == {str(number): number for number in range(13)}
    titles = [a.get_title() for a in gp.show_batch(ours.images, ours.labels, ours).axes]
    assert titles[:12] == ["10"] * 4 + ["11"] * 4 + ["12"] * 4
    title = gp.show_augmented(ours, 11, n=1).get_suptitle()
    assert title == "photo 11, 12: epoch 0"
    explorer = gp.explore(ours, 11)
    assert "photo 11 (12), epoch 0" in explorer._picture.value
    explorer.close()


@pytest.mark.parametrize("change", [lambda label: 2 - label, lambda label: min(label, 1)])
def test_labels_within_the_names_keep_them(
    photo_folder: Path, change: Callable[[int], int]
) -> None:
    """Where each label has a name, the names are the folder's, and nothing is told."""
    ours = preload(shifted(photo_folder, change))
    assert (ours.classes, ours.report.notices) == (["cat", "dog", "owl"], ())
    assert ours.class_to_idx == {"cat": 0, "dog": 1, "owl": 2}


class Numbered(ImageFolder):
    """An ImageFolder with class numbers of its own."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """Number the classes 1, 3 and 5."""
        classes, _ = super().find_classes(str(directory))
        return classes, {name: 2 * i + 1 for i, name in enumerate(classes)}


def test_numbers_of_ones_own_keep_their_names(photo_folder: Path) -> None:
    """Where the data number their classes themselves, each name stands at its number."""
    ours = preload(Numbered(str(photo_folder), SIZE))
    assert ours.classes == ["0", "cat", "2", "dog", "4", "owl"]
    assert ours.class_to_idx == {"cat": 1, "dog": 3, "owl": 5}
    assert ours.report.notices == ()


def test_data_without_names_have_numbers() -> None:
    """Classes without names are named by their numbers, which is nothing to tell."""
    ours = preload(FakeData(20, (3, 8, 6), num_classes=4), transform=v2.ToImage())
    assert ours.classes == ["0", "1", "2", "3"]
    assert ours.report.notices == ()


class WithNames(Dataset[tuple[Image.Image, int]]):
    """A dataset with names, whose labels are known only by reading."""

    classes = ("cat", "dog")
    target_transform = staticmethod(lambda label: 5 * label)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (6, 5)), self.target_transform(index % 2)


def test_labels_that_only_reading_tells() -> None:
    """Where only reading tells the labels, the report says it, and the plan cannot."""
    assert gp.plan(WithNames(), device="cpu").notices == ()
    assert preload(WithNames()).report.notices == (
        "The labels go up to 5, beyond the 2 class names, so that classes are named by their "
        "numbers. If that is not meant, look at target_transform.",
    )


def test_every_shard_has_the_same_names(photo_folder: Path) -> None:
    """A shard without the last class has a name for it all the same, and tells why."""
    parts = [preload(shifted(photo_folder), shard=(rank, 6)) for rank in range(6)]
    assert {tuple(part.classes) for part in parts} == {tuple(map(str, range(13)))}
    assert {part.report.notices for part in parts} == {(BEYOND,)}
    assert torch.cat([part.labels for part in parts]).max() == 12


def test_explore_plan_shows_photos_of_such_labels(photo_folder: Path) -> None:
    """A look at sizes takes photos by their labels, whatever the names."""
    data = ImageFolder(photo_folder, target_transform=lambda label: label + 10)
    explorer = gp.explore_plan(data, device="cpu")
    assert repr(explorer) == "PlanExplorer of 12 images"
    explorer.close()
