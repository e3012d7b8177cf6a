"""Each notebook, opened and run in a real JupyterLab as a person would."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_page import (
    code_cells,
    open_notebook,
    run_all,
    save_screenshot,
    set_theme,
    wait_for_pictures,
)
from playwright.sync_api import Page

NAMES = sorted(path.name for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_from_top_to_bottom(page: Page, name: str) -> None:
    """Every cell runs, in order and without an error, and every picture is shown."""
    open_notebook(page, name)

    run_all(page)

    prompts = [cell.prompt for cell in code_cells(page)]
    first = int(prompts[0].strip("[]:"))  # above 1 where another test has used this kernel
    assert prompts == [f"[{number}]:" for number in range(first, first + len(prompts))]
    assert wait_for_pictures(page), "a notebook shows at least one picture"
    stem = Path(name).stem
    set_theme(page, "JupyterLab Dark")
    save_screenshot(page, f"{stem}-dark-800", width=800)
    set_theme(page, "JupyterLab Light")
    save_screenshot(page, f"{stem}-light-1280")
