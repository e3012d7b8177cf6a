"""Steps done to PIL images at less cost: with torchvision's own pixels, every one of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import zoo
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode, v2

import gpupreload as gp
from gpupreload import decode
from gpupreload.shortcuts import CropOfPixels, ResizeBySize, shortened

STEPS = v2.Compose([v2.Resize(16), v2.CenterCrop(16), v2.PILToTensor()])
PIL_FILTERS = [mode for mode in InterpolationMode if mode != InterpolationMode.NEAREST_EXACT]


def pixels(image: Any) -> list[Any]:
    """What an image or an array holds, with its shape."""
    found: list[Any] = np.asarray(image).tolist()
    return found


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "F"])
@pytest.mark.parametrize("filter", PIL_FILTERS, ids=lambda mode: mode.value)
@pytest.mark.parametrize("resize", [v1.Resize, v2.Resize])
def test_resizing_is_torchvisions(resize: Any, filter: InterpolationMode, mode: str) -> None:
    """The first image of a size and the next ones have the pixels of the step itself."""
    step = resize(16, interpolation=filter)
    quick = ResizeBySize(step)
    for size in ((23, 31), (40, 17), (16, 16), (9, 30)):
        for seed in (1, 2):
            image = zoo.picture("RGB", *size).rotate(90 * seed).resize(size).convert(mode)
            assert pixels(quick(image)) == pixels(step(image))


def test_settings_of_a_resize_count() -> None:
    """A pair of sides, and max_size, give the sizes that torchvision gives."""
    image = zoo.picture("RGB", 60, 20)
    for step in (v1.Resize((7, 12)), v2.Resize(12, max_size=30), v2.Resize(None, max_size=17)):
        quick = ResizeBySize(step)
        assert [quick(image).size for _ in range(2)] == [step(image).size] * 2


def test_what_is_no_image_is_the_steps_own() -> None:
    """A tensor is resized and cropped as the step itself does."""
    tensor = v2.functional.pil_to_tensor(zoo.picture("RGB", 30, 20))
    resize, crop = v2.Resize(10), v2.CenterCrop(8)
    assert ResizeBySize(resize)(tensor).equal(resize(tensor))
    assert CropOfPixels(crop)(tensor).equal(crop(tensor))


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("crop", [v1.CenterCrop, v2.CenterCrop])
def test_cropping_is_torchvisions(crop: Any, mode: str) -> None:
    """Odd and even margins, smaller images and far larger ones are cropped as by the step."""
    step = crop((12, 11))
    quick = CropOfPixels(step)
    for width, height in ((11, 12), (12, 13), (13, 15), (14, 14), (15, 13), (8, 30), (90, 80)):
        image = zoo.picture("RGB", width, height).convert(mode)
        assert pixels(quick(image)) == pixels(step(image))


def test_a_small_part_is_cropped_by_pillow() -> None:
    """Of an image more than twice as large as the crop, not all pixels are copied."""
    crop = CropOfPixels(v2.CenterCrop(10))
    assert isinstance(crop(Image.new("RGB", (14, 14))), np.ndarray)
    assert isinstance(crop(Image.new("RGB", (14, 15))), Image.Image)


def test_which_steps_are_shortened() -> None:
    """Torchvision's own Resize is, anywhere, and its CenterCrop at the end; nothing else is."""

    class Mine(v2.Resize):
        """A Resize of the caller's own."""

    odd = v1.CenterCrop(8)
    odd.size = 8  # torchvision takes a number here
    exact = v2.Resize(8, interpolation=InterpolationMode.NEAREST_EXACT)
    crop, mine, resize = v2.CenterCrop(8), Mine(8), v1.Resize(8)
    assert shortened([]) == []
    assert shortened([crop, mine, exact, abs]) == [crop, mine, exact, abs]
    assert shortened([odd]) == [odd]
    assert [type(step) for step in shortened([resize, crop])] == [ResizeBySize, CropOfPixels]


# --- files read ahead of their decoding


@pytest.mark.parametrize(("side", "n_ahead"), [(60, 40), (500, 0)])
def test_small_photos_are_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int, n_ahead: int
) -> None:
    """Each file of a set of small photos is read once before decoding, others only then."""
    names: list[str] = []
    small_file = decode.small_file

    def noting(path: str) -> bytes | None:
        names.append(path)
        return small_file(path)

    monkeypatch.setattr(decode, "small_file", noting)
    root = photos(tmp_path, side)
    with gp.preload(root, STEPS, device="cpu", progress=False, workers=3) as ours:
        assert len(names) == len(set(names)) == n_ahead
        assert ours.images.equal(torch.stack([image for image, _ in ImageFolder(root, STEPS)]))


def test_nobody_waits_long_for_a_slow_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one thread reads files that come slowly, others read theirs."""
    reading, both = threading.Semaphore(0), threading.Barrier(2)
    small_file = decode.small_file

    def slow(path: str) -> bytes | None:
        if reading.acquire(blocking=False):
            both.wait(60)  # broken where only one thread comes here
        return small_file(path)

    for _ in range(2):
        reading.release()
    monkeypatch.setattr(decode, "small_file", slow)
    gp.preload(photos(tmp_path, 30), STEPS, device="cpu", progress=False, workers=2).free()


def photos(root: Path, side: int) -> Path:
    """Forty photos, the last of which is as large as is said."""
    (root / "a").mkdir()
    for k in range(40):
        zoo.picture("RGB", 24, 20 + k % 5).rotate(9 * k).save(root / "a" / f"{k:02}.jpg")
    zoo.picture("RGB", side, side).save(root / "a" / "39.jpg")
    return root
