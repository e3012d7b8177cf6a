"""The project as a whole: one list of dependencies, one way of imports, commands that exist."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "gpupreload"

# The order in which data flows. A module imports only from those before it. A folder is one room:
# its modules may import each other.
ORDER = [
    *("errors", "table", "user_cache", "let_go", "host", "tree", "wrong_folder", "folder"),
    *("unreadable", "jpeg", "remarks", "decode", "source", "keywords", "devices"),
    *("placement", "cover", "class_names", "catalog", "fast", "settings", "calling"),
    *("leaves", "probe", "made_up", "trace", "refusals", "division", "parts", "steps"),
    *("splitmix", "draws", "functional", "native", "rows", "stages", "one_pass", "chains"),
    *("batch_checks", "per_sample", "ranks", "arguments", "resident", "outline", "reuse"),
    *("planned", "plan", "unaugmented", "report", "bar", "pool", "staging", "shortcuts"),
    *("filling", "gpu_decoding", "gaps", "cache_file", "cache_writing", "cache_key", "kept_rows"),
    *("lock", "cache", "ahead", "shelves", "building", "labels", "store", "check", "fetched"),
    *("selection", "view", "clock", "floats", "holding", "serving", "dataset", "preloading"),
    *("order", "blocks", "progress", "loader_arguments", "loader", "parameters", "repeats"),
    *("frozen", "figure", "shared", "timing", "captions", "show", "explore", "photos"),
]

LOADED_ON_CALL = [
    "matplotlib",
    "ipywidgets",
    "IPython",
    "skimage",
    "tqdm.notebook",
    "jupyterlab",
    "simplejpeg",
]


def read(name: str | Path) -> str:
    """The text of a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def room_of(path: Path) -> str:
    """The module's name, or its folder's for a module in one."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(source: str) -> Iterator[str]:
    """Yield the modules of the package that a source imports, anywhere in it; "" is its root."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that this test can read them"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for first, *rest in (name.split(".") for name in names):
            if first == "gpupreload":
                yield rest[0] if rest and rest[0] in ORDER else ""


def faults(room: str, source: str) -> list[str]:
    """Say what a module of this room must not import, and does."""
    before = ORDER[: ORDER.index(room) + 1]
    return [
        f"{room} imports {other}, which comes after it" if other else f"{room} imports the root"
        for other in imported_rooms(source)
        if other not in before
    ]


def test_every_module_has_its_place() -> None:
    """A new module is given a place in the order of imports."""
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert sorted(rooms - set(ORDER)) == []


def test_modules_import_only_from_those_above() -> None:
    """Imports go one way, and nothing inside imports from the package's root."""
    modules = [path for path in PACKAGE.rglob("*.py") if room_of(path) in ORDER]
    assert [fault for path in modules for fault in faults(room_of(path), read(path))] == []


@pytest.mark.parametrize(
    ("room", "source", "expected"),
    [
        ("store", "from gpupreload.plan import Plan", []),
        ("store", "from gpupreload import plan, errors", []),
        ("functional", "from gpupreload.functional.color import gray", []),
        ("plan", "from gpupreload.store import load", ["plan imports store, which comes after it"]),
        ("plan", "from gpupreload import store", ["plan imports store, which comes after it"]),
        ("plan", "import gpupreload.store", ["plan imports store, which comes after it"]),
        ("plan", "def f():\n    import gpupreload", ["plan imports the root"]),
        ("plan", "from gpupreload import Loader", ["plan imports the root"]),
    ],
)
def test_each_wrong_import_is_found(room: str, source: str, expected: list[str]) -> None:
    """An import against the order is found in whatever way and wherever it is written."""
    assert faults(room, source) == expected


def test_import_loads_no_notebook_packages() -> None:
    """`import gpupreload` works, and is quick, where no extra is installed."""
    loaded = f"[name for name in {LOADED_ON_CALL} if name in sys.modules]"
    source = f"import gpupreload, sys; print({loaded})"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("[]\n", 0), run.stderr


def pyproject() -> dict[str, Any]:
    """The `project` table of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def test_environment_follows_pyproject() -> None:
    """environment.yml brings pyproject's Python, pip, and an editable install with extras."""
    environment = yaml.safe_load(read("environment.yml"))
    project = pyproject()
    python, pip, installed = environment["dependencies"]
    assert environment["channels"] == ["conda-forge"]
    assert python == "python" + project["requires-python"]
    assert pip == "pip"
    [editable] = installed["pip"]
    extras = re.fullmatch(r"-e \.\[([\w,]+)\]", editable)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])


def included(extras: set[str]) -> set[str]:
    """These extras, and those that they ask for."""
    wanted = [one for extra in extras for one in pyproject()["optional-dependencies"][extra]]
    found = (re.fullmatch(r"gpupreload\[([\w,]+)\]", one) for one in wanted)
    return extras.union(*(match[1].split(",") for match in found if match is not None))


def test_make_follows_pyproject() -> None:
    """`make` asks for pyproject's Python and installs every extra, itself or within another."""
    makefile, project = read("Makefile"), pyproject()
    [(major, minor)] = re.findall(r"sys\.version_info >= \((\d+), (\d+)\)", makefile)
    assert project["requires-python"] == f">={major}.{minor}"
    extras = ",".join(re.findall(r"'\.\[([\w,]+)\]'", makefile)).split(",")
    assert len(extras) == len(set(extras))
    assert included(set(extras)) == set(project["optional-dependencies"])
    assert "frameworks" in included({"test"})


def targets() -> set[str]:
    """The targets that the Makefile offers to a person."""
    [names] = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    return set(names.split())


def commands(text: str) -> set[str]:
    r"""The targets of the `make` commands in a Markdown text: in code, not in prose.

    >>> sorted(commands("`make test`, make sure\n```\nmake lab  # opens\n```"))
    ['lab', 'test']
    """
    inline = re.findall(r"`make ([a-z]+)", text)
    in_blocks = re.findall(r"^(?:\$ )?make ([a-z]+)", "\n".join(text.split("```")[1::2]), re.M)
    return {*inline, *in_blocks}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documented_commands_exist(name: str) -> None:
    """The documents name commands of `make`, and each is there."""
    named = commands(read(name))
    assert named
    assert named <= targets()


def test_make_explains_every_target() -> None:
    """`make` alone lists every target with what it does."""
    run = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  ([a-z]+) +\S.*$", run.stdout, re.MULTILINE)
    assert set(listed) == targets()


SKIPPED = """
import pytest

@pytest.mark.browser
def test_browser():
    pytest.skip("not there")

@pytest.mark.needs_cuda
def test_cuda():
    pytest.skip("not there")
"""


@pytest.mark.parametrize("required", [False, True])
def test_required_tests_cannot_be_skipped(tmp_path: Path, required: bool) -> None:
    """Where a variable says that the machine has a browser or a GPU, a skip is a failure."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    variables = ("GPUPRELOAD_REQUIRE_BROWSER", "GPUPRELOAD_REQUIRE_CUDA")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_skipped.py"],
        cwd=tmp_path,
        env=os.environ | dict.fromkeys(variables, str(int(required))),
        capture_output=True,
        text=True,
    )
    assert run.returncode == int(required)
    assert ("2 skipped" in run.stdout) is not required
    assert [name in run.stdout for name in variables] == [required, required]


def test_shared_photos_are_an_image_folder(photo_folder: Path) -> None:
    """The folder that tests share has three classes and twelve images, no two of one size."""
    from torchvision.datasets import ImageFolder

    images = ImageFolder(str(photo_folder))
    assert images.classes == ["cat", "dog", "owl"]
    assert images.targets == [0] * 4 + [1] * 4 + [2] * 4
    assert len({image.size for image, _ in images}) == 12
