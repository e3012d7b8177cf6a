"""Devices by name, and their memory, on machines that have them and on those that have not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

import gpupreload as gp
from gpupreload import devices
from gpupreload.devices import Memory, memory_of, resolve_device

GIB = 1 << 30


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two CUDA devices, of which the second is the current one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CPU only."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Apple's GPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "given", [None, "cpu", "cpu:0", torch.device("cpu"), torch.device("cpu:0")]
)
def test_the_cpu_has_one_name(given: Any) -> None:
    """Without a GPU, None is the CPU, and all its names are one, so that stores can be shared."""
    assert resolve_device(given) == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "cuda:1"),
        ("cuda", "cuda:1"),
        ("cuda:0", "cuda:0"),
        (torch.device("cuda", 1), "cuda:1"),
        ("cpu", "cpu"),
    ],
)
def test_cuda_without_a_number_is_the_current_device(given: Any, expected: str) -> None:
    """None and "cuda" mean the device that torch.cuda.set_device chose."""
    assert resolve_device(given) == torch.device(expected)


@pytest.mark.usefixtures("apple")
@pytest.mark.parametrize("given", [None, "mps", "mps:0"])
def test_mps_is_named_as_its_tensors_name_it(given: Any) -> None:
    """Tensors on MPS say mps:0, so that is its name."""
    assert resolve_device(given) == torch.device("mps:0")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("given", ["cuda", "cuda:7", "mps", "meta", "nonsense", "", 3.5, 99])
def test_a_device_that_is_not_there(given: Any) -> None:
    """The error names what was asked for and what there is."""
    with pytest.raises(gp.DeviceError) as raised:
        resolve_device(given)
    assert str(raised.value) == (
        f"device={given!r} is not there; expected one of: cpu. "
        "Name one of these, or leave device out."
    )


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_beyond_the_last() -> None:
    """The error lists the GPUs by number; a torch.device is written as its name."""
    with pytest.raises(gp.DeviceError) as raised:
        resolve_device(torch.device("cuda:7"))
    assert str(raised.value) == (
        "device='cuda:7' is not there; expected one of: cuda:0, cuda:1, cpu. "
        "Name one of these, or leave device out."
    )


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("call", [gp.plan, gp.preload, gp.GPUPreloadDataset])
def test_the_device_is_checked_before_the_data(call: Any) -> None:
    """A device that is not there is said before a folder is looked at."""
    with pytest.raises(gp.DeviceError):
        call("/no/such/folder", device="cuda")


def test_cuda_memory_counts_what_pytorch_keeps_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that PyTorch's allocator has reserved and not given out is free to us."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * GIB, 16 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 5 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * GIB)
    assert memory_of(torch.device("cuda:0")) == Memory(13 * GIB, 16 * GIB)


def test_mps_memory_is_within_the_recommended_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On MPS the limit that Metal recommends counts, less what the driver holds."""
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12 * GIB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3 * GIB)
    assert memory_of(torch.device("mps:0")) == Memory(9 * GIB, 12 * GIB)


def test_cpu_memory_is_what_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, memory is what is available without swapping."""
    ram = SimpleNamespace(available=5 * GIB, total=8 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: ram)
    monkeypatch.setattr(devices, "_within_container", lambda memory: memory)
    assert memory_of(torch.device("cpu")) == Memory(5 * GIB, 8 * GIB)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(str(4 * GIB), Memory(2 * GIB, 4 * GIB)), ("max", Memory(5 * GIB, 8 * GIB))],
)
def test_a_containers_limit_counts(tmp_path: Path, limit: str, expected: Memory) -> None:
    """In a container less is free than the machine has: its limit, and cached files within it."""
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {2 * GIB}\ninactive_file {1 * GIB}\n")
    assert devices._within_container(Memory(5 * GIB, 8 * GIB), tmp_path) == expected


def test_without_a_container_the_machine_counts(tmp_path: Path) -> None:
    """Where there is no control group, nothing is taken off."""
    assert devices._within_container(Memory(5, 8), tmp_path) == Memory(5, 8)
