"""The notebooks in the repository: clean, complete, and as `make notebooks` leaves them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools.notebooks import METADATA, WIDGET_VIEW, as_text, code_cells, tidied

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))

# two folders or more from the root of a disk on, and no part of a URL, a tag or a fraction
ABSOLUTE_PATH = re.compile(r"(?<![\w<:/.+%-])/[\w.-]+/[\w.-]+|\b[A-Z]:\\\w")
EMBEDDED = re.compile(r"base64,[A-Za-z0-9+/=\s]+")


def faults(notebook: NotebookNode) -> list[str]:
    """List what must not be committed, cell by cell."""
    found = ["widget state is stored"] if "widgets" in notebook.metadata else []
    run = [c for c in code_cells(notebook) if c.source.strip() and not is_skipped(c)]
    counts = [cell.execution_count for cell in run]
    if counts != list(range(1, len(run) + 1)):
        found.append(f"execution counts are {counts}, not 1 to {len(run)}")
    for number, cell in enumerate(code_cells(notebook), start=1):
        found += [f"code cell {number}: {fault}" for fault in faults_of_cell(cell)]
    return found


def faults_of_cell(cell: NotebookNode) -> Iterator[str]:
    """Yield what is wrong with one code cell."""
    if is_skipped(cell) and cell.outputs:
        yield "has outputs, though it is not run"
    for output in cell.outputs:
        if output.output_type == "error" and "raises-exception" not in tags(cell):
            yield f"stores an error, {output.ename}"
        if WIDGET_VIEW in output.get("data", {}):
            yield "stores a widget's view"
    for text in [cell.source, *texts(cell.outputs)]:
        for match in ABSOLUTE_PATH.finditer(EMBEDDED.sub("", text)):
            yield f"names an absolute path, {match.group()}"


def texts(outputs: list[NotebookNode]) -> Iterator[str]:
    """Yield every text that outputs show; of an error its message, not its traceback."""
    for output in outputs:
        yield output.get("text", "")
        yield output.get("evalue", "")
        data: dict[str, Any] = output.get("data", {})
        yield from (data[kind] for kind in data if kind.startswith("text/"))


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def is_skipped(cell: NotebookNode) -> bool:
    """Whether neither nbval nor `make notebooks` runs this cell."""
    return "nbval-skip" in tags(cell)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_stored_notebooks_are_clean(path: Path) -> None:
    """Every cell was run, in order; no error, widget state or absolute path is stored."""
    assert faults(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_stored_notebooks_are_written_by_make(path: Path) -> None:
    """A notebook saved by hand is noticed; `make notebooks` writes it as it should be."""
    text = path.read_text(encoding="utf-8")
    assert as_text(tidied(nbformat.reads(text, as_version=4))) == text


def page(*outputs: NotebookNode, source: str = "1", count: int | None = 1, **cell: Any) -> Any:
    """A notebook of one code cell."""
    one = new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=cell)
    return new_notebook(cells=[one], metadata=METADATA)


def printed(text: str) -> NotebookNode:
    """The output of `print`."""
    return new_output("stream", name="stdout", text=text)


ERROR = new_output("error", ename="ValueError", evalue="no", traceback=[])
VIEW = new_output("display_data", data={WIDGET_VIEW: {}, "text/plain": "slider"})
HTML = new_output("display_data", data={"text/html": '<img src="data:image/png;base64,a+/b/c="/>'})


@pytest.mark.parametrize(
    ("notebook", "expected"),
    [
        (page(), []),
        (page(count=None), ["execution counts are [None], not 1 to 1"]),
        (page(count=7), ["execution counts are [7], not 1 to 1"]),
        (page(source="%pip install gpupreload", count=None, tags=["nbval-skip"]), []),
        (page(printed("1"), tags=["nbval-skip"]), ["has outputs, though it is not run"]),
        (page(ERROR), ["stores an error, ValueError"]),
        (page(ERROR, tags=["raises-exception"]), []),
        (page(VIEW), ["stores a widget's view"]),
        (page(printed("in /srv/data/cat")), ["names an absolute path, /srv/data"]),
        (page(printed("in C:\\Users")), ["names an absolute path, C:\\U"]),
        (page(source="open('/srv/data')"), ["names an absolute path, /srv/data"]),
        (page(printed("9 images/s, 3/4/5, https://a.org/b/c, photos/train/cat")), []),
        (page(HTML), []),
    ],
)
def test_each_fault_is_found(notebook: NotebookNode, expected: list[str]) -> None:
    """Each thing that must not be stored is found, and what looks like it is let through."""
    assert [fault.removeprefix("code cell 1: ") for fault in faults(notebook)] == expected


def test_stored_widget_state_is_found() -> None:
    """The state of widgets, with its ids, is not stored."""
    notebook = page()
    notebook.metadata["widgets"] = {}
    assert faults(notebook) == ["widget state is stored"]
