"""A plan carried out: the pixels [N, C, H, W] and labels [N], resident on a device until freed."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from gpupreload import resident
from gpupreload.catalog import kind_of
from gpupreload.errors import (
    DoesNotFitError,
    SizeError,
    TransformError,
    UnreadableError,
)
from gpupreload.plan import DECODE_BUDGET, STAGING_BYTES, Plan, identity_of
from gpupreload.probe import generators_kept
from gpupreload.source import Source, list_of_unreadable
from gpupreload.steps import Step, Steps
from gpupreload.table import in_units

# images that a thread decodes before it reports: waking the main thread for each of 1,550 small
# photos cost as much time as decoding them
_SPAN = 16

Progress = Callable[[int], None]


class Store:
    """Pixels and labels on a device, shared by the datasets that serve them.

    Args:
        images: [N, C, H, W].
        labels: int64 [N] on the CPU; a copy goes to the images' device.

    Attributes:
        identity: equal for stores that hold the same, or None where that cannot be told.
        device: where the tensors are.
        labels_on_cpu: the labels, to be read without waiting for a device.
    """

    def __init__(self, images: Tensor, labels: Tensor, identity: Hashable | None = None) -> None:
        self.identity = identity
        self.device = images.device
        self.labels_on_cpu = labels
        self._tensors = (images, labels.to(images.device))
        self._holders: WeakSet[Any] = WeakSet()
        resident.register(self)

    @property
    def images(self) -> Tensor:
        """The pixels [N, C, H, W], uint8 or float; to be read, never written."""
        return self._tensors[0]

    @property
    def labels(self) -> Tensor:
        """The labels, int64 [N]."""
        return self._tensors[1]

    @property
    def n_bytes(self) -> int:
        """The bytes of both tensors; 0 once they are freed."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def hold(self, holder: Any) -> None:
        """Note that a dataset serves from this store."""
        self._holders.add(holder)

    def release(self, holder: Any) -> int:
        """Let go of the store; the last holder frees it. Returns the number of bytes given back."""
        self._holders.discard(holder)
        if self._holders:
            return 0
        n_bytes = self.n_bytes
        self._tensors = (self.images.new_empty(0), self.labels.new_empty(0))
        if n_bytes and self.device.type == "cuda":
            torch.cuda.empty_cache()
        return n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        # torch hands a CPU tensor to a worker process as shared memory; who holds it stays here
        return Store, (self.images, self.labels_on_cpu)


class ByteBudget:
    """Lets threads hold at most a number of bytes together; one larger request goes alone.

    Args:
        n_bytes: that may be held at a time.
    """

    def __init__(self, n_bytes: int) -> None:
        self._limit = self._left = n_bytes
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, n_bytes: int) -> Iterator[None]:
        """Wait until so many bytes are free, and hold them."""
        n_bytes = min(n_bytes, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._left >= n_bytes)
            self._left -= n_bytes
        try:
            yield
        finally:
            with self._changed:
                self._left += n_bytes
                self._changed.notify_all()


def load(source: Source, plan: Plan, *, workers: int, progress: bool) -> Store:
    """Fill a store as planned, or share the living one that holds just the same.

    Args:
        source: where images and labels come from.
        plan: made for this source.
        workers: number of decoding threads, 1 or more.
        progress: whether a bar is shown.

    Raises:
        DoesNotFitError: the device has not the memory; before any image is decoded.
        UnreadableError: files that cannot be read, all of them; after the others were read.
        SizeError: an image did not come out in the planned size.
    """
    identity = identity_of(source, plan.steps)
    living = resident.find(identity, plan.device)
    if isinstance(living, Store):
        return living
    plan.check_fits()
    images = _allocate(plan)
    labels = torch.empty(plan.n_images, dtype=torch.int64, device="cpu")
    rows = _InPlace(images) if images.device.type == "cpu" else _Staged(images)
    with _bar(plan, progress) as advance, generators_kept() as moved:
        _fill(rows, labels, _Decoding(source, plan, workers), workers, advance)
        sign = moved()
    if sign and all(step.randomness == "deterministic" for step in plan.steps.rows_of("once")):
        warnings.warn(
            f"{sign} while loading, though every step that ran was found deterministic: a step, or "
            "the data, draws for some of the images. What it drew is frozen. Mark it gp.live(fn).",
            stacklevel=2,
        )
    return Store(images, labels, identity)


def _allocate(plan: Plan) -> Tensor:
    try:
        return torch.empty((plan.n_images, *plan.shape), dtype=plan.dtype, device=plan.device)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise DoesNotFitError(
            f"{plan.device} refused {in_units(plan.store_bytes)} in one piece, though "
            f"{in_units(plan.free_bytes)} were free: its memory is in fragments, or another "
            "program took it. Free memory there, or make the images smaller with a Resize."
        ) from None


class _Decoding:
    """Reads item i, runs the once-part on it and writes it to a row, from any thread."""

    def __init__(self, source: Source, plan: Plan, workers: int) -> None:
        self.source, self.plan = source, plan
        self._steps = _named_steps(plan.steps)
        self._budget = ByteBudget(DECODE_BUDGET)
        self.is_stopped = False
        # of an item that was not looked at, the largest of the others is the best guess
        self._largest = max(spec.decoding_bytes for spec in source.specs.values())
        # small images cannot exceed the budget however they come, and need not ask for it
        self._is_tight = not source.has_headers or workers * self._largest > DECODE_BUDGET

    def __call__(self, index: int, row: Tensor) -> int:
        """Fill one row, and return the item's label."""
        with self._held(index):
            image, label = self.source.read(index)
            pixels = self._run_once(image, index)
            if pixels.shape != row.shape or pixels.dtype != row.dtype:
                raise SizeError(self._unlike_plan(pixels, index))
            _copy(pixels, row)
        return label

    def span(self, first: int, rows: Tensor) -> tuple[list[int], list[str]]:
        """Fill some rows; return their labels, and the reasons for files that cannot be read."""
        labels, unreadable = [], []
        for index, row in enumerate(rows, first):
            if self.is_stopped:
                break
            try:
                labels.append(self(index, row))
            except UnreadableError as error:
                labels.append(0)
                unreadable.append(str(error))
        return labels, unreadable

    def _held(self, index: int) -> AbstractContextManager[None]:
        if not self._is_tight:
            return nullcontext()
        spec = self.source.specs.get(index)
        return self._budget.hold(spec.decoding_bytes if spec else self._largest)

    def _run_once(self, image: Any, index: int) -> Tensor:
        try:
            return self._steps.run_once(image)
        except _StepFailedError as failed:
            raise TransformError(f"{self.source.where(index)}: {failed}") from failed.__cause__
        except TypeError as error:
            raise TransformError(
                f"{self.source.where(index)}: the once-part of the transform: {error}"
            ) from None

    def _unlike_plan(self, pixels: Tensor, index: int) -> str:
        return (
            f"{self.source.where(index)} comes out of the once-part as {pixels.dtype} of shape "
            f"{tuple(pixels.shape)}; the images looked at before gave {self.plan.dtype} of shape "
            f"{self.plan.shape}. Every image must come out alike: add v2.RGB() and "
            f"v2.Resize({self.plan.shape[1:]}) to the deterministic steps."
        )


class _StepFailedError(Exception):
    """A step of the once-part raised; the text says which, and what."""


def _named_steps(steps: Steps) -> Steps:
    """The same steps, each of which says its name where it fails."""
    lock = threading.Lock()
    rows = (replace(row, transform=_NamedStep(row, lock)) for row in steps.rows)
    return replace(steps, rows=tuple(rows))


class _NamedStep:
    """A step for several threads; those of the caller's own making may bear only one at a time."""

    def __init__(self, step: Step, lock: threading.Lock) -> None:
        self._step = step
        self._is_known = kind_of(step.transform) == "deterministic"
        self._alone = nullcontext() if self._is_known else lock

    def __call__(self, image: Any) -> Any:
        with self._alone:
            try:
                return self._step.transform(image)
            except Exception as error:
                raise _StepFailedError(
                    f"{self._step.name} raised {type(error).__name__}: {error}"
                ) from error


def _copy(pixels: Tensor, row: Tensor) -> None:
    """Copy through NumPy: torch would start OpenMP's threads anew in every decoding thread."""
    if pixels.dtype == torch.bfloat16:  # NumPy has none
        row.copy_(pixels)
    else:
        np.copyto(row.numpy(), pixels.numpy())


class _InPlace:
    """Rows on the host are decoded where they stay."""

    n_rows = 4096

    def __init__(self, images: Tensor) -> None:
        self._images = images

    def rows(self, start: int, stop: int) -> Tensor:
        """The rows to fill."""
        return self._images[start:stop]

    def filled(self, start: int, stop: int) -> None:
        """Nothing is left to do."""


class _Staged:
    """Rows for an accelerator are decoded into one of two host buffers while the other is sent."""

    def __init__(self, images: Tensor) -> None:
        self._images = images
        self.n_rows = max(1, STAGING_BYTES // max(1, images[:1].nbytes))
        pinned = images.device.type == "cuda"
        shape = (self.n_rows, *images.shape[1:])
        settings: dict[str, Any] = {"dtype": images.dtype, "device": "cpu", "pin_memory": pinned}
        self._buffers = [torch.empty(shape, **settings) for _ in "ab"]
        self._sent: list[torch.cuda.Event | None] = [None, None]

    def rows(self, start: int, stop: int) -> Tensor:
        """The rows to fill, once their last contents have reached the device."""
        which = start // self.n_rows % 2
        event = self._sent[which]
        if event is not None:
            event.synchronize()
        return self._buffers[which][: stop - start]

    def filled(self, start: int, stop: int) -> None:
        """Send the rows to the device, without waiting where it can be done."""
        which = start // self.n_rows % 2
        on_cuda = self._images.device.type == "cuda"
        self._images[start:stop].copy_(self._buffers[which][: stop - start], non_blocking=on_cuda)
        if on_cuda:
            with torch.cuda.device(self._images.device):
                self._sent[which] = torch.cuda.current_stream().record_event()


def _fill(
    rows: _InPlace | _Staged, labels: Tensor, decode: _Decoding, workers: int, advance: Progress
) -> None:
    """Decode every item into its row and its label, a window of rows at a time."""
    unreadable: list[str] = []
    with _threads(workers, decode) as pool:
        for start in range(0, len(labels), rows.n_rows):
            stop = min(start + rows.n_rows, len(labels))
            spans = rows.rows(start, stop).split(_SPAN)
            firsts = range(start, stop, _SPAN)
            results = pool.map(decode.span, firsts, spans)
            for first, (numbers, reasons) in zip(firsts, results, strict=True):
                labels[first : first + len(numbers)] = torch.tensor(numbers, device="cpu")
                unreadable += reasons
                advance(len(numbers))
            rows.filled(start, stop)
    if unreadable:
        raise UnreadableError(list_of_unreadable(unreadable, len(labels)))


@contextmanager
def _threads(workers: int, decode: _Decoding) -> Iterator[ThreadPoolExecutor]:
    """Decoding threads that are all gone at the end, also after an error or an interrupt."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="gpupreload-decode")
    try:
        yield pool
    finally:
        decode.is_stopped = True
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _bar(plan: Plan, shown: bool) -> Iterator[Progress]:
    """Show a progress bar of images, images/s and MiB; yield what moves it on."""
    with _tqdm()(total=plan.n_images, unit=" images", desc="preload", disable=not shown) as bar:

        def advance(n_images: int) -> None:
            bar.update(n_images)
            n_bytes = plan.store_bytes * bar.n // max(1, plan.n_images)
            bar.set_postfix_str(f"{n_bytes / 2**20:.1f} MiB", refresh=False)

        yield advance


def _tqdm() -> Any:
    """Return tqdm's bar for where this runs: in a notebook a widget, or text without ipywidgets.

    Imported on call, for in a notebook this imports ipywidgets.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ipywidgets is missing is no fault: text will do
        from tqdm.auto import tqdm
    return tqdm
