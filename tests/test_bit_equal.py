"""With no random step, what is served is what ImageFolder gives, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, random_split
from torchvision import tv_tensors
from torchvision.datasets import (
    FakeData,
    ImageFolder,
    VisionDataset,
    wrap_dataset_for_transforms_v2,
)
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as v1f
from torchvision.transforms._presets import ImageClassification

import gpupreload as gp

WIDTH, HEIGHT = 37, 29
MODES_OF_FORMAT = {
    "png": ["1", "L", "LA", "P", "RGB", "RGBA"],
    "jpg": ["1", "L", "RGB", "CMYK", "YCbCr"],
    "bmp": ["1", "L", "P", "RGB"],
    "webp": ["L", "RGB", "RGBA"],
    "tiff": ["1", "L", "LA", "P", "RGB", "RGBA"],
    "ppm": ["RGB"],
    "pgm": ["L"],
}
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NEAREST, BICUBIC = InterpolationMode.NEAREST, InterpolationMode.BICUBIC


def darker(image: Image.Image) -> Image.Image:
    """A deterministic callable that no table knows."""
    return image.point(lambda value: value // 2)


V1 = {
    "ToTensor": [v1.ToTensor()],
    "PIL only": [v1.Resize(16), v1.CenterCrop(12)],
    "nothing": [],
    "the usual": [v1.Resize(16), v1.CenterCrop(12), v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "in place": [v1.ToTensor(), v1.Normalize(MEAN, STD, inplace=True)],
    "nearest": [v1.Resize((9, 13), NEAREST), v1.ToTensor()],
    "bicubic, crop beyond the edge": [v1.Resize(20, BICUBIC), v1.CenterCrop(31), v1.ToTensor()],
    "max_size": [v1.Resize(16, max_size=18), v1.ToTensor()],
    "padded": [v1.Pad((1, 2, 3, 4), fill=7), v1.ToTensor()],
    "reflected": [v1.Pad(5, padding_mode="reflect"), v1.ToTensor()],
    "grey": [v1.Grayscale(), v1.ToTensor(), v1.Normalize([0.5], [0.5])],
    "grey as three": [v1.Grayscale(3), v1.ToTensor()],
    "uint8 tensor": [v1.PILToTensor()],
    "uint8 tensor, resized": [v1.PILToTensor(), v1.Resize(11, antialias=True)],
    "ConvertImageDtype": [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)],
    "ConvertImageDtype to float64": [v1.PILToTensor(), v1.ConvertImageDtype(torch.float64)],
    "resized as floats": [v1.ToTensor(), v1.Resize(16, antialias=True), v1.CenterCrop(10)],
    "grey of floats": [v1.ToTensor(), v1.Grayscale(), v1.Pad(2)],
    "and back": [v1.ToTensor(), v1.ToPILImage(), v1.Resize(8), v1.ToTensor()],
    "Lambda": [v1.Lambda(darker), v1.ToTensor()],
    "a function": [v1.CenterCrop(12), darker, v1.ToTensor()],
    "a preset": [ImageClassification(crop_size=12, resize_size=16)],
}
V2 = {
    "ToImage, ToDtype": [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    "the usual": [
        *(v2.Resize(16), v2.CenterCrop(12), v2.ToImage()),
        *(v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)),
    ],
    "tensor first": [
        *(v2.ToImage(), v2.Resize(16), v2.CenterCrop(12)),
        *(v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD, inplace=True)),
    ],
    "not scaled": [v2.ToImage(), v2.ToDtype(torch.float32)],
    "to half": [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
    "to int64": [v2.ToImage(), v2.ToDtype(torch.int64)],
    "to a dtype by type": [v2.PILToTensor(), v2.ToDtype({Tensor: torch.float32}, scale=True)],
    "to a pure tensor": [v2.ToImage(), v2.ToPureTensor(), v2.ToDtype(torch.float32, scale=True)],
    "RGB": [v2.RGB(), v2.Identity(), v2.PILToTensor()],
    "edges": [v2.ToImage(), v2.Pad([3, 2], padding_mode="edge")],
    "symmetric": [v2.Pad(3, padding_mode="symmetric"), v2.ToImage()],
    "grey": [v2.ToImage(), v2.Grayscale(3), v2.ToDtype(torch.float32, scale=True)],
    "resized as floats": [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Resize(10)],
    "normalised, then cropped": [
        *(v2.ToImage(), v2.ToDtype(torch.float32, scale=True)),
        *(v2.Normalize(MEAN, STD), v2.CenterCrop(10)),
    ],
    "nested": [v2.Compose([v2.Resize(9), nn.Sequential(v2.CenterCrop(8))]), v2.ToImage()],
}


def noise(width: int, height: int, seed: int) -> Image.Image:
    """Smooth colours with alpha, other ones for each seed."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 4), dtype=np.uint8), "RGBA")
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One image of one size in every mode that each format takes; a class for each format."""
    root = tmp_path_factory.mktemp("zoo")
    for i, (suffix, modes) in enumerate(MODES_OF_FORMAT.items()):
        (root / suffix).mkdir()
        for k, mode in enumerate(modes):
            image = noise(WIDTH, HEIGHT, 10 * i + k)
            image = image if mode == "RGBA" else image.convert("RGB").convert(mode)
            image.save(root / suffix / f"{mode}.{suffix}")
    return root


def preload(data: Any, transform: Any = None) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    return gp.preload(data, transform, device="cpu", progress=False, workers=2)


def tensor_of(image: Any) -> Tensor:
    """The image as a plain tensor; a PIL image as the uint8 pixels that it is."""
    tensor = v1f.pil_to_tensor(image) if isinstance(image, Image.Image) else image
    return tensor.as_subclass(Tensor)


def differing(ours: gp.GPUPreloadDataset, theirs: Sequence[Any]) -> list[int]:
    """The numbers of the items that differ in a pixel, in dtype or in the label."""
    assert len(ours) == len(theirs)
    found = []
    for i in range(len(theirs)):
        (image, label), (expected, expected_label) = ours[i], theirs[i]
        expected = tensor_of(expected)
        same = image.dtype == expected.dtype and torch.equal(image, expected)
        if not same or label != expected_label or type(image) is not Tensor:
            found.append(i)
    return found


@pytest.mark.parametrize(
    "steps", [*V1.values(), *V2.values()], ids=[*(f"v1 {n}" for n in V1), *(f"v2 {n}" for n in V2)]
)
def test_equal_to_imagefolder(zoo: Path, steps: list[Any]) -> None:
    """Every format and mode gives ImageFolder's own pixels, labels and samples."""
    transform = v1.Compose(steps)
    theirs = ImageFolder(str(zoo), transform)
    ours = preload(zoo, transform)
    assert differing(ours, theirs) == []
    assert ours.samples == ours.imgs == theirs.samples
    assert ours.targets == theirs.targets
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx


def test_matrix_products_are_within_a_ten_thousandth(zoo: Path) -> None:
    """LinearTransformation, which sums over all pixels, agrees to 1e-4."""
    matrix = torch.randn(3 * 64, 3 * 64, generator=torch.Generator().manual_seed(0)) / 14
    linear = v1.LinearTransformation(matrix, torch.full((3 * 64,), 0.5))
    transform = v1.Compose([v1.Resize((8, 8)), v1.ToTensor(), linear])
    theirs, ours = ImageFolder(str(zoo), transform), preload(zoo, transform)
    for (image, label), (expected, expected_label) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(image, expected, rtol=0, atol=1e-4)
        assert label == expected_label


def test_different_sizes_come_out_of_the_transform_in_one(photo_folder: Path) -> None:
    """Photos of different sizes are resized as ImageFolder would, on the same PIL image."""
    transform = v1.Compose([v1.Resize(24), v1.CenterCrop(20), v1.ToTensor()])
    assert differing(preload(photo_folder, transform), ImageFolder(photo_folder, transform)) == []


def grey(path: str) -> Image.Image:
    """Load a file as a grey image."""
    with Image.open(path) as image:
        return image.convert("L")


def as_tensor(path: str) -> Tensor:
    """Load a file as a uint8 tensor."""
    with Image.open(path) as image:
        return v1f.pil_to_tensor(image.convert("RGB"))


IMAGE_FOLDERS: dict[str, dict[str, Any]] = {
    "transform": {"transform": V1["the usual"]},
    "target_transform": {"transform": V1["the usual"], "target_transform": lambda y: 6 - y},
    "labels beyond the classes": {"target_transform": lambda y: y + 100},
    "a loader of PIL images": {"transform": V1["grey"], "loader": grey},
    "a loader of tensors": {"transform": [v2.Resize((9, 9))], "loader": as_tensor},
    "a filter of files": {"is_valid_file": lambda path: "RGB" in Path(path).name},
}


def image_folder(root: Path, **settings: Any) -> ImageFolder:
    """An ImageFolder, its transform given as steps."""
    if settings.get("is_valid_file"):
        settings["allow_empty"] = True
    if "transform" in settings:
        settings["transform"] = v1.Compose(settings["transform"])
    return ImageFolder(str(root), **settings)


@pytest.mark.parametrize("settings", IMAGE_FOLDERS.values(), ids=IMAGE_FOLDERS)
def test_an_imagefolder_as_data(zoo: Path, settings: dict[str, Any]) -> None:
    """An ImageFolder's own transform, target_transform, loader and file filter are honoured."""
    theirs = image_folder(zoo, **settings)
    ours = preload(theirs)
    assert differing(ours, theirs) == []
    assert ours.samples == theirs.samples
    assert ours.targets == [label for _, label in theirs]


class Numbered(ImageFolder):
    """An ImageFolder with class numbers of its own."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """Number the classes 1, 4, 7 and so on."""
        classes, _ = super().find_classes(str(directory))
        return classes, {name: 3 * i + 1 for i, name in enumerate(classes)}


class Shifted(ImageFolder):
    """An ImageFolder whose items are not those of its class."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = super().__getitem__((index + 1) % len(self))
        return image, label


@pytest.mark.parametrize("cls", [Numbered, Shifted])
def test_subclasses_of_imagefolder_are_what_they_make_themselves(
    zoo: Path, cls: type[ImageFolder]
) -> None:
    """Class numbers and items come from the subclass, not from its folder."""
    theirs = cls(str(zoo), v1.Compose(V1["the usual"]))
    ours = preload(theirs)
    assert differing(ours, theirs) == []
    assert ours.class_to_idx == theirs.class_to_idx


SUBSETS: dict[str, Callable[[Dataset[Any]], Any]] = {
    "some": lambda data: Subset(data, [5, 0, 5, 2]),
    "from the end": lambda data: Subset(data, [-1, -2]),
    "as a tensor": lambda data: Subset(data, torch.tensor([3, 1])),
    "of a subset": lambda data: Subset(Subset(data, [4, 3, 2, 1]), [2, 0]),
    "random_split": lambda data: random_split(data, [0.5, 0.5])[1],
}


@pytest.mark.parametrize("subset", SUBSETS.values(), ids=SUBSETS)
@pytest.mark.parametrize("shifted", [False, True])
def test_subsets(zoo: Path, subset: Callable[[Any], Any], shifted: bool) -> None:
    """A Subset of an ImageFolder, or of any dataset, is those items in that order."""
    theirs = subset((Shifted if shifted else ImageFolder)(str(zoo), v1.Compose(V1["the usual"])))
    ours = preload(theirs)
    assert differing(ours, theirs) == []
    assert ours.classes == sorted(MODES_OF_FORMAT)


class Augmented(Subset[Any]):
    """The idiom that gives a part of a dataset a transform of its own."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int], transform: Any) -> None:
        super().__init__(dataset, indices)
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return self.transform(image), label

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


def test_a_subclass_of_subset_keeps_its_transform(zoo: Path) -> None:
    """What a Subset's subclass does to its items is done."""
    theirs = Augmented(ImageFolder(str(zoo)), [3, 4], v1.Compose(V1["the usual"]))
    assert differing(preload(theirs), theirs) == []


class Cifar(VisionDataset):
    """A dataset in memory with torchvision's three transform arguments, as CIFAR10 is written."""

    def __init__(self, **transforms: Any) -> None:
        super().__init__(".", **transforms)
        rng = np.random.default_rng(4)
        self.data = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
        self.targets = rng.integers(0, 3, 20).tolist()
        self.classes = ["cat", "dog", "owl"]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = Image.fromarray(self.data[index]), self.targets[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)


class Joint(Cifar):
    """The same, through `transforms`, as newer datasets of torchvision are written."""

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = Image.fromarray(self.data[index]), self.targets[index]
        return (image, target) if self.transforms is None else self.transforms(image, target)


def named(value: object) -> str:
    """A test's name after a value, without addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize("cls", [Cifar, Joint])
@pytest.mark.parametrize(
    "transforms",
    [
        {},
        {"transform": v1.Compose(V1["the usual"])},
        {"target_transform": lambda label: label + 7},
        {"transform": v1.ToTensor(), "target_transform": lambda label: 2 - label},
    ],
    ids=named,
)
def test_map_style_datasets(cls: type[Cifar], transforms: dict[str, Any]) -> None:
    """A dataset's transform is split and its target_transform applied; it is left as it was."""
    theirs = cls(**transforms)
    before = dict(vars(theirs))
    ours = preload(theirs)
    assert differing(ours, theirs) == []
    assert vars(theirs) == before


def test_fake_data() -> None:
    """The FakeData of torchvision, which sets and resets the global generator, is read right."""
    theirs = FakeData(9, (3, 8, 6), 4, transform=v1.ToTensor())
    assert differing(preload(theirs), theirs) == []


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_uint8_tensors(channels: int) -> None:
    """Items may be uint8 tensors of any number of channels, in a plain list, too."""
    generator = torch.Generator().manual_seed(channels)
    pixels = torch.randint(0, 256, (6, channels, 5, 4), dtype=torch.uint8, generator=generator)
    theirs = [(image, i % 2) for i, image in enumerate(pixels)]
    assert differing(preload(theirs), theirs) == []


def test_tv_tensors() -> None:
    """Items may be torchvision's own tensors; plain tensors are served."""
    theirs = [(tv_tensors.Image(torch.full((3, 9, 9), i, dtype=torch.uint8)), i) for i in range(3)]
    assert (
        differing(preload(theirs, v2.CenterCrop(4)), [(x[:, 2:6, 2:6], y) for x, y in theirs]) == []
    )


def test_datasets_wrapped_for_v2(zoo: Path) -> None:
    """What wrap_dataset_for_transforms_v2 makes of an ImageFolder is read as that."""
    theirs = wrap_dataset_for_transforms_v2(ImageFolder(str(zoo), v1.Compose(V2["the usual"])))
    assert differing(preload(theirs), theirs) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_float_tensors_are_kept_as_they_are(dtype: torch.dtype) -> None:
    """Items that are floats already are stored in their dtype."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(6, 3, 5, 4, generator=generator).to(dtype)
    theirs = [(image, 0) for image in pixels]
    assert differing(preload(theirs), theirs) == []


def test_steps_in_place_leave_the_callers_data_alone() -> None:
    """Preloading never writes into tensors or images that the caller's dataset keeps."""

    def invert(image: Tensor) -> Tensor:
        return image.bitwise_not_()

    pixels = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    before = pixels.clone()
    ours = preload([(image, 0) for image in pixels], invert)
    assert torch.equal(ours.images, ~before)
    assert torch.equal(pixels, before)
