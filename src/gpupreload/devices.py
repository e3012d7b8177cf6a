"""A device by name, and how much memory it has free and in all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from gpupreload.errors import DeviceError


@dataclass(frozen=True)
class Memory:
    """Memory of a device in bytes: what a new tensor can take now, and all there is."""

    free: int
    total: int


def resolve_device(device: str | int | torch.device | None) -> torch.device:
    """Return the device asked for; None means CUDA if there is one, else MPS, else the CPU.

    What is returned is the device as tensors on it name it: "cuda" and "mps" get their number
    (CUDA's current one), and the CPU has none.

    Raises:
        DeviceError: there is no such device on this machine.
    """
    try:
        found = torch.device(_default() if device is None else device)
    except (RuntimeError, TypeError):
        found = None
    if found is None or not _is_present(found):
        given = str(device) if isinstance(device, torch.device) else device
        raise DeviceError(
            f"device={given!r} is not there; expected one of: {', '.join(_present())}. "
            "Name one of these, or leave device out."
        )
    if found.type == "cpu":
        return torch.device("cpu")
    current = torch.cuda.current_device() if found.type == "cuda" else 0
    return torch.device(found.type, current if found.index is None else found.index)


def memory_of(device: torch.device) -> Memory:
    """Return the memory of a device.

    CUDA: `torch.cuda.mem_get_info`, with what PyTorch's allocator holds unused counted as free.
    MPS: Metal's recommended limit, less what the driver has allocated. CPU: the RAM that is
    available without swapping, or what is left of the container's limit where that is less.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(free + kept, total)
    if device.type == "mps":
        total = torch.mps.recommended_max_memory()
        return Memory(total - torch.mps.driver_allocated_memory(), total)
    ram = psutil.virtual_memory()
    return _within_container(Memory(ram.available, ram.total))


def _within_container(ram: Memory, cgroup: Path = Path("/sys/fs/cgroup")) -> Memory:
    """Lower a machine's memory to the limit that a cgroup (version 2) sets, if it sets one."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        cached = int(dict(_fields(cgroup / "memory.stat")).get("inactive_file", "0"))
    except (OSError, ValueError):
        return ram
    # pages of files count as used there, but are given up when memory is asked for
    return Memory(min(ram.free, limit - used + cached), min(ram.total, limit))


def _fields(path: Path) -> list[tuple[str, str]]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return [(name, value) for name, value in pairs]


def _present() -> list[str]:
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return [*cuda, *mps, "cpu"]


def _default() -> str:
    if torch.cuda.device_count():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _is_present(device: torch.device) -> bool:
    if device.type == "cuda":
        return (device.index or 0) < torch.cuda.device_count()
    return device.type in _present()
