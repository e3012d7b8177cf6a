"""What a notebook keeps of a widget, for where none can live: one picture with its words."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from gpupreload.explore.markup import Segment
from gpupreload.explore.mosaic import Pixels, encoded, enlargement, reduced

_LETTER, _LINE = 13, 20  # pixels: height of the letters, and of a line
_BLACK, _WHITE, _TRACK = "#000", "#fff", "#ddd"
_BAR, _OVER, _DASH = 22, 4, 6  # pixels: height of a bar, how far a mark stands out, its dashes


def as_stored(parts: Sequence[Pixels]) -> dict[str, str]:
    """Put pictures below each other on white.

    Args:
        parts: each uint8 [H, W, 3].

    Returns:
        The picture in base64, by its MIME type, as a notebook stores it.
    """
    width = max(part.shape[1] for part in parts)
    rows = [
        np.pad(part, ((0, 0), (0, width - part.shape[1]), (0, 0)), constant_values=255)
        for part in parts
    ]
    mime, data = encoded(np.concatenate(rows), quality=85)
    return {mime: base64.b64encode(data).decode()}


def sized(pixels: Pixels) -> Pixels:
    """Enlarge a narrow picture as the widget does, and make a very wide one smaller."""
    scale = enlargement(pixels)
    return reduced(pixels.repeat(scale, 0).repeat(scale, 1))


def headings(texts: Sequence[tuple[str, float]], width: int) -> Pixels:
    """A line of texts, each cut off where its share of the width ends.

    Args:
        texts: (text, share of the width); a class name may have a line break in it.
        width: in pixels.

    Returns:
        uint8 [H, width, 3].
    """
    font, left = _font(), 0.0
    line = Image.new("RGB", (width, _LINE), _WHITE)
    for text, share in texts:
        cell = Image.new("RGB", (max(1, int(share * width) - _OVER), _LINE), _WHITE)
        ImageDraw.Draw(cell).text((0, 1), _in_one_line(text), _BLACK, font)
        line.paste(cell, (int(left * width), 0))
        left += share
    return np.array(line)


def _in_one_line(text: str) -> str:
    """A text without line breaks, and without ×, which the font has not."""
    return " ".join(text.replace("×", "x").split())


def sentence(text: str, width: int) -> Pixels:
    """A text in as many lines as it needs: uint8 [H, width, 3]."""
    font, lines = _font(), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        fits = font.getlength(_in_one_line(longer)) <= width - _OVER
        lines[-1:] = [longer] if fits or not lines[-1] else [lines[-1], word]
    return np.concatenate([headings([(line, 1.0)], width) for line in lines])


def stacked_bar(segments: Sequence[Segment], mark: tuple[str, float], width: int) -> Pixels:
    """Segments one after the other on a bar, a mark, and below what each is.

    Args:
        segments: what exceeds the bar's length is cut off; what is tiny is still seen.
        mark: the name of a dashed line, and where it stands, as a share of the length.
        width: in pixels.

    Returns:
        uint8 [H, width, 3].
    """
    bar = Image.new("RGB", (width, _BAR + 3 * _OVER), _WHITE)
    draw = ImageDraw.Draw(bar)
    top, bottom = _OVER, _OVER + _BAR - 1
    draw.rectangle((0, top, width, bottom), _TRACK)
    left = 0.0
    for segment in segments:
        right = max(left + 3, left + segment.share * width)
        draw.rectangle((left, top, min(right, width), bottom), segment.color)
        left = min(right, width)
    place = mark[1] * width
    for y in range(0, bottom + _OVER, _DASH):
        draw.line((place, y, place, y + _DASH // 2), _BLACK, 2)
    return np.concatenate([np.asarray(bar), _legend(segments, mark[0], width)])


def _legend(segments: Sequence[Segment], mark: str, width: int) -> Pixels:
    """A line for each segment, with a square in its colour, and one for the mark."""
    square = _LETTER - 3
    lines = [headings([("", square * 2 / width), (s.name, 1.0)], width) for s in segments]
    for line, segment in zip(lines, segments, strict=True):
        line[5 : 5 + square, :square] = ImageColor.getrgb(segment.color)
    last = headings([("", square * 2 / width), (mark, 1.0)], width)
    last[2 : _LINE - 2, square // 2 : square // 2 + 2] = 0
    return np.concatenate([*lines, last])


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_LETTER)  # Pillow's own
