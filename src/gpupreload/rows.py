"""Which samples the rows of a batch are, on which their draws depend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from gpupreload import draws
from gpupreload.native.operator import Drawer
from gpupreload.native.step import Params, Shape

_FEW = 1000


@dataclass(frozen=True)
class Rows:
    """Which samples the rows of a batch are: with the seed, all that their draws depend on.

    Attributes:
        seed: of the reader.
        epoch: number of the epoch; in a graph of `torch.compile` also int64 [1] on the CPU.
        indices: int64 [N] on the CPU, sample numbers in the whole dataset.
        occurrence: how often the sample came before in this epoch: 0, or int64 [N].
    """

    seed: int
    epoch: int | Tensor
    indices: Tensor
    occurrence: int | Tensor = 0

    def part(self, rows: slice) -> Rows:
        """Some of the rows."""
        occurrence = self.occurrence
        if isinstance(occurrence, Tensor):
            occurrence = occurrence[rows]
        return replace(self, indices=self.indices[rows], occurrence=occurrence)

    def keys(self, step: int) -> Tensor:
        """The draws' keys of one step, int64 [N] on the CPU."""
        epoch = cast(int, self.epoch)  # a tensor is for graphs, which draw by `draw`
        return draws.keys(self.seed, epoch, self.indices, occurrence=self.occurrence, step=step)

    def draw(self, drawer: Drawer, number: int, shape: Shape) -> Params:
        """Draw one step's parameters for each row, for images of shape (C, H, W)."""
        which = self.seed, self.epoch, self.indices, self.occurrence
        return drawer.draw(*which, number, shape)


def no_rows(seed: int) -> Rows:
    """No samples at all: drawing for them looks at the settings and at the shape alone."""
    return Rows(seed, 0, torch.empty(0, dtype=torch.int64, device="cpu"))


def occurrences(indices: Tensor) -> int | Tensor:
    """Count how often each sample number came before in the same batch: 0, or int64 [N]."""
    listed = indices.numpy()
    # for 64 numbers a set takes 5 µs, and sorting them 29
    if len(listed) < _FEW and len(set(listed.tolist())) == len(listed):
        return 0
    order = np.argsort(listed, kind="stable")
    in_order = listed[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] - 1))
    if len(starts) == len(listed):
        return 0
    # in order a sample's occurrences follow each other, the first at `starts`
    lengths = np.diff(starts, append=len(listed))
    counts = np.empty_like(listed)
    counts[order] = np.arange(len(listed)) - np.repeat(starts, lengths)
    return torch.from_numpy(counts)
