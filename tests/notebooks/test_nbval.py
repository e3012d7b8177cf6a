"""What conftest.py changes in nbval: a cell passes if and only if JupyterLab would show the same.

One notebook is checked by a pytest of its own, and each test looks at one of its cells.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[2]

TO_STDERR = """import sys
print('a warning', file=sys.stderr)"""
SURROUNDINGS = """import os
print(repr(os.environ['CUDA_VISIBLE_DEVICES']), os.environ['MPLBACKEND'].split(':')[0])"""
IN_A_WIDGET = """import ipywidgets
output = ipywidgets.Output()
with output:
    print('in the widget')
print('in the cell')"""
ERROR_IN_A_WIDGET = """with output:
    raise ValueError('hidden')"""
KILLED = """import os, signal
os.kill(os.getpid(), signal.SIGKILL)"""


@dataclass(frozen=True)
class Cell:
    """A cell's source, the text that is stored as its output, and how the check must come out."""

    source: str
    stored: str
    outcome: str


CELLS = {
    "a number": Cell("print(6 * 7)", "42\n", "PASSED"),
    "a wrong number": Cell("print(6 * 7)", "43\n", "FAILED"),
    "a duration": Cell("print('in 3 s')", "in 4.5 s\n", "PASSED"),
    "a last semicolon": Cell("6 * 7;", "", "PASSED"),
    "stderr": Cell(TO_STDERR, "", "PASSED"),
    "an Output widget": Cell(IN_A_WIDGET, "in the cell\n", "PASSED"),
    "an error in an Output widget": Cell(ERROR_IN_A_WIDGET, "", "FAILED"),
    "CPU only and inline pictures": Cell(SURROUNDINGS, "'' module\n", "PASSED"),
    "a kernel that is killed": Cell(KILLED, "", "FAILED"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How each cell came out."""
    folder = tmp_path_factory.mktemp("nbval")
    cells = [new_code_cell(c.source, execution_count=1, outputs=stored(c)) for c in CELLS.values()]
    (folder / "a.ipynb").write_text(nbformat.writes(new_notebook(cells=cells)))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-v", "--nbval", str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=120,  # far below the 180 s that a cell may take: the killed kernel was noticed
    )
    found = re.findall(r"Cell \d+ (PASSED|FAILED|XFAIL)", run.stdout)
    return dict(zip(CELLS, found, strict=True))


def stored(cell: Cell) -> list[nbformat.NotebookNode]:
    """The stored outputs of a cell."""
    return [new_output("stream", name="stdout", text=cell.stored)] if cell.stored else []


@pytest.mark.parametrize("name", CELLS)
def test_nbval_judges_as_jupyterlab_shows(outcomes: dict[str, str], name: str) -> None:
    """Numbers are compared; times, stderr, silenced values and a widget's own text are not."""
    assert outcomes[name] == CELLS[name].outcome
