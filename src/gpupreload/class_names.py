"""The names of the classes, of data whose labels may be others than those of their classes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gpupreload.folder import Notice
from gpupreload.source import Source


def class_names(source: Source, labels: Collection[int]) -> list[str]:
    """Return a name for each class number up to the largest label.

    Args:
        source: of the labels. Its own names are taken where there is one for each label. Else a
            class has the name that `class_to_idx` gives it, where that knows every label, and
            otherwise its number.
        labels: all of them.
    """
    names, n_classes = source.classes or [], max(labels, default=-1) + 1
    if n_classes <= len(names):
        return names
    numbers = source.class_to_idx or {}
    known = {number: name for name, number in numbers.items()} if _covers(source, labels) else {}
    return [known.get(number, str(number)) for number in range(n_classes)]


def class_numbers(source: Source, labels: Collection[int]) -> dict[str, int]:
    """Return the number of each class by its name, as `class_names` names them."""
    names = class_names(source, labels)
    is_own = names is source.classes or _covers(source, labels)
    own = source.class_to_idx if is_own else None
    return own or {name: number for number, name in enumerate(names)}


def name_of_label(label: int, names: Sequence[str]) -> str:
    """Return the name of a label's class; of one that is no class, as after an edit, its number.

    >>> name_of_label(1, ["cat", "dog"]), name_of_label(-1, ["cat", "dog"])
    ('dog', 'class -1')
    """
    return names[label] if 0 <= label < len(names) else f"class {label}"


def noticed(source: Source, labels: Collection[int]) -> tuple[Notice, ...]:
    """Return what about the classes may surprise, labels beyond their names included."""
    n_names, largest = len(source.classes or ()), max(labels, default=-1)
    if not n_names or largest < n_names or _covers(source, labels):
        return source.notices
    text = (
        f"The labels go up to {largest:,}, beyond the {n_names:,} class names, so that classes are "
        "named by their numbers. If that is not meant, look at target_transform."
    )
    return (*source.notices, Notice("labels", text))


def _covers(source: Source, labels: Iterable[int]) -> bool:
    """Whether the source numbers its classes itself, and every label is one of these numbers."""
    return set(labels) <= set((source.class_to_idx or {}).values())
