"""`decode="fast"`: pixels within two levels, and everything else as ever."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import zoo
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode, v2

import gpupreload as gp
from gpupreload import decode
from gpupreload.fast import TensorResize, pixels_of_jpeg, quickened


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of several sizes, in JPEG, PNG and grey JPEG, some plain and some not."""
    root = tmp_path_factory.mktemp("photos")
    (root / "a").mkdir()
    for k in range(12):
        rgb = zoo.picture(width=90 + 7 * k, height=120 - 5 * k)
        rgb.save(root / "a" / f"{k}.jpg", quality=90)
        rgb.save(root / "a" / f"{k}.png")
        rgb.convert("L").save(root / "a" / f"{k}-grey.jpg")
        rgb.save(root / "a" / f"{k}-turned.jpg", exif=zoo.exif(6))
    return root


def both(photos: Any, transform: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The pixels, exact and fast, as int32."""
    settings = {"device": "cpu", "progress": False} | options
    exact = gp.preload(photos, transform, **settings)
    fast = gp.preload(photos, transform, decode="fast", **settings)
    assert exact.samples == fast.samples
    assert exact.targets == fast.targets
    assert exact.images is not fast.images
    return exact.images.int(), fast.images.int()


@pytest.mark.parametrize("as_folder", [True, False])
@pytest.mark.parametrize("size", [32, (40, 24), 200], ids=str)
@pytest.mark.parametrize("resize", [v1.Resize, v2.Resize])
def test_pixels_are_within_two_levels(
    photos: Path, resize: Any, size: Any, as_folder: bool
) -> None:
    """Shrunk and enlarged, a pixel differs by at most 2 of 255, and by far less on average."""
    crop = v2.CenterCrop(size if isinstance(size, tuple) else (size, size))
    data = photos if as_folder else ImageFolder(photos)
    exact, fast = both(data, v2.Compose([resize(size), crop]))
    difference = (exact - fast).abs()
    assert 0 < difference.max() <= 2
    assert difference.float().mean() < 0.25


@pytest.mark.parametrize(
    "step",
    [
        v2.Resize(32, interpolation=InterpolationMode.BICUBIC),
        v2.Resize(32, antialias=False),
        v1.Resize(31, max_size=60),
    ],
    ids=["bicubic", "antialias", "max_size"],
)
def test_settings_of_the_step_count(photos: Path, step: Any) -> None:
    """Interpolation and max_size are the step's; PIL images are antialiased in any case."""
    exact, fast = both(photos, v2.Compose([step, v2.CenterCrop(32)]))
    assert 0 < (exact - fast).abs().max() <= 2


def test_one_channel_and_orientation(photos: Path) -> None:
    """The other options of reading hold for fast reading too."""
    for options in ({"mode": "L"}, {"exif_orientation": True}):
        steps = v2.Compose([v2.Resize(32), v2.CenterCrop(32)])
        exact, fast = both(photos, steps, **options)
        assert 0 < (exact - fast).abs().max() <= 2


def test_a_random_crop_of_several_sizes(photos: Path) -> None:
    """The step that store_size inserts is fast too."""
    exact, fast = both(photos, v2.RandomCrop(20), store_size=(30, 24))
    assert 0 < (exact - fast).abs().max() <= 2


@pytest.mark.parametrize(
    "steps",
    [[v2.CenterCrop(32)], [v2.Resize((32, 32), interpolation=InterpolationMode.NEAREST)]],
    ids=["crop", "nearest"],
)
def test_without_a_smooth_resize_nothing_changes(photos: Path, steps: list[Any]) -> None:
    """Only a Resize with bilinear or bicubic interpolation gives other pixels."""
    exact, fast = both(photos, v2.Compose(steps))
    assert torch.equal(exact, fast)


def test_a_resize_that_comes_later_is_fast_too(photos: Path) -> None:
    """A Resize after other steps is given a PIL image, and gives one."""
    exact, fast = both(photos, v2.Compose([v2.CenterCrop(60), v2.Resize((17, 23)), v2.Pad(1)]))
    assert 0 < (exact - fast).abs().max() <= 2


def test_damaged_files_are_named_as_ever(photos: Path, tmp_path: Path) -> None:
    """What cannot be read is the same error as in exact reading."""
    (tmp_path / "a").mkdir()
    data = (photos / "a" / "0.jpg").read_bytes()
    (tmp_path / "a" / "cut.jpg").write_bytes(data[: len(data) // 2])
    (tmp_path / "a" / "whole.jpg").write_bytes(data)
    said = []
    for how in ("exact", "fast"):
        with pytest.raises(gp.UnreadableError) as raised:
            gp.preload(tmp_path, v2.Resize((8, 8)), device="cpu", progress=False, decode=how)
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_pixels_of_a_jpeg_are_pillows(tmp_path: Path) -> None:
    """The decoder gives what the exact reading gives, or nothing at all, for every JPEG."""
    decoded = 0
    files = zoo.jpegs() | {k: v for f in zoo.damaged().values() for k, v in f.items()}
    for name, data in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        pixels = pixels_of_jpeg(str(path))
        if pixels is not None:
            decoded += 1
            assert np.array_equal(pixels, np.asarray(decode.read(path))), name
            assert pixels.flags.writeable
    assert decoded > 9
    assert pixels_of_jpeg(str(tmp_path)) is None
    assert pixels_of_jpeg(str(tmp_path / "nothing.jpg")) is None


def test_what_is_no_image_goes_to_the_step() -> None:
    """A fast step is the step itself for anything but a PIL image of 8 bits a channel."""
    step = v2.Resize((4, 4))
    tensor = torch.arange(192, dtype=torch.uint8).reshape(3, 8, 8)
    assert torch.equal(TensorResize(step)(tensor), step(tensor))
    rgba = zoo.picture("RGBA")
    assert TensorResize(step)(rgba).tobytes() == step(rgba).tobytes()
    assert quickened(abs) is abs


def test_metadata_go_on(tmp_path: Path) -> None:
    """What steps may look for beside the pixels is there after a fast Resize."""
    path = tmp_path / "a.png"
    zoo.picture().save(path, dpi=(72, 72))
    image = decode.read(path)
    assert TensorResize(v2.Resize((4, 4)))(image).info == v2.Resize((4, 4))(image).info


def test_the_decoder_is_loaded_on_call() -> None:
    """Nobody pays for simplejpeg who does not ask for it; test_project.py tests the import."""
    assert "simplejpeg" in sys.modules or pixels_of_jpeg(__file__) is None
