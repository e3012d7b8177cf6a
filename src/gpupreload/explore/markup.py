"""HTML for the widgets: a picture with its text, a line of status, an alert, bars."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gpupreload.explore.mosaic import Pixels, encoded, enlargement

_MOST_BARS = 12
# a theme's colours where there is a theme, and colours that do without
_FONT = "font-size: var(--jp-ui-font-size1, 13px); color: var(--jp-ui-font-color1, currentColor)"
_TRACK = "background: var(--jp-layout-color2, #ddd)"


def picture(pixels: Pixels, alt: str, headings: Sequence[tuple[str, float]] = ()) -> str:
    """Show a picture, with headings above that each take a share of its width.

    Args:
        pixels: uint8 [H, W, 3].
        alt: the picture in words.
        headings: (text, share of the width).
    """
    mime, data = encoded(pixels)
    scale = enlargement(pixels)
    sharp = "; image-rendering: pixelated" if scale > 1 else ""
    cell = "overflow: hidden; text-overflow: ellipsis; white-space: nowrap"
    cells = "".join(
        f'<div style="width: {100 * share:.2f}%; {cell}">{escape(text)}</div>'
        for text, share in headings
    )
    row = f'<div style="display: flex; line-height: 1.6; {_FONT}">{cells}</div>'
    source = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    # a grid's column may be narrower than what is in it, where the window is
    column = f"display: grid; grid-template-columns: minmax(0, {scale * pixels.shape[1]}px)"
    return (
        f'<div style="{column}">{row if cells else ""}'
        f'<img alt="{escape(alt)}" style="display: block; height: auto; width: 100%{sharp}" '
        f'src="{source}"></div>'
    )


def faded(markup: str) -> str:
    """Show what is no longer up to date."""
    return f'<div style="opacity: 0.3">{markup}</div>'


def status(text: str) -> str:
    """A line that a screen reader announces when it changes."""
    return f'<div role="status" style="line-height: 1.5; {_FONT}">{escape(text)}</div>'


def alert(text: str) -> str:
    """An error, which a screen reader announces at once; nothing where there is none."""
    if not text:
        return ""
    colors = "color: #fff; background: #b71c1c"
    return (
        f'<div role="alert" style="line-height: 1.5; padding: 6px 10px; white-space: pre-wrap; '
        f'overflow-wrap: anywhere; {colors}">{escape(text)}</div>'
    )


@dataclass(frozen=True)
class Segment:
    """A part of a bar: what it is, its share of the bar's length, and its colour."""

    name: str
    share: float
    color: str


def stacked_bar(segments: Sequence[Segment], alt: str, mark: tuple[str, float]) -> str:
    """Show segments one after the other on a bar of length 1, with a legend below.

    Args:
        segments: what exceeds the bar's length is cut off; what is tiny is still seen.
        alt: the bar in words.
        mark: the name of a dashed line, and where it stands, as a share of the length.
    """
    name, place = mark
    dashed = "border-left: 2px dashed var(--jp-ui-font-color1, currentColor)"
    line = (
        f'<div style="position: absolute; left: {100 * place:.2f}%; top: -4px; bottom: -4px; '
        f'{dashed}"></div>'
    )
    boxes, left = "", 0.0
    for segment in segments:
        width = max(0.0, min(segment.share, 1 - left))
        boxes += (
            f'<div style="position: absolute; left: {100 * left:.2f}%; width: {100 * width:.2f}%; '
            f'min-width: 3px; top: 0; bottom: 0; background: {segment.color}"></div>'
        )
        left += width
    legend = "".join(
        f'<span style="margin-right: 16px; white-space: nowrap"><span style="display: '
        f"inline-block; width: 10px; height: 10px; margin-right: 5px; "
        f'background: {segment.color}"></span>{escape(segment.name)}</span>'
        for segment in segments
    )
    legend += (
        f'<span style="white-space: nowrap"><span style="{dashed}; margin-right: 8px"></span>'
        f"{escape(name)}</span>"
    )
    return (
        f'<div style="max-width: 640px; {_FONT}"><div role="img" aria-label="{escape(alt)}" '
        f'style="position: relative; height: 22px; margin: 6px 0; {_TRACK}">{boxes}{line}</div>'
        f'<div style="line-height: 1.6; white-space: normal">{legend}</div></div>'
    )


def histogram(counts: Mapping[str, int]) -> str:
    """Show one bar for each of the first classes, with its name and number."""
    most = max(counts.values(), default=1)
    shown = list(counts.items())[:_MOST_BARS]
    rows = "".join(
        f'<div style="display: flex; align-items: center; line-height: 1.5">'
        f'<div style="width: 130px; overflow: hidden; text-overflow: ellipsis; '
        f'white-space: nowrap" title="{escape(name)}">{escape(name)}</div>'
        f'<div style="flex: 1; {_TRACK}"><div style="height: 10px; background: #1976d2; '
        f'width: {100 * count / max(1, most):.2f}%"></div></div>'
        f'<div style="width: 60px; text-align: right">{count:,}</div></div>'
        for name, count in shown
    )
    rest = len(counts) - len(shown)
    more = f"<div>and {rest:,} more classes</div>" if rest else ""
    title = "<div>images in each class</div>"
    return f'<div style="max-width: 640px; margin-top: 8px; {_FONT}">{title}{rows}{more}</div>'
