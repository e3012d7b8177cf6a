"""`check`: decode every file, keep nothing, and say which cannot be read."""

from __future__ import annotations

import os
from typing import Any, Unpack

from torch.utils.data import Subset
from torchvision.datasets import DatasetFolder

from gpupreload.arguments import resolve_workers
from gpupreload.bar import bar
from gpupreload.errors import ArgumentError, UnreadableError
from gpupreload.keywords import check_keywords
from gpupreload.outline import DECODE_BUDGET
from gpupreload.pool import SPAN, ByteBudget, threads
from gpupreload.report import LoadReport, report_on
from gpupreload.source import FolderOptions, Source, describe, open_source


def check(
    data: str | os.PathLike[str] | Any,
    *,
    workers: int | None = None,
    progress: bool = True,
    **folder: Unpack[FolderOptions],
) -> LoadReport:
    """Decode every file of a folder, keep nothing, and report on all of them.

    Args:
        data: a folder of class folders, an `ImageFolder`, or a `Subset` of one.
        workers: number of decoding threads; None takes one for each CPU.
        progress: whether a bar is shown.
        **folder: as for `preload`, but for `on_error`: files that cannot be read are reported.

    Returns:
        The report that a preload with `on_error="skip"` would give.

    Raises:
        FolderError, ArgumentError: the folder, or an argument, cannot be used.
        TypeError: there is no such argument; the message says which may be meant.
    """
    check_keywords(check, folder)
    n_threads = resolve_workers(workers)
    if "on_error" in folder:
        raise ArgumentError(
            "on_error= was given, but check reports every file that cannot be read, and raises for "
            "none. Leave on_error= out."
        )
    if not isinstance(data, str | os.PathLike | DatasetFolder | Subset):
        raise ArgumentError(
            f"data is {describe(data)}; expected the path of a folder of class folders, or an "
            "ImageFolder: only files can be checked."
        )
    folder["on_error"] = "skip"
    source = open_source(data, **folder)
    reader = _Reader(source)
    unreadable: dict[int, str] = {}
    with bar(len(source), 0, "check", progress) as advance, threads(n_threads, reader) as pool:
        spans = [range(len(source))[i : i + SPAN] for i in range(0, len(source), SPAN)]
        for span, whys in zip(spans, pool.map(reader.span, spans), strict=True):
            unreadable |= whys
            advance(len(span))
    return report_on(source.without(unreadable))


class _Reader:
    """Reads items and lets them go."""

    def __init__(self, source: Source) -> None:
        self.is_stopped = False
        self._source = source
        self._budget = ByteBudget(DECODE_BUDGET)
        self._bytes = {i: spec.decoding_bytes for i, spec in source.specs_found.items()}
        # of files that were not looked at, the largest of the others is the best guess
        self._largest = max(self._bytes.values(), default=DECODE_BUDGET)

    def span(self, items: range) -> dict[int, str]:
        """Read some items; return why they cannot be read, by index."""
        whys = {i: self._why_not(i) for i in items if not self.is_stopped}
        return {i: why for i, why in whys.items() if why}

    def _why_not(self, index: int) -> str:
        with self._budget.hold(self._bytes.get(index, self._largest)):
            try:
                self._source.read(index)
            except UnreadableError as error:
                return str(error)
        return ""
