"""One store in one safetensors file, with checksums: never trusted.

Beside `images` and `labels` the file holds `facts`, a text in UTF-8, and `checksums`: the CRC-32 of
each block of about 1 MiB of the images, and at the end that of all the rest. safetensors has none
of its own. The images come first, so that they can be written before the rest is known.

Images that go to memory are read, not mapped: 55 MiB took 20 ms, checksums verified by two threads,
where copying them from a map took 26 ms; a map counts as memory of the process while it is read,
and ends the process when the file is cut short meanwhile, or lost by a network drive. They are
mapped only where they are to stay in the file: there several processes of one machine share its
pages.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gpupreload import host
from gpupreload.pool import threads
from gpupreload.staging import Staging, is_on_host

FORMAT = "gpupreload store 2"
_BLOCK_BYTES = 1 << 20
BLOCKS_AT_A_TIME = 16
DTYPES = {
    torch.uint8: "U8",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


class UnusableError(Exception):
    """A file cannot be used as a cache; the text says why, as the end of a sentence."""


@dataclass(frozen=True)
class Contents:
    """What a cache file holds, but for the images.

    Attributes:
        path: of the file.
        facts: what was kept with the images, as text.
        labels: int64 [N].
        shape: of the images, [N, C, H, W].
        dtype: of the images, as safetensors names it.
        start: the byte at which the images begin.
        checksums: of the blocks of images.
    """

    path: Path
    facts: str
    labels: Tensor
    shape: tuple[int, ...]
    dtype: str
    start: int
    checksums: list[int]


def look(path: Path) -> Contents:
    """Read what a cache file holds, but for the images.

    Raises:
        UnusableError: there is no such file (the text is then empty), it is damaged, or it was
            not written by `write` under this name.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise UnusableError("the file there is of another kind or version")
            if metadata.get("key") != path.stem:
                raise UnusableError("the file there was written for others")
            labels = file.get_tensor("labels").clone()
            checksums = file.get_tensor("checksums").tolist()
            facts = bytes(bytes_of(file.get_tensor("facts"))).decode()
            images = file.get_slice("images")
            shape, dtype = tuple(images.get_shape()), str(images.get_dtype())
        start = _start_of_images(path)
    except FileNotFoundError:
        raise UnusableError from None
    except UnusableError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"the file there is damaged ({error})") from None
    if not checksums or checksums.pop() != checksum_of_rest(path.stem, facts, labels, checksums):
        raise UnusableError("the file there is damaged (a checksum does not match)")
    return Contents(path, facts, labels, shape, dtype, start, checksums)


def read(contents: Contents, images: Tensor, workers: int) -> None:
    """Fill a tensor with the images of a file, and verify them.

    Args:
        contents: of the file.
        images: [N, C, H, W] on any device; written to.
        workers: number of threads.

    Raises:
        UnusableError: the file holds images of another shape or dtype, or is damaged. What
            `images` holds is then of no use.
    """
    if contents.shape != tuple(images.shape) or contents.dtype != DTYPES.get(images.dtype):
        raise UnusableError("the file there holds images of another size")
    try:
        with contents.path.open("rb", buffering=0) as file:
            reader = _Reader(file, contents, images)
            with threads(workers, reader) as pool:
                reader.read_all(pool)
    except OSError as error:
        raise UnusableError(f"the file there cannot be read ({error.strerror})") from None


class _Reader:
    """Reads and verifies blocks of images, some at a time, from several threads."""

    def __init__(self, file: BinaryIO, contents: Contents, images: Tensor) -> None:
        self.is_stopped = False
        self._file, self._contents, self._images = file, contents, images
        self._rows_of_block = rows_of_block(images[:1].nbytes)

    def read_all(self, pool: ThreadPoolExecutor) -> None:
        images, staging, n_rows = self._images, None, len(self._images)
        if not is_on_host(images):
            n_rows = min(n_rows, self._rows_of_block * BLOCKS_AT_A_TIME)
            staging = Staging((n_rows, *images.shape[1:]), images.dtype, images.device)
        for turn, start in enumerate(range(0, len(images), max(1, n_rows))):
            rows = images[start : start + n_rows]
            memory = staging.buffer(turn)[: len(rows)] if staging else rows
            first = start // self._rows_of_block
            blocks = list(memory.split(self._rows_of_block))
            if not all(pool.map(self._block, range(first, first + len(blocks)), blocks)):
                raise UnusableError("the file there is damaged (a checksum does not match)")
            if staging:
                staging.send(turn, rows)

    def _block(self, number: int, rows: Tensor) -> bool:
        """Read one block; return whether it is as it was written."""
        if self.is_stopped:
            return False
        data = bytes_of(rows)
        row_bytes = rows.nbytes // len(rows)
        start = self._contents.start + number * self._rows_of_block * row_bytes
        is_whole = _read_at(self._file, start, data) == data.nbytes
        return is_whole and zlib.crc32(data) == self._contents.checksums[number]

    def verify(self, number: int, n_rows: int) -> bool:
        """Read one block of so many rows, and return whether it is as it was written."""
        shape = (n_rows, *self._images.shape[1:])
        return self._block(number, host.empty(shape, self._images.dtype))


def _read_at(file: BinaryIO, start: int, data: memoryview) -> int:
    """Read from a place in a file until the memory is full; return how many bytes there were."""
    done = 0
    while done < len(data):
        if hasattr(os, "preadv"):
            n_bytes = os.preadv(file.fileno(), [data[done:]], start + done)
        else:  # Windows: a file of one's own, for the place in a file is shared by threads
            with Path(file.name).open("rb", buffering=0) as own:
                own.seek(start + done)
                n_bytes = own.readinto(data[done:]) or 0
        if not n_bytes:
            break
        done += n_bytes
    return done


def verify(contents: Contents, workers: int) -> None:
    """Read the images of a file once through, with so many threads, and keep nothing.

    Raises:
        UnusableError: it is damaged.
    """
    form = torch.empty((), dtype=dtype_of(contents), device="cpu").expand(contents.shape)
    n_rows = rows_of_block(form[:1].nbytes)
    sizes = [min(n_rows, len(form) - start) for start in range(0, len(form), n_rows)]
    try:
        with contents.path.open("rb", buffering=0) as file:
            reader = _Reader(file, contents, form)
            with threads(workers, reader) as pool:
                if not all(pool.map(reader.verify, range(len(sizes)), sizes)):
                    raise UnusableError("the file there is damaged (a checksum does not match)")
    except OSError as error:
        raise UnusableError(f"the file there cannot be read ({error.strerror})") from None


def dtype_of(contents: Contents) -> torch.dtype | None:
    """The dtype of the images in a file; None for one that no store has."""
    return next((dtype for dtype, name in DTYPES.items() if name == contents.dtype), None)


def mapped(contents: Contents) -> Tensor:
    """See the images of a file as a tensor on the CPU, of which only what is read is in memory.

    Who writes to it writes to memory of this process: the file stays as it is.

    Raises:
        OSError: the file cannot be opened.
    """
    with contents.path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, **_MAP_SETTINGS)
    row_shape, n_rows = contents.shape[1:], contents.shape[0]
    dtype = dtype_of(contents)
    assert dtype is not None  # a store was written
    n_bytes = n_rows * math.prod(row_shape) * dtype.itemsize
    array = np.frombuffer(memory, np.uint8, n_bytes, contents.start)
    return torch.from_numpy(array).view(dtype).view(contents.shape)


# Linux counts a private map against its memory, and refuses one that is larger, unless it is told
# not to reserve any; Python has a name for that from 3.13 on
_MAP_SETTINGS: dict[str, Any] = (
    {
        "flags": mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000),
        "prot": mmap.PROT_READ | mmap.PROT_WRITE,
    }
    if sys.platform == "linux"
    else {"access": mmap.ACCESS_COPY}
)


def _start_of_images(path: Path) -> int:
    with path.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(n_bytes))
    return 8 + n_bytes + int(header["images"]["data_offsets"][0])


def rows_of_block(row_bytes: int) -> int:
    """How many images of so many bytes make a block."""
    return max(1, _BLOCK_BYTES // max(1, row_bytes))


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor."""
    memory: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return memory


def checksum_of_rest(key: str, facts: str, labels: Tensor, checksums: list[int]) -> int:
    """The CRC-32 of all but the images, for which their checksums stand."""
    text = json.dumps([FORMAT, key, facts, checksums]).encode()
    return zlib.crc32(bytes_of(labels), zlib.crc32(text))
