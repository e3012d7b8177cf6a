"""The two parts of a transform: what runs once, and what runs for each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from gpupreload.catalog import kind_of
from gpupreload.probe import Randomness
from gpupreload.source import ImageSpec, describe
from gpupreload.table import Table
from gpupreload.trace import Takes

_AFTER_NONE = "deterministic, kept where the random steps before it are left out"


@dataclass(frozen=True)
class Step:
    """One step of a transform, and where it runs.

    Attributes:
        transform: the caller's own object, untouched; without its mark, if it had one.
        name: the step in a few words: `Resize(112)`, or a function's name.
        part: "once", at preload, or "each batch".
        reason: why it is there, in one line.
        randomness: "deterministic", "random", or "unknown" for a callable that was not tried
            because it runs for each batch in any case.
        call: "image", one image [C, H, W] at a time, or "batch", [N, C, H, W] (`gp.batched`).
        takes: what the step is given where the caller put it: "PIL", "tensor" ([C, H, W]) or
            "array" (NumPy's, [H, W, C]).
        is_tv_image: whether that tensor is a `torchvision.tv_tensors.Image`.
        is_marked_once: whether the caller marked it `gp.once`.
    """

    transform: Callable[..., Any]
    name: str
    part: Literal["once", "each batch"]
    reason: str
    randomness: Randomness
    call: Literal["image", "batch"] = "image"
    takes: Takes = "PIL"
    is_tv_image: bool = False
    is_marked_once: bool = False

    @property
    def is_deterministic(self) -> bool:
        """Whether it is known to be: it was found to be, or is such a class behind its mark."""
        return self.randomness == "deterministic" or kind_of(self.transform) == "deterministic"


@dataclass(frozen=True)
class Steps:
    """The steps of a transform in order of running, those that run once before the others.

    Attributes:
        rows: the steps.
        stored: what the once-part gives for every image: shape [C, H, W] and, as `mode`, the name
            of the dtype, "uint8" or a float's; None without data.
        n_decoded: how many images were decoded to find this out, beside those that the source
            needed for its `specs`.
        note: a sentence on what is stored, or on what that depends on.
    """

    rows: tuple[Step, ...]
    stored: ImageSpec | None = None
    n_decoded: int = 0
    note: str = field(default="", repr=False)

    @property
    def once(self) -> tuple[Callable[..., Any], ...]:
        """What runs once, at preload: a deterministic start of the transform."""
        return tuple(step.transform for step in self.rows_of("once"))

    @property
    def each_batch(self) -> tuple[Callable[..., Any], ...]:
        """What runs for each batch: the first random step, and all that must come with it."""
        return tuple(step.transform for step in self.each_batch_steps)

    @property
    def each_batch_steps(self) -> tuple[Step, ...]:
        """The rows of what runs for each batch."""
        return self.rows_of("each batch")

    def rows_of(self, part: Literal["once", "each batch"]) -> tuple[Step, ...]:
        """The rows of one part."""
        return tuple(step for step in self.rows if step.part == part)

    def without_random(self) -> Steps:
        """These steps without those of each batch that are random, or may be."""
        rows: list[Step] = []
        for number, step in enumerate(self.rows):
            is_after = len(rows) < number and step.reason.startswith("after ")
            if step.part == "once":
                rows.append(step)
            elif step.is_deterministic:
                reason = _AFTER_NONE if is_after else step.reason
                rows.append(replace(step, reason=reason, randomness="deterministic"))
        return replace(self, rows=tuple(rows))

    def names(self, part: Literal["once", "each batch"]) -> str:
        """The names of one part's steps in order, or "nothing"."""
        return ", ".join(step.name for step in self.rows_of(part)) or "nothing"

    def run_once(self, image: Any) -> Tensor:
        """Run the once-part on one image of the source.

        Args:
            image: a PIL image, or a tensor [C, H, W], as the source reads it.

        Returns:
            The pixels to be stored: a CPU tensor [C, H, W], uint8 or of the float dtype that
            `stored` names. Whether this image comes out like the others is the caller's to check.

        Raises:
            TypeError: a step returned something that is no image.
        """
        with torch.no_grad():
            for transform in self.once:
                image = transform(image)
        pixels = pixels_of(image)
        if isinstance(pixels, np.ndarray):
            return torch.from_numpy(np.array(pixels, order="C"))
        return pixels.contiguous()

    @property
    def table(self) -> Table:
        """The steps as a table."""
        rows = tuple(
            (str(i), step.name, step.part, step.reason) for i, step in enumerate(self.rows, 1)
        )
        headings = ("", "step", "runs", "why")
        return Table(rows, headings if rows else (), note=self.note, right=(0,))

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def pixels_of(image: Any) -> Tensor | NDArray[Any]:
    """Return the pixels of what a once-part gave, [C, H, W], as they lie in memory.

    A `TypeError` for a value that is no image.
    """
    if isinstance(image, Image.Image):
        pixels = np.asarray(image)
        image = pixels if pixels.dtype == np.uint8 else F.pil_to_tensor(image)
    if isinstance(image, np.ndarray) and image.ndim in (2, 3):
        return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    if not isinstance(image, Tensor):
        raise TypeError(f"it returned {describe(image)}; expected one image.")
    return image.as_subclass(Tensor)
