"""What to say of a folder that cannot be used: what was expected, what lies there, what to do."""

# Paths are text here, as the caller gave them.
# ruff: noqa: PTH100, PTH110, PTH112, PTH113, PTH118, PTH120, PTH206, PTH208

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from gpupreload.tree import FoundFile, printable, suffix

_LAYOUT = "Expected one folder of images for each class, as in {}."
_MOST_NAMES = 10
_FEW_FOLDERS = 5


def not_a_folder(path: str) -> str:
    """Write the message for a root that is missing, or is a file."""
    if not path:
        return f"the path of the folder is empty. {_layout('photos')}"
    if os.path.lexists(path):
        what = "a link to nothing" if not os.path.exists(path) else "a file"
        return f"{printable(path)} is {what}. {_layout('photos')}"
    nearest = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(nearest):
        nearest = os.path.dirname(nearest)
    folders = _folders(nearest)
    missing = os.path.relpath(os.path.abspath(path), nearest).split(os.sep)[0]
    guess = get_close_matches(missing, folders, n=1)
    found = f"{printable(path)} does not exist. {printable(nearest)} does"
    if guess:
        return f"{found}. Did you mean {printable(os.path.join(nearest, guess[0]))}?"
    return f"{found}, and holds {_few(folders)}."


def no_classes(path: str, extensions: tuple[str, ...]) -> str:
    """Write the message for a folder in which no class folder lies."""
    names = [name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name))]
    n_images = sum(name.lower().endswith(extensions) for name in names)
    if not n_images:
        return f"{printable(path)} holds no class folders, {_contents(names)}. {_layout(path)}"
    parent = printable(os.path.dirname(os.path.abspath(path)))
    images = f"{n_images:,} image{'s' if n_images > 1 else ''}"
    return (
        f"{printable(path)} holds no class folders, and {images} directly. "
        f"Did you mean its parent, {parent}? {_layout(path)}"
    )


def empty_classes(
    path: str, empty: Sequence[str], files: Sequence[FoundFile], extensions: tuple[str, ...]
) -> str:
    """Write the message for class folders that hold no image, with what they hold instead."""
    found = {name: [file.name for file in files if file.class_name == name] for name in empty}
    what = listed([f"{name} ({_contents(found[name])})" for name in empty], ", ", as_names=False)
    return (
        f"{printable(path)} has class folders without an image: {what}. Images are files with the "
        f"suffixes {' '.join(extensions)}, each counted once. Remove these folders, add a suffix "
        "with extensions=, or keep them as classes with allow_empty=True."
    )


def unknown_classes(path: str, unknown: Sequence[str], classes: Sequence[str]) -> str:
    """Write the message for class folders that the caller's `classes` do not name."""
    return (
        f"{printable(path)} has class folders that are not in classes=: {listed(unknown)}. "
        f"classes= names {listed(classes)}. Rename these folders or add their names to classes=, "
        "or leave them out with on_unknown='skip'."
    )


def none_of_the_classes(path: str, found: Sequence[str], classes: Sequence[str]) -> str:
    """Write the message for a folder that has images of no class that the caller named."""
    return (
        f"{printable(path)} holds no image of the classes {listed(classes)}: its class folders "
        f"are {listed(found)}. Correct the names in classes=, or pass allow_empty=True."
    )


def listed(names: Sequence[str], separator: str = ", ", *, as_names: bool = True) -> str:
    """Write names as a list of at most ten.

    >>> listed(["cat", "dog"])
    'cat, dog'
    """
    shown = [printable(name) if as_names else name for name in names[:_MOST_NAMES]]
    more = len(names) - _MOST_NAMES
    return separator.join(shown) + (f" and {more:,} more" if more > 0 else "")


def _layout(root: str) -> str:
    return _LAYOUT.format(printable(os.path.join(root, "cat", "1.jpg")))


def _folders(path: str) -> list[str]:
    names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    return [name for name in names if os.path.isdir(os.path.join(path, name))]


def _few(folders: Sequence[str]) -> str:
    """Name folders where they are few: of many, none of which is alike, the names tell nothing."""
    if not folders:
        return "no folders"
    if len(folders) > _FEW_FOLDERS:
        return f"{len(folders):,} folders, none with a similar name"
    return f"the folder{'s' if len(folders) > 1 else ''} {listed(folders)}"


def _contents(names: Sequence[str]) -> str:
    """Say how many files there are with each suffix."""
    if not names:
        return "no files"
    counts = Counter(suffix(name) or "no suffix" for name in names).most_common()
    by_suffix = listed([f"{kind} {count:,}" for kind, count in counts], as_names=False)
    return f"{len(names):,} file{'s' if len(names) > 1 else ''}: {by_suffix}"
