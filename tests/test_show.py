"""Pictures of batches: what is drawn, and what is left behind."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor

import gpupreload as gp
from gpupreload.figure import new_figure
from gpupreload.show import to_pictures

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]


@pytest.fixture(scope="module")
def photos(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve small pictures, normalised."""
    steps = [v2.Resize((9, 7)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    transform = v2.Compose([*steps, v2.Normalize(MEAN, STD)])
    return gp.preload(photo_folder, transform, device="cpu", progress=False)


def drawn(figure: object) -> list[np.ndarray]:
    """The pixels of each picture in a figure."""
    return [np.asarray(axis.images[0].get_array()) for axis in figure.axes if axis.images]


def titles(figure: object) -> list[str]:
    """The text above each picture."""
    return [axis.get_title() for axis in figure.axes if axis.images]


def test_normalised_images_are_drawn_as_they_were(photos: gp.GPUPreloadDataset) -> None:
    """Given the dataset, Normalize is undone: what is drawn is the stored uint8 picture."""
    images, labels = next(iter(gp.Loader(photos, 12)))
    pictures = drawn(gp.show_batch(images, labels, photos))
    stored = photos.images.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(np.stack(pictures), stored)


def test_names_are_the_classes(photos: gp.GPUPreloadDataset) -> None:
    """Labels are drawn as class names, from the dataset or from a list; else as numbers."""
    images, labels = next(iter(gp.Loader(photos, 12)))
    expected = ["cat"] * 4 + ["dog"] * 4 + ["owl"] * 4
    assert titles(gp.show_batch(images, labels, photos)) == expected
    assert titles(gp.show_batch(images, labels, ["a", "b", "c"]))[::4] == ["a", "b", "c"]
    assert titles(gp.show_batch(images, labels.tolist()))[::4] == ["0", "1", "2"]
    assert titles(gp.show_batch(images)) == [""] * 12


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (torch.tensor([[[0, 255]]], dtype=torch.uint8), [[[0, 0, 0], [255, 255, 255]]]),
        (torch.tensor([[[0.0, 0.5]]]), [[[0, 0, 0], [128, 128, 128]]]),
        (torch.tensor([[[-1.0, 2.0]]]), [[[0, 0, 0], [255, 255, 255]]]),
        (torch.tensor([[[1.0]], [[0.0]], [[0.2]]]), [[[255, 0, 51]]]),
    ],
    ids=["uint8", "floats", "out of range", "colour"],
)
def test_to_pictures(image: Tensor, expected: list[list[list[int]]]) -> None:
    """One or three channels, bytes or floats in [0, 1], become bytes of three channels."""
    assert to_pictures(image).tolist() == [expected]


def test_at_most_n_images_are_drawn(photos: gp.GPUPreloadDataset) -> None:
    """A large batch is cut to n images; a small one leaves the rest of the grid empty."""
    images, _ = next(iter(gp.Loader(photos, 12)))
    assert len(drawn(gp.show_batch(images, n=5, columns=2))) == 5
    assert len(drawn(gp.show_batch(images[:1]))) == 1


def test_no_figure_is_left_open(photos: gp.GPUPreloadDataset) -> None:
    """Pyplot knows nothing of the figures, so 25 previews leave none open."""
    import matplotlib.pyplot as plt

    images, labels = next(iter(gp.Loader(photos, 12)))
    before = plt.get_fignums()
    for _ in range(25):
        gp.show_batch(images, labels, photos)
        gp.show_augmented(photos, 0)
    assert plt.get_fignums() == before


def test_a_figure_draws_itself_in_a_notebook(photos: gp.GPUPreloadDataset) -> None:
    """Jupyter gets one picture of 144 pixels an inch, and a text without pixels or address."""
    figure = gp.show_batch(photos.images)
    bundle, metadata = figure._repr_mimebundle_()
    [(kind, size)] = metadata.items()
    picture = Image.open(io.BytesIO(base64.b64decode(bundle[kind])))
    inches = figure.get_size_inches()
    assert bundle == {kind: bundle[kind], "text/plain": repr(figure)}
    assert picture.size == pytest.approx(inches * 144, abs=1)
    assert (size["width"], size["height"]) == pytest.approx(inches * 96, abs=1)
    assert repr(figure).startswith("<a picture of ")


def test_photos_are_jpeg_and_bars_are_png() -> None:
    """A notebook keeps the smaller of both files, whose pixels are much the same."""
    noise = torch.rand((4, 3, 12, 12), generator=torch.Generator().manual_seed(0))
    clouds = torch.nn.functional.interpolate(noise, size=112, mode="bilinear")
    bars = new_figure(8, 2)
    bars.subplots().barh(["disk", "device"], [1, 3])
    figures = {"image/jpeg": gp.show_batch(clouds), "image/png": bars}
    for kind, figure in figures.items():
        bundle, _ = figure._repr_mimebundle_()
        assert set(bundle) == {kind, "text/plain"}


@pytest.fixture(scope="module")
def flipped(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve small pictures that are mirrored or not, then normalised."""
    steps = [v2.Resize((9, 7)), v2.RandomHorizontalFlip(), v2.ToImage()]
    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    transform = v2.Compose([*steps, *floats])
    return gp.preload(photo_folder, transform, device="cpu", seed=3, progress=False)


def test_augmented_shows_the_original_and_its_draws(flipped: gp.GPUPreloadDataset) -> None:
    """First the stored picture, then n draws, un-normalised: here each as it is or mirrored."""
    original, *draws = drawn(gp.show_augmented(flipped, 5, 20))
    stored = flipped.images[5].permute(1, 2, 0).numpy()
    assert np.array_equal(original, stored)
    as_it_is = [np.array_equal(draw, stored) for draw in draws]
    mirrored = [np.array_equal(draw, stored[:, ::-1]) for draw in draws]
    assert len(draws) == 20
    assert any(as_it_is)
    assert [not same for same in as_it_is] == mirrored


def test_an_original_that_is_kept_normalised_is_shown_as_it_was(photo_folder: Path) -> None:
    """Where floats are kept, after Normalize, the original is un-normalised like the draws."""
    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    kept = gp.preload(
        photo_folder,
        gp.once(v2.Compose([v2.Resize((9, 7)), *floats])),
        device="cpu",
        progress=False,
    )
    plain = gp.preload(photo_folder, v2.Resize((9, 7)), device="cpu", progress=False)
    assert kept.images.is_floating_point()
    original = drawn(gp.show_augmented(kept, 3, 1))[0]
    assert np.array_equal(original, plain.images[3].permute(1, 2, 0).numpy())


def test_augmented_names_what_it_shows(flipped: gp.GPUPreloadDataset) -> None:
    """Each picture has its name, and the whole has the photo's number, its class and the epoch."""
    figure = gp.show_augmented(flipped, -7, 2, epoch=4)
    assert titles(figure) == ["original", "draw 1", "draw 2"]
    assert figure.get_suptitle() == "photo 5, dog: epoch 4"


@pytest.mark.parametrize("label", [-1, 7])
def test_a_label_that_is_no_class_is_named_by_its_number(
    flipped: gp.GPUPreloadDataset, label: int
) -> None:
    """Labels may be edited to what is no class: the photo is drawn all the same."""
    part = flipped.subset(range(12))
    part.labels[0] = label
    assert gp.show_augmented(part, 0, 2).get_suptitle() == f"photo 0, class {label}: epoch 0"


@pytest.mark.parametrize("seed", [None, 8])
def test_the_first_draw_is_what_a_loader_serves(
    flipped: gp.GPUPreloadDataset, seed: int | None
) -> None:
    """Draw 1 is the picture of this photo in this epoch and seed; no look changes it."""
    loader = gp.Loader(flipped, 12, seed=seed)
    for epoch, (images, _) in enumerate(batch for _ in range(8) for batch in loader):
        figure = gp.show_augmented(flipped, 2, 3, epoch=epoch, seed=seed)
        assert np.array_equal(drawn(figure)[1], to_pictures(images[2], flipped)[0].numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n is 0; expected the number of draws, 1 or more."),
        ({"epoch": -1}, "epoch is -1; expected a whole number, 0 or more."),
        ({"index": 12}, "index 12 is out of range for 12 images."),
        (
            {"index": 1.5},
            "index is float; expected an int, the number of one photo, as in dataset[index].",
        ),
        (
            {"index": "a"},
            "index is str; expected an int, the number of one photo, as in dataset[index].",
        ),
        (
            {"dataset": [0]},
            "dataset is list; expected a GPUPreloadDataset. Write dataset = "
            "gpupreload.preload(data, transform), then "
            "gpupreload.show_augmented(dataset, index).",
        ),
    ],
)
def test_augmented_refuses(
    flipped: gp.GPUPreloadDataset, arguments: dict[str, object], message: str
) -> None:
    """A number out of range, and data that is not preloaded, are refused in a whole sentence."""
    with pytest.raises((gp.ArgumentError, IndexError, TypeError)) as caught:
        gp.show_augmented(**({"dataset": flipped, "index": 0} | arguments))
    assert str(caught.value) == message


def test_other_shapes_are_refused() -> None:
    """Only images of one or three channels can be drawn, and the message says so."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.show_batch(torch.zeros(2, 5, 4, 4))
    assert str(caught.value) == (
        "images is a torch.float32 tensor of shape (2, 5, 4, 4); expected [N, C, H, W] or "
        "[C, H, W] with C of 1 or 3."
    )


def test_without_matplotlib_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Matplotlib is optional; a picture without it is a clear error."""
    from gpupreload import figure

    figure._figure_class.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError) as caught:
        gp.show_batch(torch.zeros(1, 3, 4, 4))
    assert str(caught.value) == (
        "pictures need Matplotlib, which is not installed: pip install 'gpupreload[lab]'"
    )
    figure._figure_class.cache_clear()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "labels has 2 labels for 3 images; expected one each."),
        ([0, 1, 7], "labels holds 7, but classes has 3 names; expected 0 to 2."),
        (
            torch.eye(4)[:3],
            "labels has 4 weights an image, but classes has 3 names; expected one weight for each "
            "class.",
        ),
        (
            torch.zeros(3, 2, dtype=torch.int64),
            "labels is a torch.int64 tensor of shape (3, 2); expected class numbers, int64 [N], or "
            "weights, floats [N, K], as MixUp and CutMix make them.",
        ),
        (torch.eye(3)[:2], "labels has 2 labels for 3 images; expected one each."),
        (
            torch.tensor([0.0, 1.0, 2.0]),
            "labels is a torch.float32 tensor of shape (3,); expected class numbers, int64 [N], or "
            "weights, floats [N, K], as MixUp and CutMix make them.",
        ),
        (
            list("abc"),
            "labels is list of texts; expected class numbers, int64 [N], or weights, floats "
            "[N, K], as MixUp and CutMix make them. Of names, pass labels=range(len(names)) and "
            "classes=names.",
        ),
        (
            [[0], [1, 2], [0]],
            "labels is list; expected class numbers, int64 [N], or weights, floats [N, K], as "
            "MixUp and CutMix make them.",
        ),
    ],
    ids=[
        *("too few", "unknown", "too wide", "several", "too few soft"),
        *("floats", "texts", "ragged"),
    ],
)
def test_labels_that_do_not_go_with_the_images(
    photos: gp.GPUPreloadDataset, labels: Any, message: str
) -> None:
    """No picture is dropped for want of a label, and what is no label is named."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.show_batch(photos.images[:3], labels, photos)
    assert str(caught.value) == message


def test_names_in_the_way_that_is_told(photos: gp.GPUPreloadDataset) -> None:
    """Texts of the caller's own are drawn where they are given as the classes."""
    names = ["a", "b", "c"]
    figure = gp.show_batch(photos.images[:3], labels=range(len(names)), classes=names)
    assert titles(figure) == names


def test_soft_labels_are_their_two_largest_weights(photos: gp.GPUPreloadDataset) -> None:
    """What MixUp and CutMix make of labels is told by the two largest weights, in two lines."""
    soft = torch.tensor([[0.3, 0.0, 0.7], [0.0, 1.0, 0.0], [0.5, 0.2, 0.3]])
    expected = ["0.70 owl\n0.30 cat", "1.00 dog", "0.50 cat\n0.30 owl"]
    figure = gp.show_batch(photos.images[:3], soft, photos)
    assert titles(figure) == expected
    one_line = gp.show_batch(photos.images[:3], [0, 1, 2], photos)
    extra = figure.get_size_inches() - one_line.get_size_inches()
    assert extra.tolist() == pytest.approx([0, 0.24])
    assert titles(gp.show_batch(photos.images[:1], soft))[0] == "0.70 class 2\n0.30 class 0"


def test_a_mixed_batch_is_drawn(photos: gp.GPUPreloadDataset) -> None:
    """A batch of a loader that mixes is drawn as it comes."""
    images, labels = next(iter(gp.Loader(photos, 12, mix=v2.MixUp(num_classes=3), shuffle=True)))
    first, row = titles(gp.show_batch(images, labels, photos))[0], labels[0].sort(descending=True)
    name = photos.classes[int(row.indices[0])]
    assert first.split("\n")[0] == f"{float(row.values[0]):.2f} {name}"


@pytest.mark.parametrize(("with_indices", "parts"), [(False, "*batch"), (True, "*batch[:2]")])
def test_a_whole_batch_is_no_images(
    photos: gp.GPUPreloadDataset, with_indices: bool, parts: str
) -> None:
    """Images and labels in one are refused with the way to take them apart, which works."""
    batch = next(iter(gp.Loader(photos, 12, with_indices=with_indices)))
    with pytest.raises(gp.ArgumentError) as caught:
        gp.show_batch(batch)
    assert str(caught.value) == (
        "images is tuple, a batch as a loader gives it; expected its images, and its labels "
        f"apart. Write show_batch({parts}, classes=dataset)."
    )
    assert titles(gp.show_batch(*batch[:2], classes=photos))[0] == "cat"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("猫", "猫"),
        ("$5$ and a_b^2", "$5$ and a_b^2"),
        ("a class name that is too long", "a class name…"),
    ],
)
def test_names_are_drawn_as_they_are(name: str, title: str) -> None:
    """A class name is no formula, and what is wider than its picture is cut short."""
    figure = gp.show_batch(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), [0], [name])
    assert titles(figure) == [title]
    assert not figure.axes[0].title.get_parse_math()


def test_tall_images_make_no_endless_picture() -> None:
    """A row is at most twice as high as its pictures are wide."""
    figure = gp.show_batch(torch.zeros(2, 3, 80, 8, dtype=torch.uint8), image_inches=1.0)
    assert figure.get_size_inches().tolist() == [2.0, 2.0]
