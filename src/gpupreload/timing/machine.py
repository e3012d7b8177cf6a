"""On what something was measured, in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import PIL
import torch
import torchvision

from gpupreload.table import counted


def machine(device: torch.device | None = None) -> str:
    """Return the processor, the device, and the versions of what does the work.

    Args:
        device: an accelerator to be named too.
    """
    accelerator = f"{device_name(device)}, " if device is not None and device.type != "cpu" else ""
    cpus, threads = counted(os.cpu_count() or 1, "CPU"), counted(torch.get_num_threads(), "thread")
    return (
        f"{accelerator}{_processor()}, {cpus}, {threads}, "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    )


def device_name(device: torch.device) -> str:
    """Return a device's name: a GPU's as its driver gives it, else its type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor() or platform.machine()
    lines = cpuinfo.read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "CPU")
