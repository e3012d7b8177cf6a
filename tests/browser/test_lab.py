"""What the other browser tests rest on: a run is seen to its end, its errors and its pictures."""

from __future__ import annotations

import nbformat
import numpy as np
import pytest
from lab_page import code_cells, open_notebook, pixels, run_all, wait_for_pictures
from lab_server import Lab
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Page

from tools.notebooks import METADATA

PICTURE = """from PIL import Image
Image.frombytes("RGB", (3, 2), bytes(range(18)))"""
SLIDER = """import ipywidgets
ipywidgets.IntSlider(description="epoch")"""


def write_notebook(lab: Lab, name: str, *sources: str) -> None:
    """Put a notebook of these code cells into the lab's folder."""
    cells = [new_code_cell(source) for source in sources]
    nbformat.write(new_notebook(cells=cells, metadata=METADATA), lab.folder / name)


def test_a_run_shows_prompts_pictures_and_widgets(page: Page, lab: Lab) -> None:
    """After "Run All" every cell has its number, and pictures have the kernel's pixels."""
    write_notebook(lab, "good.ipynb", "6 * 7", "", PICTURE, SLIDER)
    notebook = open_notebook(page, "good.ipynb")

    run_all(page)

    assert [cell.prompt for cell in code_cells(page)] == ["[1]:", "[2]:", "[3]:"]
    assert wait_for_pictures(page) == [(3, 2)]
    expected = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    assert np.array_equal(pixels(notebook.locator("img")), expected)
    assert notebook.get_by_text("epoch", exact=True).is_visible()


def test_a_run_with_an_error_fails(page: Page, lab: Lab) -> None:
    """An error in a notebook fails the test with the error's own text."""
    write_notebook(lab, "bad.ipynb", "6 * 7", "1 / 0", "'never run'")
    open_notebook(page, "bad.ipynb")

    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        run_all(page)


def test_a_run_with_an_expected_error_goes_on(page: Page, lab: Lab) -> None:
    """A cell tagged `raises-exception` shows its error, and the cells below it run."""
    write_notebook(lab, "expected.ipynb", "1 / 0", "6 * 7")
    notebook = nbformat.read(lab.folder / "expected.ipynb", as_version=4)
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    nbformat.write(notebook, lab.folder / "expected.ipynb")
    open_notebook(page, "expected.ipynb")

    run_all(page)

    errors = [cell.errors for cell in code_cells(page)]
    assert errors == [("ZeroDivisionError: division by zero",), ()]
