"""A plan carried out: images decoded, or read from the cache, onto the rung that was planned."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpupreload import cache_file, draws, host
from gpupreload.bar import bar
from gpupreload.cache import Cache
from gpupreload.cache_file import Contents
from gpupreload.cache_writing import UnwritableError, Writing, writing
from gpupreload.errors import DoesNotFitError, UnreadableError
from gpupreload.filling import Landing, fill
from gpupreload.gaps import without_rows
from gpupreload.gpu_decoding import decoding_of
from gpupreload.parts import Step
from gpupreload.placement import WINDOW_BYTES
from gpupreload.planned import Plan
from gpupreload.probe import generators_kept
from gpupreload.shelves import Below, OnDevice, Shelf, from_file
from gpupreload.source import Source, list_of_unreadable, picked
from gpupreload.table import in_units

_CPU = torch.device("cpu")
# of the children of an epoch's key, the one that says which images are on the device
_PLACING = 7


@dataclass(frozen=True)
class Built:
    """What was loaded.

    Attributes:
        shelf: the images.
        labels: int64 [N] on the CPU.
        unreadable: of items that are left out, the lines that say why, by index.
    """

    shelf: Shelf
    labels: Tensor
    unreadable: dict[int, str]


def build(source: Source, plan: Plan, kept: Cache, workers: int, progress: bool) -> Built:
    """Load images to where they are planned; from the cache, if they are there.

    A file that cannot be written is a warning, and the images are kept in memory, if they fit.

    Raises:
        DoesNotFitError, UnreadableError, SizeError, TransformError: as for `store.load`.
    """
    load = _Load(source, plan, kept, workers, progress)
    rung = plan.place.rung
    if rung != "device" and not plan.place.is_asked_for:
        warnings.warn(
            f"The images are not all on {plan.device}. {plan.placement}. The batches are the same, "
            "and take longer to fetch. placement= says where to keep them.",
            stacklevel=2,
        )
    if rung == "mixed":
        return load.on_both_sides()
    if rung == "disk":
        try:
            return load.on_disk()
        except UnwritableError as error:
            load.plan = plan.in_memory()
            warnings.warn(
                f"The images cannot be kept in a file in {plan.room.folder}: {error.strerror}. "
                "They are kept in the host's memory instead. cache= names another folder.",
                stacklevel=2,
            )
            load.plan.check_fits()
    return load.in_one_tensor(_CPU if load.plan.place.rung == "host" else plan.device)


@dataclass
class _Load:
    source: Source
    plan: Plan
    kept: Cache
    workers: int
    progress: bool

    def in_one_tensor(self, device: torch.device) -> Built:
        """On the device, or in the host's memory."""
        images, labels = self._allocate(self.plan.n_images, device), self._labels()
        unreadable: dict[int, str] = {}
        if not self.kept.read(images, labels, self.workers):
            unreadable = self._decode_rest(images, labels)
        images, labels = without_rows(images, unreadable), without_rows(labels, unreadable)
        is_below = self.plan.place.rung == "host"
        shelf: Shelf = Below(images, self.plan.device) if is_below else OnDevice(images)
        return Built(shelf, labels, unreadable)

    def on_both_sides(self) -> Built:
        """As many as planned on the device, and the others in the host's memory."""
        n_images, n_on_device = self.plan.n_images, self.plan.place.n_on_device
        is_on_device = chosen(n_images, n_on_device)
        on_device = self._allocate(n_on_device, self.plan.device)
        on_host = self._allocate(n_images - n_on_device, _CPU)
        both = _BothSides(on_device, on_host, is_on_device)
        contents, unreadable, labels = self._open(), dict[int, str](), self._labels()
        if contents is not None:
            both.take_all(cache_file.mapped(contents))
            labels = contents.labels
        else:
            unreadable = self._decode(both, labels)
        on_device, on_host = both.without(unreadable)
        is_on_device = without_rows(is_on_device, unreadable)
        shelf = Below(on_host, self.plan.device, on_device=on_device, is_on_device=is_on_device)
        return Built(shelf, without_rows(labels, unreadable), unreadable)

    def on_disk(self) -> Built:
        """In a file: the one that is there, or one that is written now."""
        unreadable: dict[int, str] = {}
        with self.kept.in_file(self.plan.steps):
            contents = self._open()
            if contents is None:
                contents, unreadable = self._written()
        shelf = from_file(contents, self.plan.device)
        if not self.kept.is_ours(contents.path):
            # where the system lets it go by name, it is gone when nobody has it open any more
            with contextlib.suppress(OSError):
                contents.path.unlink()
        return Built(shelf, contents.labels, unreadable)

    def _written(self) -> tuple[Contents, dict[int, str]]:
        """Decode into a file; a few images are in memory at a time."""
        path, labels = self.kept.path_in(self.plan.room.folder), self._labels()
        with writing(path, self._shape, self.plan.dtype) as file:
            unreadable = self._decode(_ToFile(file, self._shape, self.plan.dtype), labels)
            labels = without_rows(labels, unreadable)
            file.finish(labels, self.kept.facts(self.source.without(unreadable)))
        self.kept.was_written(path)
        return cache_file.look(path), unreadable

    def _open(self) -> Contents | None:
        return self.kept.open(self._shape, self.plan.dtype, self.workers)

    def _decode(self, images: Tensor | Landing, labels: Tensor) -> dict[int, str]:
        """Fill images and labels; return what could not be read, if that may be left out."""
        unreadable = self._decode_all(self.source, images, labels)
        if self._are_too_many(unreadable):
            raise UnreadableError(list_of_unreadable(list(unreadable.values()), len(labels)))
        return unreadable

    def _decode_rest(self, images: Tensor, labels: Tensor) -> dict[int, str]:
        """Decode what no earlier load has left in the cache; leave all there, if this one fails."""
        missing = self.kept.read_rows(images, labels, self.source, self.workers)
        if len(missing) == len(labels):
            unreadable = self._decode_all(self.source, images, labels)
        else:
            unreadable = self._decode_some(missing, images, labels)
        if self._are_too_many(unreadable):
            text = list_of_unreadable(list(unreadable.values()), len(labels))
            note = self.kept.keep_rows(images, labels, self.source, list(unreadable))
            raise UnreadableError(f"{text}\n{note}".rstrip())
        return unreadable

    def _decode_some(self, missing: list[int], images: Tensor, labels: Tensor) -> dict[int, str]:
        """Decode some items into their rows; return what could not be read, by index in all."""
        if not missing:
            return {}
        some = picked(self.source, missing, self.source.name)
        places = torch.tensor(missing, device="cpu")
        labels_here = torch.empty(len(missing), dtype=torch.int64, device="cpu")
        found = self._decode_all(some, _Places(images, places), labels_here)
        labels[places] = labels_here
        return {missing[i]: why for i, why in found.items()}

    def _are_too_many(self, unreadable: Collection[int]) -> bool:
        n_allowed = self.plan.n_images - 1 if self.source.skips_unreadable else 0
        return len(unreadable) > n_allowed

    def _decode_all(
        self, source: Source, images: Tensor | Landing, labels: Tensor
    ) -> dict[int, str]:
        """Fill images and labels; warn where something drew that was found deterministic."""
        plan = replace(self.plan, n_images=len(labels))
        n_bytes = plan.n_images * plan.image_bytes + plan.label_bytes
        with (
            bar(plan.n_images, n_bytes, "preload", self.progress) as advance,
            generators_kept() as moved,
        ):
            decoding = decoding_of(source, plan, self.workers)
            unreadable = fill(images, labels, decoding, self.workers, advance)
            sign = moved()
        once = plan.steps.rows_of("once")
        if sign and all(step.randomness == "deterministic" for step in once):
            warnings.warn(f"{sign} while loading{_what_is_frozen(once)}", stacklevel=3)
        return unreadable

    def _labels(self) -> Tensor:
        return torch.empty(self.plan.n_images, dtype=torch.int64, device="cpu")

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.plan.n_images, *self.plan.shape)

    def _allocate(self, n_images: int, device: torch.device) -> Tensor:
        shape, dtype = (n_images, *self.plan.shape), self.plan.dtype
        try:
            return host.empty(shape, dtype, device)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise DoesNotFitError(self._refused(n_images, device)) from None

    def _refused(self, n_images: int, device: torch.device) -> str:
        n_bytes = n_images * self.plan.image_bytes
        if device == self.plan.device:
            n_bytes, free = n_bytes + self.plan.label_bytes, self.plan.free_bytes
        else:
            free = self.plan.room.on_host.free
        return (
            f"{device} refused {in_units(n_bytes)} in one piece, though {in_units(free)} were "
            "free: its memory is in fragments, or another program took it. Free memory there, or "
            "make the images smaller with a Resize."
        )


def _what_is_frozen(once: Sequence[Step]) -> str:
    """What to say where a global generator moved under steps that were taken for deterministic."""
    marked = ", ".join(step.name for step in once if step.is_marked_once)
    if marked:
        return (
            f". {marked}, marked gp.once, ran once as you said: if it drew, every epoch has that "
            "one draw. Leave the mark out for a draw in every epoch."
        )
    return (
        ", though every step that ran was found deterministic: a step, or the data, draws for some "
        "of the images. What it drew is frozen. Mark it gp.live(fn)."
    )


def chosen(n_images: int, n_on_device: int) -> Tensor:
    """Which images are on the device, bool [n_images] on the CPU: the same ones every time.

    They are the first of a fixed permutation, so that every batch has its share of both sides.

    >>> int(chosen(8, 3).sum()), bool((chosen(8, 3) <= chosen(8, 4)).all())
    (3, True)
    """
    key = draws.child(draws.epoch_key(0, 0), _PLACING)
    mask = torch.zeros(n_images, dtype=torch.bool, device="cpu")
    mask[draws.permutations(key, n_images)[0, :n_on_device]] = True
    return mask


class _Window:
    """Rows are decoded into a buffer on the host, and taken from there."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        row = torch.empty((1, *shape[1:]), dtype=dtype, device="cpu")
        self.n_rows = max(1, min(shape[0], WINDOW_BYTES // max(1, row.nbytes)))
        self._buffer = host.empty((self.n_rows, *shape[1:]), dtype)

    def rows(self, start: int, stop: int) -> Tensor:
        """The rows to fill."""
        return self._buffer[: stop - start]


class _ToFile(_Window):
    """Rows that are written to a file, without those that could not be read."""

    def __init__(self, file: Writing, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        super().__init__(shape, dtype)
        self._file = file

    def filled(self, start: int, stop: int, unreadable: Collection[int]) -> None:
        """Write the rows."""
        gaps = [i - start for i in unreadable if start <= i < stop]
        self._file.add(without_rows(self.rows(start, stop), gaps))


class _Places(_Window):
    """Rows that go to places of their own among others."""

    def __init__(self, images: Tensor, places: Tensor) -> None:
        super().__init__((len(places), *images.shape[1:]), images.dtype)
        self._images, self._places = images, places

    def filled(self, start: int, stop: int, unreadable: Collection[int]) -> None:
        """Put the rows where they belong."""
        places = self._places[start:stop].to(self._images.device)
        self._images[places] = self.rows(start, stop).to(self._images.device)


class _BothSides(_Window):
    """Rows of which some go to the device, and the others stay in the host's memory."""

    def __init__(self, on_device: Tensor, on_host: Tensor, is_on_device: Tensor) -> None:
        shape = (len(is_on_device), *on_host.shape[1:])
        super().__init__(shape, on_host.dtype)
        self._sides = (on_device, is_on_device), (on_host, ~is_on_device)

    def filled(self, start: int, stop: int, unreadable: Collection[int]) -> None:
        """Take each row to its side, where rows are in the order of all."""
        self._put(self.rows(start, stop), start)

    def take_all(self, images: Tensor) -> None:
        """Take all rows from one tensor on the CPU, some at a time."""
        for number, rows in enumerate(images.split(self.n_rows)):
            self._put(rows, number * self.n_rows)

    def without(self, unreadable: Collection[int]) -> list[Tensor]:
        """Both sides without rows that could not be read."""
        found = []
        for side, is_here in self._sides:
            places = is_here.cumsum(0) - 1
            gaps = {int(places[i]) for i in unreadable if is_here[i]}
            found.append(without_rows(side, gaps))
        return found

    def _put(self, rows: Tensor, start: int) -> None:
        for side, is_here in self._sides:
            first = int(is_here[:start].sum())
            here = rows[is_here[start : start + len(rows)]]
            side[first : first + len(here)].copy_(here)
