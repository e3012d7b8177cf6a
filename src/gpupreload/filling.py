"""Rows of a store, filled by decoding threads: in place on the host, else through a buffer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpupreload.bar import Advance
from gpupreload.catalog import kind_of
from gpupreload.errors import SizeError, TransformError, UnreadableError
from gpupreload.fast import TensorResize, pixels_of_jpeg, quickened
from gpupreload.host import array_of
from gpupreload.outline import DECODE_BUDGET, STAGING_BYTES
from gpupreload.parts import Step, pixels_of
from gpupreload.planned import Plan
from gpupreload.pool import SPAN, ByteBudget, threads
from gpupreload.shortcuts import shortened
from gpupreload.source import Source
from gpupreload.staging import Staging

Reader = Callable[[int], tuple[Any, int]]

# images whose files are read ahead, a span of them at a time: of up to about 400 x 400 pixels
_SMALL_BYTES = 1 << 20
_SECONDS_OF_TURN = 0.001


class Decoding:
    """Reads item i, runs the once-part on it and writes it to a row, from any thread.

    Args:
        source: where the items come from.
        plan: made for this source.
        workers: number of threads that will call.

    Attributes:
        is_stopped: set by another thread to end the spans that are being read.
    """

    def __init__(self, source: Source, plan: Plan, workers: int) -> None:
        self.source, self.plan = source, plan
        self.is_stopped = False
        self._once = _OncePart(plan.steps.rows_of("once"), source)
        self._dtypes = plan.dtype, _numpy_dtype(plan.dtype)
        self._budget = ByteBudget(DECODE_BUDGET)
        # of an item that was not looked at, the largest of the others is the best guess
        self._largest = max(spec.decoding_bytes for spec in source.specs.values())
        self._has_small = self._largest <= _SMALL_BYTES
        self._turn = threading.Lock()
        # small images cannot exceed the budget however they come, and need not ask for it
        self._is_tight = not source.has_headers or workers * self._largest > DECODE_BUDGET

    def span(self, first: int, rows: Tensor, labels: Tensor) -> dict[int, str]:
        """Fill some rows and their labels; return why items cannot be read, by their index."""
        # taking a row of a tensor, not of an array, lets go of the interpreter
        row_arrays, numbers, unreadable = array_of(rows), array_of(labels), {}
        read = self._reader(range(first, first + len(row_arrays)))
        with torch.no_grad():
            for i, row in enumerate(row_arrays):
                if self.is_stopped:
                    break
                try:
                    numbers[i] = self._fill(row, first + i, read)
                except UnreadableError as error:
                    unreadable[first + i] = str(error)
        return unreadable

    def window(
        self, pool: ThreadPoolExecutor, start: int, rows: Tensor, labels: Tensor, advance: Advance
    ) -> dict[int, str]:
        """Fill the rows and labels of the items from `start` on, by the threads of a pool.

        Returns:
            Why items cannot be read, by their index.
        """
        unreadable: dict[int, str] = {}
        spans = rows.split(SPAN), labels.split(SPAN)
        results = pool.map(self.span, range(start, start + len(rows), SPAN), *spans)
        for span, reasons in zip(spans[0], results, strict=True):
            unreadable |= reasons
            advance(len(span))
        return unreadable

    def bytes_of(self, index: int) -> int:
        """What decoding an item takes, as far as it is known."""
        spec = self.source.specs.get(index)
        return spec.decoding_bytes if spec else self._largest

    def _fill(self, row: NDArray[Any], index: int, read: Reader) -> int:
        with self._held(index):
            image, label = read(index)
            pixels = self._pixels(image, index)
            if pixels.shape != row.shape or pixels.dtype not in self._dtypes:
                raise SizeError(self._unlike_plan(pixels, index))
            np.copyto(row, pixels if isinstance(pixels, np.ndarray) else array_of(pixels))
        return label

    def _reader(self, items: range) -> Reader:
        """What reads each of some items once."""
        if self._once.takes_pixels:
            return self._read_pixels
        if not self._has_small:
            return self.source.read
        # each call to the system lets go of the interpreter, and threads that make many small
        # ones at a time wake each other in vain; where files come slowly, nobody waits for long
        is_alone = self._turn.acquire(timeout=_SECONDS_OF_TURN)
        try:
            return self.source.ahead(items)
        finally:
            if is_alone:
                self._turn.release()

    def _read_pixels(self, index: int) -> tuple[Any, int]:
        if self.source.samples and self.source.targets:
            pixels = pixels_of_jpeg(self.source.samples[index][0])
            if pixels is not None:
                return pixels, self.source.targets[index]
        return self.source.read(index)

    def _held(self, index: int) -> AbstractContextManager[None]:
        if not self._is_tight:
            return nullcontext()
        return self._budget.hold(self.bytes_of(index))

    def _pixels(self, image: Any, index: int) -> Tensor | NDArray[Any]:
        try:
            return pixels_of(self._once(image))
        except _StepFailedError as failed:
            raise TransformError(f"{self.source.where(index)}: {failed}") from failed.__cause__
        except TypeError as error:
            raise TransformError(
                f"{self.source.where(index)}: the once-part of the transform: {error}"
            ) from None

    def _unlike_plan(self, pixels: Tensor | NDArray[Any], index: int) -> str:
        return (
            f"{self.source.where(index)} comes out of the once-part as {_name(pixels.dtype)} of "
            f"shape {tuple(pixels.shape)}; the images looked at before gave "
            f"{_name(self.plan.dtype)} of shape "
            f"{self.plan.shape}. Every image must come out alike: add v2.RGB() and "
            f"v2.Resize({self.plan.shape[1:]}) to the deterministic steps."
        )


class _StepFailedError(Exception):
    """A step of the once-part raised; the text says which, and what."""


class _OncePart:
    """The once-part for several threads; steps of the caller's own making bear one at a time."""

    def __init__(self, steps: Sequence[Step], source: Source) -> None:
        lock = threading.Lock()
        transforms = [step.transform for step in steps]
        if source.decoder != "exact":
            transforms = [quickened(transform) for transform in transforms]
        self._steps = [
            (transform, step.name, nullcontext() if _is_known(step) else lock)
            for step, transform in zip(steps, shortened(transforms), strict=True)
        ]
        first = self._steps[0][0] if steps else None
        # pixels of a file as an array are RGB, and lie as in the file
        self.takes_pixels = isinstance(first, TensorResize) and source.is_read_plainly

    def __call__(self, image: Any) -> Any:
        """Run the steps on one image; a `_StepFailedError` says which of them failed."""
        for transform, name, alone in self._steps:
            with alone:
                try:
                    image = transform(image)
                except Exception as error:
                    raise _StepFailedError(
                        f"{name} raised {type(error).__name__}: {error}"
                    ) from error
        return image


def _is_known(step: Step) -> bool:
    return kind_of(step.transform) == "deterministic"


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    """NumPy's dtype for torch's, or None where it has none."""
    if dtype == torch.bfloat16:
        return None
    return array_of(torch.empty(0, dtype=dtype, device="cpu")).dtype


def _name(dtype: Any) -> str:
    """The name of torch's or NumPy's dtype, which is the same for the same numbers."""
    return str(dtype).removeprefix("torch.")


class Landing(Protocol):
    """Where decoded rows go, a window of them at a time.

    Attributes:
        n_rows: of a window.
    """

    n_rows: int

    def rows(self, start: int, stop: int) -> Tensor:
        """The memory on the host for the rows of a window, to be filled."""

    def filled(self, start: int, stop: int, unreadable: Collection[int]) -> None:
        """Take the rows over; some of all rows could not be read, and hold anything."""


class _InPlace:
    """Rows on the host are decoded where they stay."""

    n_rows = 4096

    def __init__(self, images: Tensor) -> None:
        self._images = images

    def rows(self, start: int, stop: int) -> Tensor:
        """The rows to fill."""
        return self._images[start:stop]

    def filled(self, start: int, stop: int, unreadable: Collection[int]) -> None:
        """Nothing is left to do."""


class _Staged:
    """Rows for an accelerator are decoded into one of two host buffers while the other is sent."""

    def __init__(self, images: Tensor) -> None:
        self._images = images
        self.n_rows = max(1, STAGING_BYTES // max(1, images[:1].nbytes))
        shape = (self.n_rows, *images.shape[1:])
        self._staging = Staging(shape, images.dtype, images.device)

    def rows(self, start: int, stop: int) -> Tensor:
        """The rows to fill, once their last contents have reached the device."""
        return self._staging.buffer(start // self.n_rows)[: stop - start]

    def filled(self, start: int, stop: int, unreadable: Collection[int]) -> None:
        """Send the rows to the device, without waiting where it can be done."""
        self._staging.send(start // self.n_rows, self._images[start:stop])


def landing_of(images: Tensor) -> Landing:
    """How rows get into a tensor: they are decoded in place, or staged for an accelerator."""
    return _InPlace(images) if images.device.type == "cpu" else _Staged(images)


def fill(
    images: Tensor | Landing, labels: Tensor, decode: Decoding, workers: int, advance: Advance
) -> dict[int, str]:
    """Decode every item into its row and its label, a window of rows at a time.

    Args:
        images: [N, C, H, W] on any device, as planned, to be written to; or what takes such rows.
        labels: int64 [N] on the CPU; written to.
        decode: what fills a row.
        workers: number of decoding threads, 1 or more.
        advance: called in this thread with a number of images that are done.

    Returns:
        Of the items that cannot be read, the lines that say why, by index; in place of their
        pixels and labels anything may stand.

    Raises:
        SizeError: an image did not come out in the planned size.
        TransformError: a step failed.
    """
    rows = landing_of(images) if isinstance(images, Tensor) else images
    unreadable: dict[int, str] = {}
    with threads(workers, decode) as pool:
        for start in range(0, len(labels), rows.n_rows):
            stop = min(start + rows.n_rows, len(labels))
            here = rows.rows(start, stop), labels[start:stop]
            unreadable |= decode.window(pool, start, *here, advance)
            rows.filled(start, stop, unreadable)
    return unreadable
