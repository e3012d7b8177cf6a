"""Three views of a dataset's augmentation, each drawn as one picture: pure functions of a look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from gpupreload.dataset import GPUPreloadDataset
from gpupreload.explore.mosaic import Pixels, beside, columns_for, side_by_side
from gpupreload.explore.recipe import Recipe
from gpupreload.per_sample import PerSample
from gpupreload.rows import Rows
from gpupreload.show import Draw, draws_of, stored_picture, to_pictures
from gpupreload.table import counted

View = Literal["draws", "frozen and live", "shared and per sample"]
VIEWS: tuple[View, ...] = get_args(View)

_PANEL = 8  # pictures in each of two panels


@dataclass(frozen=True)
class Look:
    """What is looked at.

    Attributes:
        view: which of the three.
        index: the number of the photo.
        epoch: number of the epoch.
        seed: of the draws.
        n: how many draws the first view shows.
    """

    view: View = "draws"
    index: int = 0
    epoch: int = 0
    seed: int = 0
    n: int = 16


@dataclass(frozen=True)
class Rendered:
    """A picture, and what it shows in words.

    Attributes:
        pixels: uint8 [H, W, 3].
        left: heading of its left part.
        right: heading of its right part.
        left_share: width of the left part, as a share of the whole.
        says: what can be counted in it, in one sentence.
    """

    pixels: Pixels
    left: str
    right: str
    left_share: float
    says: str

    @property
    def headings(self) -> list[tuple[str, float]]:
        """What stands above each part, and its share of the width."""
        return [(self.left, self.left_share), (self.right, 1 - self.left_share)]


def render(dataset: GPUPreloadDataset, recipe: Recipe, look: Look) -> Rendered:
    """Draw one of the three views.

    Args:
        dataset: preloaded; what its store holds is the original of each photo.
        recipe: the transform as it is set.
        look: what is looked at.

    Raises:
        TransformError: a step of the transform raised an error.
        FreedError: the dataset was freed.
        Exception: whatever torchvision raises for settings that it does not take.
    """
    draw = {
        "draws": _draws,
        "frozen and live": _frozen_and_live,
        "shared and per sample": _shared_and_per_sample,
    }[look.view]
    return draw(dataset, recipe, look)


def _draws(dataset: GPUPreloadDataset, recipe: Recipe, look: Look) -> Rendered:
    image, draw = _photo(dataset, look)
    augmented = to_pictures(draws_of(recipe.module(), image, draw, look.n), dataset)
    pixels = beside(stored_picture(dataset, look.index), _as_large(augmented, dataset))
    return Rendered(
        pixels,
        "original",
        f"{look.n} draws",
        left_share=2 / columns_for(look.n),
        says=f"{counted(_n_different(augmented), 'different picture')} among "
        f"{counted(look.n, 'draw')}",
    )


def _frozen_and_live(dataset: GPUPreloadDataset, recipe: Recipe, look: Look) -> Rendered:
    n_images = len(dataset)
    photos = [(look.index + k * n_images // _PANEL) % n_images for k in range(_PANEL)]
    indices, images = dataset.indices[photos], dataset.stored(photos)
    module = recipe.module()
    frozen, live = (
        to_pictures(_run(module, images, Rows(look.seed, epoch, indices)), dataset)
        for epoch in (0, look.epoch)
    )
    n_alike = sum(bool(torch.equal(a, b)) for a, b in zip(frozen, live, strict=True))
    return Rendered(
        side_by_side(_as_large(frozen, dataset), _as_large(live, dataset)),
        "frozen: drawn once, at preload",
        f"live: drawn for epoch {look.epoch}",
        left_share=0.5,
        says=f"{_PANEL} photos; as in epoch 0: frozen {_PANEL}, live {n_alike}",
    )


def _shared_and_per_sample(dataset: GPUPreloadDataset, recipe: Recipe, look: Look) -> Rendered:
    image, draw = _photo(dataset, look)
    shared, ours = (
        to_pictures(draws_of(recipe.module(shared=is_shared), image, draw, _PANEL), dataset)
        for is_shared in (True, False)
    )
    return Rendered(
        side_by_side(_as_large(shared, dataset), _as_large(ours, dataset)),
        "shared: transform(batch)",
        "per sample: gpupreload",
        left_share=0.5,
        says=f"{_PANEL} copies; different: shared {_n_different(shared)}, "
        f"per sample {_n_different(ours)}",
    )


def _photo(dataset: GPUPreloadDataset, look: Look) -> tuple[Tensor, Draw]:
    """The photo as it is kept, and what its draws depend on."""
    [image] = dataset.stored([look.index])
    return image, Draw(int(dataset.indices[look.index]), look.epoch, look.seed)


def _run(module: PerSample, images: Tensor, rows: Rows) -> Tensor:
    with torch.no_grad():
        return module.run(images.clone(), rows)


def _as_large(pictures: Tensor, dataset: GPUPreloadDataset) -> Tensor:
    """Enlarge small pictures by the whole number that makes them about as high as what is kept."""
    factor = max(1, round(dataset.view.store.form.shape[2] / pictures.shape[1]))
    return pictures.repeat_interleave(factor, 1).repeat_interleave(factor, 2)


def _n_different(pictures: Tensor) -> int:
    return len({picture.numpy().tobytes() for picture in pictures})
