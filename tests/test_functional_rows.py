"""Colours, tones and filters: torchvision's functions on each image alone are the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.functional import chunks, color, filter, jitter, tone

# the first rows get each parameter's neutral value and its ends, the others anything between
N = 11
SIZE = (13, 18)
DTYPES = [torch.uint8, torch.float32]
KINDS = [
    *((3, SIZE, dtype) for dtype in (torch.uint8, torch.float32, torch.float64)),
    *((1, SIZE, dtype) for dtype in DTYPES),
    *((channels, (3, 5), torch.uint8) for channels in (1, 3)),
]


def spread(low: float, high: float, *special: float) -> Callable[[int], Tensor]:
    """A parameter of N rows: the special values first, then uniform draws."""

    def draw(top: int) -> Tensor:
        values = torch.rand(N, dtype=torch.float64) * (high - low) + low
        values[: len(special)] = torch.tensor(special)
        return values * (top if high == 1 else 1)

    return draw


def orders(top: int) -> Tensor:
    """An order of four changes for each row."""
    return torch.stack([torch.randperm(4) for _ in range(N)])


def factors(top: int) -> Tensor:
    """The factors of four changes for each row; the first row's are neutral."""
    drawn = [spread(0, 2, 1, 0)(top) for _ in range(3)]
    return torch.stack([*drawn, spread(-0.5, 0.5, 0, 0.5)(top)], dim=1)


def enabled(top: int) -> Tensor:
    """Which of four changes are made, for each row: none in the first, all in the second."""
    chosen = torch.rand(N, 4) < 0.6
    chosen[0], chosen[1] = False, True
    return chosen


CHANGES = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


def jitter_alone(image: Tensor, order: list[int], factors: list[float]) -> Tensor:
    """What `v2.ColorJitter` does to one image."""
    for change in order:
        image = CHANGES[change](image, factors[change])
    return image


def distort_alone(
    image: Tensor, factors: list[float], enabled: list[bool], first: bool, order: list[int]
) -> Tensor:
    """What `v2.RandomPhotometricDistort` does to one image."""
    for change in (0, 1, 2, 3) if first else (0, 2, 3, 1):
        if enabled[change]:
            image = CHANGES[change](image, factors[change])
    return F.permute_channels(image, order)


@dataclass(frozen=True)
class Case:
    """One kernel, its oracle for one image, and how to draw its parameters.

    Attributes:
        share: how many uint8 values may differ, by one level; 0 for equal.
        apart: how far floats may lie from torchvision's; 0 for equal in float32.
    """

    name: str
    ours: Callable[..., Tensor]
    alone: Callable[..., Tensor]
    params: tuple[Callable[[int], Tensor], ...] = ()
    share: float = 0.0
    apart: float = 0.0
    takes_mask: bool = True
    channels: tuple[int, ...] = (1, 3)

    def draw(self, top: int) -> list[Tensor]:
        """The parameters of N rows."""
        return [draw(top) for draw in self.params]

    def expected(self, images: Tensor, params: list[Tensor]) -> Tensor:
        """The oracle's rows."""
        rows = zip(images, *(p.tolist() for p in params), strict=True)
        return torch.stack([self.alone(image, *values) for image, *values in rows])


FACTOR = spread(0, 2, 1, 0, 2)
TURN = spread(-0.5, 0.5, 0, -0.5, 0.5, 1 / 6, -1 / 3)
CASES = [
    Case("brightness", color.adjust_brightness, F.adjust_brightness, (FACTOR,)),
    # the mean of a float image depends, in its last bit, on how the sum is split
    Case("contrast", color.adjust_contrast, F.adjust_contrast, (FACTOR,), apart=2e-7),
    Case("saturation", color.adjust_saturation, F.adjust_saturation, (FACTOR,)),
    Case("hue", color.adjust_hue, F.adjust_hue, (TURN,), share=2e-4, apart=2e-6),
    Case("grayscale", color.grayscale, lambda x: F.rgb_to_grayscale(x, x.shape[0])),
    Case("invert", tone.invert, F.invert),
    Case(
        "posterize",
        tone.posterize,
        F.posterize,
        (lambda top: torch.tensor([8, 0, 1, 2, 3, 4, 5, 6, 7, 4, 2]),),
    ),
    Case("solarize", tone.solarize, F.solarize, (spread(0, 1, 0, 1, 128 / 255),)),
    Case("autocontrast", tone.autocontrast, F.autocontrast),
    Case("equalize", tone.equalize, F.equalize),
    Case("sharpness", filter.adjust_sharpness, F.adjust_sharpness, (FACTOR,), apart=3e-7),
    Case(
        "blur",
        lambda x, sigma, mask=None: filter.gaussian_blur(x, (5, 3), sigma, mask),
        lambda x, sigma: F.gaussian_blur(x, [5, 3], sigma),
        (spread(0.1, 3, 0.1, 3),),
        share=1e-3,
        apart=1e-6,
    ),
    Case(
        "blur in two passes",
        lambda x, sigma, mask=None: filter.gaussian_blur(x, (9, 5), sigma, mask),
        lambda x, sigma: F.gaussian_blur(x, [9, 5], sigma),
        (lambda top: torch.rand(N, 2, dtype=torch.float64) + 0.5,),
        share=1e-3,
        apart=1e-6,
    ),
    Case(
        "permute channels",
        color.permute_channels,
        F.permute_channels,
        (lambda top: torch.stack([torch.randperm(3) for _ in range(N)]),),
        takes_mask=False,
        channels=(3,),
    ),
    Case(
        "jitter",
        jitter.color_jitter,
        jitter_alone,
        (orders, factors),
        # a level of difference before another change can become two
        share=1e-3,
        apart=1e-5,
        takes_mask=False,
    ),
    Case(
        "distort",
        jitter.photometric_distort,
        distort_alone,
        (
            factors,
            enabled,
            lambda top: torch.rand(N) < 0.5,
            lambda top: torch.stack([torch.randperm(3) for _ in range(N)]),
        ),
        share=1e-3,
        apart=1e-5,
        takes_mask=False,
        channels=(3,),
    ),
]
MASKED = [case for case in CASES if case.takes_mask]


def name(case: Any) -> str | None:
    """A case's name for pytest."""
    return case.name if isinstance(case, Case) else None


def batch(channels: int, size: tuple[int, int], dtype: torch.dtype = torch.uint8) -> Tensor:
    """Images of noise: bright, dull, with gray pixels, of one colour, and black and white."""
    images = torch.randint(0, 256, (N, channels, *size), dtype=torch.uint8)
    images[1::3] = images[1::3] // 4 + 90
    images[2::3, :, 1:] = images[2::3, :1, 1:]
    images[-1] = 77
    images[-2] = (images[-2] > 127) * 255
    return images if dtype == torch.uint8 else images.to(dtype) / 255


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same images and parameters each time."""
    torch.manual_seed(0)


@pytest.fixture(params=["in chunks of 2", "in one piece"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways through a batch: the CPU's, and that of accelerators and compiled graphs."""
    if request.param == "in one piece":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        monkeypatch.setattr(chunks, "_ELEMENTS_A_CHUNK", 2 * 3 * 13 * 18)
    return


def assert_close(found: Tensor, expected: Tensor, case: Case) -> None:
    """Hold a result against the oracle's, by the bounds that the case states."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    apart = (found.double() - expected.double()).abs()
    if found.dtype == torch.uint8:
        assert apart.max() <= (1 if case.share else 0)
        assert (apart > 0).double().mean() <= case.share
    else:
        assert apart.max() <= case.apart


LAW = [
    pytest.param(case, *kind, id=" ".join([case.name, *(str(k) for k in kind)]))
    for case in CASES
    for kind in KINDS
    if kind[0] in case.channels and (kind[1] == SIZE or case.name != "blur in two passes")
]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(("case", "channels", "size", "dtype"), LAW)
def test_each_row_is_what_torchvision_gives_its_image_alone(
    case: Case, channels: int, size: tuple[int, int], dtype: torch.dtype
) -> None:
    """Row i is torchvision's result for image i and parameter i, whatever the other rows are."""
    images = batch(channels, size, dtype)
    params = case.draw(255 if dtype == torch.uint8 else 1)
    assert_close(case.ours(images, *params), case.expected(images, params), case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_half_floats_lie_within_one_level_of_the_result_in_float32(
    case: Case, dtype: torch.dtype
) -> None:
    """float16 and bfloat16 are calculated in float32 and rounded once."""
    images, params = batch(3, SIZE, torch.float32).to(dtype), case.draw(1)
    found = case.ours(images, *params)
    assert found.dtype == dtype
    assert (found.float() - case.expected(images.float(), params)).abs().max() <= 1 / 255


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", MASKED, ids=name)
def test_rows_outside_the_mask_come_out_as_they_were(case: Case, dtype: torch.dtype) -> None:
    """Masked rows are changed as without a mask; all others are equal to the input."""
    images, params = batch(3, SIZE, dtype), case.draw(255 if dtype == torch.uint8 else 1)
    mask = torch.arange(N) % 3 != 1
    found, all_changed = case.ours(images, *params, mask=mask), case.ours(images, *params)
    assert torch.equal(found[~mask], images[~mask])
    assert torch.equal(found[mask], all_changed[mask])


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_layout_is_kept_and_the_input_left_alone(case: Case, dtype: torch.dtype) -> None:
    """The result is new memory in the input's layout, and the same in each; no input changes."""
    images, params = batch(3, SIZE, dtype), case.draw(255 if dtype == torch.uint8 else 1)
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        given = images.clone(memory_format=layout)
        results.append(case.ours(given, *params))
        assert results[-1].is_contiguous(memory_format=layout)
        assert results[-1].untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
        assert torch.equal(given, images)
    # the order of a sum depends on the layout, in the last bit
    torch.testing.assert_close(*results, rtol=0, atol=case.apart)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_no_image_and_one_image_are_batches_too(case: Case, n: int) -> None:
    """A batch of none gives a batch of none; a batch of one gives the first row."""
    images, params = batch(3, SIZE), case.draw(255)
    found = case.ours(images[:n], *(p[:n] for p in params))
    torch.testing.assert_close(found, case.ours(images, *params)[:n], rtol=0, atol=0)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_nothing_waits_for_the_device(case: Case) -> None:
    """No kernel reads a value back from the device: they run on images that have none."""
    params = case.draw(255)
    found = case.ours(batch(3, SIZE).to("meta"), *params)
    assert found.shape == (N, 3, 13, 18)
    assert found.dtype == torch.uint8


@pytest.mark.needs_cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_an_accelerator_gives_what_the_cpu_gives(case: Case, dtype: torch.dtype) -> None:
    """Across devices one level, or 1/255, and nothing on the way synchronises."""
    images, params = batch(3, SIZE, dtype), case.draw(255 if dtype == torch.uint8 else 1)
    on_device = images.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = case.ours(on_device, *params)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    one_level = 1 if dtype == torch.uint8 else 1 / 255
    steps = 3 if case.name in ("jitter", "distort") else 1
    apart = (found.cpu().double() - case.ours(images, *params).double()).abs()
    assert apart.max() <= steps * one_level


COMPILED = [case for case in CASES if case.name in ("hue", "equalize", "jitter")]


@pytest.mark.parametrize("case", COMPILED, ids=name)
def test_kernels_can_be_compiled_whole(case: Case) -> None:
    """`torch.compile(fullgraph=True)` takes a kernel, parameters included, as one graph."""
    images, params = batch(3, SIZE), case.draw(255)
    torch._dynamo.reset()
    compiled = torch.compile(case.ours, fullgraph=True, backend="eager")
    apart = (compiled(images, *params).int() - case.ours(images, *params).int()).abs()
    assert apart.max() <= (1 if case.share else 0)
