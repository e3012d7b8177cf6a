"""Matplotlib figures that no list of open figures holds. Matplotlib is imported on call only."""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_CSS_DPI = 96  # a browser's inch, whatever the screen
_DPI = 144  # sharp on a dense screen too
_JPEG_QUALITY = 80


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that pyplot knows nothing of.

    As a notebook cell's last value it is drawn once, as PNG or as JPEG, whichever has fewer bytes:
    photos become JPEG, a third of their PNG, and bars and text become PNG.

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
        def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, str], dict[str, Any]]:
            mime, data = _smallest(self)
            width, height = (round(inches * _CSS_DPI) for inches in self.get_size_inches())
            bundle = {mime: base64.b64encode(data).decode(), "text/plain": repr(self)}
            return bundle, {mime: {"width": width, "height": height}}

        def __repr__(self) -> str:
            width, height = self.get_size_inches()
            return f"<a picture of {width:.1f} × {height:.1f} inches>"

    return NotebookFigure


def _smallest(figure: Figure) -> tuple[str, bytes]:
    """Draw a figure and return it as the smaller of two files: its MIME type and its bytes."""
    png, jpeg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=_DPI)
    pixels = Image.open(png).convert("RGB")
    pixels.save(jpeg, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    files = {"image/png": png.getvalue(), "image/jpeg": jpeg.getvalue()}
    return min(files.items(), key=lambda file: len(file[1]))
