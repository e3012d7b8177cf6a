"""What the README says was measured is what the benchmarks printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*\.\d+(?![\w.]*\d)")
MACHINE = re.compile(r"^On \d{4}-\d\d-\d\d.*?run in turn in one process", re.DOTALL | re.MULTILINE)


def measured() -> str:
    """The README's section, without the sentence that lists versions."""
    section = re.search(r"^## Measured\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)
    assert section is not None
    return MACHINE.sub("", section[1])


def printed() -> set[str]:
    """Every number with a decimal point in what the benchmarks printed."""
    return {n for path in RESULTS.glob("*.txt") for n in NUMBER.findall(path.read_text())}


@pytest.mark.parametrize(
    ("text", "found"),
    [("×1.27", ["1.27"]), ("0.40 s to 1,234.5", ["0.40", "1,234.5"]), ("Python 3.11.7, 64", [])],
)
def test_what_counts_as_a_number(text: str, found: list[str]) -> None:
    """Numbers have a decimal point; versions with two of them are none."""
    assert NUMBER.findall(text) == found


def test_every_number_was_printed() -> None:
    """Each number of the section stands, digit by digit, in a file of bench/results."""
    numbers = NUMBER.findall(measured())
    assert len(numbers) > 100
    assert sorted(set(numbers) - printed()) == []


def test_the_results_are_of_one_day_and_machine() -> None:
    """Numbers that stand beside each other in the README come from the machine that it names."""
    machines = {
        line
        for path in RESULTS.glob("*.txt")
        for line in re.findall(r"^\d{4}-\d\d-\d\d, .*Pillow [\d.]+", path.read_text(), re.MULTILINE)
    }
    assert len(machines) == 1, machines
    said = MACHINE.sub("", (ROOT / "README.md").read_text())
    assert said != (ROOT / "README.md").read_text()
    day = machines.pop().split(",")[0]
    assert f"On {day}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", [p.stem for p in sorted((ROOT / "bench").glob("*.py"))])
def test_every_benchmark_has_its_result(name: str) -> None:
    """A benchmark whose output is not kept could not be quoted."""
    script = ROOT / "bench" / f"{name}.py"
    if "__main__" in script.read_text():
        assert (RESULTS / f"{name}.txt").exists(), f"run make bench ARGS={name}"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.txt")), ids=lambda path: path.stem)
def test_each_took_less_than_five_minutes(path: Path) -> None:
    """As long as somebody waits for an answer."""
    took = re.search(r"took (\d+) s\n\Z", path.read_text())
    assert took is not None
    assert int(took[1]) < 300
