"""Run the notebooks from a clean kernel and store their outputs.

`make notebooks` calls this. Outputs in the repository are always this script's, never saved by
hand. A stored output stays where the new one says the same, so that a rebuild changes only what
has really changed:

    python tools/notebooks.py                       # all of notebooks/
    python tools/notebooks.py notebooks/01-a.ipynb  # this one
    python tools/notebooks.py --check               # write nothing; fail where a rebuild would
    python tools/notebooks.py --fresh               # keep nothing: measure every time anew

"The same" means: text is equal after the patterns of tests/notebooks/sanitize.cfg, pictures have
the same size and nearly the same pixels, and a cell tagged `nbval-ignore-output` has outputs of
the same kinds. Cells tagged `nbval-skip` are not run.
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
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbclient import NotebookClient
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
PIXELS_MAY_DIFFER_BY = 2  # grey levels of 256: decoders and font renderers round differently


def main() -> int:
    """Rebuild or check the notebooks named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    parser.add_argument("--fresh", action="store_true", help="keep no stored output")
    asked = parser.parse_args()
    paths = asked.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    changed = [path for path in paths if rebuild(path, write=not asked.check, fresh=asked.fresh)]
    return 1 if asked.check and changed else 0


def rebuild(path: Path, *, write: bool = True, fresh: bool = False) -> bool:
    """Run one notebook; write it where something changed; return whether something did."""
    text = path.read_text(encoding="utf-8")
    stored = nbformat.reads(text, as_version=4)
    new = tidied(executed(stored, path.parent))
    kept = new if fresh else with_stored_outputs(new, stored)
    changed = as_text(kept) != text
    verb = ("changed" if write else "would change") if changed else "unchanged"
    print(f"{path.name}: {verb}{which_cells(kept, stored) if changed else ''}", flush=True)
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


def with_stored_outputs(new: NotebookNode, stored: NotebookNode) -> NotebookNode:
    """Return the new notebook, with the stored outputs of each cell where they say the same."""
    copy = deepcopy(new)
    for cell, old in zip(code_cells(copy), code_cells(tidied(stored)), strict=True):
        if same_outputs(cell, old):
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


def same_outputs(cell: NotebookNode, old: NotebookNode) -> bool:
    """Whether two runs of a cell said the same."""
    a, b = ([o for o in c.outputs if o.get("name") != "stderr"] for c in (cell, old))
    if [kinds(output) for output in a] != [kinds(output) for output in b]:
        return False
    if "nbval-ignore-output" in cell.metadata.get("tags", []):
        return bool(cell.source == old.source)
    return all(
        same_value(kind, parts(x)[kind], parts(y)[kind])
        for x, y in zip(a, b, strict=True)
        for kind in kinds(x)
    )


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


def same_value(kind: str, new: Any, old: Any) -> bool:
    """Whether two values of one MIME type say the same."""
    if kind in ("image/png", "image/jpeg"):
        return same_picture(new, old)
    return bool(sanitized(new) == sanitized(old))


def sanitized(value: Any) -> Any:
    """Replace in a text what may differ from run to run, as nbval does."""
    if isinstance(value, str):
        for regex, replacement in get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")):
            value = re.sub(regex, replacement, value)
    return value


def same_picture(new: str, old: str) -> bool:
    """Whether two base64 pictures have one size and, nearly, the same pixels."""
    a, b = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"), dtype=np.int16)
        for data in (new, old)
    )
    return a.shape == b.shape and int(np.abs(a - b).max()) <= PIXELS_MAY_DIFFER_BY


if __name__ == "__main__":
    sys.exit(main())
