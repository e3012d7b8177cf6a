"""Run every benchmark, one after the other, and keep what each prints.

`make bench` runs this. The README's numbers come from one such run: tests/test_readme_numbers.py
looks each of them up in bench/results/.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
SCRIPTS = [
    ROOT / "demo.py",
    *(path for path in sorted((ROOT / "bench").glob("*.py")) if "__main__" in path.read_text()),
]


def main(wanted: list[str]) -> None:
    """Run the scripts of these names; all of them where none is given."""
    for script in SCRIPTS:
        if not wanted or script.stem in wanted:
            keep(script)


def keep(script: Path) -> None:
    """Run one script: its tables go to the screen and to a file of its name."""
    print(f"== {script.relative_to(ROOT)}", flush=True)
    start = time.monotonic()
    done = subprocess.run([sys.executable, script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    if done.returncode:
        sys.exit(f"{script.name} ended with exit status {done.returncode}; its results stay out")
    took = f"{script.name} took {time.monotonic() - start:.0f} s\n"
    text = done.stdout.replace(str(Path.home()), "~")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{script.stem}.txt").write_text(f"{text.rstrip()}\n\n{took}")
    print(took, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
