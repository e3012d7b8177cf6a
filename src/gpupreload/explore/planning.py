"""What a preload would take for a size, a type and a margin: pure functions of a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from gpupreload.class_names import class_names
from gpupreload.errors import ArgumentError
from gpupreload.explore.markup import Segment
from gpupreload.explore.mosaic import GAP, GREY, Pixels
from gpupreload.planned import Plan
from gpupreload.source import Source
from gpupreload.table import in_units

Kept = Literal["uint8", "float32"]

TILE = 112  # pixels, of a photo in the strip
_MOST_PHOTOS = 8
_LARGEST_KEPT = 512  # pixels; larger photos are made smaller before the sizes are tried


@dataclass(frozen=True)
class Need:
    """What a preload would take of the device's memory.

    Attributes:
        plan: of the same data at another size.
        size: height and width of the images, in pixels.
        kept: "uint8", as a preload keeps them; "float32" for `as_tensor_dataset` beside it.
        margin: of the device's memory, what is to be left for the model, as a share.
    """

    plan: Plan
    size: int
    kept: Kept = "uint8"
    margin: float = 0.1

    @property
    def resized(self) -> Plan:
        """The plan at this size."""
        shape = (self.plan.shape[0], self.size, self.size)
        return replace(self.plan, shape=shape, dtype=torch.uint8, is_resident=False)

    @property
    def store_bytes(self) -> int:
        """What the store takes: one byte a value, and eight a label."""
        return self.resized.store_bytes

    @property
    def float_bytes(self) -> int:
        """What `as_tensor_dataset` takes beside it: four bytes a value, and eight a label."""
        plan = self.resized
        return plan.float32_bytes + plan.label_bytes if self.kept == "float32" else 0

    @property
    def n_bytes(self) -> int:
        """What stays on the device."""
        return self.store_bytes + self.float_bytes

    @property
    def margin_bytes(self) -> int:
        """What is to be left for the model."""
        return int(self.margin * self.plan.total_bytes)

    @property
    def left_bytes(self) -> int:
        """What is left of the memory that is free now; below 0 where it does not fit."""
        return self.plan.free_bytes - self.n_bytes

    @property
    def verdict(self) -> str:
        """Whether it fits, in one sentence."""
        images = f"{self.plan.n_images:,} images of {self.plan.shape[0]}×{self.size}×{self.size}"
        device = "the CPU" if self.plan.device.type == "cpu" else self.plan.device
        needs = f"{images} take {in_units(self.n_bytes)} of {device}'s memory"
        if self.left_bytes < 0:
            return f"{needs}: {in_units(-self.left_bytes)} more than is free. They do not fit."
        left = f"{in_units(self.left_bytes)} are left"
        if self.left_bytes < self.margin_bytes:
            return f"{needs}: they fit, but only {left}, less than the margin."
        return f"{needs}: they fit, and {left} for the model."

    @property
    def segments(self) -> list[Segment]:
        """The parts of the device's memory: what is taken now, and what would be."""
        total = max(1, self.plan.total_bytes)
        taken = self.plan.total_bytes - self.plan.free_bytes
        parts = [("in use now", taken, "#9e9e9e"), ("images as uint8", self.store_bytes, "#1976d2")]
        if self.float_bytes:
            parts.append(("images as float32", self.float_bytes, "#ef6c00"))
        return [
            Segment(f"{name}: {in_units(n_bytes)}", n_bytes / total, color)
            for name, n_bytes, color in parts
        ]

    @property
    def margin_mark(self) -> tuple[str, float]:
        """The name of the margin, and where on the bar it begins, as a share of its length."""
        return f"margin to stay free: {in_units(self.margin_bytes)}", 1 - self.margin

    def code(self, data: str, options: Mapping[str, Any]) -> str:
        """Python that preloads the data at this size.

        Args:
            data: Python for the data.
            options: further arguments of `preload`, by name.
        """
        further = "".join(f", {name}={value!r}" for name, value in options.items())
        lines = [
            "import torch",
            "from torchvision.transforms import v2",
            "import gpupreload as gp",
            "transform = v2.Compose([",
            f"    v2.Resize({self.size}),",
            f"    v2.CenterCrop({self.size}),",
            "    # random steps go here, and run for each batch",
            "    v2.ToImage(),",
            "    v2.ToDtype(torch.float32, scale=True),",
            "])",
            f"train = gp.preload({data}, transform{further})",
        ]
        if self.kept == "float32":
            lines.append("floats = train.as_tensor_dataset()")
        return "\n".join(lines)


def sizing(size: int) -> v2.Compose:
    """The steps that bring a photo to a size, by which `explore_plan` plans."""
    return v2.Compose([v2.Resize(size), v2.CenterCrop(size)])


def code_of_data(data: Any) -> str:
    """Python for the data: a path as it was given; for all else a name to put in."""
    return repr(os.fspath(data)) if isinstance(data, str | os.PathLike) else "data"


def check_no_transform(source: Source) -> None:
    """Raise an `ArgumentError` where the data has a transform of its own."""
    if source.transform is not None:
        raise ArgumentError(
            f"data is {source.name} with a transform of its own, but gpupreload.explore_plan tries "
            "out sizes. Pass the dataset without its transform, or the path of its folder."
        )


def some_photos(source: Source) -> tuple[list[Image.Image], list[str]]:
    """Read a photo of each of the first classes, or a few of all, and return their names too."""
    targets = source.targets
    if source.classes and targets:
        indices = [targets.index(k) for k in sorted(set(targets))[:_MOST_PHOTOS]]
        classes = class_names(source, targets)
        names = [classes[targets[i]] for i in indices]
    else:
        indices = list(range(0, len(source), max(1, len(source) // _MOST_PHOTOS)))[:_MOST_PHOTOS]
        names = [f"item {i}" for i in indices]
    return [_as_rgb(source.read(i)[0]) for i in indices], names


def _as_rgb(image: Any) -> Image.Image:
    photo = image if isinstance(image, Image.Image) else F.to_pil_image(image)
    photo = photo.convert("RGB")
    photo.thumbnail((_LARGEST_KEPT, _LARGEST_KEPT))
    return photo


def strip(photos: Sequence[Image.Image], size: int) -> Pixels:
    """Show what is left of photos at a size, each on a tile of the same size.

    Args:
        photos: of any sizes.
        size: pixels to which each is resized and cropped, before it is enlarged again.

    Returns:
        uint8 [TILE, W, 3].
    """
    canvas = np.full((TILE, len(photos) * (TILE + GAP) - GAP, 3), GREY, np.uint8)
    how = Image.Resampling.NEAREST if size < TILE else Image.Resampling.LANCZOS
    for k, photo in enumerate(photos):
        tile = sizing(size)(photo).resize((TILE, TILE), how)
        canvas[:, k * (TILE + GAP) :][:, :TILE] = np.asarray(tile)
    return canvas
