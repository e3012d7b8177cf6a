"""Tiles laid out as one picture, and a picture as a file."""

from __future__ import annotations

import io
import math

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]

GAP = 4  # pixels between tiles
BETWEEN_PANELS = 20
PANEL_COLUMNS = 2
GREY = 128  # of the gaps: seen on white and on black
_WIDEST = 1200  # pixels of a file: twice what the widget shows, for dense screens
_LEAST_WIDTH = 440  # CSS pixels; narrower pictures are enlarged by a whole number
_SMALL = 64  # pixels; smaller photos are enlarged to visible pixels
# up to here a PNG is as quick to make as a JPEG, and has no smear
_MOST_PIXELS_OF_A_PNG = 100_000


def encoded(pixels: Pixels, quality: int = 95) -> tuple[str, bytes]:
    """Return uint8 pixels [H, W, 3] as a file: its MIME type and its bytes.

    Args:
        pixels: what is drawn; what is very wide is made smaller, by a whole number.
        quality: of a JPEG, 0 to 100.
    """
    file = io.BytesIO()
    image = Image.fromarray(reduced(pixels))
    if image.width * image.height <= _MOST_PIXELS_OF_A_PNG:
        image.save(file, "PNG", compress_level=1)
        return "image/png", file.getvalue()
    image.save(file, "JPEG", quality=quality, subsampling=0)
    return "image/jpeg", file.getvalue()


def enlargement(pixels: Pixels) -> int:
    """How many times as wide and high a narrow picture is shown: a whole number."""
    return max(1, round(_LEAST_WIDTH / pixels.shape[1]))


def reduced(pixels: Pixels) -> Pixels:
    """Make what is very wide smaller, by a whole number: uint8 [H, W, 3]."""
    factor = round(pixels.shape[1] / _WIDEST)
    return np.asarray(Image.fromarray(pixels).reduce(factor)) if factor > 1 else pixels


def columns_for(n: int) -> int:
    """The columns of `beside`: as square as can be, with room for four tiles more."""
    return math.ceil(math.sqrt(n + 4))


def beside(original: Tensor, draws: Tensor) -> Pixels:
    """Lay out one large picture at the left, on four tiles' room, and the others around it.

    Args:
        original: uint8 [H, W, 3].
        draws: uint8 [n, H', W', 3], of another size perhaps.

    Returns:
        uint8 [H'', W'', 3].
    """
    n, height, width = draws.shape[:3]
    columns = columns_for(n)
    cells = [c for c in _cells(n + 4 + 2 * columns, columns) if c[0] > 1 or c[1] > 1][:n]
    rows = max(2, *(row + 1 for row, _ in cells))
    canvas = _canvas(rows, columns, height, width)
    for (row, column), picture in zip(cells, draws.numpy(), strict=True):
        _paste(canvas, picture, row * (height + GAP), column * (width + GAP))
    box = (2 * height + GAP, 2 * width + GAP)
    large = _fitted(original, box)
    _paste(canvas, large, (box[0] - len(large)) // 2, (box[1] - large.shape[1]) // 2)
    return canvas


def side_by_side(left: Tensor, right: Tensor) -> Pixels:
    """Lay out two panels of tiles next to each other.

    Args:
        left: uint8 [n, H, W, 3].
        right: uint8 [n, H', W', 3].

    Returns:
        uint8 [H'', W'', 3], the right panel beginning `BETWEEN_PANELS` after the left one.
    """
    panels = [_panel(tiles) for tiles in (left, right)]
    height = max(len(panel) for panel in panels)
    width = max(panel.shape[1] for panel in panels)
    canvas = np.full((height, 2 * width + BETWEEN_PANELS, 3), GREY, np.uint8)
    for panel, start in zip(panels, (0, width + BETWEEN_PANELS), strict=True):
        _paste(canvas, panel, 0, start)
    return canvas


def _panel(tiles: Tensor) -> Pixels:
    n, height, width = tiles.shape[:3]
    canvas = _canvas(math.ceil(n / PANEL_COLUMNS), PANEL_COLUMNS, height, width)
    for (row, column), tile in zip(_cells(n, PANEL_COLUMNS), tiles.numpy(), strict=False):
        _paste(canvas, tile, row * (height + GAP), column * (width + GAP))
    return canvas


def _cells(n: int, columns: int) -> list[tuple[int, int]]:
    return [divmod(k, columns) for k in range(n)]


def _canvas(rows: int, columns: int, height: int, width: int) -> Pixels:
    shape = (rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3)
    return np.full(shape, GREY, np.uint8)


def _paste(
    canvas: Pixels,
    tile: Pixels,
    top: int,
    left: int,
) -> None:
    canvas[top : top + tile.shape[0], left : left + tile.shape[1]] = tile


def _fitted(picture: Tensor, box: tuple[int, int]) -> Pixels:
    """Enlarge a picture smoothly, a small one to visible pixels; or make a large one smaller."""
    scale = min(box[0] / picture.shape[0], box[1] / picture.shape[1])
    if scale >= 1 and max(picture.shape) < _SMALL:
        return picture.numpy().repeat(int(scale), 0).repeat(int(scale), 1)
    size = [max(1, int(side * scale)) for side in picture.shape[:2]]
    planes = picture.permute(2, 0, 1)[None].float()
    enlarged = F.interpolate(planes, size, mode="bicubic", antialias=True)
    return enlarged.round().clamp(0, 255).to(torch.uint8)[0].permute(1, 2, 0).numpy()
