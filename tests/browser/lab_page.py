"""What a person does in JupyterLab, as functions of Playwright's page: open, run, look."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lab_server import Lab
from PIL import Image
from playwright.sync_api import Browser, Locator, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeout

ARTEFACTS = Path(__file__).parents[2] / "browser-artefacts"
SECONDS_TO_RUN = 180
TALLEST_SCREENSHOT = 8000  # pixels

KERNEL_IS_IDLE = """() =>
    window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"""

CODE_CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code' && cell.model.sharedModel.getSource().trim())
    .map(cell => ({
        prompt: cell.node.querySelector('.jp-InputPrompt').textContent,
        may_fail: (cell.model.getMetadata('tags') ?? []).includes('raises-exception'),
        errors: cell.model.outputs.toJSON()
            .filter(output => output.output_type === 'error')
            .map(output => `${output.ename}: ${output.evalue}`),
        lost_widgets:
            cell.node.textContent.match(/Error displaying widget|Loading widget/g) ?? [],
    }))"""

# after an error JupyterLab runs nothing more, and the prompts below stay empty
HAS_RUN = f"""() => {{
    const cells = ({CODE_CELLS})();
    return cells.every(cell => /^\\[\\d+\\]:$/.test(cell.prompt) && !cell.lost_widgets.length)
        || cells.some(cell => cell.errors.length && !cell.may_fail);
}}"""

PICTURES_ARE_SHOWN = """() => [...document.querySelectorAll('.jp-Notebook img')]
    .every(image => image.complete && image.naturalWidth > 0)"""

# scrolls to the top, and returns where the last cell ends, in pixels from the window's top
END_OF_NOTEBOOK = """() => {
    const content = window.jupyterapp.shell.currentWidget.content;
    content.node.querySelector('.jp-WindowedPanel-outer').scrollTop = 0;
    return Math.ceil(content.widgets.at(-1).node.getBoundingClientRect().bottom);
}"""

AS_PNG = """image => {
    const canvas = document.createElement('canvas');
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/png').split(',')[1];
}"""


@dataclass(frozen=True)
class CodeCell:
    """What a code cell shows: its prompt ("[3]:"), its errors, and widgets without a view."""

    prompt: str
    may_fail: bool
    errors: tuple[str, ...]
    lost_widgets: tuple[str, ...]


@contextmanager
def new_window(browser: Browser, lab: Lab, milliseconds: int) -> Iterator[Page]:
    """Open a new window, logged in to the lab, whose actions may take so long; close it at last."""
    context = browser.new_context(base_url=lab.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(milliseconds)
    context.request.get(lab.status_url)
    page = context.new_page()
    yield page
    page.close(run_before_unload=False)
    context.close()


def open_notebook(page: Page, name: str) -> Locator:
    """Open a notebook of the lab's folder, wait for its kernel, and return the notebook."""
    page.goto(f"/lab/tree/{name}?reset")
    notebook = page.locator(".jp-NotebookPanel:visible .jp-Notebook")
    notebook.wait_for()
    page.wait_for_function(KERNEL_IS_IDLE)
    # the list of files takes a third of a narrow window
    page.evaluate("window.jupyterapp.shell.collapseLeft()")
    return notebook


def run_all(page: Page, *, seconds: float = SECONDS_TO_RUN) -> None:
    """Choose "Run All Cells" from the menu and wait until all have run; fail at an error."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    try:
        page.wait_for_function(HAS_RUN, timeout=seconds * 1000)
    except PlaywrightTimeout:
        raise AssertionError(f"not done after {seconds} s: {code_cells(page)}") from None
    errors = [error for cell in code_cells(page) if not cell.may_fail for error in cell.errors]
    assert not errors, "\n".join(errors)


def code_cells(page: Page) -> list[CodeCell]:
    """What each code cell of the open notebook shows, in order; empty cells are left out."""
    return [
        CodeCell(c["prompt"], c["may_fail"], tuple(c["errors"]), tuple(c["lost_widgets"]))
        for c in page.evaluate(CODE_CELLS)
    ]


def wait_for_pictures(page: Page) -> list[tuple[int, int]]:
    """Wait until every picture of the notebook is shown; return their (width, height)."""
    page.wait_for_function(PICTURES_ARE_SHOWN)
    images = page.locator(".jp-Notebook img")
    sizes = images.evaluate_all(
        "all => all.map(image => [image.naturalWidth, image.naturalHeight])"
    )
    return [(width, height) for width, height in sizes]


def pixels(image: Locator) -> np.ndarray:
    """The pixels of one `<img>` as the browser decoded it: uint8 [height, width, 3]."""
    png = base64.b64decode(image.evaluate(AS_PNG))
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def set_theme(page: Page, theme: str) -> None:
    """Change JupyterLab's theme, for later pages too: "JupyterLab Light" or "JupyterLab Dark"."""
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
    )
    page.locator(f'body[data-jp-theme-name="{theme}"]').wait_for(state="attached")


def save_screenshot(page: Page, name: str, *, width: int = 1280) -> Path:
    """Save a picture of the whole open notebook, however long, in a window of this width."""
    page.set_viewport_size({"width": width, "height": 800})
    tall = min(page.evaluate(END_OF_NOTEBOOK) + 60, TALLEST_SCREENSHOT)
    page.set_viewport_size({"width": width, "height": max(800, tall)})
    path = ARTEFACTS / f"{name}.png"
    page.screenshot(path=path, animations="disabled")
    return path
