"""One store written to one safetensors file, whole or not at all; see `cache_file`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch
from torch import Tensor

from gpupreload.cache_file import (
    BLOCKS_AT_A_TIME,
    DTYPES,
    FORMAT,
    bytes_of,
    checksum_of_rest,
    rows_of_block,
)
from gpupreload.staging import on_host


class UnwritableError(OSError):
    """A file cannot be written, or not to its end."""


class Images(Protocol):
    """What can be written: a tensor [N, C, H, W], or images that are kept in several places."""

    @property
    def shape(self) -> Sequence[int]:
        """[N, C, H, W]."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the pixels."""

    def split(self, n_rows: int) -> Iterable[Tensor]:
        """All images in order, so many at a time."""


def write(path: Path, images: Images, labels: Tensor, facts: str) -> None:
    """Write a store to a file that appears there whole or not at all.

    Args:
        path: of the file; what is there is replaced. Its name is its key.
        images: [N, C, H, W] on any device.
        labels: int64 [N] on the CPU.
        facts: what to keep with the images.

    Raises:
        UnwritableError: the file cannot be written.
    """
    with writing(path, tuple(images.shape), images.dtype) as file:
        n_rows = file.n_rows_at_a_time
        for rows in on_host(images.split(n_rows), min(n_rows, len(labels))):
            file.add(rows)
        file.finish(labels, facts)


@contextlib.contextmanager
def writing(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[Writing]:
    """Write a store that comes row by row to a file that appears whole or not at all.

    Args:
        path: of the file, as for `write`.
        shape: of all images that there may be, [N, C, H, W].
        dtype: of the images.

    Raises:
        UnwritableError: the file cannot be written.
    """
    with _appearing(path) as file:
        yield Writing(file, path.stem, shape, dtype)


class Writing:
    """A store in a file that is being written: images first, then what belongs to them."""

    def __init__(
        self, file: BinaryIO, key: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        self._file, self._key, self._shape, self._dtype = file, key, shape, dtype
        self._n_rows, self._crc, self._checksums = 0, 0, list[int]()
        self._rows_of_block = rows_of_block(self._row_bytes)
        # with fewer rows, and a shorter text, the header is shorter: it is then filled up
        self._header_size = len(self._header(shape[0], n_facts=1 << 50))
        with _unwritable():
            file.write(bytes(self._header_size))

    @property
    def n_rows_at_a_time(self) -> int:
        """A good number of images to write at once."""
        return self._rows_of_block * BLOCKS_AT_A_TIME

    def add(self, rows: Tensor) -> None:
        """Write the next images, [K, C, H, W] on the CPU."""
        while len(rows):
            left_in_block = self._rows_of_block - self._n_rows % self._rows_of_block
            data, rows = bytes_of(rows[:left_in_block].contiguous()), rows[left_in_block:]
            self._crc = zlib.crc32(data, self._crc)
            self._n_rows += len(data) // self._row_bytes
            if self._n_rows % self._rows_of_block == 0:
                self._end_block()
            with _unwritable():
                self._file.write(data)

    def finish(self, labels: Tensor, facts: str) -> None:
        """Write the labels, int64 [N] on the CPU, of as many images as there were, and the rest."""
        if self._n_rows % self._rows_of_block:
            self._end_block()
        last = checksum_of_rest(self._key, facts, labels, self._checksums)
        checksums = torch.tensor([*self._checksums, last], dtype=torch.int64, device="cpu")
        text = facts.encode()
        header = self._header(self._n_rows, len(text))
        header += b" " * (self._header_size - len(header))
        with _unwritable():
            for data in (bytes_of(labels), bytes_of(checksums), text):
                self._file.write(data)
            self._file.seek(0)
            self._file.write((len(header) - 8).to_bytes(8, "little") + header[8:])

    def _end_block(self) -> None:
        self._checksums.append(self._crc)
        self._crc = 0

    @property
    def _row_bytes(self) -> int:
        return math.prod(self._shape[1:]) * self._dtype.itemsize

    def _header(self, n_rows: int, n_facts: int) -> bytes:
        """The header of a safetensors file: its length in 8 bytes, and JSON padded to 8 bytes."""
        n_checksums = math.ceil(n_rows / self._rows_of_block) + 1
        parts = (
            ("images", DTYPES[self._dtype], [n_rows, *self._shape[1:]], n_rows * self._row_bytes),
            ("labels", "I64", [n_rows], 8 * n_rows),
            ("checksums", "I64", [n_checksums], 8 * n_checksums),
            ("facts", "U8", [n_facts], n_facts),
        )
        entries: dict[str, Any] = {"__metadata__": {"format": FORMAT, "key": self._key}}
        end = 0
        for name, dtype, shape, n_bytes in parts:
            start, end = end, end + n_bytes
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name when all is on the disk."""
    with _unwritable():
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            with _unwritable():
                file.flush()
                os.fsync(file.fileno())
        with _unwritable():
            Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


@contextlib.contextmanager
def _unwritable() -> Iterator[None]:
    """Tell an error of writing from one of what is written."""
    try:
        yield
    except OSError as error:
        raise UnwritableError(error.errno, error.strerror or str(error)) from error
