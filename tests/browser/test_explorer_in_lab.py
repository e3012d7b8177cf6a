"""The explorer as a person uses it, with mouse, keyboard and screen reader, in a real JupyterLab.

All tests use one window, on the tutorial's first explorer, and leave it as they found it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from lab_page import ARTEFACTS, open_notebook, pixels, run_all, set_theme, wait_for_pictures
from playwright.sync_api import Locator, Page, expect


@pytest.fixture(scope="module")
def explorer(shared_page: Page) -> Iterator[Locator]:
    """The first explorer of the tutorial, which has been run from top to bottom."""
    notebook = open_notebook(shared_page, "05-explore.ipynb")
    run_all(shared_page)
    wait_for_pictures(shared_page)
    code = shared_page.get_by_role("textbox", name="code", exact=True)
    output = notebook.locator(".jp-OutputArea-output", has=code).first
    output.scroll_into_view_if_needed()
    return output


@pytest.fixture(autouse=True)
def _as_it_was(explorer: Locator) -> Iterator[None]:
    """Begin in epoch 0 of the first view, with every step ticked."""
    yield
    explorer.get_by_role("button", name="draws", exact=True).click()
    for name in ("epoch", "seed"):
        write(explorer.get_by_label(name, exact=True), "0")
    for box in explorer.get_by_role("checkbox").all():
        box.check()
    expect(explorer.get_by_role("status")).to_contain_text("epoch 0: 16 different pictures")


def write(box: Locator, text: str) -> None:
    """Write into a box in place of what it holds, key by key, and press Enter."""
    box.select_text()
    box.press_sequentially(text)
    box.press("Enter")


def picture(explorer: Locator, epoch: int) -> np.ndarray:
    """The picture's pixels, once the one of this epoch is shown."""
    expect(explorer.get_by_role("img", name=re.compile(rf"epoch {epoch}$"))).to_be_visible()
    image = explorer.locator("img")
    image.evaluate("image => image.decode()")
    return pixels(image)


def handle(explorer: Locator, name: str) -> Locator:
    """The handle of the slider beside the box with this name."""
    row = explorer.locator(".widget-hbox", has=explorer.page.get_by_label(name, exact=True))
    return row.last.locator(".noUi-handle").first


def test_the_keyboard_moves_the_epoch(explorer: Locator) -> None:
    """Arrow keys on the slider go to other epochs, with other pictures, and back to the same."""
    first = picture(explorer, 0)
    slider = handle(explorer, "epoch")
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    later = picture(explorer, 3)
    assert later.shape == first.shape
    assert not np.array_equal(later, first)
    for _ in range(3):
        slider.press("ArrowLeft")
    assert np.array_equal(picture(explorer, 0), first)


def test_the_mouse_moves_the_epoch(explorer: Locator) -> None:
    """Dragging the slider shows the epochs on its way; the picture changes with them."""
    first = picture(explorer, 0)
    box = handle(explorer, "epoch").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse = explorer.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 120, y, steps=8)
    mouse.up()
    epoch = explorer.get_by_label("epoch", exact=True)
    expect(epoch).to_have_value(re.compile(r"^[45]\d$"))
    assert not np.array_equal(picture(explorer, int(epoch.input_value())), first)


def test_the_number_can_be_typed(explorer: Locator) -> None:
    """The box beside the slider, which a screen reader can name, does the same."""
    epoch = explorer.get_by_role("spinbutton", name="epoch", exact=True)
    write(epoch, "7")
    seventh = picture(explorer, 7)
    epoch.press("ArrowUp")
    epoch.press("Enter")
    assert not np.array_equal(picture(explorer, 8), seventh)


def test_a_step_is_ticked_off(explorer: Locator) -> None:
    """Without a step the picture is another, and the code is without it; ticked on, it is back."""
    code = explorer.get_by_role("textbox", name="code", exact=True)
    before, given = picture(explorer, 0), code.input_value()
    assert "    v2.RandomErasing(p=0.3),\n" in given
    assert "    v2.RandomResizedCrop(112, scale=(0.3, 1.0)),\n" in given
    erasing = explorer.get_by_role("checkbox", name="RandomErasing")
    erasing.uncheck()
    expect(code).not_to_have_value(re.compile("RandomErasing"))
    expect(explorer.get_by_role("spinbutton", name="p", exact=True).last).to_be_disabled()
    assert not np.array_equal(picture(explorer, 0), before)
    erasing.check()
    expect(code).to_have_value(given)


def test_a_setting_is_in_the_code(explorer: Locator) -> None:
    """A number that is set is in the code as it was typed, between the slider's steps too."""
    code = explorer.get_by_role("textbox", name="code", exact=True)
    p = explorer.get_by_role("spinbutton", name="p", exact=True).first
    for typed in ("0.52", "0.5"):
        write(p, typed)
        expect(code).to_have_value(re.compile(rf"RandomHorizontalFlip\(p={typed}\)"))
        explorer.page.wait_for_timeout(300)  # a slider's answer would have come by now
        assert f"RandomHorizontalFlip(p={typed})" in code.input_value()


def test_an_error_is_shown(explorer: Locator) -> None:
    """What cannot be drawn is said in an alert, and it goes when the cause goes."""
    seed = explorer.get_by_role("textbox", name="seed", exact=True)
    alert = explorer.get_by_role("alert")
    expect(alert).to_have_count(0)
    write(seed, "abc")
    expect(alert).to_have_text("ArgumentError: seed is 'abc'; expected a whole number, such as 0.")
    write(seed, "3")
    expect(alert).to_have_count(0)


def test_the_views_are_told_by_their_headings(explorer: Locator) -> None:
    """Frozen stands beside live, and shared beside per sample, each under its heading."""
    explorer.get_by_role("button", name="frozen and live").click()
    expect(explorer.get_by_text("frozen: drawn once, at preload", exact=True)).to_be_visible()
    expect(explorer.get_by_role("status")).to_contain_text("frozen 8, live 8")
    explorer.get_by_role("button", name="shared and per sample").click()
    expect(explorer.get_by_text("shared: transform(batch)", exact=True)).to_be_visible()
    expect(explorer.get_by_role("status")).to_contain_text("shared 1, per sample 8")


def planner(page: Page) -> Locator:
    """The explorer of the plan, further down in the same notebook."""
    size = page.get_by_role("spinbutton", name="image size", exact=True)
    return page.locator(".jp-OutputArea-output", has=size)


def test_the_plan_follows_its_slider(explorer: Locator) -> None:
    """The size that is set by key is in the sentence, in the pictures' text and in the code."""
    plan = planner(explorer.page)
    plan.scroll_into_view_if_needed()
    code = plan.get_by_role("textbox", name="code", exact=True)
    before = pixels(plan.locator("img"))
    handle(plan, "image size").press("ArrowLeft")
    expect(plan.get_by_role("status")).to_contain_text("3×104×104")
    expect(code).to_have_value(re.compile(r"v2\.Resize\(104\)"))
    expect(plan.get_by_role("img", name=re.compile("photos at 104×104 pixels"))).to_be_visible()
    assert not np.array_equal(pixels(plan.locator("img")), before)
    handle(plan, "image size").press("ArrowRight")
    expect(plan.get_by_role("status")).to_contain_text("3×112×112")


@pytest.mark.parametrize("widget", ["explorer", "plan"])
def test_axe_finds_no_serious_fault_of_ours(explorer: Locator, widget: str) -> None:
    """Every control has a name but ipywidgets' sliders, each of which has a named box beside it."""
    from axe_playwright_python.sync_playwright import Axe

    output = explorer if widget == "explorer" else planner(explorer.page)
    output.evaluate("(output, name) => output.setAttribute('data-test', name)", widget)
    context = f"[data-test={widget}]"
    found = Axe().run(explorer.page, context=context).response["violations"]
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    nodes = {(fault["id"], node["html"]) for fault in serious for node in fault["nodes"]}
    assert [(rule, html) for rule, html in nodes if "noUi-handle" not in html] == []
    assert {rule for rule, _ in nodes} == {"aria-input-field-name"}


@pytest.mark.parametrize("theme", ["Light", "Dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_it_fits_in_the_window(explorer: Locator, theme: str, width: int) -> None:
    """Nothing is cut off at the right, at either width; screenshots are kept for looking at."""
    page = explorer.page
    page.set_viewport_size({"width": width, "height": 1400})
    set_theme(page, f"JupyterLab {theme}")
    explorer.scroll_into_view_if_needed()
    overflow = explorer.evaluate(
        """output => [...output.querySelectorAll('img, input, select, textarea, button')]
            .filter(node => node.getBoundingClientRect().right >
                            output.getBoundingClientRect().right + 1).length"""
    )
    explorer.screenshot(path=ARTEFACTS / f"explorer-{theme.lower()}-{width}.png")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert overflow == 0
