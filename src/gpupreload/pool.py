"""Threads that decode, and the memory that they may take together."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

# images that a thread decodes before it reports: waking the main thread for each of 1,550 small
# photos cost as much time as decoding them
SPAN = 16


_numbers = itertools.count()


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


class Stoppable(Protocol):
    """Work on many items that ends soon after it is told to."""

    is_stopped: bool


@contextmanager
def threads(workers: int, work: Stoppable) -> Iterator[ThreadPoolExecutor]:
    """Decoding threads that are all gone at the end, also after an error or an interrupt."""
    prefix = f"gpupreload-decode-{next(_numbers)}"
    pool = ThreadPoolExecutor(workers, thread_name_prefix=prefix)
    try:
        yield pool
    finally:
        work.is_stopped = True
        pool.shutdown(wait=True, cancel_futures=True)
        # an interrupt while a thread is being started leaves one that the pool does not know
        for thread in threading.enumerate():
            if thread.name.startswith(f"{prefix}_"):
                thread.join()
