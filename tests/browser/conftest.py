"""A JupyterLab and a browser, started once for all tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from lab_page import new_window
from lab_server import Lab, running_lab
from playwright.sync_api import Browser, Page, expect, sync_playwright

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MILLISECONDS_TO_WAIT = 60_000  # Lab opens in 5 to 9 s on an idle machine

# nothing leaves this machine, and no time goes into what a test does not need
FLAGS = [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",  # Chromium refuses its sandbox to root, which is who runs in a container
]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Every test of this folder needs the browser."""
    item.add_marker(pytest.mark.browser)


def chromium() -> str | None:
    """The Chromium to use: GPUPRELOAD_CHROMIUM, or the first of the usual names on the PATH."""
    names = ("chromium", "chromium-browser", "google-chrome")
    given = os.environ.get("GPUPRELOAD_CHROMIUM")
    return given or next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium without a window."""
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on the PATH; install one, or name it in GPUPRELOAD_CHROMIUM")
    with sync_playwright() as playwright:
        expect.set_options(timeout=MILLISECONDS_TO_WAIT)
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab on a copy of notebooks/ without outputs: what a test sees, the test has run."""
    folder = tmp_path_factory.mktemp("notebooks")
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / path.name)
    with running_lab(tmp_path_factory.mktemp("home"), folder) as lab:
        yield lab


@pytest.fixture
def page(browser: Browser, lab: Lab) -> Iterator[Page]:
    """A new window, logged in to the lab."""
    with new_window(browser, lab, MILLISECONDS_TO_WAIT) as page:
        yield page


@pytest.fixture(scope="module")
def shared_page(browser: Browser, lab: Lab) -> Iterator[Page]:
    """A window that all tests of a module use, one after the other."""
    with new_window(browser, lab, MILLISECONDS_TO_WAIT) as page:
        yield page
