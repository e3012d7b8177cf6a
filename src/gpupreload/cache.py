"""A filled store kept in a file, so that the second load decodes nothing."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpupreload import cache_file, cache_writing, kept_rows
from gpupreload.arguments import CacheChoice, cache_folder
from gpupreload.cache_file import Contents, UnusableError
from gpupreload.cache_key import key_of_once, key_of_source, why_no_key
from gpupreload.cache_writing import Images
from gpupreload.errors import GPUPreloadError, UnreadableError
from gpupreload.lock import TimedOutError, filling
from gpupreload.source import Source
from gpupreload.steps import Steps
from gpupreload.table import counted, in_units
from gpupreload.tree import printable

_OURS = re.compile(r"\.?[0-9a-f]{32}-[0-9a-f]{32}(\.safetensors|\.lock|-.*\.part)")
# for another process that fills the same file; a decoded ImageNet takes less
_SECONDS_TO_WAIT = 1800.0


def clear_cache(cache: str | os.PathLike[str] | None = None) -> int:
    """Delete what `preload(..., cache=...)` has kept; other files stay.

    Args:
        cache: the folder that was given to `preload`; None means the one in the user's cache.

    Returns:
        The bytes that were freed.
    """
    n_bytes = 0
    for path in _ours(cache_folder(True if cache is None else cache)):
        n_bytes += path.stat().st_size
        path.unlink()
    return n_bytes


class Cache:
    """One load's dealings with the cache.

    Args:
        choice: the caller's.
        source: all of the data.

    Attributes:
        source: the data without what is known to be unreadable; from the cache, where it knows
            these files, so that no header is read.
        outcome: what became of the cache, in a sentence; "" where none was asked for.
    """

    def __init__(self, choice: CacheChoice, source: Source) -> None:
        self._choice, self._whole = choice, source
        self._source_key: str | None = None
        self._path: Path | None = None
        self._seen: dict[Path, Contents] = {}
        self._facts_found: dict[str, Any] | None = None
        self._is_written = False
        self._rows_path: Path | None = None
        self.outcome = ""
        known = None
        if choice.folder is not None:
            self._source_key = key_of_source(source, choice.key)
            self.outcome = "" if self._source_key else _not_used(why_no_key(source))
            known = self._known(choice.folder) if self._source_key else None
        self.source = known or source.readable()

    def divided(self, split: Callable[[Source], Steps]) -> Steps:
        """Divide a transform over `source`, and find the file with what its once-part gives.

        Where files are kept of this data, a few of its sizes are tried first: that a file is there
        shows that all sizes come out of that once-part alike.
        """
        if self._seen:
            thin = self.source.thinned()
            with contextlib.suppress(GPUPreloadError):  # with all sizes it is said better
                steps = split(thin)
                self._use_for(steps)
                if self._path in self._seen:
                    self.source = thin
                    return steps
        steps = split(self.source)
        self._use_for(steps)
        return steps

    def _use_for(self, steps: Steps) -> None:
        if self._source_key is None or self._choice.folder is None:
            return
        once_key = key_of_once(steps, self._choice.key)
        if once_key is None:
            self._path, self.outcome = None, _not_used(why_no_key(steps))
            return
        self._path = self._choice.folder / f"{self._source_key}-{once_key}.safetensors"
        self._rows_path = kept_rows.path_of(
            self._choice.folder, self._whole, steps, self._choice.key
        )
        self.outcome = "Cache: not needed, for these images were in memory already."

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Fill the file in one process at a time, where it is not there; the others wait.

        So the ranks of a training decode once for a machine. What a process that died has left
        half written is deleted.
        """
        with contextlib.ExitStack() as stack:
            if self._path is not None:
                try:
                    is_held = stack.enter_context(filling(self._path, _SECONDS_TO_WAIT))
                except TimedOutError:
                    self._warn_of_waiting()
                else:
                    self._tidy(self._path if is_held else None)
            yield

    @property
    def folder(self) -> Path:
        """Where files are kept, or would be: the user's cache where none was asked for."""
        return self._choice.folder or cache_folder(True)

    @property
    def has_file(self) -> bool:
        """Whether a file is there of this data and once-part."""
        return self._path is not None and self._path.is_file()

    @contextlib.contextmanager
    def in_file(self, steps: Steps) -> Iterator[None]:
        """Keep the images in `folder`, although nobody asked for that; one process at a time."""
        if self._choice.folder is not None:  # then `alone` sees to it
            yield
            return
        self._choice = replace(self._choice, folder=self.folder)
        self._source_key = key_of_source(self._whole, self._choice.key)
        self.outcome = "" if self._source_key else _not_used(why_no_key(self._whole))
        self._use_for(steps)
        with self.alone():
            yield

    def read(self, images: Tensor, labels: Tensor, workers: int) -> bool:
        """Fill images and labels from the file, if it has them; return whether it had."""

        def fill(contents: Contents) -> None:
            cache_file.read(contents, images, workers)
            labels.copy_(contents.labels)

        return self._used(fill, in_units(images.nbytes)) is not None

    def read_rows(self, images: Tensor, labels: Tensor, source: Source, workers: int) -> list[int]:
        """Fill what a load that failed has left; return the numbers of the other rows."""
        if self._rows_path is None:
            return list(range(len(images)))
        missing = kept_rows.read(self._rows_path, images, labels, source, workers)
        n_images = len(images)
        if len(missing) < n_images:
            n_found = f"{n_images - len(missing):,} of {counted(n_images, 'image')}"
            self.outcome += f" {n_found} came from an earlier load that failed."
        return missing

    def keep_rows(
        self, images: Tensor, labels: Tensor, source: Source, unreadable: Sequence[int]
    ) -> str:
        """Keep what was decoded before a load failed; return what to say of it, as a sentence."""
        if self._rows_path is None or len(unreadable) == len(images):
            return ""
        try:
            kept_rows.write(self._rows_path, images, labels, source, unreadable)
        except OSError as error:
            return f"The others cannot be kept in the cache: {error.strerror or error}."
        return "The others are kept in the cache: with it, the next preload decodes only these."

    def open(self, shape: tuple[int, ...], dtype: torch.dtype, workers: int) -> Contents | None:
        """Verify the file, if it has such images; return what it holds, or None."""

        def verify(contents: Contents) -> None:
            if contents.shape != shape or cache_file.dtype_of(contents) != dtype:
                raise UnusableError("the file there holds images of another size")
            cache_file.verify(contents, workers)

        return self._used(verify, in_units(math.prod(shape) * dtype.itemsize))

    def _used(self, use: Callable[[Contents], None], size: str) -> Contents | None:
        if self._path is None:
            return None
        try:
            contents = self._seen.get(self._path) or cache_file.look(self._path)
            use(contents)
        except UnusableError as error:
            self.outcome = f"Cache: miss, for {self._miss(str(error))}."
            return None
        self.outcome = f"Cache: hit. Read {size} from {self._path}."
        return contents

    def path_in(self, folder: Path) -> Path:
        """Where to write images that are to stay in a file: ours, or one that nobody finds again.

        Both are deleted by `clear_cache`.
        """
        return self._path or folder / f"{uuid.uuid4().hex}-{uuid.uuid4().hex}.safetensors"

    def is_ours(self, path: Path) -> bool:
        """Whether a file is the one that the next load looks for."""
        return path == self._path

    def write(self, images: Images, labels: Tensor, source: Source) -> None:
        """Keep what was just filled; a warning where it cannot be written.

        Args:
            images: of the store, [N, C, H, W].
            labels: of the store, on the CPU.
            source: of these images: without those that could not be read.
        """
        if self._path is None or self._is_written or "miss" not in self.outcome:
            return
        try:
            cache_writing.write(self._path, images, labels, self.facts(source))
        except OSError as error:
            why = f"The cache in {self._path.parent} cannot be written: {error.strerror or error}."
            self.outcome += f" {why}"
            warnings.warn(f"{why} The images are loaded all the same.", stacklevel=2)
            return
        self.was_written(self._path)
        if self._rows_path is not None:
            with contextlib.suppress(OSError):
                self._rows_path.unlink()

    def was_written(self, path: Path) -> None:
        """Say in `outcome` what stands in the folder."""
        self._is_written = True
        if not self.is_ours(path):
            self.outcome += " The images are in a file that no other load finds."
            return
        n_bytes = sum(one.stat().st_size for one in _ours(path.parent))
        self.outcome += (
            f" Written: {in_units(path.stat().st_size)} to {path}; "
            f"clear_cache deletes {in_units(n_bytes)} there."
        )

    def _tidy(self, path: Path | None) -> None:
        for part in path.parent.glob(f".{path.stem}-*.part") if path is not None else ():
            with contextlib.suppress(OSError):
                part.unlink()

    def _warn_of_waiting(self) -> None:
        warnings.warn(
            f"Another process has been filling {self._path} for {_SECONDS_TO_WAIT:,.0f} s. The "
            "images are loaded here without waiting any longer.",
            stacklevel=2,
        )

    def _known(self, folder: Path) -> Source | None:
        """The source as an earlier load of the same files found it, with whatever once-part."""
        known = None
        for path in sorted(folder.glob(f"{self._source_key}-*.safetensors")):
            try:
                self._seen[path] = contents = cache_file.look(path)
            except UnusableError:  # it is said where the file is the one that is needed
                continue
            facts = json.loads(contents.facts)
            skipped = {int(i): why for i, why in facts.pop("skipped").items()}
            if known is None and not any(_can_be_read(self._whole, i) for i in skipped):
                known = self._whole.knowing(facts, skipped)
                self._facts_found = facts
        if known is None:
            self._seen = {}
        return known

    def facts(self, source: Source) -> str:
        """What the headers told, and which files are left out and why, by index in all."""
        skipped = {
            i: source.skipped[path].removeprefix(f"{printable(path)}: ")
            for i, (path, _) in enumerate(self._whole.samples or ())
            if path in source.skipped
        }
        facts = self._whole.facts() if self._facts_found is None else self._facts_found
        return json.dumps({**facts, "skipped": skipped})

    def _miss(self, why: str) -> str:
        if why or not self._seen:
            return why or "nothing is kept of these files as they are now, read this way"
        return "of these files something is kept, but after another once-part"


def _not_used(why: str) -> str:
    return f"Cache: not used, for {why}."


def _can_be_read(source: Source, index: int) -> bool:
    """Whether a file that could not be read now can: it was locked, or a decoder was missing."""
    try:
        source.read(index)
    except UnreadableError:
        return False
    return True


def _ours(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if _OURS.fullmatch(path.name)]
