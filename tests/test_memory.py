"""Memory while loading is the store plus a constant, and it is given back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_watch import WATCH
from PIL import Image

N_IMAGES, SIDE = 300, 480
STORE = N_IMAGES * (3 * SIDE * SIDE + 8)  # 198 MiB
MIB = 1 << 20

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="RssAnon is read from /proc"
)

# Run in a process of its own, for what this one has freed before would hide what is taken.
SCRIPT = (
    WATCH
    + """
root, small, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
steps = [v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
transform, settings = v2.Compose(steps), {"device": "cpu", "progress": False, "workers": workers}
# what is imported and started on the first use is no part of the set
gp.preload(small, v2.Compose([v2.Resize((8, 8)), transform]), **settings)[0]

before = anonymous()
with Watch() as loading:
    data = gp.preload(root, transform, **settings)
loaded = anonymous()
with Watch() as again:
    same = gp.preload(root, transform, **settings)
with Watch() as epoch:
    for images, labels in gp.Loader(data, batch_size=8, shuffle=True):
        pass
    del images, labels
kept = anonymous()
given_back = [data.free(), same.free()]
print(json.dumps({
    "before": before, "loading": loading.peak, "loaded": loaded, "again": again.peak,
    "epoch": epoch.peak, "kept": kept, "given back": given_back, "after": anonymous(),
}))
"""
)


# The same for a cache: filled, then written, then read in another process.
CACHED = (
    SCRIPT[: SCRIPT.index("before = anonymous()")]
    + """
kept, small_kept = Path(sys.argv[4]), Path(sys.argv[4]) / "small"
for _ in "ab":  # a miss and a hit, whose first use starts things too
    gp.preload(small, v2.Resize((8, 8)), cache=small_kept, **settings).free()

before = anonymous()
with Watch() as loading:
    data = gp.preload(root, transform, cache=kept, **settings)
loaded = anonymous()
print(json.dumps({
    "before": before, "loading": loading.peak, "loaded": loaded,
    "outcome": data.report.cache, "given back": data.free(), "after": anonymous(),
}))
"""
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 images of 3×480×480, in PNG, JPEG and BMP: 198 MiB of pixels."""
    root = tmp_path_factory.mktemp("large")
    coarse = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((SIDE, SIDE))
    for suffix in ("png", "jpg", "bmp"):
        (root / suffix).mkdir()
        first = root / suffix / f"0.{suffix}"
        image.save(first)
        for i in range(1, N_IMAGES // 3):
            shutil.copy(first, root / suffix / f"{i}.{suffix}")
    return root


def run(script: str, *arguments: object) -> dict[str, Any]:
    """What a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print({name: value // MIB for name, value in found.items() if isinstance(value, int)})
    return found


@needs_proc
def test_memory_while_loading(large: Path, photo_folder: Path) -> None:
    """Anonymous memory grows by the store and at most 256 MiB; free() gives it back.

    No float copy of the set is made, which would be 791 MiB, neither while loading nor in an epoch;
    the same preload again takes nothing.
    """
    found = run(SCRIPT, large, photo_folder, 4)
    assert found["loading"] - found["before"] < STORE + 256 * MIB
    assert STORE - MIB < found["loaded"] - found["before"] < STORE + 64 * MIB
    assert found["again"] - found["loaded"] < 16 * MIB
    # a batch of 8 is 21 MiB of floats, of which several may live at a time
    assert found["epoch"] - found["loaded"] < 160 * MIB
    assert found["given back"] == [0, STORE]
    assert found["kept"] - found["after"] > STORE - MIB


@needs_proc
def test_memory_with_a_cache(large: Path, photo_folder: Path, tmp_path: Path) -> None:
    """Keeping a set, and reading it back in another process, takes the store and at most 256 MiB.

    No second copy of the set is made for either, and free() gives the store back.
    """
    for outcome in ("miss", "hit"):
        found = run(CACHED, large, photo_folder, 4, tmp_path)
        assert found["outcome"].startswith(f"Cache: {outcome}")
        assert found["loading"] - found["before"] < STORE + 256 * MIB
        assert STORE - MIB < found["loaded"] - found["before"] < STORE + 64 * MIB
        assert found["given back"] == STORE
        assert found["loaded"] - found["after"] > STORE - MIB
        if outcome == "hit":
            # the file is read into the store itself
            assert found["loading"] - found["before"] < STORE + 32 * MIB
