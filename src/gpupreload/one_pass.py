"""Which stages of a chain run together: those at the start with the gathering, those at the end.

At the start, a crop and flips are made while the samples are picked out of the store. At the end,
floats are written into the memory that the batch will be served from, and what is erased after that
is erased there. So no batch between is filled and read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpupreload.functional import moves
from gpupreload.functional.picking import Cut, Picker
from gpupreload.functional.pixelwise import UNCHANGED_ON_TENSORS
from gpupreload.native.crops import RandomCrop
from gpupreload.native.sometimes import Sometimes
from gpupreload.native.step import Params, Shape
from gpupreload.rows import Rows
from gpupreload.stages import Drawn, Pixelwise, Stage

_FLIPS: dict[Any, int] = {moves.horizontal_flip: -1, moves.vertical_flip: -2}


@dataclass(frozen=True)
class Head:
    """The stages at the start that can be made while samples are picked out of a store.

    Attributes:
        n_stages: how many there are.
        crop: the place of a crop among them, or None.
        flips: the places of flips, each with its dimension.
    """

    n_stages: int
    crop: int | None
    flips: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, stages: Sequence[Stage]) -> Head:
        """Find them: a crop, then flips; steps that leave tensors alone may stand between."""
        crop, flips, n_stages = None, [], 0
        for number, stage in enumerate(stages):
            dim = _flipped(stage)
            if dim is not None:
                flips.append((number, dim))
            elif _is_simple_crop(stage) and crop is None and not flips:
                crop = number
            elif not _is_nothing(stage):
                break
            n_stages = number + 1
        return cls(n_stages, crop, tuple(flips))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but the gathering."""
        return self.crop is None and not self.flips

    def output_shape(self, stages: Sequence[Stage], shape: Shape) -> Shape:
        """The shape (C, H, W) of what `pick` gives for images of a shape."""
        crop = None if self.crop is None else _crop_of(stages[self.crop])
        return shape if crop is None else crop.output_shape(shape)

    def pick(
        self,
        picker: Picker,
        stages: Sequence[Stage],
        drawn: Sequence[Params | None],
        store: Tensor,
        indices: Tensor,
        out: Tensor,
    ) -> Tensor:
        """Gather samples, cropped and flipped.

        Args:
            picker: what does the work.
            stages: of the whole chain.
            drawn: the parameters of each stage for these samples.
            store: [M, C, H, W] on the CPU; never written to.
            indices: int64 [N] on the CPU.
            out: [N, C, H', W'] of the store's dtype, contiguous, to be written to.
        """
        cut = None
        if self.crop is not None:
            crop, params = _crop_of(stages[self.crop]), drawn[self.crop] or {}
            padding = [*crop.paddings(*store.shape[2:]), (0, 0, 0, 0)][0]
            assert isinstance(crop.fill, int | float)  # for the type checker: _is_simple_crop
            cut = Cut(params["top"], params["left"], crop.size, padding, crop.fill)
        flips = [(dim, (drawn[number] or {})["applied"]) for number, dim in self.flips]
        return picker(store, indices, out, cut, flips)


def start_of_tail(stages: Sequence[Stage]) -> int | None:
    """The place of the last stage that makes floats, if all after it write in place; else None."""
    for number in reversed(range(len(stages))):
        stage = stages[number]
        if isinstance(stage, Pixelwise):
            return number
        if not (isinstance(stage, Drawn) and stage.native.writes_in_place):
            break
    return None


def drawn_ahead(
    stages: Sequence[Stage], rows: Rows, shape: Shape, dtype: torch.dtype
) -> list[Params | None]:
    """Draw the parameters of as many stages as are sure to get images of a known shape.

    Args:
        stages: of the whole chain.
        rows: which samples.
        shape: (C, H, W) of the images in the store.
        dtype: of these images.

    Returns:
        For each stage its parameters for these rows; None where it draws nothing, or where what
        comes to it is not known beforehand.
    """
    drawn: list[Params | None] = [None] * len(stages)
    for number, stage in enumerate(stages):
        if isinstance(stage, Drawn):
            drawn[number] = stage.draw(rows, shape)
            shape = stage.native.output_shape(shape)
        elif isinstance(stage, Pixelwise):
            levels = stage.levels(shape[0], dtype)
            shape, dtype = (levels.channels, *shape[1:]), levels.dtype
        else:
            break
    return drawn


def of_rows(drawn: Sequence[Params | None], rows: slice) -> list[Params | None]:
    """The parameters of some of the rows that were drawn."""
    return [p and {name: values[rows] for name, values in p.items()} for p in drawn]


def _flipped(stage: Stage) -> int | None:
    if isinstance(stage, Drawn) and isinstance(stage.native, Sometimes):
        return _FLIPS.get(stage.native.kernel)
    return None


def _crop_of(stage: Stage) -> RandomCrop:
    assert isinstance(stage, Drawn)  # for the type checker: _is_simple_crop
    assert isinstance(stage.native, RandomCrop)
    return stage.native


def _is_simple_crop(stage: Stage) -> bool:
    """Whether a stage cuts a window out of an image that is padded once, with one number."""
    if not isinstance(stage, Drawn) or not isinstance(stage.native, RandomCrop):
        return False
    crop = stage.native
    pads_once = crop.at_once or not crop.pad_if_needed
    return pads_once and crop.padding_mode == "constant" and crop.fill in range(256)


def _is_nothing(stage: Stage) -> bool:
    return isinstance(stage, Pixelwise) and all(
        type(step) in UNCHANGED_ON_TENSORS for step in stage.steps
    )
