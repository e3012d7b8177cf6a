"""One process at a time fills a file, and the others wait: a lock that ends with its process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: each process fills its own, and the last to finish keeps it
    fcntl = None  # type: ignore[assignment]

_SECONDS_BETWEEN_TRIES = 0.05


class TimedOutError(Exception):
    """Another process held the lock for too long."""


@contextlib.contextmanager
def filling(path: Path, seconds: float) -> Iterator[bool]:
    """Let one process at a time fill a file that is not there yet.

    A process that dies lets go of the lock, whatever killed it.

    Args:
        path: of the file, which appears whole or not at all.
        seconds: how long to wait for a process that is filling it.

    Yields:
        Whether this process holds the lock. Without it, the file is there, or the folder can hold
        no lock.

    Raises:
        TimedOutError: another process still held the lock after so many seconds.
    """
    held = _acquired(path, seconds)
    try:
        yield held is not None
    finally:
        if held is not None:
            _release(path, held)


def lock_of(path: Path) -> Path:
    """The path of the file that is locked while `path` is filled."""
    return path.with_name(f".{path.stem}.lock")


def _acquired(path: Path, seconds: float) -> int | None:
    """Wait for the lock; return its open file, or None where there is no need or no way."""
    ends = time.monotonic() + seconds
    while fcntl is not None and not path.exists():
        try:
            held = _tried(lock_of(path))
        except BlockingIOError:
            if time.monotonic() > ends:
                raise TimedOutError from None
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except OSError:  # a folder that cannot be written, or a file system without locks
            return None
        else:
            if held is not None:
                return held
    return None


def _tried(lock: Path) -> int | None:
    """Lock a file; None where its holder has deleted it meanwhile, so that others lock another."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(number), lock.stat()):
            return number
    except FileNotFoundError:
        pass
    except OSError:
        os.close(number)
        raise
    os.close(number)
    return None


def _release(path: Path, held: int) -> None:
    with contextlib.suppress(OSError):
        lock_of(path).unlink()
    # also where a process forked meanwhile has the file open
    fcntl.flock(held, fcntl.LOCK_UN)
    os.close(held)
