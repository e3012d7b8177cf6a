"""Every benchmark runs, in its quick form, and prints its table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
SCRIPTS = [path for path in sorted(BENCH.glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_quick_form_runs(script: Path) -> None:
    """Each script checks that what it compares is equal, measures, and names the machine."""
    done = subprocess.run(
        [sys.executable, script, "--quick"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "torchvision" in done.stdout
    assert "median" in done.stdout
