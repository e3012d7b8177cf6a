"""A transform without its augmentation, and a warning where images then have another size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload.catalog import is_grayscale, is_resize
from gpupreload.cover import ResizeToCover
from gpupreload.division import FROM_TRAIN_AUG
from gpupreload.parts import Step, Steps
from gpupreload.per_sample import PerSample
from gpupreload.rows import Rows
from gpupreload.settings import code_of
from gpupreload.steps import warn

_CROPS = (v1.RandomCrop, v1.RandomResizedCrop, v2.RandomCrop, v2.RandomResizedCrop)
Size = tuple[int, int]
SizeOf = Callable[[Sequence[Step]], Size]


def without_augmentation(steps: Steps, read: Callable[[], Tensor], seed: int) -> Steps:
    """Leave out what is random, or may be; warn where images then have another size.

    That is seen on one image, which is run with and without what is left out.

    Args:
        steps: of a dataset.
        read: gives an image as it is stored, [1, C, H, W], each time in memory of its own.
        seed: of the draws.

    >>> from gpupreload.steps import split_transform
    >>> from torchvision.datasets import FakeData
    >>> steps = split_transform([v2.RandomHorizontalFlip(), v2.ToImage()], FakeData(2, (3, 8, 6)))
    >>> without_augmentation(steps, lambda: torch.zeros(1, 3, 8, 6, dtype=torch.uint8), 0)
       step       runs        why
    -  ---------  ----------  -----------------------------------------------------------------
    1  ToImage()  each batch  deterministic, kept where the random steps before it are left out
    Stored: 3×8×6 uint8, 144 bytes an image.
    """
    plain = steps.without_random()
    if len(plain.rows) < len(steps.rows):
        text = _warning(steps, plain, lambda rows: _size(rows, read(), seed))
        if text:
            warn(text)
    return plain


def _size(rows: Sequence[Step], image: Tensor, seed: int) -> Size:
    """The size (height, width) of an image [1, C, H, W] after some steps."""
    first = torch.zeros(1, dtype=torch.int64, device="cpu")
    with torch.no_grad():
        height, width = PerSample(rows, seed=seed).run(image, Rows(seed, 0, first)).shape[-2:]
    return height, width


def _warning(steps: Steps, plain: Steps, size_of: SizeOf) -> str:
    """Say that images have another size without augmentation; "" where they do not, or who knows.

    A step that fails on these images is told of where it is run.
    """
    rows = steps.each_batch_steps
    try:
        before, after = (size_of(of.each_batch_steps) for of in (steps, plain))
        crop = None if before == after else _crop_that_tells(rows, before, size_of)
    except Exception:
        return ""
    if before == after:
        return ""
    name, them = ("the random steps", "them") if crop is None else (rows[crop].name, "it")
    return (
        f"without {name} images are {_in_words(after)} pixels, and with {them} they are "
        f"{_in_words(before)} (height×width). To see them in the size of training, "
        f"{_way(steps, crop, before)}."
    )


def _crop_that_tells(rows: Sequence[Step], before: Size, size_of: SizeOf) -> int | None:
    """The position of the last random crop, where its centre in its place gives that size."""
    crops = [i for i, row in enumerate(rows) if type(row.transform) in _CROPS]
    if not crops:
        return None
    crop = replace(rows[crops[-1]], transform=_center(rows[crops[-1]]))
    others = (*rows[: crops[-1]], crop, *rows[crops[-1] + 1 :])
    return crops[-1] if size_of([row for row in others if row.is_deterministic]) == before else None


def _center(crop: Step) -> v2.CenterCrop:
    """The centre crop of a random crop's size."""
    transform: Any = crop.transform
    return _center_crop(transform.size)


def _center_crop(size: Sequence[int]) -> v2.CenterCrop:
    height, width = size
    return v2.CenterCrop(height if height == width else (height, width))


def _way(steps: Steps, crop: int | None, before: Size) -> str:
    """What to do for the size before, where one knows which steps; what to think of where not."""
    if crop is None:
        return (
            "pass dataset.with_transform a transform with a step of that size in place of the "
            f"random ones, such as {code_of(_center_crop(before))}"
        )
    rows = steps.each_batch_steps
    is_aug = rows[crop].reason == FROM_TRAIN_AUG
    center = code_of(_center(rows[crop]))
    kept = [*_codes(rows[:crop], is_aug), center, *_codes(rows[crop + 1 :], is_aug)]
    if not is_aug:
        kept = [*_codes_of_once(steps), *kept]
    whole = kept[0] if len(kept) == 1 else f"v2.Compose([{', '.join(kept)}])"
    return f"crop the centre: dataset.with_transform({whole})"


def _codes_of_once(steps: Steps) -> list[str]:
    """The caller's own steps that ran once, as code."""
    rows = steps.rows_of("once")
    inserted = [i for i, row in enumerate(rows) if isinstance(row.transform, ResizeToCover)]
    for i in inserted:  # one at most: `store_size` inserts it, with the crop after it
        rows = (*rows[:i], *rows[i + 2 :])
    return [code_of(row.transform) for row in rows]


def _codes(rows: Iterable[Step], is_aug: bool) -> list[str]:
    """The deterministic ones among some steps, as code; of an explicit form, train_aug's."""
    kept = (row for row in rows if row.is_deterministic)
    return [_code(row) for row in kept if not is_aug or row.reason == FROM_TRAIN_AUG]


def _code(row: Step) -> str:
    transform: Callable[..., Any] = row.transform
    differs = row.takes == "PIL" and (is_resize(transform) or is_grayscale(transform))
    return f"gp.live({code_of(transform)})" if differs else code_of(transform)


def _in_words(size: Size) -> str:
    return f"{size[0]}×{size[1]}"
