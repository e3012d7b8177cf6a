"""Memory of the host for large tensors: in huge pages, and reused when nobody holds it any more.

Above 32 MiB glibc returns freed memory to the system, and often below that, so a large tensor comes
from fresh pages again and again: filling 9.6 MB took 6.4 ms, and into pages that were there 0.1 ms.
NumPy asks Linux for huge pages, which torch does not: 58 MB of fresh ones took 7 ms, not 40 ms.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_CPU = torch.device("cpu")
# a cache line; NumPy's own arrays start at any multiple of 16
_ALIGNMENT = 64
# the C library keeps what is smaller
_SMALL = 1 << 20

_threads = threading.local()


def empty(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device = _CPU,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Like `torch.empty`; what is large is in huge pages on the CPU.

    It is a plain tensor in `torch.inference_mode`, too: what is kept can be written to after it.

    Args:
        shape: of the tensor; [N, C, H, W] for channels_last.
        dtype: of the tensor.
        device: where it will be.
        memory_format: `torch.contiguous_format` or `torch.channels_last`.
    """
    if torch.compiler.is_compiling():
        return torch.empty(shape, dtype=dtype, device=device, memory_format=memory_format)
    n_bytes = math.prod(shape) * dtype.itemsize
    with torch.inference_mode(False):
        if device.type != "cpu" or n_bytes < _SMALL:
            return torch.empty(shape, dtype=dtype, device=device, memory_format=memory_format)
        return _as_tensor(_bytes(n_bytes), shape, dtype, memory_format)


def array_of(tensor: Tensor) -> NDArray[Any]:
    """The memory of a CPU tensor as NumPy's; bfloat16, which NumPy has not, as words of 16 bits.

    NumPy's calls keep to their thread, where torch's start OpenMP's threads anew in each thread
    that calls, and cost a fifth of torch's for small pieces.
    """
    known = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    array: NDArray[Any] = known.numpy()
    return array


class Pool:
    """A few blocks of the host's memory, each lent again when no tensor in it is alive.

    It is for one thread.

    Args:
        n_blocks: how many are kept at most; more may be lent, and are then the borrower's.
    """

    def __init__(self, n_blocks: int = 3) -> None:
        self._n_blocks = n_blocks
        self._blocks: list[_Block] = []

    def empty(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device = _CPU,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> Tensor:
        """Return a tensor of any contents, which shares memory with no other that is alive.

        Arguments are those of the function `empty`, which is also what makes tensors that are
        small, or not on the CPU.
        """
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes < _SMALL or device.type != "cpu" or torch.compiler.is_compiling():
            return empty(shape, dtype, device, memory_format)
        block = next((b for b in self._blocks if b.is_free and b.data.nbytes >= n_bytes), None)
        if block is None:
            block = _Block(n_bytes)
            kept = [b for b in self._blocks if not b.is_free]
            self._blocks = [block, *kept][: self._n_blocks]
        return _as_tensor(block.data, shape, dtype, memory_format)


def pool_of_this_thread() -> Pool:
    """The pool that this thread keeps, for whoever has none of its own."""
    if not hasattr(_threads, "pool"):
        _threads.pool = Pool()
    pool: Pool = _threads.pool
    return pool


class _Block:
    """Bytes that know whether a tensor holds them: each tensor keeps a reference to its array."""

    def __init__(self, n_bytes: int) -> None:
        self.data = _bytes(n_bytes)

    @property
    def n_references(self) -> int:
        return sys.getrefcount(self.data)

    @property
    def is_free(self) -> bool:
        return self.n_references == _UNUSED


def _bytes(n_bytes: int) -> NDArray[np.uint8]:
    raw = np.empty(n_bytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + n_bytes]


def _as_tensor(
    data: NDArray[Any],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> Tensor:
    n_bytes = math.prod(shape) * dtype.itemsize
    flat = torch.from_numpy(data)[:n_bytes].view(dtype)
    if memory_format == torch.channels_last:
        n, channels, height, width = shape
        return flat.view(n, height, width, channels).permute(0, 3, 1, 2)
    return flat.view(shape)


# asked, not assumed: it was 2 up to CPython 3.13, which may change
_UNUSED = _Block(0).n_references
