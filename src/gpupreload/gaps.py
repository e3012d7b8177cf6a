"""Rows taken out of a tensor, without a copy of it."""

from __future__ import annotations

from collections.abc import Collection

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
