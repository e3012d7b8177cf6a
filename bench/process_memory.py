"""How much memory this process has had at the most, as the operating system counts it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def high_water(*, anew: bool = False) -> int:
    """The most memory that this process has had, in bytes; on Linux since it was asked anew."""
    if STATUS.exists():
        if anew:
            (STATUS.parent / "clear_refs").write_text("5")
        return field("VmHWM")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def field(name: str) -> int:
    """A size of this process's in bytes, such as VmRSS or RssAnon; 0 where Linux does not tell."""
    text = STATUS.read_text() if STATUS.exists() else ""
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
