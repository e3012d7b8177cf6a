"""Data of every kind as one view: what it says of itself, and what it refuses."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset
from torchvision.datasets import CIFAR10, FakeData, ImageFolder, VisionDataset
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import decode
from gpupreload.source import open_source

PHOTO = Image.new("RGB", (8, 6))


class Items(Dataset[Any]):
    """A dataset of given items, with any attributes."""

    def __init__(self, items: list[Any], **attributes: Any) -> None:
        self.items = items
        vars(self).update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        item = self.items[index]
        if isinstance(item, Exception):
            raise item
        return item


def labelled(*labels: Any, **attributes: Any) -> Items:
    """A dataset of one picture with these labels."""
    return Items([(PHOTO, label) for label in labels], **attributes)


def preload(data: Any, transform: Any = None) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    return gp.preload(data, transform, device="cpu", progress=False, workers=2)


@pytest.fixture
def photos(photo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the shared photos, to be damaged."""
    return Path(shutil.copytree(photo_folder, tmp_path / "photos"))


class Stream(IterableDataset[Any]):
    """A dataset without numbers."""

    def __iter__(self) -> Iterator[Any]:
        yield PHOTO, 0

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "NoneType"),
        (3, "int"),
        (b"photos", "bytes"),
        ({1, 2}, "set"),
        (CIFAR10, "type"),
        (Stream(), f"{__name__}.Stream"),
        (iter([(PHOTO, 0)]), "list_iterator"),
    ],
)
@pytest.mark.parametrize("call", [gp.plan, gp.preload, gp.GPUPreloadDataset])
def test_data_of_a_wrong_type(call: Any, data: Any, what: str) -> None:
    """Whatever is no folder and no map-style dataset is refused by its type."""
    with pytest.raises(gp.ArgumentError) as raised:
        call(data, device="cpu")
    assert str(raised.value) == (
        f"data is {what}; expected the path of a folder of class folders, an ImageFolder, or a "
        "map-style dataset of (PIL image or uint8 tensor, int)."
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "list holds no images; expected at least one."),
        (
            [torch.zeros(3, 8, 6)],
            "item 0 of list is a torch.float32 tensor of shape (3, 8, 6); "
            "expected a pair (image, label).",
        ),
        (
            [PHOTO],
            "item 0 of list is PIL.Image.Image; expected a pair (image, label).",
        ),
        ([(PHOTO, 0, 0)], "item 0 of list is tuple; expected a pair (image, label)."),
        (
            {"cat": PHOTO},
            "item 0 of dict cannot be read: KeyError: 0",
        ),
        (
            [("cat.jpg", 0)],
            "item 0 of list: expected a PIL image or a tensor [C, H, W], got str.",
        ),
        (
            [(np.zeros((8, 6, 3), np.uint8), 0)],
            "item 0 of list: expected a PIL image or a tensor [C, H, W], got a NumPy uint8 array "
            "of shape (8, 6, 3). Return torch.from_numpy(array).permute(2, 0, 1) instead.",
        ),
        (
            [(torch.zeros(1, 3, 8, 6), 0)],
            "item 0 of list: expected a PIL image or a tensor [C, H, W], "
            "got a torch.float32 tensor of shape (1, 3, 8, 6).",
        ),
    ],
    ids=["empty", "a tensor", "no pair", "three", "a dict", "a path", "an array", "a batch"],
)
@pytest.mark.parametrize("call", [gp.plan, gp.preload])
def test_items_that_are_no_image_and_label(call: Any, data: Any, message: str) -> None:
    """An item that is no pair of an image and a label is named, with what it is."""
    with pytest.raises(gp.DataError) as raised:
        call(data, device="cpu")
    assert str(raised.value) == message


NO_NUMBER = (
    "item {} of Items has the label {}, {}; expected an int, the number of a class. "
    "Turn labels into numbers with a target_transform."
)


@pytest.mark.parametrize(
    ("label", "shown", "what"),
    [
        (1.0, "1.0", "float"),
        ("cat", "'cat'", "str"),
        (None, "None", "NoneType"),
        (torch.tensor(1.0), "tensor(1.)", "a torch.float32 tensor of shape ()"),
        (
            torch.tensor([0, 1]),
            "tensor([0, 1])",
            "a torch.int64 tensor of shape (2,)",
        ),
    ],
)
def test_labels_that_are_no_numbers(label: Any, shown: str, what: str) -> None:
    """A label that is no whole number is named, with what it is."""
    with pytest.raises(gp.DataError) as raised:
        preload(labelled(label))
    assert str(raised.value) == NO_NUMBER.format(0, shown, what)


@pytest.mark.parametrize(
    ("label", "classes", "expected"),
    [
        (-1, None, "expected 0 to 999,999."),
        (2**70, None, "expected 0 to 999,999."),
        (-1, ["cat", "dog"], "expected 0 to 1, for there are 2 classes."),
        (2, ["cat", "dog"], "expected 0 to 1, for there are 2 classes."),
    ],
)
def test_labels_out_of_range(label: int, classes: list[str] | None, expected: str) -> None:
    """A label that is no class number is named, with the range."""
    with pytest.raises(gp.DataError) as raised:
        preload(labelled(label, classes=classes))
    assert str(raised.value) == (
        f"item 0 of Items has the label {label}; {expected} Correct the labels, or pass a "
        "target_transform that maps them."
    )


def test_a_late_label_out_of_range_is_found_while_loading() -> None:
    """An item that was not looked at before is checked when it is read."""
    with pytest.raises(gp.DataError) as raised:
        preload(labelled(*[0] * 30, 5, *[1] * 30, classes=["cat", "dog"]))
    assert str(raised.value) == (
        "item 30 of Items has the label 5; expected 0 to 1, for there are 2 classes. "
        "Correct the labels, or pass a target_transform that maps them."
    )


def test_targets_out_of_range_are_found_by_the_plan() -> None:
    """Where a dataset has targets, all of them are checked before anything is loaded."""
    data = labelled(*[0] * 30, targets=[0] * 29 + [2], classes=["cat", "dog"])
    with pytest.raises(gp.DataError) as raised:
        gp.plan(data, device="cpu")
    assert str(raised.value) == (
        "item 29 of Items has the label 2; expected 0 to 1, for there are 2 classes. "
        "Correct the labels, or pass a target_transform that maps them."
    )


@pytest.mark.parametrize(
    "labels",
    [[0, 2, 1], [np.int64(0), np.uint8(2), True], [torch.tensor(0), torch.tensor([2]), False]],
)
def test_labels_may_be_whole_numbers_of_any_type(labels: list[Any]) -> None:
    """NumPy's and torch's whole numbers are labels, and bools."""
    ours = preload(labelled(*labels))
    assert ours.targets == [0, 2, int(labels[2])]
    assert ours.labels.dtype == torch.int64
    assert ours.classes == ["0", "1", "2"]
    assert ours.class_to_idx == {"0": 0, "1": 1, "2": 2}


def named(value: object) -> str:
    """A test's name after a value, without addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize(
    "attributes",
    [
        {"targets": [[0, 7], [1, 7]]},
        {"targets": torch.zeros(2, 8, dtype=torch.int64)},
        {"targets": [0]},
        {"targets": {"cat": 0}},
        {"targets": lambda: [0, 1]},
        {"classes": 2},
        {"classes": lambda: ["cat"]},
        {"classes": []},
        {"samples": np.zeros(5)},
        {"class_to_idx": 3},
        {"transform": True},
        {"transform": {"train": v2.Resize(4)}},
        {"transforms": None},
    ],
    ids=named,
)
def test_attributes_that_mean_something_else_are_let_be(attributes: dict[str, Any]) -> None:
    """A dataset's attribute is used only where it is what torchvision's datasets hold there."""
    ours = preload(labelled(0, 1, **attributes))
    assert (ours.targets, ours.classes, ours.samples) == ([0, 1], ["0", "1"], None)
    assert ours.class_to_idx == {"0": 0, "1": 1}
    assert preload(Subset(labelled(0, 1, **attributes), [1])).targets == [1]


@pytest.mark.parametrize("targets", [[0, 1], (0, 1), np.array([0, 1]), torch.tensor([0, 1])])
def test_class_counts_come_from_targets(targets: Any) -> None:
    """Targets may be a list, a tuple, an array or a tensor."""
    found = gp.plan(labelled(0, 1, targets=targets, classes=["cat", "dog"]), device="cpu")
    assert dict(found.class_counts) == {"cat": 1, "dog": 1}


def test_a_dataset_that_raises() -> None:
    """What a dataset raises is said with the item's number."""
    with pytest.raises(gp.DataError) as raised:
        preload(Items([(PHOTO, 0)] * 20 + [KeyError("x"), (PHOTO, 0)] * 5))
    assert str(raised.value) == "item 20 of Items cannot be read: KeyError: 'x'"
    assert isinstance(raised.value.__cause__, KeyError)


class OfArrays(Items):
    """A dataset that calls its transform as albumentations wants it."""

    def __getitem__(self, index: int) -> Any:
        image, label = self.items[index]
        return self.transform(pixels=np.asarray(image))["image"], label


def test_a_dataset_that_cannot_do_without_its_transform() -> None:
    """The message says that the transform was taken out."""
    data = OfArrays([(PHOTO, 0)], transform=v2.Resize(4))
    with pytest.raises(gp.DataError) as raised:
        preload(data)
    assert str(raised.value) == (
        "item 0 of OfArrays cannot be read: TypeError: _unchanged() got an unexpected keyword "
        "argument 'pixels'\nThe dataset is read without its transform, whose steps run on the "
        "image later; its __getitem__ must bear that."
    )


class Sealed(Items):
    """A dataset whose transform is a property."""

    @property
    def transform(self) -> Any:
        """The transform, not to be replaced."""
        return v2.Resize(4)


def test_a_transform_that_cannot_be_taken_out() -> None:
    """A dataset with a transform that cannot be replaced is refused with a way on."""
    with pytest.raises(gp.ArgumentError) as raised:
        preload(Sealed([(PHOTO, 0)]))
    assert str(raised.value) == (
        "data is a Sealed whose transform cannot be taken out (property 'transform' of 'Sealed' "
        "object has no setter). Pass a dataset without a transform, and the transform as an "
        "argument."
    )


def both(image: Any, label: Any) -> Any:
    """Transform an image and its label together."""
    return image, label


@pytest.mark.parametrize("call", [gp.plan, gp.preload])
def test_joint_transforms(call: Any) -> None:
    """One function of image and label together cannot be split, so it is refused."""
    with pytest.raises(gp.ArgumentError) as raised:
        call(VisionDataset(".", transforms=both), device="cpu")
    assert str(raised.value) == (
        "data is a VisionDataset with transforms=function, which may change image and label "
        "together and cannot be divided into steps. Build the dataset with transform= (and "
        "target_transform=) instead."
    )


def test_a_dataset_preloaded_already() -> None:
    """A preloaded dataset with a transform is no data to plan for again."""
    ours = preload(labelled(0, 1), v2.Resize(4))
    with pytest.raises(gp.ArgumentError, match=r"^data is preloaded already, so there is nothing"):
        gp.plan(ours, device="cpu")


@pytest.mark.parametrize("call", [gp.plan, gp.preload, gp.GPUPreloadDataset])
@pytest.mark.parametrize("subset", [False, True])
def test_two_transforms(photo_folder: Path, call: Any, subset: bool) -> None:
    """A dataset with a transform takes no other one beside it."""
    data: Any = ImageFolder(photo_folder, v2.Resize((8, 8)))
    data, name = (Subset(data, [0]), "subset of ") if subset else (data, "")
    with pytest.raises(gp.ArgumentError) as raised:
        call(data, v2.Resize((9, 9)), device="cpu")
    assert str(raised.value) == (
        f"{name}{photo_folder} has a transform of its own, and transform= was given too. Pass "
        "one: leave transform= out to use the dataset's, or build the dataset without one."
    )


def test_a_target_transform_that_raises(photo_folder: Path) -> None:
    """What a target_transform raises is said with the file."""
    data = ImageFolder(photo_folder, v2.Resize((8, 8)), target_transform={0: 0, 1: 1}.__getitem__)
    with pytest.raises(gp.DataError) as raised:
        gp.plan(data, device="cpu")
    assert str(raised.value) == (
        f"{photo_folder}/owl/a.jpg: the target_transform raised KeyError on the label 2: 2"
    )


def test_a_target_transform_that_gives_no_number(photo_folder: Path) -> None:
    """A label that a target_transform made is checked, and named by its file."""
    data = ImageFolder(photo_folder, v2.Resize((8, 8)), target_transform=str)
    with pytest.raises(gp.DataError) as raised:
        preload(data)
    assert str(raised.value) == (
        f"{photo_folder}/cat/a.jpg has the label '0', str; expected an int, the number of a "
        "class. Turn labels into numbers with a target_transform."
    )


@pytest.mark.parametrize("call", [gp.plan, gp.preload, gp.GPUPreloadDataset])
def test_folders_that_hold_no_classes(photo_folder: Path, call: Any) -> None:
    """A missing folder, and a class folder given as the root, are folder errors."""
    with pytest.raises(gp.FolderError) as missing:
        call(photo_folder / "wolf", device="cpu")
    with pytest.raises(gp.FolderError) as inside:
        call(photo_folder / "cat", device="cpu")
    assert str(missing.value) == (
        f"{photo_folder}/wolf does not exist. {photo_folder} does, and holds the folders "
        "cat, dog, owl."
    )
    assert str(inside.value) == (
        f"{photo_folder}/cat holds no class folders, and 4 images directly. Did you mean its "
        f"parent, {photo_folder}? Expected one folder of images for each class, as in "
        f"{photo_folder}/cat/cat/1.jpg."
    )


def test_a_class_without_images(photos: Path) -> None:
    """An empty class folder is named."""
    (photos / "wolf").mkdir()
    with pytest.raises(
        gp.FolderError, match=r"has class folders without an image: wolf \(no files\)\."
    ):
        gp.plan(photos, v2.Resize((8, 8)), device="cpu")


def test_hidden_folders_are_no_classes(photos: Path) -> None:
    """A notebook's .ipynb_checkpoints is not class 0."""
    (photos / ".ipynb_checkpoints").mkdir()
    shutil.copy(photos / "cat" / "a.jpg", photos / ".ipynb_checkpoints")
    ours = preload(photos, v2.Resize((8, 8)))
    assert ours.classes == ["cat", "dog", "owl"]
    assert len(ours) == 12


@pytest.mark.parametrize("call", [gp.plan, gp.preload])
def test_files_that_are_no_images(photos: Path, call: Any) -> None:
    """All files whose header cannot be read are named at once, before any is decoded."""
    (photos / "cat" / "a.jpg").write_bytes(b"")
    (photos / "dog" / "a.png").write_text("dog")
    with pytest.raises(gp.UnreadableError) as raised:
        call(photos, v2.Resize((8, 8)), device="cpu")
    assert str(raised.value) == (
        "2 of 12 files cannot be read:\n"
        f"  {photos}/cat/a.jpg: empty (0 bytes)\n"
        f"  {photos}/dog/a.png: not an image: its first bytes are b'dog'\n"
        "Repair these files, move them out of the folder, or leave them out: on_error='skip'."
    )


def test_truncated_files(photos: Path) -> None:
    """Files that end too early are all named, after the others were read."""
    for name in ("cat/a.jpg", "dog/c.png"):
        file = photos / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert gp.plan(photos, v2.Resize((8, 8)), device="cpu").n_images == 12
    with pytest.raises(gp.UnreadableError) as raised:
        preload(photos, v2.Resize((8, 8)))
    size = [(photos / name).stat().st_size for name in ("cat/a.jpg", "dog/c.png")]
    assert str(raised.value) == (
        "2 of 12 files cannot be read:\n"
        f"  {photos}/cat/a.jpg: truncated: the file ends at byte {size[0]:,}, before its image "
        "does\n"
        f"  {photos}/dog/c.png: truncated: the file ends at byte {size[1]:,}, before its image "
        "does\n"
        "Repair these files, move them out of the folder, or leave them out: on_error='skip'."
    )


def test_a_list_of_unreadable_files_has_ten_lines(tmp_path: Path) -> None:
    """Of many unreadable files the first ten are named, and the others counted."""
    (tmp_path / "cat").mkdir()
    for i in range(12):
        (tmp_path / "cat" / f"{i:02}.jpg").write_bytes(b"")
    with pytest.raises(gp.UnreadableError) as raised:
        gp.plan(tmp_path, device="cpu")
    named = "".join(f"  {tmp_path}/cat/{i:02}.jpg: empty (0 bytes)\n" for i in range(10))
    assert str(raised.value) == (
        f"12 of 12 files cannot be read:\n{named}  and 2 more\n"
        "Repair them: there is nothing else to load."
    )


def refusing(path: str) -> Image.Image:
    """Load all files but one."""
    if path.endswith("c.jpg"):
        raise OSError("no cats\ntoday")
    return Image.open(path).convert("RGB")


def test_a_loader_that_raises(photo_folder: Path) -> None:
    """What a loader of the caller's own raises is said with the file, in one line."""
    with pytest.raises(gp.UnreadableError) as raised:
        preload(ImageFolder(photo_folder, v2.Resize((8, 8)), loader=refusing))
    assert f"{photo_folder}/cat/c.jpg: the loader raised OSError: no cats today" in str(
        raised.value
    )


def test_a_subset_reads_only_its_own_headers(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files outside a Subset are neither looked at nor need they be readable."""
    (photos / "owl" / "d.png").write_bytes(b"")
    looked_at: list[str] = []
    look = decode.look

    def watched(path: str, **options: Any) -> decode.Look:
        looked_at.append(path)
        return look(path, **options)

    monkeypatch.setattr(decode, "look", watched)
    data = ImageFolder(photos, v2.Resize((8, 8)))
    assert len(preload(Subset(data, [1, 5]))) == 2
    assert sorted(looked_at) == [str(photos / "cat" / "b.png"), str(photos / "dog" / "b.jpg")]


@pytest.mark.parametrize("index", [12, -13])
def test_a_subset_beyond_its_dataset(photo_folder: Path, index: int) -> None:
    """An index that the dataset has not is said before anything is read."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.plan(Subset(ImageFolder(photo_folder), [0, index]), device="cpu")
    assert str(raised.value) == (
        f"data is a Subset with the index {index}; expected 0 to 11, for {photo_folder} has "
        "12 images."
    )


class OneThreadOnly(Items):
    """A dataset that notices when two threads read it at a time."""

    busy = threading.Lock()

    def __getitem__(self, index: int) -> Any:
        assert self.busy.acquire(blocking=False), "two threads at a time"
        try:
            Image.new("RGB", (300, 300)).resize((8, 8))
            return self.items[index]
        finally:
            self.busy.release()


def test_datasets_are_read_by_one_thread_at_a_time() -> None:
    """A dataset of unknown making need not bear several threads."""
    data = OneThreadOnly([(PHOTO, 0)] * 200)
    assert len(gp.preload(data, device="cpu", progress=False, workers=8)) == 200


def flipped(path: str) -> Image.Image:
    """Load a file, and flip it or not."""
    image = Image.open(path).convert("RGB")
    return v2.RandomHorizontalFlip()(image)


GENERATOR = np.random.default_rng(0)


def brightened(path: str) -> Image.Image:
    """Load a file, and brighten it by a draw of its own generator."""
    return Image.open(path).convert("RGB").point(lambda v: v + int(GENERATOR.integers(50)))


def test_data_that_is_random_by_itself(photo_folder: Path) -> None:
    """Random steps hidden in a dataset are refused: read once, their draw would be frozen."""
    random_flip = v2.Compose([v2.Resize((8, 8)), v2.RandomHorizontalFlip(0.1)])
    hidden = ConcatDataset([ImageFolder(photo_folder, random_flip)] * 2)
    for call in (gp.plan, gp.preload, gp.GPUPreloadDataset):
        with pytest.raises(gp.FrozenAugmentationError) as raised:
            call(hidden, device="cpu")
        assert str(raised.value) == (
            "item 0 of ConcatDataset is drawn anew each time it is read (torch's global generator "
            "moved). Read once, its one draw would be frozen: every epoch would show the same "
            "picture. Take the random steps out of the data, and pass them as the transform."
        )


@pytest.mark.parametrize(
    ("loader", "how"), [(flipped, " (torch's global generator moved)"), (brightened, "")]
)
def test_a_random_loader(photo_folder: Path, loader: Any, how: str) -> None:
    """A loader that draws is refused, also where its generator is its own."""
    data = ImageFolder(photo_folder, v2.Resize((8, 8)), loader=loader)
    with pytest.raises(gp.FrozenAugmentationError) as raised:
        gp.preload(data, device="cpu")
    assert str(raised.value) == (
        f"{photo_folder}/cat/a.jpg is drawn anew each time it is read{how}. Read once, its one "
        "draw would be frozen: every epoch would show the same picture. Take the random steps "
        "out of the data, and pass them as the transform."
    )
    frozen = gp.GPUPreloadDataset(data, allow_frozen=True, device="cpu", progress=False)
    assert len(frozen) == 12


class Seeded(Items):
    """Synthetic images, each drawn after its own seed."""

    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(index)
        return torch.randint(0, 256, (3, 4, 4), dtype=torch.uint8), 0


def test_a_dataset_that_seeds_is_not_random() -> None:
    """An item that is the same at each reading is taken, and the generators are put back."""
    data = Seeded([None] * 50)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    gp.plan(data, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    ours = gp.preload(data, device="cpu", progress=False, workers=4, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(
        ours.images, torch.stack([image for image, _ in map(data.__getitem__, range(50))])
    )


def test_identity_follows_the_files(photos: Path) -> None:
    """The same files are the same contents by any path; a changed file makes others of them."""
    first = open_source(photos).identity()
    assert open_source(os.path.relpath(photos)).identity() == first
    assert open_source(ImageFolder(photos)).identity() == first
    os.utime(photos / "cat" / "a.jpg", ns=(1, 1))
    assert open_source(photos).identity() != first


def test_identity_knows_loader_labels_and_choice(photo_folder: Path) -> None:
    """Another loader, other labels and other files are other contents; a dataset has none."""
    folder = ImageFolder(photo_folder)
    sources = [
        folder,
        ImageFolder(photo_folder, loader=refusing),
        ImageFolder(photo_folder, target_transform=lambda label: label + 1),
        Subset(folder, [0, 1]),
        Subset(folder, [1, 0]),
    ]
    assert len({open_source(source).identity() for source in sources}) == len(sources)
    assert open_source(FakeData(3)).identity() is None
    assert open_source(Subset(FakeData(3), [0])).identity() is None


def test_a_path_may_be_anything_that_is_one(photo_folder: Path) -> None:
    """A path is a string, a Path, or what has __fspath__; `~` is the home folder."""
    like = type("Like", (), {"__fspath__": lambda self: str(photo_folder)})()
    assert [len(open_source(path)) for path in (str(photo_folder), photo_folder, like)] == [12] * 3


def test_duck_typed_datasets() -> None:
    """Any object with a length and items will do; it need not be torch's Dataset."""
    cls = type("Duck", (), {"__len__": lambda s: 2, "__getitem__": lambda s, i: (PHOTO, 0)})
    assert preload(cls()).images.shape == (2, 3, 6, 8)
