"""The explorer's widgets: what is set in them is what is shown, written down, and readable."""

from __future__ import annotations

import base64
import gc
import io
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ipywidgets import Widget
from PIL import Image
from torchvision.transforms import v2
from transform_examples import Make, examples

import gpupreload as gp
from gpupreload.catalog import RANDOM
from gpupreload.explore.explorer import Explorer
from gpupreload.explore.knobs import knobs_of
from gpupreload.explore.pictures import VIEWS, Look, render

STEPS = [
    v2.Resize((10, 12)),
    v2.RandomHorizontalFlip(),
    v2.RandomCrop(8),
    v2.RandomErasing(ratio=(1 / 3, 3)),
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
]


@pytest.fixture(autouse=True)
def _no_widget_is_left() -> Iterator[None]:
    """A widget that is not closed is kept by ipywidgets, and with it the dataset that it shows."""
    yield
    Widget.close_all()


@pytest.fixture(scope="module")
def photos(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve small photos of three classes, with three random steps."""
    return gp.preload(photo_folder, v2.Compose(STEPS), device="cpu", seed=5, progress=False)


@pytest.fixture
def explorer(photos: gp.GPUPreloadDataset) -> Explorer:
    """A new explorer."""
    return gp.explore(photos, 6)


def shown(explorer: Explorer) -> str:
    """The HTML of the picture."""
    assert explorer.error == ""
    return str(explorer._picture.value)


def names(widget: Any) -> list[str]:
    """The names of all controls in a widget, as a screen reader tells them, in order."""
    found = [getattr(widget, "description", "")] if hasattr(widget, "value") else []
    for child in getattr(widget, "children", ()):
        found += names(child)
    return [name for name in found if name]


def test_it_begins_with_the_dataset_as_it_is(
    photos: gp.GPUPreloadDataset, explorer: Explorer
) -> None:
    """At first nothing is changed: the dataset's seed and transform, and the photo asked for."""
    assert explorer.look == Look(index=6, seed=5)
    assert explorer.label.value == photos.targets[6] == 1
    assert [type(step) for step in explorer.transform.transforms] == [type(s) for s in STEPS]
    assert "ratio=(0.3333333333333333, 3)" in explorer.code
    expected = render(photos, explorer.recipe, Look(index=6, seed=5))
    assert explorer.says == f"photo 6 (dog), epoch 0: {expected.says}."
    assert explorer._status.value.endswith(f">{explorer.says}</div>")


def test_every_control_has_a_name(explorer: Explorer) -> None:
    """Each number and choice can be found by its name, as torchvision names it."""
    assert names(explorer.widget) == [
        *("class", "photo", "epoch", "seed"),
        *("RandomHorizontalFlip", "p"),
        *("RandomCrop", "size", "padding", "padding_mode"),
        *("RandomErasing", "p", "scale from", "scale to", "ratio from", "ratio to"),
        "code",
    ]


@pytest.mark.parametrize(
    ("control", "value", "look"),
    [
        ("epoch", 3, Look(index=6, epoch=3, seed=5)),
        ("photo", 11, Look(index=11, seed=5)),
        ("seed", "9", Look(index=6, seed=9)),
        ("label", 2, Look(index=8, seed=5)),
        ("view", VIEWS[2], Look(VIEWS[2], index=6, seed=5)),
    ],
)
def test_a_change_is_shown(
    photos: gp.GPUPreloadDataset, explorer: Explorer, control: str, value: Any, look: Look
) -> None:
    """Each control changes what is looked at, and the picture with it."""
    before = shown(explorer)
    getattr(explorer, control).value = value
    assert explorer.look == look
    assert shown(explorer) != before
    [(mime, data)] = [
        source.split('"')[0].split(";base64,") for source in shown(explorer).split('src="data:')[1:]
    ]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    assert mime == "image/png"
    assert np.array_equal(pixels, render(photos, explorer.recipe, look).pixels)


def test_class_and_photo_go_together(explorer: Explorer) -> None:
    """Choosing a class goes to its first photo; a photo of another class changes the class."""
    explorer.photo.value = 0
    assert explorer.label.value == 0
    explorer.label.value = 2
    assert explorer.photo.value == 8
    explorer.photo.value = 9
    assert explorer.label.value == 2
    assert explorer.photo.value == 9


@pytest.mark.parametrize("label", [-1, 7])
def test_a_label_that_is_no_class_is_named_by_its_number(photo_folder: Path, label: int) -> None:
    """Labels may be edited to what is no class, before or while they are looked at."""
    transform = v2.Compose(STEPS)
    dataset = gp.preload(photo_folder, transform, device="cpu", seed=5, progress=False).subset(
        range(12)
    )
    earlier = gp.explore(dataset, 3)
    dataset.labels[0] = label
    later = gp.explore(dataset, 0)
    earlier.photo.value = 0
    for explorer in (earlier, later):
        assert explorer.error == ""
        assert explorer.says.startswith(f"photo 0 (class {label}), epoch 0: ")
        assert explorer.photo.value == 0
        assert explorer.label.label == f"class {label}"
        explorer.label.value = 2
        assert explorer.photo.value == 8
        explorer.label.value = label
        assert explorer.photo.value == 0


def test_one_picture_a_step(explorer: Explorer) -> None:
    """One move of a slider sets the picture once, whatever else follows it."""
    pictures = []
    explorer._picture.observe(lambda change: pictures.append(change["new"]), "value")
    explorer.epoch.value = 1
    explorer.photo.value = 11  # of another class
    explorer.steps["RandomErasing"].controls["scale"].value = (0.2, 0.6)
    assert len(pictures) == 3


def test_settings_are_readable_as_a_transform_and_as_code(explorer: Explorer) -> None:
    """A step that is ticked off is left out; an argument that is set is in both."""
    explorer.steps["RandomHorizontalFlip"].ticked.value = False
    explorer.steps["RandomCrop"].controls["size"].value = 9
    explorer.steps["RandomErasing"].controls["p"].value = 0.75
    explorer.steps["RandomErasing"].controls["scale"].value = (0.1, 0.5)
    assert explorer.code == (
        "import torch\n"
        "from torchvision.transforms import v2\n"
        "transform = v2.Compose([\n"
        "    v2.Resize((10, 12)),\n"
        "    v2.RandomCrop(9),\n"
        "    v2.RandomErasing(\n"
        "        p=0.75,\n"
        "        scale=(0.1, 0.5),\n"
        "        ratio=(0.3333333333333333, 3),\n"
        "    ),\n"
        "    v2.ToImage(),\n"
        "    v2.ToDtype(torch.float32, scale=True),\n"
        "])"
    )
    _, crop, erasing, *_ = explorer.transform.transforms
    assert (crop.size, erasing.p, erasing.scale) == ((9, 9), 0.75, (0.1, 0.5))
    assert explorer.steps["RandomHorizontalFlip"].controls["p"].widget.children[0].disabled


def test_setting_back_leaves_the_first_code(explorer: Explorer) -> None:
    """What is changed and changed back is as it was given, to the last digit."""
    before = explorer.code
    ratio = explorer.steps["RandomErasing"].controls["ratio"]
    first = ratio.value
    ratio.value = (0.5, 2.0)
    assert explorer.code != before
    ratio.value = first
    assert explorer.code == before


def test_the_transform_serves_the_pictures_that_were_shown(
    photo_folder: Path, photos: gp.GPUPreloadDataset, explorer: Explorer
) -> None:
    """Preloaded with the transform and seed of the explorer, a dataset serves its draw 1."""
    explorer.steps["RandomHorizontalFlip"].ticked.value = False
    explorer.steps["RandomErasing"].controls["p"].value = 1.0
    explorer.epoch.value = 4
    again = gp.preload(photo_folder, explorer.transform, device="cpu", seed=5, progress=False)
    again.set_epoch(4)
    image = (again[6][0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    shown = render(photos, explorer.recipe, explorer.look).pixels
    assert np.array_equal(shown[:8, 2 * 12 : 2 * 12 + 8], image)


STEPS_WITH_CONTROLS = {
    label: make for label, make in examples(RANDOM).items() if "RandomChoice" not in label
}


@pytest.mark.parametrize("make", STEPS_WITH_CONTROLS.values(), ids=STEPS_WITH_CONTROLS)
def test_every_step_can_be_turned_to_its_ends_and_back(photo_folder: Path, make: Make) -> None:
    """Each control of each of torchvision's random steps changes the code, and can go back."""
    steps = [v2.Resize((30, 40)), v2.ToImage(), make(), v2.CenterCrop(16)]
    dataset = gp.preload(photo_folder, v2.Compose(steps), device="cpu", progress=False)
    explorer = gp.explore(dataset, n=2)
    [step] = explorer.steps.values()
    before = explorer.code
    for knob in knobs_of(make()):
        control = step.controls[knob.name]
        first = control.value
        ends: list[Any] = [value for _, value in knob.choices]
        if knob.kind != "choice":
            ends = [(v, v) if knob.kind == "range" else v for v in (knob.low, knob.high)]
        for end in ends:
            control.value = end
            assert explorer.error == "" or explorer.error.startswith("TransformError: ")
            assert (explorer.code == before) == (end == first)
        control.value = first
        assert (explorer.code, explorer.error) == (before, "")
    explorer.close()


def test_ends_of_a_range_cannot_cross(explorer: Explorer) -> None:
    """A lower end typed above the upper one takes it along, and the other way round."""
    scale = explorer.steps["RandomErasing"].controls["scale"]
    low, high = scale._boxes
    low.value = 0.9
    assert scale.value == (0.9, 0.9)
    high.value = 0.2
    assert scale.value == (0.2, 0.2)
    assert (low.value, high.value) == (0.2, 0.2)


def test_a_slider_that_repeats_what_it_was_given_changes_nothing(explorer: Explorer) -> None:
    """A browser moves a slider to its next step; the number stays what it was set to."""
    before = explorer.code
    erasing = explorer.steps["RandomErasing"].controls
    erasing["ratio"]._slider.value = (0.35, 3.0)  # 1/3 at steps of 0.05
    assert explorer.code == before
    erasing["p"]._box.value = 0.52
    erasing["p"]._slider.value = 0.5
    assert "v2.RandomErasing(p=0.52, ratio=(0.3333333333333333, 3))" in explorer.code
    erasing["p"]._slider.value = 0.55
    erasing["ratio"]._slider.value = (0.4, 3.0)
    assert "v2.RandomErasing(p=0.55, ratio=(0.4, 3.0))" in explorer.code


def test_what_is_typed_into_the_code_is_put_back(explorer: Explorer) -> None:
    """The code is there to be copied; it cannot come to differ from what is set."""
    before = explorer.code
    explorer._code.widget.value = "something else"
    assert explorer._code.widget.value == explorer.code == before


def test_an_error_is_shown_and_goes_again(explorer: Explorer) -> None:
    """What a step raises is shown as an alert, with the old picture faded; then it goes on."""
    size = explorer.steps["RandomCrop"].controls["size"]
    size.value = 200
    assert explorer.error == (
        "TransformError: RandomCrop cuts out 200×200 pixels (height × width), but the images have "
        "10×12. Pass padding=... or pad_if_needed=True to it, or put a Resize before it."
    )
    assert explorer.says == explorer.error
    assert 'role="alert"' in explorer._alert.value
    assert explorer._picture.value.startswith('<div style="opacity: 0.3">')
    explorer.epoch.value = 8
    assert explorer._picture.value.count("opacity") == 1
    size.value = 8
    assert explorer.error == ""
    assert explorer._alert.value == ""
    assert "opacity" not in explorer._picture.value


def test_a_seed_that_is_no_number_is_an_error(explorer: Explorer) -> None:
    """What is typed as a seed may be no number; that is said, and nothing else happens."""
    explorer.seed.value = "abc"
    assert explorer.error == ("ArgumentError: seed is 'abc'; expected a whole number, such as 0.")


def test_a_freed_dataset_is_an_error(photo_folder: Path) -> None:
    """After free() the widget says so instead of holding on to the memory."""
    dataset = gp.preload(photo_folder, v2.Resize((11, 9)), device="cpu", progress=False)
    explorer = gp.explore(dataset)
    dataset.free()
    explorer.epoch.value = 1
    assert explorer.error.startswith("FreedError: this dataset's memory was given back")
    assert repr(explorer) == "Explorer of 12 photos: 0 random steps"


def test_where_no_widget_lives_there_is_a_picture(explorer: Explorer) -> None:
    """The bundle has the widget, what is shown with its words, and a short constant text."""
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {
        "application/vnd.jupyter.widget-view+json",
        "image/jpeg",
        "text/plain",
    }
    assert bundle["text/plain"] == repr(explorer) == "Explorer of 12 photos: 3 random steps"
    picture = Image.open(io.BytesIO(base64.b64decode(bundle["image/jpeg"])))
    shown = explorer._rendered.pixels
    scale = round(440 / shown.shape[1])  # as the widget enlarges it
    shown = shown.repeat(scale, 0).repeat(scale, 1)
    pixels = np.asarray(picture)
    assert pixels.shape[1] == shown.shape[1]
    apart = np.abs(pixels[20 : 20 + len(shown)].astype(int) - shown)
    assert apart.mean() < 2  # a JPEG's
    for words in (pixels[:20], pixels[20 + len(shown) :]):
        assert words.size > 0
        assert 0.01 < (words < 128).mean() < 0.2  # letters


def test_a_closed_explorer_lets_the_dataset_go(photo_folder: Path) -> None:
    """After close(), and with what was displayed forgotten, the dataset's memory is free."""
    dataset = gp.preload(photo_folder, v2.Resize((11, 9)), device="cpu", progress=False)
    images = weakref.ref(dataset.images)
    explorer = gp.explore(dataset)
    text, bundle = repr(explorer), explorer._repr_mimebundle_()
    explorer.close()
    del dataset, explorer
    gc.collect()
    assert images() is None, (text, bundle.keys())


def test_the_same_step_twice_has_two_names(photo_folder: Path) -> None:
    """Two steps of one class are told apart by a number."""
    steps = v2.Compose([v2.Resize((11, 9)), v2.RandomInvert(), v2.RandomInvert(0.1)])
    dataset = gp.preload(photo_folder, steps, device="cpu", progress=False)
    explorer = gp.explore(dataset)
    assert list(explorer.steps) == ["RandomInvert", "RandomInvert 2"]
    explorer.steps["RandomInvert 2"].controls["p"].value = 1.0
    assert "v2.RandomInvert(p=0.5),\n    v2.RandomInvert(p=1.0),\n" in explorer.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n is 0; expected a number of draws from 1 to 100."),
        ({"epoch": 0.5}, "epoch is 0.5; expected a whole number, 0 or more."),
        (
            {"view": "all"},
            "view is 'all'; expected one of 'draws', 'frozen and live', 'shared and per sample'.",
        ),
        ({"index": -13}, "index -13 is out of range for 12 images."),
        (
            {"index": 1.5},
            "index is float; expected an int, the number of one photo, as in dataset[index].",
        ),
        (
            {"index": "a"},
            "index is str; expected an int, the number of one photo, as in dataset[index].",
        ),
        (
            {"dataset": "photos"},
            "dataset is str; expected a GPUPreloadDataset. Write dataset = "
            "gpupreload.preload(data, transform), then gpupreload.explore(dataset).",
        ),
    ],
)
def test_explore_refuses(
    photos: gp.GPUPreloadDataset, arguments: dict[str, Any], message: str
) -> None:
    """A number out of range, and data that is not preloaded, are refused in a whole sentence."""
    with pytest.raises((gp.ArgumentError, IndexError, TypeError)) as caught:
        gp.explore(**({"dataset": photos} | arguments))
    assert str(caught.value) == message


def test_without_ipywidgets_the_message_says_what_to_install(
    photos: gp.GPUPreloadDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widgets are optional; exploring without it is a clear error."""
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError) as caught:
        gp.explore(photos)
    assert str(caught.value) == (
        "gpupreload.explore needs ipywidgets, which is not installed: pip install 'gpupreload[lab]'"
    )
