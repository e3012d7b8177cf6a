"""Run the notebooks from a clean kernel and store their outputs.

`make notebooks` calls this. Outputs in the repository are always this script's, never saved by
hand. A stored output stays where the new one says the same, so that a rebuild changes only what
has really changed:

    python tools/notebooks.py                       # all of notebooks/
    python tools/notebooks.py notebooks/01-a.ipynb  # this one
    python tools/notebooks.py --check               # write nothing; fail where a rebuild would
    python tools/notebooks.py --fresh               # keep nothing: measure every time anew, as
                                                    # after a change of what is measured

"The same" means: text is equal after the patterns of tests/notebooks/sanitize.cfg, and pictures
have the same size and look alike. A cell tagged `nbval-ignore-output`, which prints or draws what
was measured, has outputs of the same kinds, and pictures of the same size; where one of these is
renewed, the whole notebook is, so that all its numbers are one run's. Cells tagged `nbval-skip` are
not run.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import partial
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode
from nbval.plugin import coalesce_streams, get_sanitize_patterns
from PIL import Image

ROOT = Path(__file__).parents[1]
SANITIZE = ROOT / "tests" / "notebooks" / "sanitize.cfg"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
SECONDS_PER_CELL = 600
ANSI_COLOR = re.compile(r"\x1b\[[\d;]*m")
PROCESSES = 2
PICTURES = ("image/png", "image/jpeg")

# Another processor rounds a pixel to the next grey level, another build of a font renderer smooths
# the same letters otherwise, and JPEG carries either on to the pixels around. In the means of
# 16×16 pixels this was at most 1.4 levels for the first, 11 for letters without hinting, and 6
# for JPEG of another quality; and at least 43 where one word above one photo was missing, or a
# photo was another one, mirrored, or 3 pixels off.
BLOCK = 16
BLOCKS_MAY_DIFFER_BY = 12


def main() -> int:
    """Rebuild or check the notebooks named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    parser.add_argument("--fresh", action="store_true", help="keep no stored output")
    asked = parser.parse_args()
    paths = asked.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    ready = partial(is_ready, write=not asked.check, fresh=asked.fresh)
    return 0 if all(outcomes(ready, paths, processes=PROCESSES if asked.check else 1)) else 1


def outcomes(ready: Callable[[Path], bool], paths: list[Path], *, processes: int) -> list[bool]:
    """Ask of each notebook whether it is ready, however many of them are not.

    One after the other where times are stored: those are to be a resting machine's.
    """
    if processes == 1:
        return [ready(path) for path in paths]
    # kernels of several threads would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(ready, paths))


def is_ready(path: Path, *, write: bool, fresh: bool) -> bool:
    """Rebuild one notebook; return whether it ran to its end and is stored as it came out."""
    try:
        return not rebuild(path, write=write, fresh=fresh) or write
    except (CellControlSignal, DeadKernelError) as error:
        what = ANSI_COLOR.sub("", str(error))
        print(f"{path.name}: {type(error).__name__}: {what}", flush=True)
        return False


def rebuild(path: Path, *, write: bool = True, fresh: bool = False) -> bool:
    """Run one notebook; write it where something changed; return whether something did."""
    text = path.read_text(encoding="utf-8")
    stored = nbformat.reads(text, as_version=4)
    new = tidied(executed(stored, path.parent))
    found = differences(new, stored)
    if fresh or any(is_measured(cell) for k, cell in enumerate(code_cells(new)) if k in found):
        found = {k: found.get(k, "") for k in range(len(new.cells))}
    kept = with_stored_outputs(new, stored, found)
    changed = as_text(kept) != text
    verb = ("changed" if write else "would change") if changed else "unchanged"
    lines = [f"{path.name}: {verb}{which_cells(kept, stored) if changed else ''}"]
    lines += [f"  code cell {k + 1}: {what}" for k, what in found.items() if what]
    print("\n".join(lines), flush=True)
    if changed and write:
        path.write_text(as_text(kept), encoding="utf-8")
    return changed


def executed(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Return a copy of a notebook, run from top to bottom in a new kernel of this Python."""
    copy = deepcopy(notebook)
    for cell in code_cells(copy):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        copy,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        skip_cells_with_tag="nbval-skip",
    )
    with tempfile.TemporaryDirectory(prefix="gpupreload-ipython-") as ipython:
        # the same surroundings as the kernels of `pytest --nbval`, see conftest.py
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": ipython}
        environment.pop("MPLBACKEND", None)
        client.execute(cwd=str(folder), env=environment, stderr=subprocess.DEVNULL)
    return copy


def tidied(notebook: NotebookNode) -> NotebookNode:
    """Return a copy without what differs from one machine or run to the next.

    Widget views go, for their ids mean nothing without the kernel they lived in; the text or the
    picture that each widget brings along is what then shows.
    """
    copy = deepcopy(notebook)
    copy.metadata = nbformat.from_dict(METADATA)
    for cell in code_cells(copy):
        cell.metadata.pop("execution", None)
        cell.outputs = coalesce_streams(cell.outputs)
        for output in cell.outputs:
            output.get("data", {}).pop(WIDGET_VIEW, None)
    return copy


def as_text(notebook: NotebookNode) -> str:
    """Write a notebook as it stands in the repository."""
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def differences(new: NotebookNode, stored: NotebookNode) -> dict[int, str]:
    """Say of each code cell that came out otherwise, by its number from 0 on, how it differs."""
    pairs = zip(code_cells(new), code_cells(tidied(stored)), strict=True)
    found = {number: difference(cell, old) for number, (cell, old) in enumerate(pairs)}
    return {number: what for number, what in found.items() if what}


def with_stored_outputs(
    new: NotebookNode, stored: NotebookNode, renewed: Container[int]
) -> NotebookNode:
    """Return the new notebook, with the stored outputs of all code cells but those renewed."""
    copy = deepcopy(new)
    pairs = zip(code_cells(copy), code_cells(tidied(stored)), strict=True)
    for number, (cell, old) in enumerate(pairs):
        if number not in renewed:
            cell.outputs = old.outputs
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = cell.execution_count
    return copy


def which_cells(new: NotebookNode, stored: NotebookNode) -> str:
    """Name the code cells whose outputs changed, by their number among the code cells."""
    pairs = zip(code_cells(new), code_cells(stored), strict=True)
    numbers = [str(i) for i, (a, b) in enumerate(pairs, start=1) if a.outputs != b.outputs]
    return f" (outputs of code cells {', '.join(numbers)})" if numbers else " (not the outputs)"


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The code cells of a notebook, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def difference(cell: NotebookNode, old: NotebookNode) -> str:
    """Say how two runs of a cell differ; nothing where they said the same."""
    a, b = ([o for o in c.outputs if o.get("name") != "stderr"] for c in (cell, old))
    if [kinds(output) for output in a] != [kinds(output) for output in b]:
        return f"has outputs {[kinds(output) for output in a]}"
    for x, y in zip(a, b, strict=True):
        for kind in kinds(x):
            what = difference_of_values(kind, parts(x)[kind], parts(y)[kind], is_measured(cell))
            if what:
                return what
    return ""


def is_measured(cell: NotebookNode) -> bool:
    """Whether a code cell prints or draws what was measured."""
    return "nbval-ignore-output" in cell.metadata.get("tags", [])


def parts(output: NotebookNode) -> dict[str, Any]:
    """What an output shows, by MIME type; of an error its name and message."""
    if output.output_type == "stream":
        return {"stream": output.text}
    if output.output_type == "error":
        return {"error": f"{output.ename}: {output.evalue}"}
    return dict(output.data)


def kinds(output: NotebookNode) -> list[str]:
    """The MIME types of an output."""
    return sorted(parts(output))


def difference_of_values(kind: str, new: Any, old: Any, measured: bool) -> str:
    """Say how two values of one MIME type differ; of measured ones only pictures' sizes count."""
    if kind in PICTURES:
        return difference_of_pictures(new, old, measured)
    if measured or sanitized(new) == sanitized(old):
        return ""
    lines = zip_longest(sanitized(str(new)).split("\n"), sanitized(str(old)).split("\n"))
    line, stored = next((pair for pair in lines if pair[0] != pair[1]), (new, old))
    return f"says {line!r}; stored is {stored!r}"


def sanitized(value: Any) -> Any:
    """Replace in a text what may differ from run to run, as nbval does."""
    if isinstance(value, str):
        for regex, replacement in get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")):
            value = re.sub(regex, replacement, value)
    return value


def difference_of_pictures(new: str, old: str, measured: bool) -> str:
    """Say how two base64 pictures differ in size, or by how much in any block of pixels."""
    a, b = (decoded(data) for data in (new, old))
    if a.shape != b.shape:
        return f"draws {a.shape[1]}×{a.shape[0]} pixels; stored are {b.shape[1]}×{b.shape[0]}"
    apart = np.abs(block_means(a) - block_means(b)).max(axis=-1)
    if measured or apart.max() <= BLOCKS_MAY_DIFFER_BY:
        return ""
    row, column = np.unravel_index(apart.argmax(), apart.shape)
    where = f"{column * BLOCK} from the left and {row * BLOCK} from the top"
    return f"draws what differs by {apart.max():.0f} grey levels of 256 at the pixel {where}"


def decoded(data: str) -> np.ndarray:
    """The pixels of a base64 picture: float64 [height, width, 4]."""
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    return np.asarray(image.convert("RGBA"), dtype=np.float64)


def block_means(pixels: np.ndarray) -> np.ndarray:
    """The means of blocks of pixels, the last ones filled up by repeating the border."""
    height, width = pixels.shape[:2]
    filled = np.pad(pixels, ((0, -height % BLOCK), (0, -width % BLOCK), (0, 0)), mode="edge")
    blocks = filled.reshape(len(filled) // BLOCK, BLOCK, -1, BLOCK, pixels.shape[2])
    return np.asarray(blocks.mean(axis=(1, 3)))


if __name__ == "__main__":
    sys.exit(main())
