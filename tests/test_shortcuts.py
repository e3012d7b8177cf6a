"""Steps done to PIL images at less cost: with torchvision's own pixels, every one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torchvision.transforms as v1
import zoo
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

from gpupreload.shortcuts import CropOfPixels, ResizeBySize, shortened

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
