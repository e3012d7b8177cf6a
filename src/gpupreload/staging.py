"""Two buffers of the host in turn, for copies to and from an accelerator that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


class Staging:
    """Two buffers on the host: while one is filled, or read, the other is on its way.

    They are pinned for CUDA, where copies then run beside the program; elsewhere each copy is
    waited for.

    Args:
        shape: of a buffer, [K, C, H, W].
        dtype: of the buffers.
        device: where rows go to, or come from.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        with torch.inference_mode(False):
            self._buffers = [
                torch.empty(shape, dtype=dtype, device="cpu", pin_memory=self._on_cuda)
                for _ in "ab"
            ]
        self._copied: list[torch.cuda.Event | None] = [None, None]

    def buffer(self, turn: int) -> Tensor:
        """The buffer of a turn, 0, 1, 2…, once its last copy has ended."""
        event = self._copied[turn % 2]
        if event is not None:
            event.synchronize()
        return self._buffers[turn % 2]

    def send(self, turn: int, rows: Tensor) -> None:
        """Copy the start of a turn's buffer to rows on the device, without waiting on CUDA."""
        source = self._buffers[turn % 2][: len(rows)]
        rows.copy_(source, non_blocking=self._on_cuda)
        self._copied[turn % 2] = _after_copies(rows.device)

    def fetch(self, turn: int, rows: Tensor) -> None:
        """Copy rows of the device to the start of a turn's buffer, without waiting on CUDA."""
        self.buffer(turn)[: len(rows)].copy_(rows, non_blocking=self._on_cuda)
        self._copied[turn % 2] = _after_copies(rows.device)


def on_host(pieces: Iterable[Tensor], n_rows: int) -> Iterator[Tensor]:
    """Give each piece on the CPU while the next is on its way there.

    Args:
        pieces: tensors [K, C, H, W] on any device, alike but for K.
        n_rows: the largest K.

    Yields:
        The pieces in order. One that came from an accelerator is overwritten once the next is
        asked for.
    """
    staging: Staging | None = None
    waiting: tuple[int, Tensor] | None = None
    for turn, rows in enumerate(pieces):
        if not is_on_host(rows):
            if staging is None:
                staging = Staging((n_rows, *rows.shape[1:]), rows.dtype, rows.device)
            staging.fetch(turn, rows)
        if waiting is not None:
            yield _arrived(staging, *waiting)
        waiting = turn, rows
    if waiting is not None:
        yield _arrived(staging, *waiting)


def is_on_host(rows: Tensor) -> bool:
    """Whether rows are in the host's memory, where they can be read without a copy."""
    return rows.device.type == "cpu"


def _arrived(staging: Staging | None, turn: int, rows: Tensor) -> Tensor:
    if staging is None or is_on_host(rows):
        return rows
    return staging.buffer(turn)[: len(rows)]


def _after_copies(device: torch.device) -> torch.cuda.Event | None:
    """An event that comes when the copies asked for so far have ended; None where they have."""
    if device.type != "cuda":
        return None
    with torch.cuda.device(device):
        event: torch.cuda.Event = torch.cuda.current_stream().record_event()
    return event
