"""A batch as one Matplotlib picture. Matplotlib is imported on call only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError
from gpupreload.figure import new_figure
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
    image_inches: float = 1.2,
) -> Figure:
    """Draw the first images of a batch in one grid, with their class names.

    Args:
        images: [N, C, H, W] or one image [C, H, W], C of 1 or 3, on any device: uint8, or float
            in [0, 1], or normalised by the transform of the dataset given as `classes`.
        labels: int64 [N], or a sequence of N ints; None draws no names.
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
    dataset = classes if isinstance(classes, GPUPreloadDataset) else None
    shown = images[:n] if isinstance(images, Tensor) and images.ndim == 4 else images
    pictures = to_pictures(shown, dataset)
    names = _names(labels, classes, len(pictures))
    columns = max(1, min(columns, len(pictures)))
    rows = max(1, math.ceil(len(pictures) / columns))
    height, width = pictures.shape[1:3]
    title_inches = 0.22 if any(names) else 0.0
    tile_inches = image_inches * height / width + title_inches
    figure = new_figure(columns * image_inches, rows * tile_inches)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes:
        axis.axis("off")
    for axis, picture, name in zip(axes, pictures, names, strict=False):
        axis.imshow(picture.numpy(), interpolation="nearest")
        axis.set_title(name, fontsize=8, pad=2)
    return figure


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


def _names(labels: Any, classes: Any, n: int) -> list[str]:
    if labels is None:
        return [""] * n
    if torch.as_tensor(labels).ndim > 1:
        raise ArgumentError("labels has more than one number an image; expected class numbers [N].")
    numbers = torch.as_tensor(labels).flatten().tolist()[:n]
    names = classes.classes if isinstance(classes, GPUPreloadDataset) else classes
    if len(numbers) < n:
        raise ArgumentError(f"labels has {len(numbers)} labels for {n} images; expected one each.")
    if names is None:
        return [str(number) for number in numbers]
    unknown = [number for number in numbers if not 0 <= number < len(names)]
    if unknown:
        raise ArgumentError(
            f"labels holds {unknown[0]}, but classes has {len(names)} names; expected "
            f"0 to {len(names) - 1}."
        )
    return [str(names[number]) for number in numbers]
