"""`find_frozen`: does a dataset draw its augmentation anew, or was it drawn once and kept?"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError, DataError
from gpupreload.leaves import flatten
from gpupreload.probe import generators_kept
from gpupreload.repeats import RandomStep, digest, random_steps
from gpupreload.source import describe
from gpupreload.table import Table

_LIMIT = 1e-6
_MOST_TIMES_MORE = 64  # as many readings as asked for, at most, are proposed


@dataclass(frozen=True)
class FrozenReport:
    """What reading some samples of a dataset several times has shown; printed, a short table.

    Attributes:
        verdict: "live": a sample changed, so something is drawn anew at each reading. "frozen":
            random steps were named and nothing changed, which a live dataset would show in one
            case in a million at most. "cannot tell": nothing changed, and nothing follows.
        n_samples: how many samples were read.
        n_images: how many the dataset has.
        epochs: how often each sample was read.
        n_changed: how many samples did not come out the same every time.
        random_steps: the names of the random steps.
        false_alarm: the probability that no sample of a live dataset with these steps would have
            changed, at most; None where no random step was named.
        next_step: what follows from the verdict.
    """

    verdict: Literal["live", "frozen", "cannot tell"]
    n_samples: int
    n_images: int
    epochs: int
    n_changed: int
    random_steps: tuple[str, ...]
    false_alarm: float | None
    next_step: str

    @property
    def table(self) -> Table:
        """The report as a small table."""
        chance = "" if self.false_alarm is None else f"{self.false_alarm:.2g}"
        rows = (
            ("samples read", f"{self.n_samples:,} of {self.n_images:,}, {self.epochs} times each"),
            ("changed", f"{self.n_changed:,} of {self.n_samples:,}"),
            ("random steps", ", ".join(self.random_steps) or "none named"),
            ("chance of this if it is live", chance),
        )
        shown = rows if chance and not self.n_changed else rows[:-1]
        return Table(shown, title=f"Verdict: {self.verdict}", note=self.next_step)

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def find_frozen(dataset: Any, transform: Any = None, epochs: int = 3, n: int = 32) -> FrozenReport:
    """Read samples of a dataset several times, and say whether its augmentation is frozen.

    A random step whose draw was made once and kept gives every epoch the same picture. No error
    tells: the model just learns less. This reads `n` samples, evenly spaced, in each of `epochs`
    epochs, and compares pixels; labels may change.

    A sample that came out the same is no proof: a live flip with p = 0.5 does that to a quarter of
    the samples in three epochs. If E readings of one sample of a live dataset are all the same with
    probability q, then all n samples are with probability qⁿ, the chance of a false alarm. It must
    be 1 in a million or less for the verdict "frozen". q is found from the random steps (see
    `gpupreload.repeats`): for a flip it is pᴱ + (1 - p)ᴱ, for `RandomApply` of a step that always
    changes the picture the same; of several steps, the surest to show counts. It is taken that a
    step that acts shows, which is not so for pictures of one colour, or a flip of symmetric ones.

    "live" says that something changes, not that every random step does.

    Args:
        dataset: any map-style dataset whose items are (image, …) or an image, where an image is a
            PIL image, a tensor or an array of any shape and dtype, on any device. Where it has a
            `set_epoch`, that is called with 0, 1, …, and the epoch set before is set again, if the
            dataset tells it as its `epoch`.
        transform: the transform with the random steps that should be live, for a dataset that does
            not have it as its `transform`. Callables that are not torchvision's are tried.
        epochs: how often each sample is read, 2 or more.
        n: how many samples to read, 1 or more; all, where the dataset has fewer.

    Returns:
        The verdict, the counts and the chance. The global random generators are not reseeded, and
        put back at the end as they were.

    Raises:
        ArgumentError: `dataset` is no map-style dataset, or `epochs` or `n` is too small.
        DataError: the dataset is empty, or an item holds no image.
        TransformError: a step of the transform cannot be used.

    >>> import torch
    >>> from torchvision.transforms import v2
    >>> augmented_once = torch.utils.data.TensorDataset(torch.rand(100, 3, 8, 8))
    >>> find_frozen(augmented_once, v2.RandomHorizontalFlip()).verdict
    'frozen'
    >>> f"{find_frozen(augmented_once, v2.RandomHorizontalFlip()).false_alarm:.1e}"  # 0.25 ** 32
    '5.4e-20'
    """
    _check(dataset, epochs, n)
    indices = [i * len(dataset) // n for i in range(n)] if n < len(dataset) else range(len(dataset))
    named = _own_transforms(dataset) if transform is None else [transform]
    steps = random_steps(flatten(named))
    n_changed = _count_changed(dataset, indices, epochs)
    false_alarm = _chance(steps, epochs, len(indices)) if steps else None
    if n_changed:
        verdict: Literal["live", "frozen", "cannot tell"] = "live"
        next_step = _after_live(steps, epochs, len(indices), n_changed)
    elif false_alarm is not None and false_alarm <= _LIMIT:
        verdict, next_step = "frozen", _after_frozen(dataset)
    else:
        verdict = "cannot tell"
        next_step = _more(steps, epochs, len(dataset)) if steps else _nothing_named(bool(named))
    names = tuple(step.name for step in steps)
    counts = (len(indices), len(dataset), epochs, n_changed)
    return FrozenReport(verdict, *counts, names, false_alarm, next_step)


def _check(dataset: Any, epochs: Any, n: Any) -> None:
    is_map_style = hasattr(dataset, "__getitem__") and isinstance(dataset, Sized)
    if not is_map_style or isinstance(dataset, IterableDataset | str | bytes | os.PathLike):
        raise ArgumentError(
            f"dataset is {describe(dataset)}; expected a map-style dataset, with len(dataset) and "
            "dataset[i], for the same sample must be read again. Of a DataLoader pass its .dataset,"
            " for a folder torchvision's ImageFolder(folder, transform)."
        )
    if not _is_whole(epochs) or epochs < 2:
        raise ArgumentError(
            f"epochs is {epochs!r}; expected how often to read each sample, 2 or more, for one "
            "reading has nothing to be compared with."
        )
    if not _is_whole(n) or n < 1:
        raise ArgumentError(f"n is {n!r}; expected how many samples to read, 1 or more.")
    if not len(dataset):
        raise DataError(
            f"dataset is an empty {type(dataset).__name__}, so there is no sample to read. "
            "Pass one that holds images."
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- reading


def _count_changed(dataset: Any, indices: Sequence[int], epochs: int) -> int:
    """Read every sample in every epoch; count those that gave more than one picture."""
    seen: list[set[bytes]] = [set() for _ in indices]
    with_epochs = [part for part in _within(dataset) if callable(getattr(part, "set_epoch", None))]
    before = [_epoch_of(part) for part in with_epochs]
    with generators_kept():
        try:
            for epoch in range(epochs):
                for part in with_epochs:
                    part.set_epoch(epoch)
                for i, digests in zip(indices, seen, strict=True):
                    digests.add(digest(_image_of(dataset, i)))
        finally:
            for part, old in zip(with_epochs, before, strict=True):
                if old is not None or isinstance(part, GPUPreloadDataset):
                    part.set_epoch(old)
    return sum(len(digests) > 1 for digests in seen)


def _within(dataset: Any) -> list[Any]:
    """List a dataset and those it reads from, as `Subset` and `ConcatDataset` hold them."""
    found = [dataset]
    for part in found:
        held = (getattr(part, "dataset", None), *_list(getattr(part, "datasets", None)))
        found += [h for h in held if hasattr(h, "__getitem__") and all(h is not f for f in found)]
    return found


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _epoch_of(dataset: Any) -> int | None:
    """The epoch that a dataset is set to, as far as it tells; None for none."""
    epoch: Any = getattr(dataset, "epoch", None)
    return epoch if _is_whole(epoch) and epoch >= 0 else None


def _own_transforms(dataset: Any) -> list[Any]:
    """The transforms that a dataset, and those that it reads from, call their own."""
    is_mixed = bool(_list(getattr(dataset, "datasets", None)))  # each part may have another
    found = [] if is_mixed else [getattr(part, "transform", None) for part in _within(dataset)]
    return [own for own in reversed(found) if callable(own) or isinstance(own, list)]


def _image_of(dataset: Any, index: int) -> Any:
    item = dataset[index]
    image = item[0] if isinstance(item, tuple | list) and item else item
    if not isinstance(image, Image.Image | Tensor | np.ndarray):
        raise DataError(
            f"item {index} of {type(dataset).__name__} is {describe(item)}; expected an image or "
            "(image, label), the image a PIL image, a tensor or an array."
        )
    return image


# --- judging


def _chance(steps: Sequence[RandomStep], epochs: int, n_samples: int) -> float:
    """The probability, at most, that a live dataset changes in none of its samples."""
    return _same(steps, epochs) ** n_samples


def _same(steps: Sequence[RandomStep], epochs: int) -> float:
    return min(step.outcomes.repeats(epochs) for step in steps)


def _after_live(steps: Sequence[RandomStep], epochs: int, n_samples: int, n_changed: int) -> str:
    text = "Something is drawn anew at each reading, as augmentation should be: nothing to do."
    if not steps or n_changed == n_samples:
        return text
    expected = n_samples * _same(steps, epochs)
    return (
        f"{text}\n{n_samples - n_changed:,} came out the same every time; with these steps up to "
        f"{expected:.1f} are to be expected."
    )


def _after_frozen(dataset: Any) -> str:
    why = "The random steps ran once, and every epoch sees that one draw."
    if isinstance(dataset, GPUPreloadDataset):
        return f"{why}\nMove them from deterministic_transform to train_aug."
    return (
        f"{why}\nKeep the pictures from before the first random step, and run the rest in "
        "__getitem__;\nor leave that to gpupreload.preload(data, transform)."
    )


def _nothing_named(has_transform: bool) -> str:
    if has_transform:
        return (
            "The transform has no random step, and nothing changed: so it should be.\n"
            "If it is augmented elsewhere, name those steps: find_frozen(dataset, transform)."
        )
    return (
        "Nothing changed, as in any dataset without augmentation.\n"
        "If this one is meant to have some, name it: find_frozen(dataset, transform)."
    )


def _more(steps: Sequence[RandomStep], epochs: int, n_images: int) -> str:
    """Say how many samples and epochs would be enough."""
    if _same(steps, epochs) >= 1:
        return (
            "These steps, as they are set, may give the same picture at every reading.\n"
            "Try the dataset with a step that shows, such as RandomHorizontalFlip(0.5)."
        )
    times = epochs
    while times <= _MOST_TIMES_MORE * epochs:
        needed = math.ceil(math.log(_LIMIT) / math.log(_same(steps, times)))
        if needed <= n_images:
            more = f"n={needed}" if times == epochs else f"epochs={times}, n={needed}"
            return (
                "A live dataset may come out the same, for few samples were read or the steps "
                f"seldom act.\nRead more: find_frozen(dataset, transform, {more})."
            )
        times *= 2
    return (
        "A live dataset may come out the same, for these steps seldom act.\n"
        "Try the dataset with a step that acts more often, such as RandomHorizontalFlip(0.5)."
    )
