"""MixUp and CutMix with a partner and a weight for every sample.

torchvision's `MixUp` and `CutMix` take row i - 1 as the partner of row i (the last as that of the
first) and draw one weight for the batch. Here both are given for each row; with one weight and
torchvision's partners the results are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.choose import choose
from gpupreload.functional.chunks import (
    apply,
    check_batch,
    check_rows,
    column,
    exact,
    in_one_piece,
    spans,
    take_rows,
    work_dtype,
)
from gpupreload.source import describe


def mixup(images: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    """Return `lam[i] * images[i] + (1 - lam[i]) * images[partner[i]]`.

    From Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.

    Args:
        images: float batch [N, C, H, W].
        partner: int64 [N], rows of the batch.
        lam: [N], from 0 to 1: the weights of the rows themselves. 1 leaves a row as it is.

    Raises:
        ArgumentError: `images` is no float batch, or a parameter has not N rows.

    >>> images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)
    >>> mixup(images, torch.tensor([1, 0]), torch.tensor([0.75, 1.0])).flatten()
    tensor([0.2500, 1.0000])
    """
    check_batch(images)
    check_rows(images, partner=partner, lam=lam)
    if not images.is_floating_point():
        raise ArgumentError(
            f"images must be floats to be mixed, got {describe(images)}. "
            "Convert them before, with v2.ToDtype(torch.float32, scale=True)."
        )
    partner = partner.to(images.device, non_blocking=True)
    dtype = work_dtype(images)

    def mix(x: Tensor, partner: Tensor, own: Tensor, other: Tensor) -> Tensor:
        added = take_rows(images, partner).to(dtype).mul_(other)
        return added.add_(x.mul_(own))

    return apply(images, mix, partner, column(lam, images), column(1 - exact(lam), images))


def cutmix(images: Tensor, partner: Tensor, boxes: Tensor) -> Tensor:
    """Return the images with a box of each replaced by the same box of its partner.

    From Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features", 2019.

    Args:
        images: batch [N, C, H, W], uint8 or floats.
        partner: int64 [N], rows of the batch.
        boxes: int64 [N, 4], each (x1, y1, x2, y2) in pixels: columns x1 to x2 - 1 of rows y1 to
            y2 - 1. An empty box leaves a row as it is.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not N rows.

    >>> images = torch.tensor([[1, 1, 1], [2, 2, 2]]).to(torch.uint8).reshape(2, 1, 1, 3)
    >>> cutmix(images, torch.tensor([1, 0]), torch.tensor([[0, 0, 2, 1], [0, 0, 0, 0]])).flatten()
    tensor([2, 2, 1, 2, 2, 2], dtype=torch.uint8)
    """
    check_batch(images)
    check_rows(images, partner=partner, boxes=boxes)
    partner = partner.to(images.device, non_blocking=True)
    corners = boxes.to(images.device, non_blocking=True)
    if in_one_piece(images):
        return _paste(images, take_rows(images, partner), corners)
    out = torch.empty_like(images)
    for start, stop in spans(images, len(images)):
        others = take_rows(images, partner[start:stop])
        out[start:stop] = _paste(images[start:stop], others, corners[start:stop])
    return out


def cutmix_boxes(x: Tensor, y: Tensor, lam: Tensor, height: int, width: int) -> Tensor:
    """Return the boxes that CutMix cuts around given pixels, clamped to the image.

    Before clamping, a box has the image's proportions and 1 - lam of its area, less what is lost
    by cutting half its sides off to whole pixels.

    Args:
        x: int64 [N], columns of the centers, 0 to `width` - 1.
        y: int64 [N], rows of the centers, 0 to `height` - 1.
        lam: [N], from 0 to 1.
        height: of the images, in pixels.
        width: of the images, in pixels.

    Returns:
        int64 [N, 4], each (x1, y1, x2, y2), as `cutmix` takes them.

    >>> cutmix_boxes(torch.tensor([1]), torch.tensor([4]), torch.tensor([0.75]), 8, 8)
    tensor([[0, 2, 3, 6]])
    """
    reach = 0.5 * torch.sqrt(1 - exact(lam))
    across, down = (reach * width).long(), (reach * height).long()
    low = torch.stack((x - across, y - down), dim=1).clamp(min=0)
    high = (x + across).clamp(max=width), (y + down).clamp(max=height)
    return torch.cat((low, torch.stack(high, dim=1)), dim=1)


def cutmix_lam(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return the share of each image that its box leaves: the weight of its own label.

    Args:
        boxes: int64 [N, 4], each (x1, y1, x2, y2), inside the image.
        height: of the images, in pixels.
        width: of the images, in pixels.

    Returns:
        float64 [N] on the device of `boxes`.

    >>> cutmix_lam(torch.tensor([[0, 0, 2, 1]]), 1, 8)
    tensor([0.7500], dtype=torch.float64)
    """
    x1, y1, x2, y2 = boxes.unbind(1)
    return 1 - exact((x2 - x1) * (y2 - y1)) / (width * height)


def soft_labels(
    labels: Tensor, partner: Tensor, lam: Tensor, num_classes: int | None = None
) -> Tensor:
    """Return `lam[i] * labels[i] + (1 - lam[i]) * labels[partner[i]]` as class probabilities.

    Args:
        labels: int64 [N], 0 to `num_classes` - 1, or probabilities [N, K].
        partner: int64 [N], rows of the batch.
        lam: [N], from 0 to 1.
        num_classes: K; needed for labels [N].

    Returns:
        [N, K] on the labels' device: float32, or the dtype of `labels` where these are floats.
        On an accelerator, a label that is no class gives NaN: to raise, the labels would have to
        be waited for.

    Raises:
        ArgumentError: a parameter has not N rows, `num_classes` is missing or does not go with
            `labels`, or (on the CPU) a label is out of range.

    >>> soft_labels(torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([0.75, 1.0]), 3)
    tensor([[0.7500, 0.0000, 0.2500],
            [0.0000, 0.0000, 1.0000]])
    """
    _check_labels(labels, num_classes)
    check_rows(labels, partner=partner, lam=lam)
    targets = one_hot(labels, num_classes or 0) if labels.ndim == 1 else labels
    targets = targets if targets.is_floating_point() else targets.float()
    partner = partner.to(labels.device, non_blocking=True)
    own, other = (
        column(w, targets, torch.float32).flatten(1) for w in (exact(lam), 1 - exact(lam))
    )
    mixed = (targets.index_select(0, partner) * other).to(targets.dtype)
    return mixed.add_((targets * own).to(targets.dtype))


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Return float32 [N, K], 1 at each label; rows of NaN for labels that are no class.

    Args:
        labels: int64 [N].
        num_classes: K.
    """
    classes = torch.arange(num_classes, device=labels.device)
    is_class = (labels >= 0) & (labels < num_classes)
    return torch.where(is_class[:, None], (labels[:, None] == classes).float(), torch.nan)


def _paste(images: Tensor, others: Tensor, corners: Tensor) -> Tensor:
    x1, y1, x2, y2 = (corners[:, i, None] for i in range(4))
    columns = torch.arange(images.shape[3], device=images.device)
    rows = torch.arange(images.shape[2], device=images.device)
    across = ((columns >= x1) & (columns < x2))[:, None, None, :]
    down = ((rows >= y1) & (rows < y2))[:, None, :, None]
    return choose(across & down, others, images)


def _check_labels(labels: Tensor, num_classes: int | None) -> None:
    n_classes = labels.shape[1] if labels.ndim == 2 else num_classes
    if labels.ndim not in (1, 2) or n_classes is None or num_classes not in (None, n_classes):
        raise ArgumentError(
            f"labels is {describe(labels)} and num_classes is {num_classes}; expected labels [N] "
            "with num_classes, or probabilities [N, num_classes]."
        )
    if labels.ndim == 2 or labels.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ArgumentError(
            f"labels is {describe(labels)}; expected the numbers of classes as int64."
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ArgumentError(
            f"labels run from {int(labels.min())} to {int(labels.max())}; expected 0 to "
            f"{n_classes - 1}, for num_classes is {n_classes}. Correct the labels or num_classes."
        )
