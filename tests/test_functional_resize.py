"""Boxes resized with a box for each sample, against torchvision image by image.

Tolerances. On the CPU the result is torchvision's to the last bit. With the matrix products of
accelerators and of `torch.compile`, uint8 values may differ by one level, and of 10,000 values at
most one may (measured: none of 3 million); floats may differ by 1e-5.
"""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor
from torchvision.transforms import InterpolationMode

from gpupreload.errors import ArgumentError
from gpupreload.functional import resize
from gpupreload.functional.resize import resized_crop
from gpupreload.functional.weights import resampling_weights

N = 7
SHAPES = ((3, 13, 17), (1, 20, 9), (4, 33, 32), (5, 12, 12))
MODES = ("nearest", "nearest-exact", "bilinear", "bicubic")
DTYPES = (torch.uint8, torch.float32, torch.float16, torch.bfloat16, torch.float64)


def batch(dtype: torch.dtype, shape: tuple[int, int, int], n: int = N) -> Tensor:
    """Random images, the same for the same shape."""
    generator = torch.Generator().manual_seed(sum(shape))
    images = torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8)
    return images if dtype == torch.uint8 else (images.double() / 255).to(dtype)


def boxes_for(images: Tensor) -> Tensor:
    """Random boxes (top, left, height, width) inside the images; box 0 is the whole image."""
    generator = torch.Generator().manual_seed(1)
    h, w = images.shape[2:]
    share = torch.rand(len(images), 4, generator=generator)
    height, width = (share[:, 2] * h).long() + 1, (share[:, 3] * w).long() + 1
    top, left = ((share[:, 0] * (h - height + 1)).long(), (share[:, 1] * (w - width + 1)).long())
    boxes = torch.stack([top, left, height, width], 1)
    boxes[0] = torch.tensor([0, 0, h, w])
    return boxes


def in_a_loop(
    images: Tensor, boxes: Tensor, size: tuple[int, int], mode: str, antialias: bool
) -> Tensor:
    """What torchvision's resized_crop makes of each image alone."""
    how = {"interpolation": InterpolationMode(mode), "antialias": antialias}
    return torch.stack(
        [
            F.resized_crop(image, *box, list(size), **how)
            for image, box in zip(images, boxes.tolist(), strict=True)
        ]
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_row_is_resized_from_its_own_box(
    dtype: torch.dtype, shape: tuple[int, int, int], mode: str
) -> None:
    """Smaller, larger and equal sizes, with antialias and without, equal torchvision's exactly."""
    images = batch(dtype, shape)
    boxes = boxes_for(images)
    for size in ((5, 6), shape[1:], (40, 31)):
        for antialias in (True, False):
            resized = resized_crop(
                images, *boxes.unbind(1), size, interpolation=mode, antialias=antialias
            )
            assert torch.equal(resized, in_a_loop(images, boxes, size, mode, antialias))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_pixel_is_torchvisions_for_every_length(mode: str, dtype: torch.dtype) -> None:
    """Boxes of 1 to 64 pixels fall on torchvision's pixels, rounding errors included."""
    images = torch.arange(64).to(dtype).expand(64, 1, 1, 64)
    zero, one, width = torch.zeros(64).long(), torch.ones(64).long(), torch.arange(1, 65)
    boxes = torch.stack([zero, zero, one, width], 1)
    for n_out in (3, 7, 10, 24, 41, 49, 63, 90):
        resized = resized_crop(images, *boxes.unbind(1), (1, n_out), interpolation=mode)
        assert torch.equal(resized, in_a_loop(images, boxes, (1, n_out), mode, True))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("mode", MODES)
def test_channels_last_images_are_resized_alike(mode: str, dtype: torch.dtype) -> None:
    """The layout changes nothing about the values, within the last bits of floats."""
    images = batch(dtype, (3, 13, 17))
    boxes = boxes_for(images)
    resized = resized_crop(
        images.contiguous(memory_format=torch.channels_last),
        *boxes.unbind(1),
        (9, 21),
        interpolation=mode,
    )
    expected = in_a_loop(images, boxes, (9, 21), mode, True)
    atol = 0 if dtype == torch.uint8 else 1e-6
    torch.testing.assert_close(resized, expected, rtol=0, atol=atol)


def test_many_rows_in_threads_equal_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads share the rows, each row is its own."""
    images = batch(torch.uint8, (3, 13, 17), n=61)
    boxes = boxes_for(images)
    expected = in_a_loop(images, boxes, (16, 16), "bilinear", True)
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(resized_crop(images, *boxes.unbind(1), (16, 16)), expected)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_matrix_products_stay_within_one_level(
    dtype: torch.dtype, shape: tuple[int, int, int], mode: str, antialias: bool
) -> None:
    """The way of accelerators: within a level, at most 1 value in 10,000; floats within 1e-5."""
    images = batch(dtype, shape, n=20)
    boxes = boxes_for(images)
    for size in ((5, 6), shape[1:], (40, 31)):
        by_matrices = resize.resized_crop_by_matrices(
            images, boxes, size, mode=mode, antialias=antialias
        )
        expected = in_a_loop(images, boxes, size, mode, antialias)
        apart = (by_matrices.double() - expected.double()).abs()
        assert apart.max() <= (1 if dtype == torch.uint8 else 1e-5)
        assert dtype != torch.uint8 or (apart > 0).double().mean() <= 1e-4


def test_weights_of_a_halved_line_are_those_of_a_triangle() -> None:
    """Four pixels to two: a triangle over four pixels, cut off at the edge, with sum 1."""
    zero, four = torch.zeros(1, dtype=torch.float64), torch.full((1,), 4, dtype=torch.float64)
    weights = resampling_weights(zero, four, 4, 2, cubic=False, antialias=True)[0]
    expected = torch.tensor([[3, 3, 1, 0], [0, 1, 3, 3]], dtype=torch.float64) / 7
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("cubic", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
def test_weights_stay_inside_the_box_and_sum_to_one(antialias: bool, cubic: bool) -> None:
    """No weight falls outside a box, and each output pixel's weights sum to 1."""
    start, length = torch.tensor([0.0, 3.0, 9.0]), torch.tensor([10.0, 4.0, 1.0])
    weights = resampling_weights(start, length, 10, 6, cubic=cubic, antialias=antialias)
    pixel = torch.arange(10)
    inside = (pixel >= start[:, None]) & (pixel < (start + length)[:, None])
    assert not weights.masked_fill(inside[:, None], 0).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 6))


def test_a_cpu_without_fast_kernels_resizes_as_torchvision_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where torchvision turns uint8 into floats to resize them, so does this."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    images = batch(torch.uint8, (3, 13, 17))
    boxes = boxes_for(images)
    for mode in ("bilinear", "bicubic"):
        resized = resized_crop(images, *boxes.unbind(1), (9, 21), interpolation=mode)
        assert torch.equal(resized, in_a_loop(images, boxes, (9, 21), mode, True))


def test_a_box_outside_its_image_is_named() -> None:
    """A box that reaches outside is refused with its row, itself and the image's size."""
    images = batch(torch.uint8, (3, 13, 17))
    boxes = boxes_for(images)
    boxes[2] = torch.tensor([9, 1, 5, 4])
    with pytest.raises(ArgumentError) as caught:
        resized_crop(images, *boxes.unbind(1), (8, 8))
    assert str(caught.value) == (
        "the box of image 2 (top 9, left 1, height 5, width 4) reaches outside its 13×17 pixels; "
        "expected at least one line and column, all of them inside. Pad the images first, or cut "
        "the box at the edges."
    )


def test_an_unknown_interpolation_names_the_known() -> None:
    """An interpolation that tensors do not have is refused."""
    images = batch(torch.uint8, (3, 13, 17))
    with pytest.raises(ArgumentError) as caught:
        resized_crop(images, *boxes_for(images).unbind(1), (8, 8), interpolation="lanczos")
    assert str(caught.value) == (
        "interpolation must be one of nearest, nearest-exact, bilinear, bicubic (torchvision has "
        "no other for tensors here), got 'lanczos'."
    )
