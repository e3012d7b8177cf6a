"""The script behind `make notebooks`: what it keeps, what it renews, what it refuses to pass."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import numpy as np
import pytest
import torch
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image
from torch import Tensor

import gpupreload as gp
from tools.notebooks import METADATA, as_text, difference, is_ready, outcomes, rebuild, sanitized


def cell(*outputs: NotebookNode, **metadata: Any) -> NotebookNode:
    """A code cell."""
    return new_code_cell("1", outputs=list(outputs), metadata=metadata)


def printed(text: str, name: str = "stdout") -> NotebookNode:
    """The output of `print`."""
    return new_output("stream", name=name, text=text)


def drawn(image: Image.Image) -> NotebookNode:
    """The output of a cell that draws."""
    file = io.BytesIO()
    image.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return new_output("display_data", data={"image/png": data, "text/plain": "<Figure>"})


def picture(level: int, width: int = 4) -> NotebookNode:
    """A grey picture, 3 pixels high."""
    return drawn(Image.fromarray(np.full((3, width), level, np.uint8)))


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


MEASURED = {"tags": ["nbval-ignore-output"]}


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (cell(printed("2 images")), cell(printed("2 images")), ""),
        (
            cell(printed("one\n3 images")),
            cell(printed("one\n2 images")),
            "says '3 images'; stored is '2 images'",
        ),
        (cell(printed("2")), cell(printed("2\nmore")), "says None; stored is 'more'"),
        (cell(printed("in 2 s")), cell(printed("in 3 s")), ""),
        (cell(), cell(printed("2 images")), "has outputs []"),
        (cell(), cell(printed("a warning", "stderr")), ""),
        (cell(picture(100)), cell(picture(112)), ""),
        (
            cell(picture(100)),
            cell(picture(113)),
            "draws what differs by 13 grey levels of 256 at the pixel 0 from the left and "
            "0 from the top",
        ),
        (
            cell(picture(100)),
            cell(picture(100, width=5)),
            "draws 4×3 pixels; stored are 5×3",
        ),
        (cell(picture(9), **MEASURED), cell(picture(200)), ""),
        (
            cell(picture(9), **MEASURED),
            cell(picture(9, width=5)),
            "draws 4×3 pixels; stored are 5×3",
        ),
        (cell(printed("9"), **MEASURED), cell(printed("8")), ""),
        (cell(printed("9"), **MEASURED), cell(picture(9)), "has outputs [['stream']]"),
    ],
)
def test_what_differs(new: NotebookNode, old: NotebookNode, expected: str) -> None:
    """Text is equal but for times, pictures look alike; what is measured keeps kinds and sizes."""
    assert difference(new, old) == expected


PATCHES = np.random.default_rng(0).integers(0, 256, (4, 3, 8, 8), np.uint8)
PHOTOS = list(torch.from_numpy(PATCHES.repeat(14, 2).repeat(14, 3)))  # 112×112 pixels
TITLES = ("cat", "dog", "owl", "newt")


def grid(photos: Sequence[Tensor] = PHOTOS, titles: Sequence[str] = TITLES) -> NotebookNode:
    """A cell that shows four photos with their titles."""
    figure = gp.show_batch(torch.stack(list(photos)), range(4), titles)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=144)
    return cell(drawn(Image.open(file)))


def test_a_picture_may_be_rounded_otherwise() -> None:
    """Pixels one grey level off are the same picture, and so are letters without hinting."""
    rng = np.random.default_rng(1)
    by_one = [
        (photo.int() + torch.from_numpy(rng.integers(-1, 2, photo.shape))).clamp(0, 255).byte()
        for photo in PHOTOS
    ]
    assert difference(grid(by_one), grid()) == ""
    with matplotlib.rc_context({"text.hinting": "none"}):
        assert difference(grid(), grid()) == ""


@pytest.mark.parametrize(
    ("photos", "titles"),
    [
        (PHOTOS, ("cat", "dog", "", "newt")),
        ([PHOTOS[0], PHOTOS[1], PHOTOS[1], PHOTOS[3]], TITLES),
        ([*PHOTOS[:3], PHOTOS[3].flip(-1)], TITLES),
        ([*PHOTOS[:3], PHOTOS[3].roll(3, -1)], TITLES),
        ([*PHOTOS[:3], (PHOTOS[3].int() - 30).clamp(0, 255).byte()], TITLES),
    ],
    ids=["a title is missing", "another photo", "mirrored", "moved by 3 pixels", "darker"],
)
def test_a_changed_picture_is_found(photos: list[Tensor], titles: Sequence[str]) -> None:
    """One of four photos that is another, or one title that is missing, is a difference."""
    assert difference(grid(photos, titles), grid()).startswith("draws what differs by ")


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
        "  code cell 2: has outputs [['stream']]",
        "  code cell 3: has outputs [['text/plain']]",
        "  code cell 4: has outputs [['stream']]",
        "a.ipynb: unchanged",
        "a.ipynb: would change (outputs of code cells 3)",
        "  code cell 3: says '42'; stored is '43'",
        "a.ipynb: changed (outputs of code cells 3)",
        "  code cell 3: says '42'; stored is '43'",
    ]


def test_what_is_measured_is_of_one_run(tmp_path: Path) -> None:
    """Where one measured output is renewed, so are the others; else they are kept."""
    path = tmp_path / "a.ipynb"
    measured = {"tags": ["nbval-ignore-output"]}
    sources = ["import time", "print(time.perf_counter_ns())", "print(time.perf_counter_ns())"]
    cells = [new_code_cell(source, metadata=measured) for source in sources]
    path.write_text(nbformat.writes(new_notebook(cells=cells)), encoding="utf-8")

    def numbers() -> list[int]:
        cells = nbformat.read(path, as_version=4).cells[1:]
        return [int(cell.outputs[0].text) for cell in cells]

    assert rebuild(path)
    first = numbers()
    assert not rebuild(path)
    assert numbers() == first
    lost = nbformat.read(path, as_version=4)
    lost.cells[2].outputs = []
    nbformat.write(lost, path)
    assert rebuild(path)
    assert min(numbers()) > max(first)


def test_an_error_stops_a_rebuild(tmp_path: Path) -> None:
    """A notebook with an error is not written."""
    path = tmp_path / "a.ipynb"
    text = nbformat.writes(new_notebook(cells=[new_code_cell("1 / 0")]))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        rebuild(path)
    assert path.read_text(encoding="utf-8") == text


def test_a_check_goes_through_all(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two processes check what is there; one with an error is named, and the rest is checked."""
    paths = [tmp_path / name for name in ("bad.ipynb", "good.ipynb")]
    for path, source in zip(paths, ("1 / 0", "x = 1"), strict=True):
        notebook = new_notebook(cells=[new_code_cell(source, execution_count=1)], metadata=METADATA)
        path.write_text(as_text(notebook), encoding="utf-8")

    ready = partial(is_ready, write=False, fresh=False)
    assert outcomes(ready, paths, processes=2) == [False, True]

    said = capfd.readouterr().out
    assert "bad.ipynb: CellExecutionError: " in said
    assert "ZeroDivisionError: division by zero" in said
    assert "good.ipynb: unchanged" in said
