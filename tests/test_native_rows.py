"""Native steps on batches: torchvision's own transforms on each image alone are the oracle."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from native_examples import EXAMPLES, JITTER, Example, expected, keys, native
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload.errors import TransformError
from gpupreload.native.step import Native, Params

N = 13
SIZE_OF = {1: (31, 19), 3: (23, 30)}
DTYPES = [torch.uint8, torch.float32]


def batch(channels: int, size: tuple[int, int], dtype: torch.dtype, n: int = N) -> Tensor:
    """Smooth images with some noise: 6×5 random colours, enlarged."""
    generator = torch.Generator().manual_seed(0)
    colours = torch.rand((n, channels, 6, 5), generator=generator)
    smooth = torch.nn.functional.interpolate(colours, size, mode="bicubic")
    noise = torch.rand(smooth.shape, generator=generator) * 0.1
    images = (smooth + noise).clamp(0, 1)
    return (images if dtype.is_floating_point else images * 255).to(dtype)


def shape_of(images: Tensor) -> tuple[int, int, int]:
    """(C, H, W)."""
    _, c, h, w = images.shape
    return c, h, w


LAW = [
    pytest.param(example, channels, dtype, id=f"{example} {channels} {dtype}")
    for example in EXAMPLES
    for channels in example.channels
    for dtype in DTYPES
]


@pytest.mark.parametrize(("example", "channels", "dtype"), LAW)
def test_each_row_is_what_torchvision_gives_its_image_alone(
    example: Example, channels: int, dtype: torch.dtype
) -> None:
    """Row i is torchvision's result for image i with the parameters drawn for it."""
    images = batch(channels, SIZE_OF[channels], dtype)
    step = native(example.make())
    params = step.draw(keys(N), shape_of(images))
    found = step.apply(images, params)
    wanted = expected(example, images, step.in_full(params, shape_of(images)))
    assert (found.shape, found.dtype) == (wanted.shape, dtype)
    apart = (found.double() - wanted.double()).abs()
    if dtype == torch.uint8:
        assert apart.max() <= (1 if example.share else 0)
        assert (apart > 0).double().mean() <= example.share
    else:
        assert apart.max() <= example.apart


def run(step: Native, images: Tensor, n: int = N) -> tuple[Params, Tensor]:
    """The parameters of the first n samples, and what they make of the first n images."""
    params = step.draw(keys(n), shape_of(images))
    return params, step.apply(images[:n], params)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_draw_depends_on_the_sample_alone(example: Example) -> None:
    """Samples drawn together, in another order, or one by one have the same parameters."""
    step, shape = native(example.make()), (3, 23, 30)
    together = step.draw(keys(N), shape)
    order = torch.tensor([4, 0, 11])
    some = step.draw(keys(N)[order], shape)
    alone = [step.draw(keys(N)[i : i + 1], shape) for i in order.tolist()]
    for name, values in together.items():
        rows = values[order]
        torch.testing.assert_close(some[name], rows, rtol=0, atol=0, equal_nan=True)
        one_by_one = torch.cat([params[name] for params in alone])
        torch.testing.assert_close(one_by_one, rows, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_image_depends_on_its_own_sample_alone(example: Example) -> None:
    """An image comes out the same, to the last bit, whatever batch it is in."""
    images = batch(3, (23, 30), torch.float32)
    step = native(example.make())
    params, together = run(step, images)
    for rows in (slice(5, 6), slice(2, 9)):
        found = step.apply(images[rows], {name: values[rows] for name, values in params.items()})
        assert torch.equal(found, together[rows])


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_equal_images_come_out_different(example: Example) -> None:
    """Of 64 copies of one image, each has a draw of its own."""
    # dull, for RandomAutocontrast to have something to do
    copies = (batch(3, (23, 30), torch.uint8, n=1) // 2).repeat(64, 1, 1, 1)
    _, found = run(native(example.make()), copies, n=64)
    assert len(found.flatten(1).unique(dim=0)) >= example.distinct


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_input_is_neither_written_nor_shared(example: Example, dtype: torch.dtype) -> None:
    """The result is new memory of the input's layout, also where no sample is changed."""
    images = batch(3, (23, 30), dtype)
    step = native(example.make())
    params, wanted = run(step, images)
    for layout in (torch.contiguous_format, torch.channels_last):
        given = images.clone(memory_format=layout)
        found = step.apply(given, params)
        assert torch.equal(given, images)
        assert found.is_contiguous(memory_format=layout)
        assert found.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
        torch.testing.assert_close(found, wanted, rtol=0, atol=example.apart)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_no_image_and_one_image_are_batches_too(example: Example) -> None:
    """A batch of none gives a batch of none, in the right shape."""
    images = batch(3, (23, 30), torch.uint8)
    step = native(example.make())
    for n in (0, 1):
        _, found = run(step, images, n)
        assert (n, *step.output_shape((3, 23, 30))) == found.shape
        assert found.dtype == torch.uint8


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_global_generators_are_left_alone(example: Example) -> None:
    """Neither drawing nor applying reads or moves torch's, Python's or NumPy's generator."""

    def state() -> str:
        return repr((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()))

    images, before = batch(3, (23, 30), torch.uint8), state()
    step = native(example.make())
    _, first = run(step, images)
    assert state() == before
    torch.manual_seed(1)
    assert torch.equal(run(step, images)[1], first)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_floats_keep_their_type(dtype: torch.dtype) -> None:
    """All steps take every float type, and give it back."""
    images = batch(3, (23, 30), dtype)
    for example in EXAMPLES:
        _, found = run(native(example.make()), images)
        assert found.dtype == dtype


def test_seeds_differ() -> None:
    """Another seed gives other draws."""
    for example in EXAMPLES:
        step = native(example.make())
        one, other = (step.draw(keys(64, seed), (3, 23, 30)) for seed in (0, 1))
        differ = any(not torch.equal(one[name], other[name]) for name in one)
        assert differ == (example.distinct > 1)


SAME_IN_BOTH = [
    *(("RandomCrop", {"size": 7}), ("RandomCrop", {"size": 7, "fill": (1, 2, 3)})),
    *(
        ("RandomResizedCrop", {"size": 7}),
        ("RandomResizedCrop", {"size": [5, 6], "antialias": None}),
    ),
    *(("RandomErasing", {"value": v, "p": 0.3}) for v in (0, 2.5, (1, 2, 3), [4], "random")),
    ("RandomRotation", {"degrees": 20, "center": (1, 2), "fill": (3, 4, 5)}),
    ("RandomAffine", {"degrees": (3, 9), "translate": (0.1, 0), "shear": 3, "fill": 2}),
    ("RandomAffine", {"degrees": 4, "scale": (1, 2), "shear": (1, 2, 3, 4)}),
    ("RandomPerspective", {"distortion_scale": 0.2, "p": 0.1}),
    ("ElasticTransform", {"alpha": 20.0, "sigma": [3.0, 4.0], "fill": (1, 2, 3)}),
    ("ColorJitter", {**JITTER, "hue": (-0.1, 0.3)}),
    *(("GaussianBlur", {"kernel_size": size}) for size in (3, (5, 7))),
    ("GaussianBlur", {"kernel_size": 3, "sigma": 2}),
]


@pytest.mark.parametrize(("name", "settings"), SAME_IN_BOTH)
def test_v1_and_v2_have_one_form(name: str, settings: dict[str, Any]) -> None:
    """Where v1 and v2 do the same, they are the same step here."""
    assert repr(native(getattr(v1, name)(**settings))).replace("at_once=False", "at_once=True") == (
        repr(native(getattr(v2, name)(**settings)))
    )


@pytest.mark.parametrize("settings", [{}, {"sharpness_factor": 3.0}, {"bits": 2}, {"threshold": 9}])
def test_v1_and_v2_have_one_form_of_what_is_made_or_not(settings: dict[str, Any]) -> None:
    """The same for flips, RandomInvert and their like, by what they do."""
    names = {
        (): ("HorizontalFlip", "VerticalFlip", "Grayscale", "Invert", "Autocontrast", "Equalize"),
        ("sharpness_factor",): ("AdjustSharpness",),
        ("bits",): ("Posterize",),
        ("threshold",): ("Solarize",),
    }
    images = batch(3, (23, 30), torch.uint8)
    for name in names[tuple(settings)]:
        steps = [native(getattr(m, f"Random{name}")(p=0.4, **settings)) for m in (v1, v2)]
        (params, found), (others, other) = (run(step, images) for step in steps)
        assert torch.equal(params["applied"], others["applied"])
        assert torch.equal(found, other)


def test_a_crop_larger_than_the_image_is_refused() -> None:
    """The message says both sizes and what to do."""
    step = native(v2.RandomCrop((30, 20), padding=2))
    with pytest.raises(TransformError) as error:
        step.draw(keys(2), (3, 23, 30))
    assert str(error.value) == (
        "RandomCrop cuts out 30×20 pixels (height × width), but the padded images have 27×34. "
        "Pass padding=... or pad_if_needed=True to it, or put a Resize before it."
    )


def test_a_threshold_above_white_is_refused() -> None:
    """A threshold meant for uint8 would change no float image at all."""
    step = native(v2.RandomSolarize(128))
    with pytest.raises(TransformError) as error:
        run(step, batch(3, (23, 30), torch.float32))
    assert str(error.value) == (
        "RandomSolarize(threshold=128) got torch.float32 images, whose values go up to 1. Give a "
        "threshold on their scale, or put the step before the one that makes floats."
    )


def test_an_image_smaller_than_the_smoothing_is_refused() -> None:
    """ElasticTransform mirrors images at their borders, which takes as many pixels."""
    step = native(v2.ElasticTransform(sigma=(1.0, 3.0)))
    with pytest.raises(TransformError) as error:
        step.draw(keys(2), (3, 12, 30))
    assert str(error.value) == (
        "ElasticTransform(sigma=3) smooths over 12 pixels to each side, and mirrors images of "
        "12×30 pixels at their borders, which must be larger than that. Give a smaller sigma."
    )
    assert step.draw(keys(2), (3, 13, 30))["noise_key"].shape == (2,)


def test_a_value_for_another_number_of_channels_is_refused() -> None:
    """RandomErasing takes one value, or one for each channel."""
    step = native(v2.RandomErasing(p=1, value=(1, 2, 3)))
    with pytest.raises(TransformError) as error:
        step.draw(keys(2), (4, 23, 30))
    assert str(error.value) == (
        "RandomErasing(value=(1.0, 2.0, 3.0)) writes 3 values, but the images have 4 channels. "
        "Give one number, or one for each channel."
    )


def test_corners_on_one_line_are_refused() -> None:
    """RandomPerspective has no solution for them; samples that are left alone do not matter."""
    with pytest.raises(TransformError) as error:
        native(v2.RandomPerspective(1.0, p=1.0)).draw(keys(200), (3, 7, 4))
    assert str(error.value) == (
        "RandomPerspective(distortion_scale=1) moved the corners of an image of 7×4 pixels "
        "(height × width) onto one line. Give a smaller distortion_scale."
    )
    params = native(v2.RandomPerspective(1.0, p=0.0)).draw(keys(200), (3, 7, 4))
    assert not params["applied"].any()
