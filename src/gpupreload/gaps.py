"""Rows taken out of a tensor, or put elsewhere in it, without a copy of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

# of rows moved at a time: what is copied for a moment stays small
_BYTES_AT_A_TIME = 16 << 20


def without_rows(tensor: Tensor, rows: Collection[int]) -> Tensor:
    """Close the gaps that some rows leave, by moving those after them to the front.

    Args:
        tensor: [N, ...], on any device; its rows are moved within it.
        rows: the numbers of the rows to be left out.

    Returns:
        A view of the first N - len(rows) rows; `tensor` itself where `rows` is empty.

    >>> import torch
    >>> without_rows(torch.arange(6), {1, 2, 4})
    tensor([0, 3, 5])
    """
    if not rows:
        return tensor
    n_at_a_time = max(1, _BYTES_AT_A_TIME // max(1, tensor[:1].nbytes))
    ends = sorted(rows)
    end = ends[0]
    for gap, following in zip(ends, [*ends[1:], len(tensor)], strict=True):
        for start in range(gap + 1, following, n_at_a_time):
            block = tensor[start : min(start + n_at_a_time, following)].clone()
            tensor[end : end + len(block)] = block
            end += len(block)
    return tensor[:end]


def spread(tensor: Tensor, places: Sequence[int | None]) -> None:
    """Move the first rows to their places, in the same order; in all other places anything stands.

    Args:
        tensor: [N, ...], on any device; its rows are moved within it.
        places: where each of the first rows is to be, increasing; None for one of no use.

    >>> import torch
    >>> rows = torch.tensor([1, 2, 0, 4, 0, 0])
    >>> spread(rows, [1, 2, None, 4])
    >>> rows[[1, 2, 4]].tolist()
    [1, 2, 4]
    """
    runs = _runs(places, max(1, _BYTES_AT_A_TIME // max(1, tensor[:1].nbytes)))
    # a row that goes back overwrites only rows that did so before it; one that goes on, likewise
    back = [run for run in runs if run[1] < run[0]]
    on = [run for run in reversed(runs) if run[1] > run[0]]
    for start, place, n_rows in [*back, *on]:
        tensor[place : place + n_rows] = tensor[start : start + n_rows].clone()


def _runs(places: Sequence[int | None], most: int) -> list[tuple[int, int, int]]:
    """Rows that keep together: the first of them, its place, and how many they are."""
    runs: list[tuple[int, int, int]] = []
    for k, place in enumerate(places):
        if place is None:
            continue
        start, first, n_rows = runs[-1] if runs else (0, 0, 0)
        if runs and (start + n_rows, first + n_rows) == (k, place) and n_rows < most:
            runs[-1] = start, first, n_rows + 1
        else:
            runs.append((k, place, 1))
    return runs
