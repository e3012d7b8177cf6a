"""A tree on disk: which folders are classes, which files are images, what was passed over and why.

For an ordinary tree the answer is `torchvision.datasets.ImageFolder`'s, paths and order included.
Where that would count hidden files, or a file twice, the answer here leaves them out and says so.
"""

# Paths are text put together as os.walk does it, to be the very text of ImageFolder.
# ruff: noqa: PTH111, PTH112, PTH118

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from gpupreload import tree, wrong_folder
from gpupreload.errors import ArgumentError, FolderError
from gpupreload.tree import Facts, FoundFile, PassedOver, printable

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

NoticeKind = Literal["numbers", "unicode", "splits", "empty", "labels"]

_SPLITS = frozenset(("train", "training", "val", "valid", "validation", "test", "testing"))


@dataclass(frozen=True)
class Notice:
    """Something about classes that is no fault but may surprise.

    Attributes:
        kind: "numbers", "unicode", "splits", "empty" or "labels".
        text: what it is, in one or two sentences.
    """

    kind: NoticeKind
    text: str


@dataclass(frozen=True)
class Folder:
    """What is in a folder of class folders. Every file below it is in `samples` or `passed_over`.

    Attributes:
        root: the folder, `~` expanded.
        classes: class names; a class's number is its position.
        samples: (path, class number) of each image, as `ImageFolder.samples`.
        passed_over: every other file, sorted by path. A link that is not followed counts as one
            file; the files in hidden folders are named one by one, and a hidden
            folder that cannot be listed counts as one file.
        notices: what may surprise.
        facts: what the system said of each image's file, in the order of `samples`.
    """

    root: str
    classes: tuple[str, ...]
    samples: tuple[tuple[str, int], ...]
    passed_over: tuple[PassedOver, ...]
    notices: tuple[Notice, ...] = ()
    facts: tuple[Facts, ...] = ()

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class by its name."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def n_files(self) -> int:
        """How many files were seen."""
        return len(self.samples) + len(self.passed_over)


def scan(
    root: str | os.PathLike[str],
    *,
    extensions: Iterable[str] = IMAGE_EXTENSIONS,
    classes: Any = None,
    allow_empty: bool = False,
    on_unknown: Literal["raise", "skip"] = "raise",
) -> Folder:
    """List the classes and images of a folder of class folders, and account for all other files.

    Never a class or a sample: what is hidden (its name begins with a dot) and what operating
    systems leave behind (`Thumbs.db`, `__MACOSX`). A file counts once: a link that leads back up,
    or to a file or folder that is counted elsewhere, is passed over; of several names for one
    file the first in order counts, and a real file before a link to it. A link to something
    outside is followed. A link to nothing stays a sample, so that reading it says what is wrong.

    Args:
        root: the folder.
        extensions: the suffixes of image files, in any case.
        classes: the class names in the order of their numbers, or anything with such `classes`
            (a training set). A class that has no folder here keeps its number. Default: the
            names of the class folders, sorted.
        allow_empty: whether a class folder may hold no image.
        on_unknown: what to do with a class folder that is not in `classes`: "raise", or "skip" it
            and name its files among those passed over.

    Raises:
        FolderError: `root` is missing or a file, holds no class folders, holds one without
            images or one that is not in `classes`, holds no image at all, or cannot be listed.
        ArgumentError: an argument has a value that cannot be used.
    """
    suffixes = _checked_extensions(extensions)
    names = None if classes is None else _checked_classes(classes)
    if on_unknown not in ("raise", "skip"):
        raise ArgumentError(f"on_unknown is {on_unknown!r}; expected 'raise' or 'skip'.")
    top = os.path.expanduser(os.fsdecode(root))
    found = _found(top, suffixes)
    numbers = {name: i for i, name in enumerate(names or found.classes)}
    unknown = [name for name in found.classes if name not in numbers]
    if unknown and on_unknown == "raise":
        raise FolderError(wrong_folder.unknown_classes(top, unknown, tuple(numbers)))
    images, passed_over = _part(found.files, suffixes, numbers)
    filled = {file.class_name for file in images}
    empty = [name for name in found.classes if name in numbers and name not in filled]
    if empty and not allow_empty:
        raise FolderError(wrong_folder.empty_classes(top, empty, found.files, suffixes))
    if not images and not allow_empty:
        raise FolderError(wrong_folder.none_of_the_classes(top, found.classes, tuple(numbers)))
    return Folder(
        root=top,
        classes=tuple(numbers),
        samples=tuple((file.path, numbers[file.class_name]) for file in images),
        passed_over=_by_path([*found.passed_over, *passed_over]),
        notices=_notices(top, tuple(numbers), filled, sorted_as_text=names is None),
        facts=tuple(file.facts for file in images),
    )


def _found(top: str, extensions: tuple[str, ...]) -> tree.Found:
    if not os.path.isdir(top):
        raise FolderError(wrong_folder.not_a_folder(top))
    found = tree.walk(top)
    if not found.classes:
        raise FolderError(wrong_folder.no_classes(top, extensions))
    return found


def _part(
    files: Sequence[FoundFile], extensions: tuple[str, ...], numbers: Mapping[str, int]
) -> tuple[list[FoundFile], list[PassedOver]]:
    """Part files into images, each file once, and those passed over."""
    whys = [_why_not(file, extensions, numbers) for file in files]
    images = [file for file, why in zip(files, whys, strict=True) if why is None]
    counted = _counted_paths(images)
    repeated = {file.path: counted[file.path] for file in images if file.path in counted}
    once = [file for file in images if file.path not in repeated]
    others = [why for why in whys if why is not None]
    for path, other in repeated.items():
        reason = f"the same file as {printable(other)}, which is counted"
        others.append(PassedOver(path, reason, "link"))
    return once, others


def _counted_paths(images: Sequence[FoundFile]) -> dict[str, str]:
    """For each path that repeats a file, the one path by which that file counts."""
    first: dict[tuple[int, int], str] = {}
    repeated: dict[str, str] = {}
    if not any(file.has_other_names for file in images):
        return repeated
    for file in sorted(images, key=lambda file: file.is_link):  # real files before links to them
        if file.facts.identity is not None:
            path = first.setdefault(file.facts.identity, file.path)
            if path != file.path and file.has_other_names:
                repeated[file.path] = path
    return repeated


def _why_not(
    file: FoundFile, extensions: tuple[str, ...], numbers: Mapping[str, int]
) -> PassedOver | None:
    if file.is_special:
        return PassedOver(file.path, "a pipe, a socket or a device", "special")
    if not file.name.lower().endswith(extensions):
        ending = tree.suffix(file.name)
        reason = f"its suffix {printable(ending)} is" if ending else "it has no suffix, which is"
        return PassedOver(file.path, f"{reason} not among the extensions", "suffix")
    if file.class_name not in numbers:
        reason = f"its class {printable(file.class_name)} is not in classes="
        return PassedOver(file.path, reason, "class")
    return None


def _by_path(passed_over: Iterable[PassedOver]) -> tuple[PassedOver, ...]:
    return tuple(sorted(passed_over, key=lambda passed: passed.path))


def _checked_extensions(extensions: Iterable[str]) -> tuple[str, ...]:
    given = (extensions,) if isinstance(extensions, str) else tuple(extensions)
    if not given or not all(isinstance(e, str) and e.strip(".") for e in given):
        raise ArgumentError(
            f"extensions is {extensions!r}; expected suffixes such as ('.jpg', '.png')."
        )
    return tuple(f".{e.lstrip('.').lower()}" for e in given)


def _checked_classes(classes: Any) -> tuple[str, ...]:
    names = getattr(classes, "classes", classes)
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentError(
            f"classes is {names!r}; expected a list of class names, or a data set with classes."
        )
    checked = tuple(names)
    if not checked or not all(isinstance(name, str) for name in checked):
        raise ArgumentError(f"classes is {list(checked)!r}; expected a list of class names.")
    repeated = [name for name, count in Counter(checked).items() if count > 1]
    if repeated:
        raise ArgumentError(f"classes names {repeated[0]!r} twice; expected different names.")
    return checked


def _notices(
    root: str, classes: Sequence[str], filled: Set[str], *, sorted_as_text: bool
) -> tuple[Notice, ...]:
    """Say what about the classes of a folder may surprise.

    Args:
        root: the folder.
        classes: class names in the order of their numbers.
        filled: names of the classes with an image.
        sorted_as_text: whether that order is the sorted one, not one that the caller gave.
    """
    texts: tuple[tuple[NoticeKind, str], ...] = (
        ("numbers", _numbers(classes) if sorted_as_text else ""),
        ("unicode", _unicode(classes)),
        ("splits", _splits(root, classes)),
        ("empty", _empty([name for name in classes if name not in filled])),
    )
    return tuple(Notice(kind, text) for kind, text in texts if text)


def _numbers(classes: Sequence[str]) -> str:
    if not all(name.isdecimal() for name in classes):
        return ""
    for i, (name, expected) in enumerate(zip(classes, sorted(classes, key=int), strict=True)):
        if name != expected:
            return (
                f"The class names are numbers, but are sorted as text: class {i} is {name!r}, not "
                f"{expected!r}. classes=[...] gives them another order."
            )
    return ""


def _unicode(classes: Sequence[str]) -> str:
    seen: dict[str, str] = {}
    for name in classes:
        other = seen.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            return (
                f"The class names {other!a} and {name!a} look alike: they differ only in "
                "how Unicode writes their letters. Are they one class?"
            )
    return ""


def _splits(root: str, classes: Sequence[str]) -> str:
    if not all(name.lower() in _SPLITS for name in classes):
        return ""
    meant = next((name for name in classes if name.lower().startswith("train")), classes[0])
    return (
        f"The classes are named {wrong_folder.listed(classes)}, as the parts of a dataset are. "
        f"Did you mean {printable(os.path.join(root, meant))}?"
    )


def _empty(names: Sequence[str]) -> str:
    return f"Classes without an image: {wrong_folder.listed(names)}." if names else ""


def noticing_empty(notices: Iterable[Notice], names: Sequence[str]) -> tuple[Notice, ...]:
    """Return notices with another list of the classes without an image."""
    others = tuple(notice for notice in notices if notice.kind != "empty")
    return (*others, Notice("empty", _empty(names))) if names else others
