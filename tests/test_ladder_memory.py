"""What stays in a file takes no memory of the process, neither when written nor when read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memory_watch import WATCH

MIB = 1 << 20
SIDE = 400

# Run in a process of its own, for what this one has freed before would hide what is taken. With
# 4,500 images the store has 2 GiB.
SCRIPT = (
    WATCH
    + """
class MadeUp(torch.utils.data.Dataset):
    def __init__(self, n_images, side):
        self.n_images, self.shape = n_images, (3, side, side)
    def __len__(self):
        return self.n_images
    def __getitem__(self, index):
        return torch.full(self.shape, index % 251, dtype=torch.uint8), index % 10

folder, n_images, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
transform = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
settings = {"device": "cpu", "progress": False, "placement": "disk", "cache": folder}
# what is imported and started on the first use is no part of the set
small = gp.preload(MadeUp(20, 8), transform, **settings)
list(gp.Loader(small, batch_size=8))

before = anonymous()
with Watch() as loading:
    data = gp.preload(MadeUp(n_images, side), transform, **settings)
with Watch() as epoch:
    for images, labels in gp.Loader(data, batch_size=8, shuffle=True):
        pass
print(json.dumps({
    "store": data.store.n_bytes, "loading": loading.peak - before, "epoch": epoch.peak - before,
    "right": all(int(data.images[i].max()) == i % 251 for i in range(0, n_images, 7)),
}))
"""
)


def measured(folder: Path, n_images: int) -> dict[str, Any]:
    """Load and go through an epoch in another process; growth of anonymous memory in bytes."""
    command = [sys.executable, "-c", SCRIPT, str(folder), str(n_images), str(SIDE)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is read from /proc")
def test_a_store_in_a_file_takes_no_memory(tmp_path: Path) -> None:
    """Anonymous memory grows by buffers alone, far less than the store of 458 MiB."""
    found = measured(tmp_path, 1000)
    assert found["store"] > 457 * MIB
    assert found["right"]
    assert found["loading"] < 200 * MIB
    assert found["epoch"] < 200 * MIB
