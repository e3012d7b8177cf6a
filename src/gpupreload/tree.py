"""Every file below a folder, once whatever links there are, in the order of `ImageFolder`."""

# Paths are text put together as os.walk does it, to be the very text of ImageFolder.
# ruff: noqa: PTH116, PTH118, PTH120, PTH122

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpupreload.errors import FolderError

Kind = Literal["hidden", "system", "suffix", "root", "link", "special", "class"]

# What Windows, macOS, Synology, Python and file system checks leave among files, in lower case.
_SYSTEM_NAMES = frozenset(
    {
        "thumbs.db",
        "ehthumbs.db",
        "ehthumbs_vista.db",
        "desktop.ini",
        "$recycle.bin",
        "system volume information",
        "__macosx",
        "icon\r",
        "@eadir",
        "#recycle",
        "__pycache__",
        "lost+found",
    }
)

OWN_MARKER = ".gpupreload-photos"
"""A file by which `sample_photos` knows its folder again; it is none of the user's."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A file that is no sample.

    Attributes:
        path: where it is.
        reason: why, in words that are the same for all files with the same reason.
        kind: "hidden", "system", "suffix" (not an image's), "root" (in no class folder), "link"
            (counted elsewhere, or leading back up), "special" (a pipe, socket or device) or
            "class" (its class is left out).
    """

    path: str
    reason: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Facts:
    """What the system says of a file, links followed; of a link to nothing, the defaults.

    Attributes:
        device: the number of the device it is on.
        number: on that device; 0 where the file system numbers no files.
        n_bytes: its size.
        changed: when its contents were last changed, in nanoseconds.
    """

    device: int = 0
    number: int = 0
    n_bytes: int = -1
    changed: int = -1

    @classmethod
    def of(cls, path: str) -> Facts:
        """Ask the system."""
        try:
            return cls.from_stat(os.stat(path))
        except OSError:
            return _NOTHING

    @classmethod
    def from_stat(cls, stat: os.stat_result) -> Facts:
        """Take what `os.stat` said."""
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    @property
    def identity(self) -> tuple[int, int] | None:
        """Equal for two paths of one file; None where that cannot be told."""
        return (self.device, self.number) if self.number else None


_NOTHING = Facts()


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file in a class folder.

    Attributes:
        path: as `os.walk` and `os.path.join` would put it together.
        folder: the folder it lies in.
        name: its name in that folder.
        class_name: the name of the class folder.
        is_link: whether it is a symbolic link.
        has_other_names: whether other paths may lead to the same file.
        facts: what the system says of it.
        is_special: whether it is a pipe, a socket or a device.
    """

    path: str
    folder: str
    name: str
    class_name: str
    is_link: bool
    has_other_names: bool
    facts: Facts
    is_special: bool


@dataclass(frozen=True)
class Found:
    """What lies below a folder.

    Attributes:
        classes: the names of the class folders, sorted.
        files: the files in them, but for those passed over, sorted as `ImageFolder` sorts.
        passed_over: files that are no samples whatever they contain.
    """

    classes: tuple[str, ...]
    files: tuple[FoundFile, ...]
    passed_over: tuple[PassedOver, ...]


def walk(top: str) -> Found:
    """Find all files below a folder, each folder being listed once.

    Raises:
        FolderError: a folder cannot be listed.
    """
    found = _Walk(top)
    found.find_classes()
    found.follow_links()
    files = sorted(found.files, key=lambda file: (file.class_name, file.folder, file.name))
    return Found(tuple(sorted(found.classes)), tuple(files), tuple(found.passed_over))


def printable(path: str) -> str:
    r"""Return a path as text for a message of one line, whatever bytes its name is made of.

    >>> print(printable("naïve cat.jpg"), printable("two\nlines.jpg"))
    naïve cat.jpg two\nlines.jpg
    """
    if path.isprintable():
        return path
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


def suffix(name: str) -> str:
    """Return the suffix of a file name in lower case, "" for none.

    >>> suffix("cat.1.JPG")
    '.jpg'
    """
    return os.path.splitext(name)[1].lower()


class _Walk:
    """One pass over a tree. A link to a folder waits until every real folder has been listed."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._links: list[tuple[str, str]] = []  # path, class name
        self._class_folders: dict[str, str] = {}  # name by path
        self._listed: dict[tuple[int, int] | str, str] = {}  # path by identity
        self.files: list[FoundFile] = []
        self.passed_over: list[PassedOver] = []

    @property
    def classes(self) -> list[str]:
        """The names of the class folders that were listed."""
        listed = set(self._listed.values())
        return [name for path, name in self._class_folders.items() if path in listed]

    def find_classes(self) -> None:
        """List every class folder that is no link, and all below it."""
        for entry in _entries(self._top):
            if _left_out(entry.name):
                self.passed_over += _hidden(entry)
            elif not _is_folder(entry):
                reason = "beside the class folders, in none of them"
                self.passed_over.append(PassedOver(entry.path, reason, "root"))
            else:
                self._class_folders[entry.path] = entry.name
                if entry.is_symlink():
                    self._links.append((entry.path, entry.name))
                else:
                    self._list_below(entry.path, entry.name)

    def follow_links(self) -> None:
        """List the folders that links lead to, unless that repeats a folder."""
        while self._links:
            links, self._links = sorted(self._links), []
            for path, class_name in links:
                target = os.path.realpath(path)
                if _contains(target, os.path.dirname(path)) or _contains(target, self._top):
                    reason = f"a link that leads back up to {printable(target)}"
                    self.passed_over.append(PassedOver(path, reason, "link"))
                else:
                    self._list_below(path, class_name)

    def _list_below(self, folder: str, class_name: str) -> None:
        # a stack of our own: a tree may be deeper than Python's
        pending = [folder]
        while pending:
            path = pending.pop()
            entries = [] if self._is_repeated(path) else _entries(path)
            for entry in entries:
                if _left_out(entry.name):
                    self.passed_over += _hidden(entry)
                elif not _is_folder(entry):
                    self.files.append(_found(entry, path, class_name))
                elif entry.is_symlink():
                    self._links.append((entry.path, class_name))
                else:
                    pending.append(entry.path)

    def _is_repeated(self, folder: str) -> bool:
        facts = os.stat(folder)
        # a file system without inode numbers gives 0 for all
        identity = (facts.st_dev, facts.st_ino) if facts.st_ino else os.path.realpath(folder)
        known = self._listed.setdefault(identity, folder)
        if known == folder:
            return False
        reason = f"another way into {printable(known)}, whose files are counted there"
        self.passed_over.append(PassedOver(folder, reason, "link"))
        return True


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            others = (entry for entry in entries if entry.name != OWN_MARKER)
            return sorted(others, key=lambda entry: entry.name)
    except OSError as error:
        raise FolderError(
            f"{printable(folder)} cannot be listed: {error.strerror}. Give this account the right "
            "to read it, or move it out of the folder."
        ) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _left_out(name: str) -> Literal["hidden", "system"] | None:
    if name.startswith("."):
        return "hidden"
    return "system" if name.lower() in _SYSTEM_NAMES else None


def _hidden(entry: os.DirEntry[str]) -> Iterator[PassedOver]:
    """Pass over a hidden or system file, or every file in such a folder."""
    kind = _left_out(entry.name) or "hidden"
    if not entry.is_dir(follow_symlinks=False):
        yield PassedOver(entry.path, f"a {kind} file", kind)
        return
    reason = f"in a {kind} folder, {printable(entry.name)}"
    pending = [entry.path]
    while pending:
        folder = pending.pop()
        try:
            entries = _entries(folder)
        except FolderError:  # such as lost+found, which only an administrator may read
            yield PassedOver(folder, reason, kind)
            continue
        for inner in entries:
            if inner.is_dir(follow_symlinks=False):
                pending.append(inner.path)
            else:
                yield PassedOver(inner.path, reason, kind)


def _found(entry: os.DirEntry[str], folder: str, class_name: str) -> FoundFile:
    is_link = entry.is_symlink()
    place = (entry.path, folder, entry.name, class_name, is_link)
    try:
        found = os.stat(entry.path)
    except OSError:  # a link to nothing
        return FoundFile(*place, False, _NOTHING, False)
    has_other_names = is_link or found.st_nlink > 1
    is_special = not stat.S_ISREG(found.st_mode)
    return FoundFile(*place, has_other_names, Facts.from_stat(found), is_special)


def _contains(folder: str, path: str) -> bool:
    """Whether a folder, its path free of links, is `path` or lies above it."""
    real = os.path.realpath(path)
    return real == folder or real.startswith(os.path.join(folder, ""))
