"""The picture that a notebook keeps of a widget."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from gpupreload.explore import still
from gpupreload.explore.markup import Segment
from gpupreload.explore.mosaic import encoded


def test_a_large_picture_is_stored_small() -> None:
    """A notebook keeps a photo's pixels within a few levels, in fewer bytes than a widget sends."""
    wave = np.sin(np.arange(400) / 9)[:, None, None] * np.cos(np.arange(400) / 7)[None, :, None]
    pixels = (127 + 100 * wave * np.array([1, 0.5, -1])).astype(np.uint8)
    [(mime, data)] = still.as_stored([pixels]).items()
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    assert mime == "image/jpeg"
    assert np.abs(picture.astype(int) - pixels).mean() < 2
    assert len(base64.b64decode(data)) < len(encoded(pixels)[1])


def test_a_wide_picture_stays_readable() -> None:
    """What is wider than a file is made smaller before its words are written, and lines wrap."""
    pixels = np.zeros((100, 3600, 3), np.uint8)
    assert still.sized(pixels).shape == (34, 1200, 3)
    assert still.sized(pixels[:, :40]).shape == (1100, 440, 3)
    text = "a sentence that goes on"
    assert still.sentence(text, 400).shape == (20, 400, 3)
    assert still.sentence(text, 100).shape == (40, 100, 3)


@pytest.mark.parametrize("text", ["two\nlines", "two\r\n\tlines", " two lines\n"])
def test_a_class_name_with_a_line_break_is_drawn_in_one_line(text: str) -> None:
    """All of a name is seen: whatever space is in it is drawn as a blank."""
    expected = still.headings([("two lines", 1.0)], 200)
    assert np.array_equal(still.headings([(text, 1.0)], 200), expected)
    assert np.array_equal(still.sentence(text, 200), expected)


def test_what_exceeds_the_bar_is_cut_off() -> None:
    """Segments lie one after the other, up to the end of the bar."""
    segments = [Segment("a", 0.25, "#f00"), Segment("b", 1.5, "#00f")]
    row = still.stacked_bar(segments, ("end", 0.5), 80)[10]
    assert (row[:20] == (255, 0, 0)).all()
    assert (row[22:39] == (0, 0, 255)).all()
    assert (row[42:] == (0, 0, 255)).all()
