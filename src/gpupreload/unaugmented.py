"""A transform without its augmentation, and a warning where images then have another size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload.catalog import is_grayscale, is_resize
from gpupreload.cover import ResizeToCover
from gpupreload.division import FROM_TRAIN_AUG
from gpupreload.parts import Step, Steps
from gpupreload.probe import generators_kept
from gpupreload.settings import code_of
from gpupreload.steps import warn

_SIZING = (
    *(v1.CenterCrop, v1.Pad, v1.RandomCrop, v1.RandomResizedCrop, v1.Resize),
    *(v2.CenterCrop, v2.Pad, v2.RandomCrop, v2.RandomResizedCrop, v2.Resize),
)
Size = tuple[int, int]


def without_augmentation(steps: Steps) -> Steps:
    """Leave out what is random, or may be; warn where a crop among it gave another size.

    >>> from gpupreload.steps import split_transform
    >>> from torchvision.datasets import FakeData
    >>> transform = [v2.RandomHorizontalFlip(), v2.ToImage()]
    >>> without_augmentation(split_transform(transform, FakeData(2, (3, 8, 6))))
       step       runs        why
    -  ---------  ----------  -----------------------------------------------------------------
    1  ToImage()  each batch  deterministic, kept where the random steps before it are left out
    Stored: 3×8×6 uint8, 144 bytes an image.
    """
    plain = steps.without_random()
    try:
        sizes = [_sizes(of.each_batch_steps, steps) for of in (steps, plain)]
    except Exception:  # a step fails on these images, which is told where it is run
        return plain
    crop = _last_crop(steps)
    if crop is not None and sizes[0][-1] != sizes[1][-1]:
        warn(_warning(steps, crop, *sizes))
    return plain


def _sizes(rows: Sequence[Step], steps: Steps) -> list[Size]:
    """The size (height, width) of what is stored, and of images after each of some steps."""
    assert steps.stored is not None  # a dataset's steps are split with data
    image = torch.zeros(steps.stored.shape, dtype=torch.uint8)
    sizes = [(image.shape[1], image.shape[2])]
    with generators_kept():
        for row in rows:
            if _is_sizing(row):
                image = row.transform(image)
            sizes.append((image.shape[1], image.shape[2]))
    return sizes


def _last_crop(steps: Steps) -> int | None:
    """The position among the steps of each batch of the last random crop."""
    rows = steps.each_batch_steps
    crops = [i for i, row in enumerate(rows) if row.randomness == "random" and _is_sizing(row)]
    return crops[-1] if crops else None


def _is_sizing(step: Step) -> bool:
    return type(step.transform) in _SIZING


def _warning(steps: Steps, crop: int, before: Sequence[Size], after: Sequence[Size]) -> str:
    height, width = before[crop + 1]
    center = v2.CenterCrop(height if height == width else (height, width))
    rows = steps.each_batch_steps
    is_aug = rows[crop].reason == FROM_TRAIN_AUG
    kept = [*_codes(rows[:crop], is_aug), code_of(center), *_codes(rows[crop + 1 :], is_aug)]
    if not is_aug:
        kept = [*_codes_of_once(steps), *kept]
    whole = kept[0] if len(kept) == 1 else f"v2.Compose([{', '.join(kept)}])"
    return (
        f"without {rows[crop].name} images are {_in_words(after[-1])} pixels, and with it they are "
        f"{_in_words(before[-1])} (height×width). To see them in the size of training, crop the "
        f"centre: dataset.with_transform({whole})."
    )


def _codes_of_once(steps: Steps) -> list[str]:
    """The caller's own steps that ran once, as code."""
    rows = steps.rows_of("once")
    inserted = [i for i, row in enumerate(rows) if isinstance(row.transform, ResizeToCover)]
    for i in inserted:  # one at most: `store_size` inserts it, with the crop after it
        rows = (*rows[:i], *rows[i + 2 :])
    return [code_of(row.transform) for row in rows]


def _codes(rows: Iterable[Step], is_aug: bool) -> list[str]:
    """The deterministic ones among some steps, as code; of an explicit form, train_aug's."""
    kept = (row for row in rows if row.randomness == "deterministic")
    return [_code(row) for row in kept if not is_aug or row.reason == FROM_TRAIN_AUG]


def _code(row: Step) -> str:
    transform: Callable[..., Any] = row.transform
    differs = row.takes == "PIL" and (is_resize(transform) or is_grayscale(transform))
    return f"gp.live({code_of(transform)})" if differs else code_of(transform)


def _in_words(size: Size) -> str:
    return f"{size[0]}×{size[1]}"
