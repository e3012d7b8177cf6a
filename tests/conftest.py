"""What all tests share: marks for a GPU and a browser, a small folder of images, and a clock."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from stopped_clock import Clock

# A skip that goes unseen is a test that is never run: where the machine is meant to have the
# thing, the variable is set to 1 and a skip is a failure.
REQUIRED_BY = {
    "browser": "GPUPRELOAD_REQUIRE_BROWSER",
    "needs_cuda": "GPUPRELOAD_REQUIRE_CUDA",
}

IMAGES = {
    "cat": ["a.jpg", "b.png", "c.jpg", "d.png"],
    "dog": ["a.png", "b.jpg", "c.png", "d.jpg"],
    "owl": ["a.jpg", "b.jpg", "c.png", "d.png"],
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser's tests last.

    Playwright keeps an event loop running in this thread until the end of the session, and what
    calls `asyncio.run` in the meantime would fail.
    """
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `needs_cuda` where there is no CUDA device."""
    if item.get_closest_marker("needs_cuda"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("this machine has no CUDA device")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where the environment says that the thing is there."""
    report = yield
    for mark, variable in REQUIRED_BY.items():
        required = os.environ.get(variable) == "1"
        if report.skipped and required and item.get_closest_marker(mark):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            report.outcome = "failed"
            report.longrepr = f"{variable}=1 allows no skip here, but: {reason}"
    return report


def smooth_image(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Draw smooth colour noise: 5×4 random colours, enlarged."""
    colours = rng.integers(0, 256, size=(4, 5, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module", autouse=True)
def _no_store_of_other_files() -> None:
    """A caught error keeps datasets alive in a cycle, which plans count and loads share."""
    gc.collect()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that timing reads."""
    from stopped_clock import Clock

    from gpupreload.timing import turns

    clock = Clock()
    monkeypatch.setattr(turns, "perf_counter", clock)
    # collecting garbage takes 0.3 s each time in a process of this many modules
    monkeypatch.setattr(turns.gc, "collect", lambda generation=2: 0)
    return clock


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder of 12 RGB images in 3 classes, JPEG and PNG, no two of one size.

    Sizes run from 40×50 to 62×61 (width × height). The pixels are the same every time. All tests
    share it: read it, and copy it before changing anything.
    """
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    files = [Path(name) / file for name, names in IMAGES.items() for file in names]
    for i, file in enumerate(files):
        (root / file).parent.mkdir(exist_ok=True)
        smooth_image(rng, 40 + 2 * i, 50 + (7 * i) % 12).save(root / file, quality=95)
    return root
