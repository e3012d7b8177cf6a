"""Several colour changes in an order of their own for every sample: ColorJitter and its kin.

Row i is what torchvision's functions give image i alone, one after another in its order, within
the bounds that `color` states for each; one level can become a few where steps follow that stretch
the values.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import color
from gpupreload.functional.chunks import (
    apply_to_rows,
    check_batch,
    check_rows,
    column,
    exact,
    in_one_piece,
    white,
    work_dtype,
)

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
"""The numbers of the four changes, as `torchvision.transforms.v2.ColorJitter` counts them."""

_NOTHING = -1


def color_jitter(
    images: Tensor, order: Tensor, factors: Tensor, enabled: Tensor | None = None
) -> Tensor:
    """Change brightness, contrast, saturation and hue of image i in the order `order[i]`.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 (saturation and hue do nothing) or 3.
        order: int64 [N, 4] on the CPU, in each row a permutation of 0 brightness, 1 contrast,
            2 saturation, 3 hue.
        factors: [N, 4] on the CPU: the factors of brightness, contrast and saturation (0 or more)
            and of hue (-0.5 to 0.5), in this order whatever the order of the changes.
        enabled: bool [N, 4] or [4] on the CPU: which changes are made, in the same order; None
            for all. A row without any comes out as it was.

    Returns:
        A new batch of the same shape, dtype, device and layout.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has not the shape [N, 4].
    """
    check_batch(images, (1, 3))
    enabled = torch.ones(4, dtype=torch.bool) if enabled is None else enabled
    enabled = enabled.expand(len(images), 4) if enabled.ndim == 1 else enabled
    _check_fours(images, order=order, factors=factors, enabled=enabled)
    changes = _changes(order, factors, enabled, gray=images.shape[1] == 1)
    run = _in_slots if in_one_piece(images) else _in_groups
    return run(images, changes, factors)


def photometric_distort(
    images: Tensor,
    factors: Tensor,
    enabled: Tensor,
    contrast_first: Tensor,
    channel_order: Tensor,
) -> Tensor:
    """Distort image i as `torchvision.transforms.v2.RandomPhotometricDistort` does.

    Brightness; contrast, where it comes first; saturation; hue; contrast, where it does not; and
    the order of the channels.

    Args:
        images: batch [N, C, H, W], uint8 or floats, C of 1 or 3.
        factors: [N, 4] on the CPU: the factors of brightness, contrast, saturation and hue.
        enabled: bool [N, 4] on the CPU: which of these changes are made.
        contrast_first: bool [N] on the CPU.
        channel_order: int64 [N, C]: a permutation for each image, 0 to C - 1 for none.

    Returns:
        A new batch of the same shape, dtype, device and layout.

    Raises:
        ArgumentError: `images` is no such batch, or a parameter has another shape.
    """
    check_rows(images, contrast_first=contrast_first)
    first = torch.tensor([BRIGHTNESS, CONTRAST, SATURATION, HUE])
    last = torch.tensor([BRIGHTNESS, SATURATION, HUE, CONTRAST])
    order = torch.where(contrast_first[:, None], first, last)
    return color.permute_channels(
        color_jitter(images, order, factors, enabled), order=channel_order
    )


def _check_fours(images: Tensor, **params: Tensor) -> None:
    check_rows(images, **params)
    for name, values in params.items():
        if values.shape != (len(images), 4):
            raise ArgumentError(
                f"{name} must be [N, 4], here [{len(images)}, 4], got shape "
                f"{tuple(values.shape)}. Give each image four numbers: for brightness, contrast, "
                "saturation and hue."
            )


def _changes(order: Tensor, factors: Tensor, enabled: Tensor, gray: bool) -> Tensor:
    """What is done to each row, int64 [N, 4]: numbers of changes in order, then `_NOTHING`."""
    if gray:
        enabled = enabled & torch.tensor([True, True, False, False])
    # no turn leaves an image as it is, to the last bit
    no_turn = (factors == 0) & torch.tensor([False, False, False, True])
    changes = torch.where((enabled & ~no_turn).gather(1, order), order, _NOTHING)
    idle_last = (changes == _NOTHING).to(torch.int8).argsort(dim=1, stable=True)
    return changes.gather(1, idle_last)


def _in_groups(images: Tensor, changes: Tensor, factors: Tensor) -> Tensor:
    """Run the rows of each program together, so that each row costs its own changes only."""
    out = images.clone()
    amounts = column(_amounts(factors), images)
    programs, which = changes.unique(dim=0, return_inverse=True)
    counts = which.bincount(minlength=len(programs)).tolist()
    groups = which.argsort(stable=True).split(counts)
    for program, rows in zip(programs.tolist(), groups, strict=True):
        made = [change for change in program if change != _NOTHING]
        if made:
            kernel = partial(_run, made=made, top=white(images))
            apply_to_rows(images, out, rows, kernel, amounts)
    return out


def _amounts(factors: Tensor) -> Tensor:
    """All numbers that the changes need, [N, 8]: brightness 1, contrast 2, saturation 2, hue 3."""
    brightness, contrast, saturation, hue = exact(factors).unbind(1)
    weights = color.weights(contrast), color.weights(saturation)
    return torch.cat((brightness[:, None], *weights, color.angles(hue)), dim=1)


def _run(x: Tensor, amounts: Tensor, made: list[int], top: int) -> Tensor:
    for i, change in enumerate(made):
        # torchvision goes back to uint8 between two changes
        x = _whole_(x, top) if i else x
        if change == BRIGHTNESS:
            x = color.brightness_(x, amounts[:, :1], top)
        elif change == CONTRAST:
            x = color.contrast_(x, amounts[:, 1:3], top)
        elif change == SATURATION:
            x = color.saturation_(x, amounts[:, 3:5], top)
        else:
            x = color.turn_hue(x, amounts[:, 5:], top)
    return x


def _in_slots(images: Tensor, changes: Tensor, factors: Tensor) -> Tensor:
    """Run all rows together: three blends that come before the hue, the hue, and three after it.

    Brightness, contrast and saturation are one formula with other weights, so that each slot
    serves all rows, whatever their order; hue, the long one, runs once.
    """
    top = white(images)
    turned = changes == HUE
    # without a hue, everything comes before it
    hue_at = torch.where(turned.any(1), turned.to(torch.int8).argmax(1), 4)[:, None]
    position = torch.arange(4)
    before = torch.where(position < hue_at, changes, _NOTHING)[:, :3]
    after = torch.where(position > hue_at, changes, _NOTHING)[:, 1:]
    x = images.to(work_dtype(images), copy=True)
    for slot in before.unbind(1):
        x = _blend_slot(x, slot, factors, top)
    angles = column(color.angles(factors[:, HUE]), images)
    hued = color.turn_hue(x, angles, top) if images.shape[1] == 3 else x
    x = torch.where(column(turned.any(1), images, torch.bool), _whole_(hued, top), x)
    for slot in after.unbind(1):
        x = _blend_slot(x, slot, factors, top)
    return torch.empty_like(images).copy_(x)


def _blend_slot(x: Tensor, slot: Tensor, factors: Tensor, top: int) -> Tensor:
    """One of the three blends, or nothing, for each row: `slot` [N] says which."""
    idle = slot == _NOTHING
    factor = exact(factors).gather(1, slot.clamp(min=0)[:, None])[:, 0]
    factor = torch.where(idle, 1, factor)
    rests = [(1 - factor) * (slot == change) for change in (CONTRAST, SATURATION)]
    limits = torch.where(idle, torch.inf, top), torch.where(idle, -torch.inf, 0)
    packed = column(torch.stack((factor, *rests, *limits), dim=1), x)
    own, of_mean, of_gray, high, low = packed.split(1, dim=1)
    gray = color.whole_gray(x, top) if x.shape[1] == 3 else x
    blended = x.mul(own).addcmul_(color.mean_gray(gray), of_mean).addcmul_(gray, of_gray)
    return _whole_(torch.minimum(torch.maximum(blended, low), high), top)


def _whole_(x: Tensor, top: int) -> Tensor:
    return x.floor_() if top == 255 else x
