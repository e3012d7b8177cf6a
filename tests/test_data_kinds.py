"""What data may be, as the README's table says, and what is said of all that comes near it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision.datasets import CIFAR10, DatasetFolder, ImageFolder, cifar
from torchvision.transforms import v2

import gpupreload as gp

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 10, 8, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0])
TO_FLOATS = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


class Squares(Dataset[Any]):
    """A dataset of one's own: it has a length, and gives a pair for each number."""

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, index: int) -> Any:
        return Image.fromarray(PIXELS[index]), LABELS[index]


def cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> CIFAR10:
    """Make CIFAR10 over files of six pictures."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    pictures = np.random.default_rng(1).integers(0, 256, (6, 3 * 32 * 32), dtype=np.uint8)
    (folder / "test_batch").write_bytes(
        pickle.dumps({"data": pictures, "labels": [3, 8, 8, 0, 6, 6]})
    )
    names = ["airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))
    monkeypatch.setattr(cifar, "check_integrity", lambda *_: True)
    return CIFAR10(root, train=False, transform=TO_FLOATS)


def assert_same(ours: gp.GPUPreloadDataset, data: Any) -> None:
    """Compare images and labels, bit for bit, with what the dataset gives by itself."""
    assert len(ours) == len(data)
    for i in range(len(data)):
        image, label = data[i]
        expected = image if isinstance(image, Tensor) else TO_FLOATS(image)
        assert torch.equal(ours[i][0], expected)
        assert ours[i][1] == int(label)


def opened(path: str) -> Image.Image:
    """A loader of one's own."""
    return Image.open(path).convert("RGB").resize((8, 8))


KINDS: dict[str, Callable[[Path], Any]] = {
    "ImageFolder": lambda root: ImageFolder(
        root, v2.Compose([v2.Resize((8, 8)), *TO_FLOATS.transforms])
    ),
    "DatasetFolder": lambda root: DatasetFolder(
        str(root), opened, extensions=(".jpg", ".png"), transform=TO_FLOATS
    ),
    "Subset": lambda root: Subset(
        ImageFolder(root, v2.Compose([v2.Resize((8, 8)), *TO_FLOATS.transforms])), [5, 1, 1]
    ),
    "TensorDataset, uint8": lambda _: TensorDataset(
        torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.from_numpy(LABELS)
    ),
    "TensorDataset, float": lambda _: TensorDataset(torch.rand(6, 1, 8, 8), torch.arange(6) % 2),
    "a list": lambda _: [(Image.fromarray(PIXELS[i]), int(LABELS[i])) for i in range(6)],
    "a dataset of one's own": lambda _: Squares(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_data_may_be(photo_folder: Path, kind: str) -> None:
    """Data of each kind give the images and labels that they give by themselves."""
    data = KINDS[kind](photo_folder)
    own = getattr(data, "transform", None) or isinstance(data, Subset | TensorDataset)
    assert_same(gp.preload(data, None if own else TO_FLOATS, device="cpu", progress=False), data)


def test_a_path(photo_folder: Path) -> None:
    """A folder's path, as a text or a Path, is read as an ImageFolder reads it."""
    steps = v2.Compose([v2.Resize((8, 8)), *TO_FLOATS.transforms])
    for path in (photo_folder, str(photo_folder)):
        ours = gp.preload(path, steps, device="cpu", progress=False)
        assert_same(ours, ImageFolder(photo_folder, steps))


def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset of torchvision's keeps its transform and the names of its classes."""
    data = cifar10(tmp_path, monkeypatch)
    ours = gp.preload(data, device="cpu", progress=False)
    assert_same(ours, data)
    assert ours.classes == data.classes


MADE_OF_BOTH = ", from torch.utils.data, with images [N, C, H, W] and labels [N]."
OF_ARRAYS = (
    "data is a NumPy uint8 array of shape (6, 10, 8, 3) and a NumPy int64 array of shape (6,); "
    "expected a dataset. Pass TensorDataset(torch.from_numpy(images).permute(0, 3, 1, 2), "
    f"torch.from_numpy(labels)){MADE_OF_BOTH}"
)
OF_TENSORS = (
    "data is a torch.uint8 tensor of shape (6, 3, 10, 8) and a torch.int64 tensor of shape (6,); "
    f"expected a dataset. Pass TensorDataset(images, labels){MADE_OF_BOTH}"
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((PIXELS, LABELS), OF_ARRAYS),
        ([PIXELS, LABELS], OF_ARRAYS),
        (
            (torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.from_numpy(LABELS)),
            OF_TENSORS,
        ),
        (
            PIXELS,
            "data is a NumPy uint8 array of shape (6, 10, 8, 3), without labels; expected images "
            "and labels together, such as TensorDataset(images, labels), with images "
            "[N, C, H, W].",
        ),
    ],
    ids=["arrays", "a list of arrays", "tensors", "an array alone"],
)
@pytest.mark.parametrize("call", [gp.plan, gp.preload, gp.GPUPreloadDataset])
def test_arrays_of_all_images(call: Any, data: Any, message: str) -> None:
    """Arrays or tensors of all images are refused, and the message makes a dataset of them."""
    with pytest.raises(gp.ArgumentError) as raised:
        call(data, device="cpu")
    assert str(raised.value) == message


def test_what_the_message_makes_of_arrays() -> None:
    """The dataset that the message advises has the arrays' pixels and labels."""
    images, labels = PIXELS, LABELS
    data = TensorDataset(torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels))
    ours = gp.preload(data, device="cpu", progress=False)
    assert np.array_equal(ours.images.numpy().transpose(0, 2, 3, 1), PIXELS)
    assert ours.targets == LABELS.tolist()


GOT = "item 0 of list: expected a PIL image or a tensor [C, H, W], got"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (
            PIXELS[0],
            f"{GOT} a NumPy uint8 array of shape (10, 8, 3). "
            "Return torch.from_numpy(array).permute(2, 0, 1) instead.",
        ),
        (
            PIXELS[0].transpose(2, 0, 1),
            f"{GOT} a NumPy uint8 array of shape (3, 10, 8). "
            "Return torch.from_numpy(array) instead.",
        ),
        (
            PIXELS[0, ..., 0],
            f"{GOT} a NumPy uint8 array of shape (10, 8). "
            "Return torch.from_numpy(array)[None] instead.",
        ),
        (
            torch.zeros(28, 28, dtype=torch.uint8),
            f"{GOT} a torch.uint8 tensor of shape (28, 28). Return image[None] instead.",
        ),
        (
            torch.from_numpy(PIXELS[0]),
            f"{GOT} a torch.uint8 tensor of shape (10, 8, 3), which looks like [H, W, C]. "
            "Use .permute(2, 0, 1) on each image, or .permute(0, 3, 1, 2) on all.",
        ),
        (
            torch.zeros(28, 28, 1),
            f"{GOT} a torch.float32 tensor of shape (28, 28, 1), which looks like [H, W, C]. "
            "Use .permute(2, 0, 1) on each image, or .permute(0, 3, 1, 2) on all.",
        ),
    ],
    ids=["array", "array [C, H, W]", "grey array", "grey", "channels last", "grey, channels last"],
)
def test_images_in_another_form(image: Any, message: str) -> None:
    """An image in another form is refused, before a step sees it, and the form is told."""
    for call in (gp.plan, gp.preload):
        with pytest.raises(gp.DataError) as raised:
            call([(image, 0)], v2.Normalize([0.5], [0.5]), device="cpu")
        assert str(raised.value) == message


@pytest.mark.parametrize("shape", [(3, 8, 4), (7, 7, 3), (5, 5, 4), (12, 8, 8), (7, 9, 1)])
def test_tensors_that_may_be_channels_first(shape: tuple[int, int, int]) -> None:
    """Only a tensor that cannot well be [C, H, W] is taken for [H, W, C]."""
    ours = gp.preload([(torch.ones(shape), 0)], device="cpu", progress=False)
    assert ours.images.shape == (1, *shape)


def test_an_item_that_is_a_dict() -> None:
    """Of an item that is a dict the keys are told, and that a pair is wanted."""
    with pytest.raises(gp.DataError) as raised:
        gp.plan([{"image": PIXELS[0], "label": 0}], device="cpu")
    assert str(raised.value) == (
        "item 0 of list is dict; expected a pair (image, label). Its keys are 'image', 'label': "
        "wrap the dataset in one whose __getitem__ returns the image and the label of such an "
        "item."
    )


@pytest.mark.parametrize(
    ("label", "described"),
    [(0.5, "float"), (torch.eye(3)[0], "a torch.float32 tensor of shape (3,)"), ([0, 2], "list")],
)
def test_labels_that_are_no_class(label: Any, described: str) -> None:
    """A float, soft labels or several labels are refused: a label is the number of a class."""
    with pytest.raises(gp.DataError) as raised:
        gp.plan([(Image.fromarray(PIXELS[0]), label)], device="cpu")
    assert str(raised.value) == (
        f"item 0 of list has the label {label!r}, {described}; expected an int, the number of a "
        "class. Turn labels into numbers with a target_transform."
    )


def test_on_error_is_for_files() -> None:
    """Data that read themselves take no on_error."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.preload(Squares(), on_error="skip", device="cpu")
    assert str(raised.value) == (
        "on_error= says how to read the files of a folder, but data is "
        f"{__name__}.Squares. Pass the folder's path, or leave on_error= out."
    )
