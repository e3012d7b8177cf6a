"""What every geometric kernel keeps: its input, the layout, the rows' independence, no waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import moves, warp
from gpupreload.functional.erase import erase
from gpupreload.functional.resize import resized_crop

H, W = 13, 17
DTYPES = (torch.uint8, torch.float32, torch.float16)

Parameters = dict[str, Tensor]
Kernel = Callable[[Tensor, Parameters], Tensor]


def parameters(n: int) -> Parameters:
    """Parameters of all kernels for n rows, the same for each row whatever n is."""

    def uniform(*shape: int, low: float, high: float, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        values = torch.rand((9, *shape), generator=generator, dtype=torch.float64)
        return values[:n] * (high - low) + low

    return {
        "flag": uniform(low=0, high=1, seed=0) < 0.5,
        "top": uniform(low=0, high=5, seed=1).long(),
        "left": uniform(low=0, high=6, seed=2).long(),
        "height": uniform(low=1, high=8, seed=3).long(),
        "width": uniform(low=1, high=10, seed=4).long(),
        "angle": uniform(low=-90, high=90, seed=5),
        "translate": uniform(2, low=-3, high=3, seed=6),
        "scale": uniform(low=0.7, high=1.4, seed=7),
        "shear": uniform(2, low=-9, high=9, seed=8),
        "coefficients": uniform(8, low=-0.002, high=0.002, seed=9)
        + torch.tensor([1, 0, 0, 0, 1, 0, 0, 0]),
        "displacement": uniform(H, W, 2, low=-0.1, high=0.1, seed=10),
    }


def box(p: Parameters) -> tuple[Tensor, ...]:
    """The parameters of a rectangle."""
    return p["top"], p["left"], p["height"], p["width"]


KERNELS: dict[str, Kernel] = {
    "horizontal_flip": lambda x, p: moves.horizontal_flip(x, p["flag"]),
    "vertical_flip": lambda x, p: moves.vertical_flip(x, p["flag"]),
    "crop": lambda x, p: moves.crop(x, p["top"], p["left"], 9, 11),
    "crop_reflect": lambda x, p: moves.crop(
        x, p["top"], p["left"], H, W, padding=3, padding_mode="reflect"
    ),
    "erase": lambda x, p: erase(x, *box(p), 3),
    "resized_crop": lambda x, p: resized_crop(x, *box(p), (7, 12)),
    "resized_crop_nearest": lambda x, p: resized_crop(x, *box(p), (7, 12), interpolation="nearest"),
    "affine": lambda x, p: warp.affine(
        x, p["angle"], p["translate"], p["scale"], p["shear"], fill=9
    ),
    "rotate": lambda x, p: warp.rotate(x, p["angle"], interpolation="bilinear", mask=p["flag"]),
    "perspective": lambda x, p: warp.perspective(x, p["coefficients"], fill=9),
    "elastic": lambda x, p: warp.elastic(x, p["displacement"]),
}

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def batch(dtype: torch.dtype, n: int = 8, channels: int = 3) -> Tensor:
    """Random images, the same for each row whatever n is."""
    generator = torch.Generator().manual_seed(channels)
    levels = torch.randint(0, 256, (9, channels, H, W), generator=generator, dtype=torch.uint8)[:n]
    return levels if dtype == torch.uint8 else (levels / 255).to(dtype)


@every_kernel
@every_dtype
def test_the_input_is_not_written_and_not_shared(kernel: Kernel, dtype: torch.dtype) -> None:
    """A kernel writes into memory of its own: neither its input nor a parameter changes."""
    images, params = batch(dtype), parameters(8)
    before = images.clone(), {name: values.clone() for name, values in params.items()}
    result = kernel(images, params)
    result.fill_(0)
    assert torch.equal(images, before[0])
    assert all(torch.equal(params[name], values) for name, values in before[1].items())


@every_kernel
@every_dtype
def test_channels_last_goes_in_and_comes_out(kernel: Kernel, dtype: torch.dtype) -> None:
    """The layout is kept, and does not change the values beyond the last bits of floats."""
    images, params = batch(dtype), parameters(8)
    planar = kernel(images, params)
    result = kernel(images.contiguous(memory_format=torch.channels_last), params)
    assert planar.is_contiguous()
    assert result.is_contiguous(memory_format=torch.channels_last)
    atol = {torch.uint8: 0, torch.float32: 1e-6, torch.float16: 1e-3}[dtype]
    torch.testing.assert_close(result, planar, rtol=0, atol=atol, check_stride=False)


@every_kernel
@every_dtype
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_a_row_does_not_depend_on_the_others(
    channels: int, dtype: torch.dtype, kernel: Kernel
) -> None:
    """A batch of one, and of none, gives what the whole batch gives for these rows."""
    whole = kernel(batch(dtype, 8, channels), parameters(8))
    for n in (0, 1, 3):
        rows = kernel(batch(dtype, n, channels), parameters(n))
        assert rows.dtype == dtype
        assert torch.equal(rows, whole[:n])


@every_kernel
@every_dtype
@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_no_value_is_read_back_from_an_accelerator(
    where: str, dtype: torch.dtype, kernel: Kernel
) -> None:
    """Kernels run on a device that holds no values, so they can wait for none."""
    expected = kernel(batch(dtype), parameters(8))
    params = {name: values.to(where) for name, values in parameters(8).items()}
    for layout in (torch.contiguous_format, torch.channels_last):
        result = kernel(batch(dtype).to("meta").contiguous(memory_format=layout), params)
        assert result.device.type == "meta"
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert result.is_contiguous(memory_format=layout)


@every_kernel
def test_the_kernel_can_be_compiled_whole(kernel: Kernel) -> None:
    """In `torch.compile(fullgraph=True)` a kernel gives what it gives outside."""
    images, params = batch(torch.uint8), parameters(8)
    torch.compiler.reset()
    compiled = torch.compile(kernel, fullgraph=True, backend="eager")(images, params)
    assert torch.equal(compiled, kernel(images, params))


@every_kernel
@every_dtype
@pytest.mark.needs_cuda
def test_a_gpu_gives_the_same_without_waiting(kernel: Kernel, dtype: torch.dtype) -> None:
    """On CUDA nothing synchronises, and values are within one level, but for 1 in 1,000."""
    expected = kernel(batch(dtype), parameters(8)).double()
    images = batch(dtype).cuda()
    kernel(images, parameters(8))
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = kernel(images, parameters(8))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    apart = (result.cpu().double() - expected).abs()
    level = 1 if dtype == torch.uint8 else 1 / 255
    assert (apart > level).double().mean() <= 1e-3


@every_kernel
def test_what_is_no_batch_is_refused(kernel: Kernel) -> None:
    """A single image, and whole numbers of 64 bits, are refused with what to do."""
    with pytest.raises(ArgumentError, match=r"must be a batch \[N, C, H, W\]"):
        kernel(batch(torch.uint8)[0], parameters(8))
    with pytest.raises(ArgumentError, match="must be uint8"):
        kernel(batch(torch.uint8).long(), parameters(8))


@every_kernel
def test_parameters_for_another_number_of_rows_are_refused(kernel: Kernel) -> None:
    """Seven rows of parameters do not go with eight images."""
    with pytest.raises(ArgumentError, match="the 8 images"):
        kernel(batch(torch.uint8), parameters(7))
