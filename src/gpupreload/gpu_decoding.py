"""Reading for `decode="gpu"`: JPEG files decoded together by a CUDA device, and resized there.

The pixels come back to the host, and go on with those of the files that were read there: small as
they are by then, that costs little beside decoding.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import jpeg
from gpupreload.bar import Advance
from gpupreload.fast import TensorResize, quickened
from gpupreload.filling import Decoding
from gpupreload.functional.pixelwise import UNCHANGED_ON_TENSORS
from gpupreload.host import array_of
from gpupreload.outline import DECODE_BUDGET
from gpupreload.planned import Plan
from gpupreload.pool import SPAN
from gpupreload.source import Source

# of pixels twice, as specs count them: what the device decodes at a time, while the files of as
# much again are read, so that files and pixels of both groups stay within the budget
_GROUP_BYTES = DECODE_BUDGET // 2
# files that the device must refuse, before any came out, to be left in peace
_ENOUGH = 8

_SAME_ON_TENSORS = (*UNCHANGED_ON_TENSORS, v2.RGB)
_TO_TENSOR = (v1.PILToTensor, v2.PILToTensor, v2.ToImage)
_CROPS = (v1.CenterCrop, v2.CenterCrop)

OnTensor = Callable[[Tensor], Tensor]


def decoding_of(source: Source, plan: Plan, workers: int) -> Decoding:
    """Return what fills rows for this source and plan: with the device, where that was asked for.

    Args:
        source: where the items come from.
        plan: made for this source.
        workers: number of threads that will call.
    """
    if source.decoder != "gpu" or not source.is_read_plainly:
        return Decoding(source, plan, workers)
    steps = on_tensors(plan.steps.once)
    if steps is None:
        warnings.warn(
            f"decode='gpu' decodes for Resize and CenterCrop, and the once-part is "
            f"{plan.steps.names('once')}: the files are read as with decode='fast'.",
            stacklevel=2,
        )
        return Decoding(source, plan, workers)
    return GPUDecoding(source, plan, workers, steps)


def on_tensors(once: Sequence[Callable[..., Any]]) -> list[OnTensor] | None:
    """Return the once-part for uint8 tensors [3, H, W] on any device.

    Returns:
        Of each step what does it; None where one is neither a smooth `Resize`, nor a `CenterCrop`,
        nor one that leaves colour tensors as they are.
    """
    steps: list[OnTensor] = []
    is_tensor = False
    for transform in once:
        quick = quickened(transform)
        if isinstance(quick, TensorResize):
            # PIL images are antialiased in any case, tensors as the step says
            steps.append(transform if is_tensor else quick.resized)
        elif type(transform) in _CROPS:
            steps.append(transform)
        elif type(transform) not in _SAME_ON_TENSORS:
            return None
        is_tensor |= type(transform) in _TO_TENSOR
    return steps


def decode_jpegs(files: list[Tensor], device: torch.device) -> list[Tensor]:
    """Decode JPEG files, uint8 [n] each on the CPU, to uint8 [3, H, W] each on a CUDA device.

    Raises:
        RuntimeError: one of them cannot be decoded; none is given then.
    """
    from torchvision.io import decode_jpeg

    decoded: list[Tensor] = decode_jpeg(files, mode="RGB", device=device)
    return decoded


@dataclass(frozen=True)
class _File:
    """A JPEG file that the device may decode: item, contents (uint8 [n]), and (width, height)."""

    index: int
    data: Tensor
    size: tuple[int, int]


# files to be decoded, and of the other items that cannot be read the reasons, by index
_Found = tuple[list[_File], dict[int, str]]


@dataclass(frozen=True)
class _Window:
    """Rows to be filled, and their labels: those of the items from `start` on."""

    start: int
    rows: Tensor
    labels: Tensor

    def at(self, index: int) -> tuple[Tensor, Tensor]:
        """The row of an item, and its label, each as a batch of one."""
        here = slice(index - self.start, index - self.start + 1)
        return self.rows[here], self.labels[here]


class GPUDecoding(Decoding):
    """Fills rows with what a CUDA device decodes, and with the CPU's pixels where it cannot.

    Args:
        source: where the items come from: files that are read to RGB pixels.
        plan: made for this source; for the device that decodes.
        workers: number of threads that will call.
        steps: the once-part for tensors.
    """

    def __init__(self, source: Source, plan: Plan, workers: int, steps: Sequence[OnTensor]) -> None:
        super().__init__(source, plan, workers)
        self._on_tensor = steps
        self._n_decoded = self._n_refused = 0

    def window(
        self, pool: ThreadPoolExecutor, start: int, rows: Tensor, labels: Tensor, advance: Advance
    ) -> dict[int, str]:
        """Fill rows as `Decoding.window` does: files are read while those before are decoded."""
        window = _Window(start, rows, labels)
        unreadable: dict[int, str] = {}
        ahead: list[tuple[range, Iterator[_Found]]] = []
        # none of our threads is at work when the filter is set, nor, but for an error, at its end
        with torch.no_grad(), warnings.catch_warnings():
            message = "The image decoding and encoding capabilities of TorchVision"
            warnings.filterwarnings("ignore", message, DeprecationWarning)
            for group in [*self._groups(range(start, start + len(rows))), range(0)]:
                ahead.append((group, self._reading(pool, window, group)))
                for before, found in ahead[:-1]:
                    unreadable |= self._finished(pool, window, found)
                    advance(len(before))
                del ahead[:-1]
        if self.plan.device.type == "cuda" and start + len(rows) == self.plan.n_images:
            torch.cuda.empty_cache()  # what decoding took is in pieces of many sizes
        return unreadable

    def _groups(self, window: range) -> Iterator[range]:
        """Cut a window so that what is decoded at a time is small, but for one large image."""
        first, n_bytes = window.start, 0
        for index in window:
            size = self.bytes_of(index)
            if n_bytes and n_bytes + size > _GROUP_BYTES:
                yield range(first, index)
                first, n_bytes = index, 0
            n_bytes += size
        yield range(first, window.stop)

    def _reading(self, pool: ThreadPoolExecutor, window: _Window, group: range) -> Iterator[_Found]:
        spans = [group[i : i + SPAN] for i in range(0, len(group), SPAN)]
        return pool.map(partial(self._read_span, window), spans)

    def _read_span(self, window: _Window, span: range) -> _Found:
        """Read the files that the device may decode; fill the rows of the others."""
        files, unreadable = list[_File](), dict[int, str]()
        for index in span:
            if self.is_stopped:
                break
            file = self._file(index)
            if file is None:
                unreadable |= self.span(index, *window.at(index))
            else:
                files.append(file)
        return files, unreadable

    def _file(self, index: int) -> _File | None:
        assert self.source.samples is not None  # it is read plainly
        path = self.source.samples[index][0]
        try:
            if not os.path.isfile(path):  # noqa: PTH113 a pipe would be waited for
                return None
            with Path(path).open("rb") as file:
                start = file.read(jpeg.N_START)
                header = jpeg.plain_header(start)
                if header is None or header.mode != "RGB":
                    return None
                # no larger than was looked at, in the file and decoded: memory is counted on that
                n_pixel_bytes = 3 * header.size[0] * header.size[1]
                data = bytearray(start + file.read(n_pixel_bytes))
                is_whole = not file.read(1) and jpeg.is_one_scan(data, header)
        except OSError:
            return None
        if not is_whole or 2 * n_pixel_bytes > self.bytes_of(index):
            return None
        return _File(index, torch.frombuffer(data, dtype=torch.uint8), header.size)

    def _finished(
        self, pool: ThreadPoolExecutor, window: _Window, results: Iterator[_Found]
    ) -> dict[int, str]:
        """Decode what was read, and read by the CPU what the device refuses."""
        files, unreadable, refused = list[_File](), dict[int, str](), list[int]()
        for found, reasons in results:
            files += found
            unreadable |= reasons
        targets = self.source.targets or ()
        for file, pixels in zip(files, self._decoded(files), strict=True):
            row, label = window.at(file.index)
            label[0] = targets[file.index]
            if pixels is None:
                refused.append(file.index)
            else:
                np.copyto(array_of(row)[0], pixels)
        for reasons in pool.map(lambda index: self.span(index, *window.at(index)), refused):
            unreadable |= reasons
        return unreadable

    def _decoded(self, files: list[_File]) -> list[NDArray[Any] | None]:
        """The pixels for the store, or None where the device refuses; one by one, if it must be."""
        if not files or (self._n_refused >= _ENOUGH and not self._n_decoded):
            return [None] * len(files)
        try:
            pixels = array_of(torch.stack(self._on_device(files)).cpu())
        except Exception as error:  # whatever it is: reading by the CPU has the last word
            if len(files) == 1:
                self._refuse(error)
                return [None]
        else:
            self._n_decoded += len(files)
            return list(pixels)
        # outside the handler, where the error and what it holds on the device are gone
        half = len(files) // 2
        return [*self._decoded(files[:half]), *self._decoded(files[half:])]

    def _on_device(self, files: list[_File]) -> list[Tensor]:
        images = decode_jpegs([file.data for file in files], self.plan.device)
        pixels = []
        for file, image in zip(files, images, strict=True):
            if tuple(image.shape) != (3, *reversed(file.size)):
                raise ValueError(f"shape {tuple(image.shape)}, where the header says {file.size}")
            for step in self._on_tensor:
                image = step(image)
            if tuple(image.shape) != self.plan.shape or image.dtype != self.plan.dtype:
                raise ValueError(f"{image.dtype} of shape {tuple(image.shape)}")
            pixels.append(image)
        return pixels

    def _refuse(self, error: Exception) -> None:
        self._n_refused += 1
        if self._n_refused == _ENOUGH and not self._n_decoded:
            warnings.warn(
                f"{self.plan.device} decoded none of the first {_ENOUGH} JPEG files ({error}). "
                "This and all others are read by the CPU, as with decode='fast'.",
                stacklevel=2,
            )
