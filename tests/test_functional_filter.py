"""Sharpness, blur and noise, beyond the law of the rows."""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import filter


def noisy(n: int = 4, height: int = 9, width: int = 12) -> Tensor:
    """A uint8 batch of noise."""
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8)


def test_sharpness_leaves_the_outermost_pixels() -> None:
    """The border has no eight neighbours, and stays as it is."""
    images = noisy()
    found = filter.adjust_sharpness(images, torch.full((4,), 3.0))
    inside = torch.zeros(9, 12, dtype=torch.bool)
    inside[1:-1, 1:-1] = True
    assert torch.equal(found[..., ~inside], images[..., ~inside])
    assert not torch.equal(found[..., inside], images[..., inside])


@pytest.mark.parametrize(("height", "width"), [(2, 12), (9, 1)])
def test_images_without_an_inside_are_not_sharpened(height: int, width: int) -> None:
    """Two pixels' height or width are all border: a copy comes out."""
    images = noisy(height=height, width=width)
    found = filter.adjust_sharpness(images, torch.full((4,), 3.0))
    assert torch.equal(found, images)
    assert found.data_ptr() != images.data_ptr()


def test_a_softened_dot_is_spread_over_its_neighbours() -> None:
    """Of a dot of 130, factor 0 leaves 5/13 in place and gives each neighbour 1/13."""
    dot = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    dot[0, 0, 2, 2] = 130
    soft = filter.adjust_sharpness(dot, torch.zeros(1))[0, 0]
    assert soft[1:-1, 1:-1].tolist() == [[10, 10, 10], [10, 50, 10], [10, 10, 10]]


def test_a_blurred_dot_keeps_its_light() -> None:
    """The weights add up to 1, in each row with its own width."""
    dot = torch.zeros(3, 1, 41, 41)
    dot[:, :, 20, 20] = 1
    blurred = filter.gaussian_blur(dot, (21, 11), torch.tensor([0.3, 1.0, 2.0]))
    assert torch.allclose(blurred.sum((1, 2, 3)), torch.ones(3))
    assert blurred[:, 0, 20, 20].diff().max() < 0


def test_width_and_height_of_a_blur_are_apart() -> None:
    """`kernel_size` is (width, height), and sigma [N, 2] goes with it."""
    images = noisy()
    sigma = torch.tensor([[2.0, 0.5]] * 4)
    found = filter.gaussian_blur(images, (7, 3), sigma)
    expected = F.gaussian_blur(images, [7, 3], [2.0, 0.5])
    assert (found.int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_noise_is_added_as_torchvision_adds_what_it_draws(dtype: torch.dtype, clip: bool) -> None:
    """With the noise that torchvision draws for image i, row i is torchvision's, bit for bit."""
    images = noisy(5) if dtype == torch.uint8 else noisy(5) / 255
    mean, sigma = torch.rand(5, dtype=torch.float64) - 0.5, torch.rand(5, dtype=torch.float64)
    drawn, expected = [], []
    for i, image in enumerate(images):
        torch.manual_seed(i)
        drawn.append(torch.randn_like(image, dtype=torch.float32))
        torch.manual_seed(i)
        expected.append(F.gaussian_noise(image, mean[i].item(), sigma[i].item(), clip))
    found = filter.gaussian_noise(images, torch.stack(drawn), mean, sigma, clip=clip)
    assert torch.equal(found, torch.stack(expected))


def test_rows_outside_the_mask_get_no_noise() -> None:
    """Masked rows get the noise of their own place in the batch."""
    images, noise, mask = noisy(), torch.randn(4, 3, 9, 12), torch.tensor([True, False] * 2)
    amounts = torch.zeros(4), torch.full((4,), 0.2)
    found = filter.gaussian_noise(images, noise, *amounts, mask=mask)
    everywhere = filter.gaussian_noise(images, noise, *amounts)
    assert torch.equal(found, torch.where(mask.view(4, 1, 1, 1), everywhere, images))


def test_noise_keeps_the_layout_and_leaves_its_inputs() -> None:
    """Neither the images nor the noise change; channels_last stays channels_last."""
    images = noisy().contiguous(memory_format=torch.channels_last)
    noise = torch.randn(images.shape)
    kept = images.clone(), noise.clone()
    found = filter.gaussian_noise(images, noise, torch.zeros(4), torch.ones(4))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, kept[0])
    assert torch.equal(noise, kept[1])


def test_kernels_of_even_size_have_no_middle() -> None:
    """A kernel's sizes are odd."""
    with pytest.raises(ArgumentError) as caught:
        filter.gaussian_blur(noisy(), (4, 3), torch.ones(4))
    assert str(caught.value) == (
        "kernel_size is (4, 3); expected two odd numbers of pixels, width and height, "
        "such as (3, 3)."
    )


def test_kernels_reach_no_further_than_the_image() -> None:
    """An image can be mirrored once at its border, and not past its other side."""
    with pytest.raises(ArgumentError) as caught:
        filter.gaussian_blur(noisy(), (3, 19), torch.ones(4))
    assert str(caught.value) == (
        "kernel_size is (3, 19) (width, height), too large for images of 12×9 pixels: half of it "
        "must be less than the image, which is mirrored at its borders. Choose a smaller kernel."
    )


def test_noise_has_one_number_for_each_value() -> None:
    """The noise has the images' shape."""
    with pytest.raises(ArgumentError) as caught:
        filter.gaussian_noise(noisy(), torch.zeros(4, 1, 9, 12), torch.zeros(4), torch.ones(4))
    assert str(caught.value) == (
        "noise must have the shape of images, (4, 3, 9, 12), got (4, 1, 9, 12). "
        "Draw one number for each value of the batch."
    )
