"""Labels on a device and on the CPU, which may be written to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Labels:
    """The labels of some samples where they are served, and the same on the CPU.

    Those on the CPU are read without waiting for a device. They follow what is written to the
    others, which torch counts (but not in inference mode).

    Args:
        on_cpu: int64 [N].
        device: where they are served.

    >>> labels = Labels(torch.tensor([3, 1]), torch.device("cpu"))
    >>> labels.on_device[0] = 2
    >>> labels.on_cpu, labels.as_list
    (tensor([2, 1]), [2, 1])
    """

    def __init__(self, on_cpu: Tensor, device: torch.device) -> None:
        self.device = device
        self._on_cpu = on_cpu
        self._on_device: Tensor | None = None
        self._read = 0
        self._listed: tuple[int, list[int]] | None = None

    def __len__(self) -> int:
        return len(self._on_cpu)

    @property
    def on_device(self) -> Tensor:
        """The labels, int64 [N] on the device; a write changes what is served from now on."""
        if self._on_device is None:  # not before somebody asks: most subsets are only read in part
            self._on_device = self._on_cpu.to(self.device)
            self._read = self.version
        return self._on_device

    @property
    def on_cpu(self) -> Tensor:
        """The labels, int64 [N] on the CPU."""
        if self._on_device is not None and self.version != self._read:
            self._read = self.version
            if self._on_device is not self._on_cpu:
                self._on_cpu = self._on_device.cpu()
        return self._on_cpu

    @property
    def as_list(self) -> list[int]:
        """The labels as a list, which is the same object until they are written to."""
        on_cpu, version = self.on_cpu, self.version
        if self._listed is None or self._listed[0] != version:
            self._listed = version, on_cpu.tolist()
        return self._listed[1]

    @property
    def version(self) -> int:
        """How often the labels were written to, as torch counts it."""
        served = self._on_cpu if self._on_device is None else self._on_device
        return 0 if served.is_inference() else served._version

    def picked(self, positions: Tensor) -> Labels:
        """A copy of those at some positions, int64 on the CPU."""
        return Labels(self.on_cpu.index_select(0, positions), self.device)

    def __getstate__(self) -> dict[str, Any]:
        # a device's memory stays in its process
        return {**self.__dict__, "_on_cpu": self.on_cpu, "_on_device": None, "_listed": None}
