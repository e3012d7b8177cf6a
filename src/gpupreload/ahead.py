"""Blocks of images brought to the device, each while the one before is used.

For an accelerator a thread gathers the next block's rows in the host's memory into a buffer that is
used again and again. On CUDA the buffer is pinned, and what it holds is copied on a stream of its
own, which waits for no kernel of the caller's but those that still read the buffer on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gpupreload import host


class Sided(Protocol):
    """Images of which some may be on the device and the others are in the host's memory."""

    device: torch.device

    @property
    def on_host(self) -> Tensor:
        """The host's side, [M, C, H, W] on the CPU."""

    @property
    def on_device(self) -> Tensor | None:
        """The device's side, [K, C, H, W], or None."""

    def sides(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Where rows are; see `shelves.Below`."""


class Ahead:
    """Brings blocks of rows to the device, one ahead.

    It keeps two buffers of a block on each side, and is for one run through at a time. It does not
    keep the images, which keep it: else they would stay in memory until Python looks for cycles.

    Args:
        device: where the blocks are brought to.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if _is_cuda(device) else None
        self._slots = [_Slot(device, self._stream) for _ in "ab"]

    def blocks(self, images: Sided, blocks: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each block's images on the device, and which of them its rows are.

        Args:
            images: where the rows are.
            blocks: of row numbers, int64 on the CPU.
        """
        if not blocks:
            return
        n_rows = len(blocks[0])
        for slot in self._slots[: 1 if self._device.type == "cpu" else 2]:
            slot.make_room(images.on_host, n_rows)
        if self._device.type == "cpu":
            # there is no second processor to bring rows to, and a thread that gathers would only
            # take a core from the one that waits: batches then came at a third of this rate
            for rows in blocks:
                at = self._slots[0].fetch(images, rows)
                yield self._slots[0].arrived(len(at)), at
            return
        with ThreadPoolExecutor(1, thread_name_prefix="gpupreload-gather") as thread:
            pending = thread.submit(self._slots[0].fetch, images, blocks[0])
            for number in range(len(blocks)):
                at = pending.result()
                if number + 1 < len(blocks):
                    other = self._slots[(number + 1) % 2]
                    pending = thread.submit(other.fetch, images, blocks[number + 1])
                slot = self._slots[number % 2]
                yield slot.arrived(len(at)), at.to(self._device, non_blocking=True)
                slot.let_go()


class _Slot:
    """Room for one block, in the host's memory and on the device."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream | None) -> None:
        self._device, self._stream = device, stream
        self._on_host = self._on_device = torch.empty(0, device="cpu")
        self._copied: torch.cuda.Event | None = None
        self._used: torch.cuda.Event | None = None

    def make_room(self, images: Tensor, n_rows: int) -> None:
        """Have room for so many rows of images [M, C, H, W]."""
        if len(self._on_device) >= n_rows:
            return
        device = self._device
        shape = (n_rows, *images.shape[1:])
        if _is_cuda(device):
            self._on_host = torch.empty(shape, dtype=images.dtype, device="cpu", pin_memory=True)
        elif device.type != "cpu":
            self._on_host = host.empty(shape, images.dtype)
        self._on_device = host.empty(shape, images.dtype, device)
        if self._stream is not None:
            # what this memory was used for before is done first, and what comes after is done last
            self.let_go()
            self._on_device.record_stream(self._stream)

    def fetch(self, images: Sided, rows: Tensor) -> Tensor:
        """Bring rows to the device; return where each is there. Called in the thread."""
        host_rows, device_rows, at = images.sides(rows)
        if self._copied is not None:
            self._copied.synchronize()  # what the buffer held last has left it
        n_host, n_rows = len(host_rows), len(rows)
        on_cpu = self._device.type == "cpu"
        landing = self._on_device if on_cpu else self._on_host
        gather(images.on_host, host_rows, landing[:n_host])
        with self._on_stream():
            if not on_cpu:
                self._on_device[:n_host].copy_(self._on_host[:n_host], non_blocking=True)
            there = images.on_device
            if device_rows is not None and there is not None:
                chosen = device_rows.to(there.device, non_blocking=True)
                torch.index_select(there, 0, chosen, out=self._on_device[n_host:n_rows])
            if self._stream is not None:
                self._copied = self._stream.record_event()
        return at

    def arrived(self, n_rows: int) -> Tensor:
        """The rows that were fetched, for work that is queued from now on."""
        if self._copied is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)
        return self._on_device[:n_rows]

    def let_go(self) -> None:
        """Note that all work on the rows is queued: the next ones come after it."""
        if self._stream is not None:
            self._used = torch.cuda.current_stream(self._device).record_event()

    def _on_stream(self) -> AbstractContextManager[object]:
        if self._stream is None:
            return nullcontext()
        if self._used is not None:
            self._stream.wait_event(self._used)
        return torch.cuda.stream(self._stream)


def gather(images: Tensor, rows: Tensor, out: Tensor) -> None:
    """Copy rows of a CPU tensor to another, in this thread alone.

    torch's gathering starts OpenMP's threads anew in each thread that calls, and they would take
    the cores from the thread that is being waited for.

    Args:
        images: [M, C, H, W] on the CPU.
        rows: int64 [K] on the CPU, from 0 to M - 1.
        out: [K, C, H, W] of the same dtype, contiguous, to be written to.
    """
    # without a check of every index there is no copy in between
    np.take(host.array_of(images), rows.numpy(), axis=0, out=host.array_of(out), mode="clip")


def _is_cuda(device: torch.device) -> bool:
    return device.type == "cuda"
