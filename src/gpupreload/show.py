"""A batch, or one photo's draws, as one Matplotlib picture. Matplotlib is imported on call only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gpupreload.arguments import whole_number
from gpupreload.captions import captions
from gpupreload.catalog import is_normalize
from gpupreload.class_names import name_of_label
from gpupreload.clock import check_epoch
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError
from gpupreload.figure import new_figure
from gpupreload.per_sample import PerSample
from gpupreload.rows import Rows
from gpupreload.source import describe

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def show_batch(
    images: Tensor,
    labels: Tensor | Sequence[int] | None = None,
    classes: Sequence[str] | GPUPreloadDataset | None = None,
    *,
    n: int = 16,
    columns: int = 8,
    image_inches: float = 1.1,
) -> Figure:
    """Draw the first images of a batch in one grid, with their class names.

    Args:
        images: [N, C, H, W] or one image [C, H, W], C of 1 or 3, on any device: uint8, or float
            in [0, 1], or normalised by the transform of the dataset given as `classes`.
        labels: int64 [N], or a sequence of N ints; or the weights of soft labels, floats [N, K],
            of which the two largest are told. None draws no names.
        classes: the class names by number, or the dataset, which knows them and how its images
            were normalised. Without it labels are drawn as numbers.
        n: the most images to draw.
        columns: images in a row.
        image_inches: width of one image in the figure, in inches.

    Returns:
        A `matplotlib.figure.Figure` that pyplot knows nothing of, so that none is left open. As a
        notebook cell's last value it is drawn once.

    Raises:
        ArgumentError: `images` is no batch of images of 1 or 3 channels, or `labels` does not go
            with the images or the classes.
        ImportError: Matplotlib is not installed.
    """
    if n < 1:
        raise ArgumentError(f"n is {n}; expected the most images to draw, 1 or more.")
    _check_no_batch(images)
    dataset = classes if isinstance(classes, GPUPreloadDataset) else None
    shown = images[:n] if isinstance(images, Tensor) and images.ndim == 4 else images
    pictures = to_pictures(shown, dataset)
    class_names = classes.classes if isinstance(classes, GPUPreloadDataset) else classes
    names = captions(labels, class_names, len(pictures))
    return _grid(list(pictures), names, columns, image_inches)


def show_augmented(
    dataset: GPUPreloadDataset,
    index: int,
    n: int = 16,
    *,
    epoch: int = 0,
    seed: int | None = None,
    columns: int = 6,
    image_inches: float = 1.4,
) -> Figure:
    """Draw one photo of a preloaded dataset as it is kept, then n draws of its augmentation.

    Draw 1 is the picture that a `Loader` with this seed serves in this epoch. The others are those
    that it would serve if the photo came again in the same epoch. A `Normalize` in the transform is
    undone.

    Args:
        dataset: preloaded.
        index: which photo, as in `dataset[index]`.
        n: the number of draws.
        epoch: number of the epoch.
        seed: of the draws; None takes the dataset's.
        columns: pictures in a row.
        image_inches: width of one picture in the figure, in inches.

    Returns:
        A `matplotlib.figure.Figure`, as `show_batch` returns it.

    Raises:
        ArgumentError: `dataset` is not preloaded, or a number is out of range.
        IndexError: there is no such photo.
        TypeError: `index` is no int.
        ImportError: Matplotlib is not installed.
    """
    check_preloaded(dataset, "gpupreload.show_augmented(dataset, index)")
    if n < 1:
        raise ArgumentError(f"n is {n}; expected the number of draws, 1 or more.")
    epoch = check_epoch(epoch)
    index = in_range(index, len(dataset))
    seed = dataset.seed if seed is None else seed
    [image], number = dataset.stored([index]), int(dataset.indices[index])
    augmented = draws_of(dataset.each_batch, image, Draw(number, epoch, seed), n)
    pictures = [stored_picture(dataset, index), *to_pictures(augmented, dataset)]
    names = ["original", *(f"draw {number}" for number in range(1, n + 1))]
    figure = _grid(pictures, names, columns, image_inches)
    label = name_of_label(dataset.targets[index], dataset.classes)
    title = f"photo {index}, {_shortened(label, 40)}: epoch {epoch}"
    figure.suptitle(title, fontsize=11, parse_math=False)
    return figure


@dataclass(frozen=True)
class Draw:
    """All that a sample's random parameters depend on: its number, the epoch and the seed."""

    index: int
    epoch: int
    seed: int


def draws_of(module: PerSample, image: Tensor, draw: Draw, n: int) -> Tensor:
    """Run a chain n times on one image, as when the sample came n times in one epoch.

    Args:
        module: the chain.
        image: [C, H, W] on any device; it is not written to.
        draw: whose draws they are.
        n: how many.

    Returns:
        [n, C', H', W'] on the same device.
    """
    indices = torch.full((n,), draw.index, device="cpu")
    rows = Rows(draw.seed, draw.epoch, indices, torch.arange(n, device="cpu"))
    with torch.no_grad():
        return module.run(image.expand(n, -1, -1, -1).clone(), rows)


def stored_picture(dataset: GPUPreloadDataset, index: int) -> Tensor:
    """One photo as it is kept, before any step that runs for each batch: uint8 [H, W, 3]."""
    is_normalized = any(is_normalize(step) for step in dataset.steps.once)
    return to_pictures(dataset.stored([index]), dataset if is_normalized else None)[0]


def check_preloaded(dataset: Any, call: str) -> None:
    """Raise an `ArgumentError` that names the call where `dataset` is not preloaded."""
    if not isinstance(dataset, GPUPreloadDataset):
        raise ArgumentError(
            f"dataset is {describe(dataset)}; expected a GPUPreloadDataset. "
            f"Write dataset = gpupreload.preload(data, transform), then {call}."
        )


def in_range(index: Any, n_images: int) -> int:
    """Return an index counted from 0, where it may have been counted from the end."""
    number = whole_number(index)
    if number is None:
        raise TypeError(
            f"index is {describe(index)}; expected an int, the number of one photo, as in "
            "dataset[index]."
        )
    if not -n_images <= number < n_images:
        raise IndexError(f"index {number} is out of range for {n_images:,} images.")
    return number % n_images


_FONT_SIZE = 10  # points: read in a window of 800 pixels, too
_LETTERS_AN_INCH = 12  # of that size, on the average
_LINE_INCHES = 0.24
_TALLEST = 2.0  # times as high as wide; higher pictures are drawn narrower


def _grid(
    pictures: Sequence[Tensor], names: Sequence[str], columns: int, image_inches: float
) -> Figure:
    """Draw uint8 pictures [H, W, 3] on the CPU, of any sizes, with a name above each.

    A name that is wider than its picture is cut short, for it would run into the next one.
    """
    columns = max(1, min(columns, len(pictures)))
    rows = max(1, math.ceil(len(pictures) / columns))
    n_lines = max((name.count("\n") + 1 for name in names if name), default=0)
    aspect = max((picture.shape[0] / picture.shape[1] for picture in pictures), default=1.0)
    aspect = min(aspect, _TALLEST)
    letters = max(4, int(image_inches * _LETTERS_AN_INCH))
    row_inches = image_inches * aspect + _LINE_INCHES * n_lines
    figure = new_figure(columns * image_inches, rows * row_inches)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes:
        axis.axis("off")
    for axis, picture, name in zip(axes, pictures, names, strict=False):
        axis.imshow(picture.numpy(), interpolation="nearest")
        title = "\n".join(_shortened(line, letters) for line in name.split("\n"))
        axis.set_title(title, fontsize=_FONT_SIZE, pad=2, parse_math=False)
    return figure


def _shortened(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _check_no_batch(images: Any) -> None:
    """Raise an `ArgumentError` for (images, labels) together, as a loader gives them."""
    is_batch = isinstance(images, tuple | list) and len(images) > 1
    if is_batch and isinstance(images[0], Tensor) and images[0].ndim == 4:
        parts = "*batch" if len(images) == 2 else "*batch[:2]"
        raise ArgumentError(
            f"images is {describe(images)}, a batch as a loader gives it; expected its images, and "
            f"its labels apart. Write show_batch({parts}, classes=dataset)."
        )


def to_pictures(images: Tensor, dataset: GPUPreloadDataset | None = None) -> Tensor:
    """Turn a batch into pictures to draw.

    Args:
        images: [N, C, H, W] or [C, H, W], C of 1 or 3, uint8, or float in [0, 1] or normalised.
        dataset: whose `Normalize` is undone on float images; None undoes nothing.

    Returns:
        uint8 [N, H, W, 3] on the CPU.

    Raises:
        ArgumentError: `images` has another shape.
    """
    if (
        not isinstance(images, Tensor)
        or images.ndim not in (3, 4)
        or images.shape[-3] not in (1, 3)
    ):
        raise ArgumentError(
            f"images is {describe(images)}; expected [N, C, H, W] or [C, H, W] with C of 1 or 3."
        )
    batch = images.detach().cpu().reshape(-1, *images.shape[-3:])
    if batch.dtype != torch.uint8:
        batch = _unnormalised(batch.to(torch.float32), dataset)
        batch = batch.mul(255).round().clamp(0, 255).to(torch.uint8)
    return batch.expand(-1, 3, -1, -1).permute(0, 2, 3, 1)


def _unnormalised(images: Tensor, dataset: GPUPreloadDataset | None) -> Tensor:
    normalization = dataset.normalization if dataset is not None else None
    if normalization is None:
        return images
    mean, std = (torch.tensor(numbers).reshape(-1, 1, 1) for numbers in normalization)
    return images * std + mean
