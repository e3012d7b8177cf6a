"""One store in one safetensors file, with checksums: written whole or not at all, never trusted.

Beside `images` and `labels` the file holds `checksums`: the CRC-32 of each block of about 1 MiB of
the images, and at the end that of all the rest. safetensors has none of its own.

The images are read into memory, not mapped: 55 MiB took 20 ms, checksums verified by two threads,
where copying them from a map took 26 ms; a map counts as memory of the process while it is read,
and ends the process when the file is cut short meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gpupreload import host
from gpupreload.pool import threads

_FORMAT = "gpupreload store 1"
_BLOCK_BYTES = 1 << 20
_BLOCKS_AT_A_TIME = 16
_DTYPES = {
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
            if metadata.get("format") != _FORMAT:
                raise UnusableError("the file there is of another kind or version")
            if metadata.get("key") != path.stem:
                raise UnusableError("the file there was written for others")
            labels = file.get_tensor("labels").clone()
            checksums = file.get_tensor("checksums").tolist()
            images = file.get_slice("images")
            shape, dtype = tuple(images.get_shape()), str(images.get_dtype())
        start = _start_of_images(path)
    except FileNotFoundError:
        raise UnusableError from None
    except UnusableError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"the file there is damaged ({error})") from None
    facts = metadata.get("facts", "")
    if not checksums or checksums.pop() != _checksum_of_rest(path.stem, facts, labels, checksums):
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
    if contents.shape != tuple(images.shape) or contents.dtype != _DTYPES.get(images.dtype):
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
        self._rows_of_block = _rows_of_block(images)

    def read_all(self, pool: ThreadPoolExecutor) -> None:
        on_host = _is_on_host(self._images)
        n_rows = len(self._images) if on_host else self._rows_of_block * _BLOCKS_AT_A_TIME
        for start in range(0, len(self._images), max(1, n_rows)):
            rows = self._images[start : start + n_rows]
            staged = rows if on_host else host.empty(tuple(rows.shape), rows.dtype)
            first = start // self._rows_of_block
            blocks = list(staged.split(self._rows_of_block))
            if not all(pool.map(self._block, range(first, first + len(blocks)), blocks)):
                raise UnusableError("the file there is damaged (a checksum does not match)")
            if not on_host:
                rows.copy_(staged)

    def _block(self, number: int, rows: Tensor) -> bool:
        """Read one block; return whether it is as it was written."""
        if self.is_stopped:
            return False
        data = _bytes(rows)
        row_bytes = rows.nbytes // len(rows)
        start = self._contents.start + number * self._rows_of_block * row_bytes
        is_whole = _read_at(self._file, start, data) == data.nbytes
        return is_whole and zlib.crc32(data) == self._contents.checksums[number]


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


def write(path: Path, images: Tensor, labels: Tensor, facts: str) -> None:
    """Write a store to a file that appears there whole or not at all.

    Args:
        path: of the file; what is there is replaced. Its name is its key.
        images: [N, C, H, W] on any device.
        labels: int64 [N] on the CPU.
        facts: what to keep with the images.

    Raises:
        OSError: the file cannot be written.
    """
    with _appearing(path) as file:
        file.write(_header(images, labels, path.stem, facts))
        rows_of_block = _rows_of_block(images)
        checksums = []
        for rows in images.split(rows_of_block * _BLOCKS_AT_A_TIME):
            for block in rows.cpu().split(rows_of_block):
                data = _bytes(block)
                checksums.append(zlib.crc32(data))
                file.write(data)
        checksums.append(_checksum_of_rest(path.stem, facts, labels, checksums))
        file.write(_bytes(labels))
        file.write(_bytes(torch.tensor(checksums, dtype=torch.int64, device="cpu")))


def _header(images: Tensor, labels: Tensor, key: str, facts: str) -> bytes:
    """The header of a safetensors file: its length in 8 bytes, and JSON padded to 8 bytes."""
    n_checksums = math.ceil(len(images) / _rows_of_block(images)) + 1
    images_end = images.nbytes
    labels_end = images_end + labels.nbytes
    ends = (images_end, labels_end, labels_end + 8 * n_checksums)
    entries: dict[str, Any] = {
        "__metadata__": {"format": _FORMAT, "key": key, "facts": facts},
        "images": (_DTYPES[images.dtype], list(images.shape), [0, ends[0]]),
        "labels": ("I64", [len(labels)], [ends[0], ends[1]]),
        "checksums": ("I64", [n_checksums], [ends[1], ends[2]]),
    }
    for name in ("images", "labels", "checksums"):
        entries[name] = dict(zip(("dtype", "shape", "data_offsets"), entries[name], strict=True))
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _start_of_images(path: Path) -> int:
    with path.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(n_bytes))
    return 8 + n_bytes + int(header["images"]["data_offsets"][0])


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name when all is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _is_on_host(images: Tensor) -> bool:
    return images.device.type == "cpu"


def _rows_of_block(images: Tensor) -> int:
    return max(1, _BLOCK_BYTES // max(1, images[:1].nbytes))


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor."""
    memory: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return memory


def _checksum_of_rest(key: str, facts: str, labels: Tensor, checksums: list[int]) -> int:
    text = json.dumps([_FORMAT, key, facts, checksums]).encode()
    return zlib.crc32(_bytes(labels), zlib.crc32(text))
