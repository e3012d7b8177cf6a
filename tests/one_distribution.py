"""Whether two ways of drawing parameters have one distribution, column by column and in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

N = 20_000
# seeds are fixed: what is less likely than this is a fault and no accident
UNLIKELY = 1e-5
Columns = dict[str, NDArray[Any]]


def columns(params: Mapping[str, Any]) -> Columns:
    """Parameters as columns of numbers [N]; a permutation becomes one number."""
    found: Columns = {}
    for name, values in params.items():
        array = np.asarray(values, dtype=np.float64)
        if name in ("fn_idx", "permutation", "channel_permutation"):
            array = array @ (10.0 ** np.arange(array.shape[1]))
        flat = array.reshape(len(array), -1)
        found |= {f"{name}.{i}": np.nan_to_num(flat[:, i], nan=-9) for i in range(flat.shape[1])}
    return found


def stacked(draws: Iterable[tuple[Any, ...]], names: str) -> Columns:
    """Columns of N draws, each a tuple of parameters in the order of their names."""
    return columns(dict(zip(names.split(), zip(*draws, strict=True), strict=True)))


def likelihood(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """The p-value of one distribution: chi-square for few values, else Kolmogorov-Smirnov."""
    values, codes = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    if len(values) > 300:
        return float(stats.ks_2samp(ours, theirs, method="asymp").pvalue)
    table = np.stack([np.bincount(c, minlength=len(values)) for c in np.split(codes, 2)])
    rare = table.sum(0) < 20
    table = np.concatenate([table[:, ~rare], table[:, rare].sum(1, keepdims=True)], axis=1)
    table = table[:, table.sum(0) > 0]
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def binned(values: NDArray[Any], pooled: NDArray[Any]) -> NDArray[Any]:
    """Which sixth of all values each one lies in."""
    return np.searchsorted(np.quantile(pooled, np.arange(1, 6) / 6), values, side="right")


def assert_one_distribution(ours: Columns, theirs: Columns) -> None:
    """Compare each column, and each pair of columns in 6 × 6 cells."""
    assert list(ours) == list(theirs)
    found = {name: likelihood(ours[name], theirs[name]) for name in ours}
    for a, b in combinations(ours, 2):
        cells = [
            10 * binned(way[a], np.append(ours[a], theirs[a]))
            + binned(way[b], np.append(ours[b], theirs[b]))
            for way in (ours, theirs)
        ]
        found[f"{a} and {b}"] = likelihood(*cells)
    assert {name: p for name, p in found.items() if p < UNLIKELY} == {}
