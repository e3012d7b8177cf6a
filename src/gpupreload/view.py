"""Which samples of a store a dataset serves, in which order, and what their numbers are."""

from __future__ import annotations

import zlib
from functools import cached_property

import torch
from torch import Tensor

from gpupreload.labels import Labels
from gpupreload.ranks import Shard
from gpupreload.store import Store
from gpupreload.table import counted, in_units


class View:
    """Some samples of a store, in an order. No pixel is copied.

    Args:
        store: what is shared.
        rows: int64 [N] on the CPU, the rows of the store; None for all of them, in order.
        shard: which samples of the whole dataset the store's rows are; None where it has all.
        labels: of these samples; None for a copy of those that were loaded.

    Attributes:
        labels: of these samples, which may be written to.
    """

    def __init__(
        self,
        store: Store,
        rows: Tensor | None = None,
        shard: Shard | None = None,
        labels: Labels | None = None,
    ) -> None:
        self.store, self._rows, self.shard = store, rows, shard
        self.labels = Labels(store.labels.clone(), store.device) if labels is None else labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole store, in its order."""
        return self._rows is None

    def rows_of(self, positions: Tensor) -> Tensor:
        """The rows of the store at some positions, int64 on the CPU as these are."""
        return positions if self._rows is None else self._rows.index_select(0, positions)

    def numbers_of(self, positions: Tensor) -> Tensor:
        """The numbers in the whole dataset of the samples at some positions; they draw by these."""
        rows = self.rows_of(positions)
        return rows if self.shard is None else self.shard.numbers.index_select(0, rows)

    @cached_property
    def numbers(self) -> Tensor:
        """The number in the whole dataset of each sample, int64 [N] on the CPU."""
        return self.numbers_of(torch.arange(len(self), device="cpu"))

    @cached_property
    def name(self) -> str:
        """A short text that tells which samples, by their numbers, of how many."""
        if self.is_whole:
            return f"{len(self)}" if self.shard is None else self.shard.name
        return f"{len(self)} ({zlib.crc32(self.numbers.numpy().data):08x})"

    @cached_property
    def has_repeats(self) -> bool:
        """Whether a sample is there more than once."""
        return not self.is_whole and len(self.numbers.unique()) < len(self)

    @property
    def images(self) -> Tensor:
        """The pixels [N, C, H, W]: the store's own, or a copy of the rows of a part."""
        if self._rows is None:
            return self.store.images
        return self.store.take(self._rows)

    def picked(self, positions: Tensor) -> View:
        """The samples at some positions, int64 on the CPU, as a view of the same store."""
        shard = None if self.shard is None else self.shard.part()
        return View(self.store, self.rows_of(positions), shard, self.labels.picked(positions))

    def facts(self) -> tuple[str, str]:
        """How many images of which shape, and what memory they take, in words."""
        form, n_stored = self.store.form, len(self.store.labels)
        shape = "×".join(str(side) for side in form.shape[1:])
        stored_as = str(form.dtype).removeprefix("torch.")
        n_bytes = in_units(self.store.n_bytes)
        if self.is_whole:
            return f"{counted(len(self), 'image')} of {shape}", f"{n_bytes}, kept as {stored_as}"
        return (
            f"{len(self):,} of {n_stored:,} images of {shape}",
            f"{n_bytes} for all {n_stored:,}, kept as {stored_as}",
        )
