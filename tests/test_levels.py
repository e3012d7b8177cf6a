"""The float steps after the store equal torchvision's, bit for bit."""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor

from gpupreload.functional.levels import Levels

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CHAINS = {
    "v1 ToTensor": [v1.ToTensor()],
    "v1 ToTensor, Normalize": [v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "v1 in place": [v1.ToTensor(), v1.Normalize(MEAN, STD, inplace=True)],
    "v1 ConvertImageDtype": [
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float32),
        v1.Normalize(MEAN, STD),
    ],
    "v2 ToDtype": [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)],
    "v2 unscaled": [v2.ToImage(), v2.ToDtype(torch.float32)],
    "v2 to half": [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
    "v2 to pure": [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()],
    "normalised twice": [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.Normalize(STD, MEAN)],
}


@pytest.fixture
def images() -> Tensor:
    """Five images of odd sides, of all levels."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (5, 3, 7, 11), dtype=torch.uint8, generator=generator)


def one_by_one(steps: list[object], images: Tensor) -> Tensor:
    """What torchvision makes of each image alone, from a PIL image."""
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    transform = v1.Compose(steps)
    return torch.stack([transform(picture) for picture in pictures]).as_subclass(Tensor)


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_a_batch_equals_torchvision_on_each_image(steps: list[object], images: Tensor) -> None:
    """A chain on a batch gives torchvision's floats, and leaves the batch as it was."""
    before = images.clone()
    expected = one_by_one(steps, images)
    assert torch.equal(Levels(steps, channels=3)(images), expected)
    assert torch.equal(images, before)


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_writing_in_place_equals_torchvision(
    steps: list[object], memory_format: torch.memory_format, images: Tensor
) -> None:
    """Arithmetic in place gives torchvision's floats, in either memory format."""
    levels = Levels(steps, channels=3)
    out = torch.empty(images.shape, dtype=levels.dtype, memory_format=memory_format)
    assert levels.write(images, out) is out
    assert torch.equal(out, one_by_one(steps, images))
    assert out.is_contiguous(memory_format=memory_format)


def test_all_chains_that_can_be_are_done_in_place() -> None:
    """Only a chain that ends in another dtype needs the steps themselves."""
    in_place = {name: Levels(steps, channels=3).in_place for name, steps in CHAINS.items()}
    assert [name for name, can in in_place.items() if not can] == []


def test_a_chain_that_makes_no_floats_leaves_bytes_alone(images: Tensor) -> None:
    """ToDtype(uint8) on uint8 does nothing, and is not taken for a scaling."""
    levels = Levels([v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)], channels=3)
    assert levels.dtype == torch.uint8
    assert torch.equal(levels(images), images)


def test_another_dtype_is_rounded_once(images: Tensor) -> None:
    """bfloat16 out of a float32 chain is the float32 result, rounded."""
    steps = CHAINS["v2 ToDtype"]
    out = torch.empty(images.shape, dtype=torch.bfloat16)
    Levels(steps, channels=3).write(images, out)
    assert torch.equal(out, one_by_one(steps, images).to(torch.bfloat16))


def test_mean_and_std_are_those_of_the_last_normalize() -> None:
    """What pictures are un-normalised with is what the chain's Normalize was given."""
    levels = Levels(CHAINS["v1 ToTensor, Normalize"], channels=3)
    mean, std = levels.normalization
    assert mean == pytest.approx(MEAN)
    assert std == pytest.approx(STD)
    assert Levels([v1.ToTensor()], channels=3).normalization is None


def test_a_subclass_is_not_taken_for_torchvisions_step(images: Tensor) -> None:
    """Only torchvision's own classes are known to be pixelwise: a subclass may do anything."""
    from gpupreload.functional.pixelwise import is_pixelwise

    class Mine(v2.Normalize):
        pass

    assert is_pixelwise(v2.Normalize(MEAN, STD))
    assert not is_pixelwise(Mine(MEAN, STD))
