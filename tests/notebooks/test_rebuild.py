"""The script behind `make notebooks`: what it keeps, what it renews, what it refuses to pass."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from tools.notebooks import METADATA, as_text, rebuild, same_outputs, sanitized


def cell(*outputs: NotebookNode, source: str = "1", **metadata: Any) -> NotebookNode:
    """A code cell."""
    return new_code_cell(source, outputs=list(outputs), metadata=metadata)


def printed(text: str, name: str = "stdout") -> NotebookNode:
    """The output of `print`."""
    return new_output("stream", name=name, text=text)


def picture(level: int, width: int = 4) -> NotebookNode:
    """A grey PNG, 3 pixels high."""
    file = io.BytesIO()
    Image.fromarray(np.full((3, width), level, np.uint8)).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return new_output("display_data", data={"image/png": data, "text/plain": "<Figure>"})


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("took 3 ms", "took 0.25 s"),
        ("took   3.5 s", "took 12.5 s"),
        ("<td>3 µs</td>", "<td>1,234.5 min</td>"),
        ("disk: 801 images/s", "disk: 1,550.2 images/s"),
        ("3.4 times as fast", "12 times as fast"),
    ],
)
def test_times_are_not_compared(text: str, same: str) -> None:
    """Durations, rates and speed-ups may differ from run to run."""
    assert sanitized(text) == sanitized(same) != text


@pytest.mark.parametrize(
    "text",
    ["1,550 images", "222.5 MiB", "4 times the size", "3 ships", "loss 0.3", "5 s/epoch", "v1.5 s"],
)
def test_all_else_is_compared(text: str) -> None:
    """Every number that is no time must come out the same."""
    assert sanitized(text) == text


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (cell(printed("2 images")), cell(printed("2 images")), True),
        (cell(printed("2 images")), cell(printed("3 images")), False),
        (cell(printed("in 2 s")), cell(printed("in 3 s")), True),
        (cell(), cell(printed("2 images")), False),
        (cell(), cell(printed("a warning", "stderr")), True),
        (cell(picture(100)), cell(picture(102)), True),
        (cell(picture(100)), cell(picture(103)), False),
        (cell(picture(100)), cell(picture(100, width=5)), False),
        (cell(picture(9), tags=["nbval-ignore-output"]), cell(picture(200)), True),
        (cell(picture(9), tags=["nbval-ignore-output"]), cell(printed("9")), False),
        (cell(picture(9), tags=["nbval-ignore-output"]), cell(picture(200), source="2"), False),
    ],
)
def test_what_is_the_same(a: NotebookNode, b: NotebookNode, same: bool) -> None:
    """Text is equal but for times, pictures nearly; a cell that is not compared keeps its kinds."""
    assert same_outputs(a, b) is same


SOURCES = ["import time", "print(f'{time.perf_counter():.9f} s')", "6 * 7", "print('silent');", ""]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A notebook that was never run."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in SOURCES])
    (tmp_path / "a.ipynb").write_text(nbformat.writes(notebook), encoding="utf-8")
    return tmp_path / "a.ipynb"


def test_rebuild_runs_keeps_and_renews(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rebuild fills in outputs; the next changes nothing; a wrong number is put right."""
    assert rebuild(path)
    first = path.read_text(encoding="utf-8")
    assert not rebuild(path, write=False)

    path.write_text(first.replace('"42"', '"43"'), encoding="utf-8")
    assert rebuild(path, write=False)
    assert '"43"' in path.read_text(encoding="utf-8")
    assert rebuild(path)

    assert path.read_text(encoding="utf-8") == first
    notebook = nbformat.reads(first, as_version=4)
    assert [c.execution_count for c in notebook.cells] == [1, 2, 3, 4, None]
    assert notebook.metadata == METADATA
    assert as_text(notebook) == first
    assert capsys.readouterr().out.splitlines() == [
        "a.ipynb: changed (outputs of code cells 2, 3, 4)",
        "a.ipynb: unchanged",
        "a.ipynb: would change (outputs of code cells 3)",
        "a.ipynb: changed (outputs of code cells 3)",
    ]


def test_an_error_stops_a_rebuild(tmp_path: Path) -> None:
    """A notebook with an error is not written."""
    path = tmp_path / "a.ipynb"
    text = nbformat.writes(new_notebook(cells=[new_code_cell("1 / 0")]))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        rebuild(path)
    assert path.read_text(encoding="utf-8") == text
