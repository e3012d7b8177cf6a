"""Boxes cut out of images and resized to one size, a box for each sample.

On the CPU, torch's own kernels are called row by row with ready parameters, for uint8 in as many
threads as torch uses; the result is torchvision's to the last bit. (256 uint8 images of 3×112×112
take half of the time of `grid_sample` and a fifth of that of matrix products.)
On accelerators, inside `torch.compile`, and with parameters that are on an accelerator, each axis
is one batched matrix product. It imitates the fixed-point arithmetic of the CPU's uint8 kernel, so
that uint8 images come out the same; floats differ in their last bits, and with TF32 products
switched on either may differ by one level.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode

from gpupreload.errors import ArgumentError
from gpupreload.functional.chunks import check_batch, check_rows, in_one_piece, work_dtype
from gpupreload.functional.pieces import in_pieces, new_batch
from gpupreload.functional.sample import mode_name
from gpupreload.functional.weights import in_fixed_point, resampling_weights

_aten = torch.ops.aten
# by interpolation and antialias; the kernels behind torch.nn.functional.interpolate
_KERNELS = {
    ("bilinear", False): _aten.upsample_bilinear2d.out,
    ("bilinear", True): _aten._upsample_bilinear2d_aa.out,
    ("bicubic", False): _aten.upsample_bicubic2d.out,
    ("bicubic", True): _aten._upsample_bicubic2d_aa.out,
}
_MODES = ("nearest", "nearest-exact", "bilinear", "bicubic")
# fewer rows than this are done before a thread has started
_ROWS_A_THREAD = 8
# pixels that a CPU thread works on at a time in the ways without kernels
_PIXELS_A_THREAD = 8 * 112 * 112


def resized_crop(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    size: tuple[int, int],
    *,
    interpolation: str | InterpolationMode = "bilinear",
    antialias: bool = True,
) -> Tensor:
    """Cut a box of its own out of each image and resize it, as torchvision's `resized_crop`.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        top: int64 [N], the first line of each box.
        left: int64 [N], its first column.
        height: int64 [N], its lines, at least 1.
        width: int64 [N], its columns, at least 1.
        size: lines and columns of the result.
        interpolation: "nearest", "nearest-exact", "bilinear" or "bicubic".
        antialias: whether bilinear and bicubic take in all pixels where a box shrinks.

    Returns:
        A new batch [N, C, *size] of the same dtype, device and layout. float16 and bfloat16 are
        calculated in float32, as in torchvision. It has no gradient.

    Raises:
        ArgumentError: `images` is no such batch, a parameter has not N rows, or a box (on the CPU)
            reaches outside its image.

    >>> images = torch.tensor([0, 100, 200], dtype=torch.uint8).view(1, 1, 1, 3)
    >>> zero, one = torch.tensor([0]), torch.tensor([1])
    >>> resized_crop(images, zero, one, one, 2 * one, (1, 4)).flatten()
    tensor([100, 125, 175, 200], dtype=torch.uint8)
    """
    check_batch(images)
    check_rows(images, top=top, left=left, height=height, width=width)
    mode = mode_name(interpolation, _MODES)
    boxes = torch.stack([top, left, height, width], 1)
    if boxes.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_boxes(boxes, images)
    if mode.startswith("nearest"):
        return resized_crop_by_gather(images, boxes, size, exact=mode == "nearest-exact")
    if in_one_piece(images) or boxes.device.type != "cpu":
        return resized_crop_by_matrices(images, boxes, size, mode=mode, antialias=antialias)
    return _by_kernels(images, boxes, size, mode, antialias)


def resized_crop_by_matrices(
    images: Tensor, boxes: Tensor, size: tuple[int, int], *, mode: str, antialias: bool
) -> Tensor:
    """Resize boxes by one batched matrix product for each axis, without reading the parameters.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        boxes: [N, 4]: top, left, height and width of each box, inside its image.
        size: lines and columns of the result.
        mode: "bilinear" or "bicubic".
        antialias: whether to take in all pixels where a box shrinks.
    """
    _, c, h, w = images.shape
    dtype, cubic = work_dtype(images), mode == "bicubic"
    # weights in float64, as the uint8 kernel has them; MPS knows no float64
    weights_dtype = torch.float32 if images.device.type == "mps" else torch.float64
    parts = boxes.to(images.device, weights_dtype, non_blocking=True)

    def piece(rows: slice) -> Tensor:
        top, left, height, width = parts[rows].unbind(1)
        across = resampling_weights(left, width, w, size[1], cubic=cubic, antialias=antialias)
        down = resampling_weights(top, height, h, size[0], cubic=cubic, antialias=antialias)
        if images.dtype == torch.uint8:
            across, down = in_fixed_point(across), in_fixed_point(down)
        across, down = across.to(dtype), down.to(dtype)
        lines = images[rows].to(dtype).flatten(1, 2)
        wide = _whole_levels(torch.bmm(lines, across.transpose(1, 2)), images.dtype)
        resized = torch.matmul(down[:, None], wide.view(-1, c, h, size[1]))
        return _whole_levels(resized, images.dtype)

    return in_pieces(new_batch(images, size), piece, _pixels(images, size), _PIXELS_A_THREAD)


def resized_crop_by_gather(
    images: Tensor, boxes: Tensor, size: tuple[int, int], *, exact: bool
) -> Tensor:
    """Resize boxes by the nearest pixel, picked by its number.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        boxes: int64 [N, 4]: top, left, height and width of each box, inside its image.
        size: lines and columns of the result.
        exact: "nearest-exact" (from the middle of each pixel) instead of "nearest".
    """
    c, w = images.shape[1], images.shape[3]
    boxes = boxes.to(images.device, non_blocking=True)
    top, left, height, width = boxes.unbind(1)
    y = top[:, None] + _nearest(height, size[0], exact)
    x = left[:, None] + _nearest(width, size[1], exact)

    def piece(rows: slice) -> Tensor:
        number = (y[rows, :, None] * w + x[rows, None]).flatten(1)
        picked = images[rows].flatten(2).gather(2, number[:, None].expand(-1, c, -1))
        return picked.view(-1, c, *size)

    return in_pieces(new_batch(images, size), piece, _pixels(images, size), _PIXELS_A_THREAD)


def _by_kernels(
    images: Tensor, boxes: Tensor, size: tuple[int, int], mode: str, antialias: bool
) -> Tensor:
    dtype = torch.uint8 if _keeps_uint8(images, mode) else work_dtype(images)
    source = images.detach().to(dtype)
    out = new_batch(source, size)
    rows, places = out.split(1), boxes.tolist()
    kernel = _KERNELS[mode, antialias]

    def resize(start: int, stop: int) -> None:
        for i in range(start, stop):
            kernel(_box(source, i, places[i]), size, False, None, None, out=rows[i])

    # with floats, and with more than 4 channels, the kernel starts threads of its own
    if dtype == torch.uint8 and images.shape[1] <= 4:
        _in_threads(resize, len(images))
    else:
        resize(0, len(images))
    if images.dtype == torch.uint8 and dtype != torch.uint8:
        out = out.round_()  # of bilinear values, which leave 0 to 255 nowhere
    return out.to(images.dtype)


def _box(images: Tensor, row: int, place: list[int]) -> Tensor:
    """A view of one box, in one call instead of three slices: a third of the time."""
    top, left, height, width = place
    strides = images.stride()
    first = row * strides[0] + top * strides[2] + left * strides[3]
    shape = (1, images.shape[1], height, width)
    return images.as_strided(shape, strides, images.storage_offset() + first)


def _in_threads(work: Callable[[int, int], None], n_rows: int) -> None:
    """Call `work(start, stop)` for all rows, in as many threads as torch uses."""
    n_threads = min(torch.get_num_threads(), n_rows // _ROWS_A_THREAD)
    if n_threads < 2:
        work(0, n_rows)
        return
    ends = [i * n_rows // n_threads for i in range(n_threads + 1)]
    # threads of this call alone: a pool that is kept would not survive a fork
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, ends[:-1], ends[1:]))


def _keeps_uint8(images: Tensor, mode: str) -> bool:
    """Whether torchvision resizes such images on this CPU without turning them into floats."""
    if images.dtype != torch.uint8 or mode == "bicubic":
        return images.dtype == torch.uint8
    has_fast_kernel = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return has_fast_kernel or platform.machine() in ("aarch64", "arm64")


def _whole_levels(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round floats that stand for uint8, after each axis and halves upwards, as torch's kernel."""
    return values.add_(0.5).floor_().clamp_(0, 255) if dtype == torch.uint8 else values


def _nearest(length: Tensor, n_out: int, exact: bool) -> Tensor:
    """The pixel of a box for each of `n_out` places, in the kernel's own float32 arithmetic."""
    place = torch.arange(n_out, dtype=torch.float32, device=length.device) + 0.5 * exact
    scale = length.float()[:, None] / n_out
    return torch.minimum((place * scale).floor().to(torch.int64), length[:, None] - 1)


def _pixels(images: Tensor, size: tuple[int, int]) -> int:
    return max(size[0] * size[1], images.shape[2:].numel())


def _check_boxes(boxes: Tensor, images: Tensor) -> None:
    h, w = images.shape[2:]
    start, length = boxes[:, :2], boxes[:, 2:]
    outside = (start < 0) | (length < 1) | (start + length > boxes.new_tensor([h, w]))
    rows = outside.any(1).nonzero()
    if len(rows):
        row = int(rows[0])
        top, left, height, width = boxes[row].tolist()
        raise ArgumentError(
            f"the box of image {row} (top {top}, left {left}, height {height}, width {width}) "
            f"reaches outside its {h}×{w} pixels; expected at least one line and column, all of "
            "them inside. Pad the images first, or cut the box at the edges."
        )
