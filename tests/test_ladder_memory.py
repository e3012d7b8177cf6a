"""What stays in a file takes no memory of the process, neither when written nor when read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memory_watch import WATCH
from PIL import Image

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


# Two processes that train together, as torchrun starts them; the once-part makes the photos large.
IN_TWO_PROCESSES = (
    WATCH
    + """
import multiprocessing, torch.distributed as dist

folder, placement = Path(sys.argv[1]), sys.argv[2]
large = v2.Compose([v2.Resize((640, 640)), v2.RandomHorizontalFlip(), v2.ToImage()])
settings = {"device": "cpu", "progress": False, "seed": 0, "placement": placement}

if placement == "auto":  # a machine whose memory has no room for the large ones
    memory = gp.devices.Memory(free=200 << 20, total=1 << 30)
    sys.modules["gpupreload.plan"].memory_of = lambda device: memory

def work(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    # what is imported and started on the first use is no part of the set
    list(gp.Loader(gp.preload(folder / "photos", v2.Resize((8, 8)), **settings)))
    before = anonymous()
    dist.barrier()
    train = gp.preload(folder / "photos", large, **settings)
    served = [len(labels) for images, labels in gp.Loader(train, batch_size=2, shuffle=True)]
    mapped = re.findall(r"(\\d+) +/.*[.]safetensors", Path("/proc/self/maps").read_text())
    share = (anonymous() - before) / train.store.n_bytes
    found = {"anonymous": share, "served": sum(served), "files": mapped}
    answers.put({**found, "cache": train.report.cache[:11]})
    dist.barrier()  # a file is not to be made anew with the number of one that is gone

context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
processes = [context.Process(target=work, args=(rank,)) for rank in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join(120)
print(json.dumps([answers.get() for process in processes if process.exitcode == 0]))
"""
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is read from /proc")
@pytest.mark.parametrize("placement", ["disk", "auto", "device"])
def test_processes_share_one_file(tmp_path: Path, placement: str) -> None:
    """On disk the ranks of a machine map one file, also without `cache=`; else each has all."""
    for number in range(96):
        path = tmp_path / "photos" / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (number, 0, 0)).save(path)
    run = subprocess.run(
        [sys.executable, "-c", IN_TWO_PROCESSES, str(tmp_path), placement],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "kept")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    one, two = json.loads(run.stdout)
    assert one["served"] == two["served"] == 48
    if placement == "device":
        assert one["anonymous"] > 0.9
        assert two["anonymous"] > 0.9
        return
    assert one["anonymous"] < 0.5
    assert two["anonymous"] < 0.5
    assert sorted([one["cache"], two["cache"]]) == ["Cache: hit.", "Cache: miss"]
    assert len(set(one["files"])) == 1
    assert set(one["files"]) == set(two["files"])
