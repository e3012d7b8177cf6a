"""The folder for what can be made again, as the system has it for each user."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return our folder of a name in the user's cache; it need not be there.

    That is in `$XDG_CACHE_HOME` or `~/.cache` on Linux, `~/Library/Caches` on macOS,
    `%LOCALAPPDATA%` on Windows.
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpupreload" / name
