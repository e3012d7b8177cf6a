"""One process fills a cache, and the others wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import lock

# Another process, which says so when it is about to decode, and goes on at a line of input.
FILLING = """
import sys
import torchvision.transforms.v2 as v2
import gpupreload as gp
from gpupreload import dataset

load = dataset.load

def slow(*arguments, **settings):
    print("loading", flush=True)
    sys.stdin.readline()
    return load(*arguments, **settings)

dataset.load = slow
photos, cache = sys.argv[1:]
gp.preload(photos, v2.Resize((8, 8)), device="cpu", progress=False, cache=cache)
"""


def preload(photos: Path, cache: Path | bool) -> gp.GPUPreloadDataset:
    """Preload as the other process does."""
    return gp.preload(photos, v2.Resize((8, 8)), device="cpu", progress=False, cache=cache)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when this process has found the lock taken."""
    event = threading.Event()
    sleep = lock.time.sleep

    def noticed(seconds: float) -> None:
        event.set()
        sleep(seconds)

    monkeypatch.setattr("gpupreload.lock.time.sleep", noticed)
    return event


@pytest.fixture
def other(photo_folder: Path, tmp_path: Path) -> Any:
    """A process that is filling the cache in tmp_path."""
    process = subprocess.Popen(
        [sys.executable, "-c", FILLING, str(photo_folder), str(tmp_path / "kept")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def expected(photo_folder: Path) -> torch.Tensor:
    """The images without any cache."""
    return preload(photo_folder, False).images.clone()


def names(folder: Path) -> list[str]:
    """What is in a folder, by suffix."""
    return sorted(path.suffix for path in folder.iterdir())


def test_the_others_wait_for_the_first(
    photo_folder: Path, tmp_path: Path, other: Any, waits: threading.Event, expected: torch.Tensor
) -> None:
    """While one process decodes, another waits, and then reads what the first has kept."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(preload, photo_folder, tmp_path / "kept")
        assert waits.wait(60)
        other.communicate("go on\n")
        data = result.result(60)
    assert data.report.cache.startswith("Cache: hit.")
    assert torch.equal(data.images, expected)
    assert names(tmp_path / "kept") == [".safetensors"]


def test_a_process_that_dies_lets_go(
    photo_folder: Path, tmp_path: Path, other: Any, waits: threading.Event, expected: torch.Tensor
) -> None:
    """Killed while it fills the cache, a process leaves nothing that is used, and nobody waits."""
    [held] = (tmp_path / "kept").iterdir()
    half = held.with_name(f"{held.stem}-abc.part")
    half.write_bytes(b"half a file")
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(preload, photo_folder, tmp_path / "kept")
        assert waits.wait(60)
        other.send_signal(signal.SIGKILL)
        data = result.result(60)
    assert "Written" in data.report.cache
    assert torch.equal(data.images, expected)
    assert names(tmp_path / "kept") == [".safetensors"]


def test_no_one_waits_for_ever(
    photo_folder: Path,
    tmp_path: Path,
    other: Any,
    monkeypatch: pytest.MonkeyPatch,
    expected: torch.Tensor,
) -> None:
    """After the time-out the images are loaded without the other process, with a warning."""
    monkeypatch.setattr("gpupreload.cache._SECONDS_TO_WAIT", 0.2)
    with pytest.warns(UserWarning, match="Another process has been filling") as caught:
        data = preload(photo_folder, tmp_path / "kept")
    [path] = (tmp_path / "kept").glob("*.safetensors")
    assert str(caught[0].message) == (
        f"Another process has been filling {path} for 0 s. The images are loaded here without "
        "waiting any longer."
    )
    assert torch.equal(data.images, expected)


def test_a_folder_that_can_hold_no_lock(
    photo_folder: Path, tmp_path: Path, expected: torch.Tensor
) -> None:
    """Where no lock can be had, for the folder cannot be written, loading goes on without one."""
    (tmp_path / "file").write_text("")
    with lock.filling(tmp_path / "file" / "kept.safetensors", 60) as is_held:
        assert not is_held
    with pytest.warns(UserWarning, match="cannot be written"):
        data = preload(photo_folder, tmp_path / "file" / "kept")
    assert torch.equal(data.images, expected)


def test_a_lock_is_for_what_is_not_there(tmp_path: Path) -> None:
    """Nobody locks a file that is there, and a lock leaves nothing behind."""
    path = tmp_path / "kept.safetensors"
    with lock.filling(path, 60) as is_held:
        assert is_held
        assert lock.lock_of(path).exists()
    assert list(tmp_path.iterdir()) == []
    path.write_text("")
    with lock.filling(path, 60) as is_held:
        assert not is_held


def test_a_lock_that_was_deleted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock got on a file that its last holder has just deleted is tried for again."""
    path = tmp_path / "kept.safetensors"
    flock, left = lock.fcntl.flock, [True]

    def deleted(number: int, how: int) -> None:
        flock(number, how)
        if left and how != lock.fcntl.LOCK_UN:
            left.pop()
            lock.lock_of(path).unlink()

    monkeypatch.setattr("gpupreload.lock.fcntl.flock", deleted)
    with lock.filling(path, 60) as is_held:
        assert is_held
        assert not left
        assert lock.lock_of(path).exists()
