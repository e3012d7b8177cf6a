"""What became of every file: a sample, passed over, or left out, and what may surprise."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpupreload import tree
from gpupreload.class_names import noticed
from gpupreload.remarks import Remark
from gpupreload.source import Source
from gpupreload.table import Table
from gpupreload.tree import PassedOver, printable

_N_EXAMPLES = 3

_REMARKS: dict[Remark, str] = {
    "alpha": "transparency, which is dropped",
    "frames": "more than one frame or page: the first is used",
    "turned": "an EXIF orientation",
    "profile": "a colour profile, which is not applied",
    "suffix": "content that does not match the suffix: read by content",
    "deep": "more than 8 bits in one channel: scaled to 8 by the high byte",
}
_KINDS = {
    "root": "beside the class folders, in none of them",
    "link": "a link that leads back up or repeats what is counted",
    "special": "a pipe, a socket or a device",
}


@dataclass(frozen=True)
class LoadReport:
    """What became of every file. Plain data; `str()` and Jupyter show it as a table.

    Attributes:
        name: of the data: the folder's path, or the dataset's type.
        n_samples: how many images are served.
        passed_over: every file below the folder that is no sample, with the reason. Empty for
            data that list their files themselves.
        unreadable: of each file left out because it cannot be read, one line: its path and why.
        remarks: paths of the samples whose file may surprise, by what it is: "alpha", "frames",
            "turned", "profile", "suffix" or "deep"; see `gpupreload.remarks`. Empty where a
            loader of the caller's own reads the files.
        notices: what about the classes may surprise, in sentences.
        turns_upright: whether photos were turned as their EXIF orientation says.
        cache: what became of the cache, in a sentence; "" where none was asked for.
        is_of_files: whether the data are files, as far as is known.
    """

    name: str
    n_samples: int
    passed_over: tuple[PassedOver, ...] = ()
    unreadable: tuple[str, ...] = ()
    remarks: Mapping[Remark, tuple[str, ...]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    turns_upright: bool = False
    cache: str = ""
    is_of_files: bool = True

    @property
    def n_files(self) -> int:
        """How many files were seen: each is a sample, passed over, or unreadable."""
        if not self.is_of_files:
            return 0
        return self.n_samples + len(self.passed_over) + len(self.unreadable)

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The paths of the files passed over, by the reason."""
        groups: dict[str, list[str]] = {}
        for passed in self.passed_over:
            reason = _KINDS.get(passed.kind, passed.reason)
            groups.setdefault(reason, []).append(passed.path)
        return groups

    @property
    def suffixes(self) -> dict[str, int]:
        """How many files were passed over for each suffix that is not an image's, "" for none."""
        names = (os.path.basename(p.path) for p in self.passed_over if p.kind == "suffix")  # noqa: PTH119
        return dict(Counter(tree.suffix(name) for name in names).most_common())

    @property
    def has_news(self) -> bool:
        """Whether there is more to tell than hidden files and samples without a remark."""
        untold = any(passed.kind not in ("hidden", "system") for passed in self.passed_over)
        return bool(untold or self.unreadable or self.remarks or self.notices or self.cache)

    @property
    def table(self) -> Table:
        """The report as a table, with up to three examples a row."""
        seen = [("files seen", f"{self.n_files:,}", "")] if self.is_of_files else []
        rows = [
            *seen,
            ("samples", f"{self.n_samples:,}", ""),
            *(self._row(f"passed over: {why}", found) for why, found in self.reasons.items()),
        ]
        if self.unreadable:
            what, number, examples = self._row("left out: cannot be read", self.unreadable, "\n")
            first, *others = examples.split("\n")
            rows += [(what, number, first), *(("", "", other) for other in others)]
        rows += [self._row(f"samples with {self._remark(r)}", p) for r, p in self.remarks.items()]
        note = "\n".join([*self.notices, *([self.cache] if self.cache else [])])
        headings = ("", "files", "for example") if self.is_of_files else ()
        return Table(tuple(rows), headings, f"Report on {printable(self.name)}", note, right=(1,))

    def _remark(self, remark: Remark) -> str:
        if remark != "turned":
            return _REMARKS[remark]
        return f"{_REMARKS[remark]}, {'' if self.turns_upright else 'not '}applied"

    def _row(self, what: str, paths: Sequence[str], between: str = ", ") -> tuple[str, str, str]:
        start = os.path.join(self.name, "")  # noqa: PTH118 a path is text here
        examples = [printable(path.removeprefix(start)) for path in paths[:_N_EXAMPLES]]
        more = [f"{len(paths) - _N_EXAMPLES:,} more"] if len(paths) > _N_EXAMPLES else []
        return what, f"{len(paths):,}", between.join([*examples, *more])

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def report_on(source: Source, cache: str = "", labels: Collection[int] | None = None) -> LoadReport:
    """Tell what became of the files of a source.

    Args:
        source: without the items that cannot be read.
        cache: what became of the cache, in a sentence.
        labels: of all items; None takes those that are known without reading.
    """
    samples = source.samples or []
    notices = noticed(source, (source.targets or ()) if labels is None else labels)
    remarks = {kind: _paths(samples, found) for kind, found in source.remarks.items() if found}
    return LoadReport(
        name=source.name,
        n_samples=len(source),
        passed_over=source.passed_over,
        unreadable=tuple(source.skipped.values()),
        remarks=remarks,
        notices=tuple(notice.text for notice in notices),
        turns_upright=source.turns_upright,
        cache=cache,
        is_of_files=source.samples is not None,
    )


def show(report: LoadReport) -> None:
    """Print a report beside the progress bar; in Jupyter show it as HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if hasattr(shell, "kernel"):
        from IPython.display import display

        display(report)  # type: ignore[no-untyped-call]
    else:
        print(report, file=sys.stderr)


def _paths(samples: Sequence[tuple[str, int]], indices: Iterable[int]) -> tuple[str, ...]:
    return tuple(samples[i][0] for i in indices)
