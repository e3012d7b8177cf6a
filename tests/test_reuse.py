"""Another transform over images that are stored already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.cover import ResizeToCover

RESIZE = v2.Resize((24, 20))
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
NORMALIZE = v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.1])
ANOTHER = (
    "this transform has another once-part than the images were loaded with, so they must be "
    "loaded again: gpupreload.preload(data, transform).\n"
)
BEGIN = "Or begin it with the steps that they were loaded with: it is the whole transform.\n"


def preload(data: Any, *steps: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    transform = v2.Compose(list(steps))
    return gp.preload(data, transform, device="cpu", seed=5, progress=False, **settings)


@pytest.fixture
def train(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve photos, cropped at random."""
    return preload(photo_folder, RESIZE, v2.RandomCrop(16), *FLOATS)


def epoch_of(data: Any) -> Tensor:
    """All images of one epoch of a loader."""
    return torch.cat([images.clone() for images, *_ in gp.Loader(data, 5)])


def files_of(folder: Path, *steps: Any) -> Tensor:
    """What ImageFolder gives for a transform."""
    return torch.stack([image for image, _ in ImageFolder(folder, v2.Compose(list(steps)))])


def negative(image: Image.Image) -> Image.Image:
    """A callable that takes nothing but PIL images."""
    return ImageOps.invert(image)


# --- deterministic steps that were not run when the images were loaded


@pytest.mark.parametrize(
    "steps",
    [
        [RESIZE, v2.CenterCrop(16), *FLOATS],
        [RESIZE, v1.CenterCrop((15, 9)), v1.ToTensor()],
        [RESIZE, v2.CenterCrop((30, 11)), *FLOATS, NORMALIZE],
        [RESIZE, v2.Pad((1, 2, 3, 0), fill=(9, 8, 7)), *FLOATS],
        [RESIZE, v1.Pad(2, fill=5, padding_mode="constant"), v1.ToTensor()],
        [RESIZE, v2.Pad(4, padding_mode="reflect"), v2.CenterCrop(18), v2.PILToTensor()],
        [RESIZE, v2.CenterCrop(16), v2.Resize(16), v2.RGB(), v2.Identity(), *FLOATS],
        [RESIZE, v2.CenterCrop(16), negative, *FLOATS],
        [RESIZE, v2.Lambda(negative), v2.CenterCrop(16), *FLOATS],
        [RESIZE, v2.PILToTensor(), v2.Resize(11), v2.Grayscale(), v2.CenterCrop(8)],
        [RESIZE, *FLOATS, v2.Resize(11), v2.CenterCrop(8)],
        [v2.Compose([v2.Resize((24, 20)), torch.nn.Sequential(v2.CenterCrop(8))]), *FLOATS],
    ],
    ids=lambda steps: ", ".join(type(step).__name__ for step in steps),
)
def test_later_steps_run_for_each_batch(
    photo_folder: Path, train: gp.GPUPreloadDataset, steps: list[Any]
) -> None:
    """Steps after those that ran once give what ImageFolder gives, however they are read."""
    val = train.with_transform(v2.Compose(steps))
    assert val.view.store is train.view.store
    expected = files_of(photo_folder, *steps)
    assert torch.equal(epoch_of(val), expected)
    assert torch.equal(torch.stack([val[i][0] for i in range(12)]), expected)
    assert torch.equal(torch.cat([images for images, _ in DataLoader(val, 7)]), expected)
    assert epoch_of(train).shape == (12, 3, 16, 16)


def test_grey_images_may_be_made_grey(photo_folder: Path) -> None:
    """Grayscale of images with one channel, and RGB of them, move pixels and change none."""
    train = preload(photo_folder, RESIZE, v2.RandomCrop(16), *FLOATS, mode="L")
    for step in (v2.Grayscale(), v2.RGB()):
        steps = [RESIZE, step, v2.CenterCrop(16), *FLOATS]
        grey = ImageFolder(photo_folder, loader=lambda path: Image.open(path).convert("L"))
        grey.transform = v2.Compose(steps)
        expected = torch.stack([image for image, _ in grey])
        assert torch.equal(epoch_of(train.with_transform(steps)), expected)


def test_the_table_tells_why_a_step_runs_for_each_batch(train: gp.GPUPreloadDataset) -> None:
    """What ran once is said to have run once, and what did not has its reason."""
    val = train.with_transform(v2.Compose([RESIZE, v2.CenterCrop(16), *FLOATS]))
    later = "deterministic, but the images were stored without it, so it runs on the device"
    floats = "deterministic, but turns pixels into floats: four times the memory, so it runs on the"
    assert [(row.name, row.part, row.reason) for row in val.steps.rows] == [
        ("Resize((24, 20))", "once", "deterministic, still uint8 and one size"),
        ("CenterCrop(16)", "each batch", later),
        ("ToImage()", "each batch", later),
        ("ToDtype(torch.float32, scale=True)", "each batch", f"{floats} device"),
    ]


def test_one_transform_after_another(photo_folder: Path, train: gp.GPUPreloadDataset) -> None:
    """What is stored stays the measure, whichever transform was there before."""
    val = train.with_transform([RESIZE, v2.CenterCrop(12), *FLOATS])
    again = val.with_transform([RESIZE, v2.RandomCrop(16), *FLOATS])
    assert torch.equal(epoch_of(again), epoch_of(train))
    part = val.subset([3, 1]).with_transform([RESIZE, v2.ToImage(), v2.CenterCrop(14), *FLOATS])
    expected = files_of(photo_folder, RESIZE, v2.CenterCrop(14), *FLOATS)
    assert torch.equal(epoch_of(part), expected[[3, 1]])


def test_random_steps_after_a_later_step(photo_folder: Path, train: gp.GPUPreloadDataset) -> None:
    """A later step comes before the random ones, as it is written."""
    steps = [RESIZE, v2.CenterCrop(16), v2.RandomHorizontalFlip(1), *FLOATS]
    assert torch.equal(epoch_of(train.with_transform(steps)), files_of(photo_folder, *steps))


def test_k_folds_share_one_store(photo_folder: Path, train: gp.GPUPreloadDataset) -> None:
    """Each fold trains on the other samples and validates on its own, over one memory."""
    centre = v2.Compose([RESIZE, v2.CenterCrop(16), *FLOATS])
    expected = files_of(photo_folder, centre)
    for fold in range(3):
        is_held_out = torch.arange(12) % 3 == fold
        val = train.subset(is_held_out).with_transform(centre)
        assert torch.equal(epoch_of(val), expected[is_held_out])
        assert epoch_of(train.subset(~is_held_out)).shape == (8, 3, 16, 16)
        assert val.view.store is train.view.store


def seldom(image: Any) -> Any:
    """Do nothing, but for a draw."""
    torch.rand(1)
    return image


@pytest.mark.parametrize(
    "transform",
    [lambda image: image, v2.Identity(), torch.nn.Identity(), [], v2.Lambda(lambda image: image)],
    ids=["lambda", "v2.Identity", "nn.Identity", "no step", "v2.Lambda"],
)
def test_what_does_nothing_gives_what_is_stored(
    photo_folder: Path, train: gp.GPUPreloadDataset, transform: Any
) -> None:
    """A transform that does nothing is no other once-part: the images come as they are kept."""
    plain = train.with_transform(transform)
    assert torch.equal(epoch_of(plain), train.images)
    assert plain[3][0].dtype == torch.uint8
    assert plain.steps.each_batch == ()
    part = train.subset([2, 1])
    part.transform = transform
    assert torch.equal(epoch_of(part), train.images[[2, 1]])
    tensors = preload([(image, 0) for image in train.images], v2.RGB(), v2.RandomCrop(4))
    assert torch.equal(epoch_of(tensors.with_transform(transform)), train.images)


@pytest.mark.parametrize(
    "transform", [negative, seldom, lambda image: image.no_such_thing, gp.live(lambda image: image)]
)
def test_what_may_do_something_is_another_transform(
    train: gp.GPUPreloadDataset, transform: Any
) -> None:
    """A callable that changes a picture, draws, or fails must follow the steps that ran once."""
    with pytest.raises(gp.TransformError, match="this transform has another once-part"):
        train.with_transform(transform)


@pytest.mark.parametrize(
    ("steps", "way", "asked"),
    [
        ([v2.CenterCrop(16), *FLOATS], BEGIN, "CenterCrop(16)"),
        ([v2.Resize((24, 21)), v2.CenterCrop(16), *FLOATS], BEGIN, "Resize((24, 21)), "),
        ([v2.RandomCrop(3)], BEGIN, "nothing"),
        (
            [RESIZE, v2.Resize(12), v2.CenterCrop(8), *FLOATS],
            "Or write gp.live(v2.Resize(12)), and it runs for each batch: on tensors, where its "
            "pixels may be a grey level or two beside those of PIL images.\n",
            "Resize((24, 20)), Resize(12), CenterCrop(8)",
        ),
        (
            [RESIZE, v1.Grayscale(), *FLOATS],
            "Or write gp.live(T.Grayscale()), and it runs for each batch: on tensors, where its "
            "pixels may be a grey level or two beside those of PIL images.\n",
            "Resize((24, 20)), Grayscale()",
        ),
        (
            [RESIZE, gp.once(v2.CenterCrop(16)), *FLOATS],
            "Or take gp.once off CenterCrop(16), and it runs for each batch.\n",
            "Resize((24, 20)), CenterCrop(16)",
        ),
    ],
    ids=["no start", "another start", "nothing", "Resize", "Grayscale", "once"],
)
def test_what_must_be_loaded_again(
    train: gp.GPUPreloadDataset, steps: list[Any], way: str, asked: str
) -> None:
    """Other pixels than ImageFolder's are never served silently; the message has a way on."""
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform(steps)
    asked = asked if not asked.endswith(", ") else f"{asked}CenterCrop(16)"
    assert str(raised.value) == (
        f"{ANOTHER}{way}loaded with: Resize((24, 20))\nasked for:   {asked}"
    )


def test_the_way_in_the_message_works(photo_folder: Path, train: gp.GPUPreloadDataset) -> None:
    """gp.live runs a Resize on tensors, within two levels of PIL's."""
    steps = [RESIZE, gp.live(v2.Resize(12)), v2.CenterCrop(8), *FLOATS]
    expected = files_of(photo_folder, RESIZE, v2.Resize(12), v2.CenterCrop(8), *FLOATS)
    assert (epoch_of(train.with_transform(steps)) - expected).abs().max() <= 2 / 255 + 1e-6


def test_a_setting_of_v1_that_tensors_do_not_take(train: gp.GPUPreloadDataset) -> None:
    """v1.Pad fills tensors with one number; three for PIL images are no step for a batch."""
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform([RESIZE, v1.Pad(1, fill=(1, 2, 3)), *FLOATS])
    assert str(raised.value) == (
        f"{ANOTHER}Or write v2.Pad(1, fill=(1, 2, 3)), and it runs for each batch, on tensors, for "
        "which v1's Pad takes one number as fill.\n"
        "loaded with: Resize((24, 20))\nasked for:   Resize((24, 20)), Pad(1, fill=(1, 2, 3))"
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_the_pad_in_the_message_works(
    photo_folder: Path, train: gp.GPUPreloadDataset, mode: str
) -> None:
    """v2.Pad pads tensors to the pixels of v1's on PIL images."""
    settings = {"padding": (3, 5, 1, 2), "fill": (1, 2, 3), "padding_mode": mode}
    with pytest.raises(gp.TransformError, match=r"Or write v2\.Pad") as raised:
        train.with_transform([RESIZE, v1.Pad(**settings), v1.ToTensor()])
    code = str(raised.value).split("Or write ")[1].split(", and it runs")[0]
    val = train.with_transform([RESIZE, eval(code, {"v2": v2}), v1.ToTensor()])
    expected = files_of(photo_folder, RESIZE, v1.Pad(**settings), v1.ToTensor())
    assert torch.equal(epoch_of(val), expected)


def test_steps_of_v1_and_v2_are_told_apart(train: gp.GPUPreloadDataset) -> None:
    """Where the names are alike, the versions that differ stand before them."""
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform([v1.Resize((24, 20)), v2.CenterCrop(16), *FLOATS])
    assert str(raised.value) == (
        f"{ANOTHER}{BEGIN}loaded with: v2.Resize((24, 20))\n"
        "asked for:   v1.Resize((24, 20)), CenterCrop(16)"
    )


@pytest.mark.parametrize(
    ("mode", "step", "way"),
    [
        (
            "RGBA",
            v2.RGB(),
            "RGB() cannot run for each batch: on tensors it does not do what it does to PIL images "
            "of mode RGBA.\n",
        ),
        (
            "L",
            v2.Grayscale(3),
            "Or write gp.live(v2.Grayscale(num_output_channels=3)), and it runs for each batch: on "
            "tensors, where its pixels may be a grey level or two beside those of PIL images.\n",
        ),
    ],
)
def test_modes_that_tensors_do_not_tell(mode: str, step: Any, way: str) -> None:
    """What a step does to an image of another mode is left to PIL."""
    data = [(Image.new(mode, (8, 6)), 0) for _ in range(2)]
    train = preload(data, v2.RandomCrop(4), *FLOATS)
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform([step, *FLOATS])
    name = "RGB()" if mode == "RGBA" else "Grayscale(num_output_channels=3)"
    assert str(raised.value) == f"{ANOTHER}{way}loaded with: nothing\nasked for:   {name}"


# --- store_size


def test_a_crop_of_what_store_size_cut(photo_folder: Path) -> None:
    """With store_size a transform sees the stored picture, once more than its own steps."""
    train = preload(photo_folder, v2.RandomResizedCrop(14), *FLOATS, store_size=(16, 18))
    stored = [ResizeToCover((16, 18)), v2.CenterCrop((16, 18))]
    for steps in ([v2.CenterCrop(14), *FLOATS], [v2.Pad(1), *FLOATS], [*FLOATS, v2.Resize(9)]):
        expected = files_of(photo_folder, *stored, *steps)
        assert torch.equal(epoch_of(train.with_transform(steps)), expected)
    again = train.with_transform([v2.CenterCrop(14), v2.RandomResizedCrop(14), *FLOATS])
    assert [row.name for row in again.steps.rows_of("once")] == [
        "ResizeToCover((16, 18))",
        "CenterCrop((16, 18))",
    ]


def test_what_store_size_cut_off_is_not_there(photo_folder: Path) -> None:
    """A crop larger than the stored picture would have black edges, and is refused."""
    train = preload(photo_folder, v2.RandomResizedCrop(14), *FLOATS, store_size=(16, 18))
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform([v2.CenterCrop(17), *FLOATS])
    assert str(raised.value) == (
        f"{ANOTHER}CenterCrop(17) is larger than the 16×18 pixels that it would cut from: what "
        "store_size cut off is not there again.\n"
        "loaded with: ResizeToCover((16, 18)), CenterCrop((16, 18))\n"
        "asked for:   ResizeToCover((16, 18)), CenterCrop((16, 18)), CenterCrop(17)"
    )


# --- warnings, and arrays


def test_colours_after_normalize_are_warned_of(train: gp.GPUPreloadDataset) -> None:
    """Another transform is read as carefully as the first."""
    with pytest.warns(UserWarning, match="comes after .* but reads values as colours") as warned:
        train.with_transform([RESIZE, *FLOATS, NORMALIZE, v2.ColorJitter(0.5)])
    assert warned[0].filename == __file__


def test_arrays_go_on_as_arrays() -> None:
    """A callable that takes arrays is given arrays, whenever it runs."""

    def darker(array: np.ndarray) -> np.ndarray:
        return array // 2

    images = [Image.fromarray(np.full((6, 5, 3), 40 * i, np.uint8)) for i in range(3)]
    train = preload([(image, 0) for image in images], np.array, v2.ToImage(), v2.RandomCrop(4))
    val = train.with_transform([np.array, darker, v2.ToImage(), v2.CenterCrop(4)])
    assert epoch_of(val).unique().tolist() == [0, 20, 40]
