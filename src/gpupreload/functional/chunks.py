"""How a kernel walks over a batch: in pieces that stay in cache on the CPU, whole elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.pieces import even_spans
from gpupreload.source import describe

Kernel = Callable[..., Tensor]
"""Takes a float batch [n, C, H, W] that it may overwrite, and the same n rows of each parameter."""

# 12 images of 3 x 112 x 112 are 1.8 MB in float32: small enough to stay in cache from one pass to
# the next, large enough that starting the operations costs little; 8 to 16 were about as fast
_ELEMENTS_A_CHUNK = 12 * 3 * 112 * 112


def check_batch(images: Tensor, channels: tuple[int, ...] = ()) -> None:
    """Raise `ArgumentError` unless `images` is a batch [N, C, H, W] of uint8 or floats.

    Args:
        images: what a caller gave as a batch.
        channels: the values that C may have; empty for any.
    """
    if images.ndim != 4:
        raise ArgumentError(
            f"images must be a batch [N, C, H, W], got {describe(images)}. "
            "Give a single image a batch dimension with images[None]."
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ArgumentError(
            f"images must be uint8 (0 to 255) or floats (0 to 1), got {describe(images)}. "
            "Convert them with images.to(torch.uint8)."
        )
    if channels and images.shape[1] not in channels:
        allowed = " or ".join(str(c) for c in channels)
        raise ArgumentError(
            f"images must have {allowed} channels, got {describe(images)}. "
            "Convert them to RGB or to grayscale first."
        )


def check_rows(images: Tensor, **params: Tensor | None) -> None:
    """Raise `ArgumentError` unless each parameter has one row a sample; None is let through."""
    for name, values in params.items():
        if values is not None and values.shape[:1] != images.shape[:1]:
            raise ArgumentError(
                f"{name} must have one row for each of the {len(images)} images, got "
                f"{describe(values)}. Repeat a shared value with "
                f"torch.full(({len(images)},), value)."
            )


def white(images: Tensor) -> int:
    """The value of white: 255 for uint8, 1 for floats."""
    return 255 if images.dtype == torch.uint8 else 1


def work_dtype(images: Tensor) -> torch.dtype:
    """The dtype to calculate in: float64 for float64 images, float32 for all others."""
    return torch.float64 if images.dtype == torch.float64 else torch.float32


def exact(values: Tensor) -> Tensor:
    """A parameter in float64, in which torchvision's Python floats are, where the device has it."""
    return values if values.device.type == "mps" else values.double()


def column(values: Tensor, images: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Shape a parameter [N] or [N, k] as [N, k, 1, 1], on the images' device, for broadcasting.

    Args:
        values: a number or a few numbers a sample, on any device.
        images: the batch that it goes with.
        dtype: the dtype wanted, by default the one that `images` are calculated in.
    """
    # cast first: MPS has no float64, and half the bytes travel
    values = values.to(dtype or work_dtype(images)).to(images.device, non_blocking=True)
    return values.reshape((*values.shape, 1, 1, 1)[:4])


def in_one_piece(images: Tensor) -> bool:
    """Whether a batch is worked on whole: on an accelerator, and inside `torch.compile`."""
    return images.device.type != "cpu" or torch.compiler.is_compiling()


def apply(
    images: Tensor,
    kernel: Kernel,
    *params: Tensor,
    mask: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Run a float kernel over a batch and return the result in the batch's dtype and layout.

    Args:
        images: batch [N, C, H, W], uint8 or floats; never written.
        kernel: gets a float copy of some images, on the scale that they have (0 to 255 for
            uint8), and the same rows of each of `params`. Its result must lie on that scale;
            for uint8 its decimals are cut off, as torchvision does. It may have one channel,
            meant for all.
        *params: tensors of N rows on the images' device.
        mask: bool [N]; rows where it is False come out as they are. None for all rows.
        out: an empty tensor to write to, for a result of another number of channels.
    """
    if not images.numel():
        return torch.empty_like(images) if out is None else out
    if in_one_piece(images):
        return _apply_whole(images, kernel, params, mask, out)
    if mask is None or bool(mask.all()):
        out = torch.empty_like(images) if out is None else out
        _apply_to_all(images, out, kernel, params)
        return out
    out = images.clone()
    apply_to_rows(images, out, mask.nonzero().squeeze(1), kernel, *params)
    return out


def apply_to_rows(
    images: Tensor, out: Tensor, rows: Tensor, kernel: Kernel, *params: Tensor
) -> None:
    """Run a float kernel over some rows of a CPU batch, and write these rows of `out`.

    Args:
        images: batch [N, C, H, W] on the CPU.
        out: where to write, like `images`; its other rows are left alone.
        rows: int64 [K], each row at most once.
        kernel: as in `apply`.
        *params: tensors of N rows; those of `rows` are picked here.
    """
    for start, stop in spans(images, len(rows)):
        picked = rows[start:stop]
        work = _as_work(take_rows(images, picked))
        result = kernel(work, *(p.index_select(0, picked) for p in params))
        put_rows(out, picked, as_stored(result, out.dtype))


def spans(images: Tensor, n_rows: int) -> Iterator[tuple[int, int]]:
    """Cut `n_rows` rows of the size of one image into even pieces, each small enough for cache."""
    yield from even_spans(n_rows, max(1, _ELEMENTS_A_CHUNK // max(1, images.shape[1:].numel())))


def take_rows(images: Tensor, rows: Tensor) -> Tensor:
    """Copy some rows of a batch, in the batch's layout.

    Args:
        images: [N, C, H, W].
        rows: int64 [K] on the same device.
    """
    if images.is_contiguous(memory_format=torch.channels_last):
        # index_select's result is contiguous, whatever it is given
        return images.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
    return images.index_select(0, rows)


def put_rows(out: Tensor, rows: Tensor, values: Tensor) -> None:
    """Write whole rows of a CPU batch: `out[rows] = values`, each row at most once."""
    values = values.expand(len(rows), *out.shape[1:])
    if out.is_contiguous(memory_format=torch.channels_last):
        out, values = out.permute(0, 2, 3, 1), values.permute(0, 2, 3, 1)
    if out.is_contiguous():
        # byte by byte it takes 12 times as long as in words of 8 bytes
        _as_words(out)[rows] = _as_words(values.contiguous())
    else:
        out[rows] = values


def as_stored(result: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a float result to `dtype`; for uint8, cut off the decimals of 0 to 255."""
    return _on_the_way(result, dtype).to(dtype)


def _as_words(batch: Tensor) -> Tensor:
    flat = batch.view(len(batch), -1)
    n_bytes = flat.shape[1] * flat.element_size()
    words = (torch.int64, torch.int32, torch.int16, torch.uint8)
    return flat.view(next(word for word in words if n_bytes % word.itemsize == 0))


def _apply_whole(
    images: Tensor,
    kernel: Kernel,
    params: tuple[Tensor, ...],
    mask: Tensor | None,
    out: Tensor | None,
) -> Tensor:
    result = kernel(images.to(work_dtype(images), copy=True), *params)
    if mask is not None:
        result = torch.where(column(mask, images, torch.bool), result, images)
    return (torch.empty_like(images) if out is None else out).copy_(result)


def _apply_to_all(images: Tensor, out: Tensor, kernel: Kernel, params: tuple[Tensor, ...]) -> None:
    for start, stop in spans(images, len(images)):
        result = kernel(_as_work(images[start:stop]), *(p[start:stop] for p in params))
        out[start:stop].copy_(_on_the_way(result, out.dtype))


def _as_work(part: Tensor) -> Tensor:
    return part.to(work_dtype(part), copy=True, memory_format=torch.contiguous_format)


def _on_the_way(result: Tensor, dtype: torch.dtype) -> Tensor:
    # straight from float32 to uint8 the CPU takes 15 times as long as by way of int16
    by_int16 = dtype == torch.uint8 and result.device.type == "cpu"
    return result.to(torch.int16) if by_int16 else result
