"""Matplotlib figures that no list of open figures holds. Matplotlib is imported on call only."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that pyplot knows nothing of.

    As a notebook cell's last value it is drawn once, as PNG.

    Args:
        width: in inches.
        height: in inches.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    figure: Figure = _figure_class()(figsize=(width, height), layout="constrained")
    return figure


@cache
def _figure_class() -> type[Figure]:
    """A figure that draws itself in a notebook, without pyplot and its list of open figures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "pictures need Matplotlib, which is not installed: pip install 'gpupreload[lab]'"
        ) from None

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            png = io.BytesIO()
            self.savefig(png, format="png", dpi=96)
            return png.getvalue()

        def __repr__(self) -> str:
            width, height = self.get_size_inches()
            return f"<a picture of {width:.1f} × {height:.1f} inches>"

    return NotebookFigure
