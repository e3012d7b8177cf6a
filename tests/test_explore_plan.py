"""The widget of a plan: numbers for a size to choose, photos at that size, and the call."""

from __future__ import annotations

import base64
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.explore.planner import PlanExplorer
from gpupreload.explore.planning import Need, some_photos, strip
from gpupreload.source import open_source

MIB = 2**20


def need(size: int = 512, **settings: Any) -> Need:
    """Of 100 images on a device with 900 of 1,000 MiB free."""
    data = FakeData(100, (3, 40, 40), num_classes=5)
    plan = gp.plan(data, v2.Compose([v2.Resize(32), v2.CenterCrop(32)]), device="cpu")
    memory = {"free_bytes": 900 * MIB, "total_bytes": 1000 * MIB}
    return Need(replace(plan, **memory), size, **settings)


def test_bytes_are_counted() -> None:
    """One byte a value and eight a label; as floats four more a value, and the labels again."""
    uint8, floats = need(512), need(512, kept="float32")
    assert uint8.n_bytes == uint8.store_bytes == 100 * 3 * 512 * 512 + 800
    assert floats.n_bytes == 5 * 100 * 3 * 512 * 512 + 1600
    assert uint8.left_bytes == 900 * MIB - uint8.n_bytes


def test_bytes_are_those_of_a_plan(photo_folder: Path) -> None:
    """At each size the store takes what a plan of that size says."""
    explorer = gp.explore_plan(photo_folder, device="cpu")
    for size in (16, 48):
        explorer.size.value = size
        transform = v2.Compose([v2.Resize(size), v2.CenterCrop(size)])
        expected = gp.plan(photo_folder, transform, device="cpu")
        assert explorer.need.store_bytes == expected.store_bytes


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        (
            {},
            "100 images of 3×512×512 take 75.0 MiB of the CPU's memory: they fit, and 825.0 MiB "
            "are left for the model.",
        ),
        (
            {"margin": 0.85},
            "100 images of 3×512×512 take 75.0 MiB of the CPU's memory: they fit, but only "
            "825.0 MiB are left, less than the margin.",
        ),
        (
            {"size": 2048},
            "100 images of 3×2048×2048 take 1.2 GiB of the CPU's memory: 300.0 MiB more than is "
            "free. They do not fit.",
        ),
    ],
)
def test_the_verdict_is_a_sentence(settings: dict[str, Any], verdict: str) -> None:
    """It says what is taken, whether it fits, and what is left, with the margin in mind."""
    assert need(**settings).verdict == verdict


def test_the_bar_shows_shares_of_the_device() -> None:
    """Each part's share is of the device's memory, and the margin stands at its end."""
    parts = [(s.name, round(s.share, 3)) for s in need(512, kept="float32").segments]
    assert parts == [
        ("in use now: 100.0 MiB", 0.1),
        ("images as uint8: 75.0 MiB", 0.075),
        ("images as float32: 300.0 MiB", 0.3),
    ]
    assert need(margin=0.2).margin_mark == ("margin to stay free: 200.0 MiB", 0.8)


def test_the_call_preloads_at_this_size(photo_folder: Path) -> None:
    """The code runs, and gives a dataset of the size and the bytes that were shown."""
    some = {"classes": ["cat", "owl"], "on_unknown": "skip"}
    explorer = gp.explore_plan(photo_folder, device="cpu", **some)
    explorer.size.value = 24
    explorer.kept.value = "float32"
    assert explorer.code == (
        "import torch\n"
        "from torchvision.transforms import v2\n"
        "import gpupreload as gp\n"
        "transform = v2.Compose([\n"
        "    v2.Resize(24),\n"
        "    v2.CenterCrop(24),\n"
        "    # random steps go here, and run for each batch\n"
        "    v2.ToImage(),\n"
        "    v2.ToDtype(torch.float32, scale=True),\n"
        "])\n"
        f"train = gp.preload('{photo_folder}', transform, device='cpu', classes=['cat', 'owl'], "
        "on_unknown='skip')\n"
        "floats = train.as_tensor_dataset()"
    )
    names: dict[str, Any] = {}
    exec(explorer.code, names)
    images, labels = names["floats"].tensors
    assert images.shape == (8, 3, 24, 24)
    assert explorer.need.float_bytes == images.nbytes + labels.nbytes
    assert explorer.need.store_bytes == names["train"].images.nbytes + labels.nbytes


@pytest.mark.parametrize("size", [16, 112, 300])
def test_the_strip_shows_what_is_left(size: int) -> None:
    """A photo at 16 pixels is enlarged to visible squares of one colour, at 112 it is itself."""
    noise = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    pixels = strip([Image.fromarray(noise)] * 2, size)
    assert pixels.shape == (112, 228, 3)
    squares = pixels[:, :112].reshape(16, 7, 16, 7, 3)
    assert (squares == squares[:, :1, :, :1]).all() == (size == 16)
    if size == 112:
        assert np.array_equal(pixels[:, 116:], noise)


def test_a_photo_of_each_class(photo_folder: Path) -> None:
    """The strip has the first photo of each class, or some items where there are no classes."""
    photos, names = some_photos(open_source(photo_folder))
    assert names == ["cat", "dog", "owl"]
    assert [photo.size for photo in photos] == [
        Image.open(photo_folder / name / file).size
        for name, file in (("cat", "a.jpg"), ("dog", "a.png"), ("owl", "a.jpg"))
    ]
    tensors = TensorDataset(torch.zeros(30, 1, 20, 600, dtype=torch.uint8), torch.arange(30))
    photos, names = some_photos(open_source(tensors))
    assert names == [f"item {k}" for k in (0, 3, 6, 9, 12, 15, 18, 21)]
    assert {(photo.size, photo.mode) for photo in photos} == {((512, 17), "RGB")}


@pytest.fixture
def explorer(photo_folder: Path) -> PlanExplorer:
    """A new widget."""
    return gp.explore_plan(photo_folder, device="cpu")


def test_what_is_set_is_shown(explorer: PlanExplorer) -> None:
    """The verdict, the bar, the photos and the code follow each control."""
    shown = [explorer._status, explorer._bar, explorer._strip]
    before = [widget.value for widget in shown]
    explorer.size.value = 32
    assert all(widget.value != old for widget, old in zip(shown, before, strict=True))
    assert explorer.need.verdict.replace("'", "&#x27;") in explorer._status.value
    assert 'alt="photos at 32×32 pixels: cat, dog, owl"' in explorer._strip.value
    explorer.margin.value = 30
    assert explorer.need.margin == 0.3
    assert "left: 70.00%" in explorer._bar.value


def test_where_no_widget_lives_there_is_a_picture(explorer: PlanExplorer) -> None:
    """The bundle has the verdict, the bar, the legend and the strip as a PNG, and a short text."""
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == "PlanExplorer of 12 images"
    picture = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"])))
    width = 3 * 112 + 2 * 4
    pixels = np.asarray(picture)
    assert pixels.shape[1] == width
    assert np.array_equal(pixels[-112:], explorer._pixels)
    blue = (pixels == (25, 118, 210)).all(-1)  # images as uint8: in the bar, and in the legend
    rows = np.flatnonzero(blue.any(axis=1))
    assert len(rows) == 22 + 10
    bar = pixels[rows[10]]
    taken = explorer.need.plan.total_bytes - explorer.need.plan.free_bytes
    grey = (bar == (158, 158, 158)).all(-1).mean()
    assert abs(grey - taken / explorer.need.plan.total_bytes) < 0.02
    explorer.close()


def test_data_without_known_classes() -> None:
    """Where only reading would tell the classes, there is no histogram, and that is said."""
    explorer = gp.explore_plan(FakeData(8, (3, 40, 40)), device="cpu")
    assert "gp.preload(data, transform, device='cpu')" in explorer.code
    classes = [child.value for child in explorer.widget.children if hasattr(child, "value")]
    assert "The classes are not known before loading." in classes


def test_data_with_a_transform_is_refused(photo_folder: Path) -> None:
    """A transform of the data's own fixes a size, so that there is nothing to choose."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.explore_plan(ImageFolder(photo_folder, v2.Resize(20)))
    assert str(caught.value) == (
        f"data is {open_source(photo_folder).name} with a transform of its own, but "
        "gpupreload.explore_plan tries out sizes. Pass the dataset without its transform, or the "
        "path of its folder."
    )


def test_without_ipywidgets_the_message_says_what_to_install(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widgets are optional; exploring without them is a clear error."""
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError) as caught:
        gp.explore_plan(photo_folder)
    assert str(caught.value) == (
        "gpupreload.explore_plan needs ipywidgets, which is not installed: "
        "pip install 'gpupreload[lab]'"
    )
