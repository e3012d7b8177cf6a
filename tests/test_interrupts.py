"""Ctrl-C during a load: soon over, nothing kept, and the next load works."""

from __future__ import annotations

import gc
import json
import shutil
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import building, host
from gpupreload.let_go import letting_go

MIB = 1 << 20
N_IMAGES, SIDE = 150, 512
STORE = N_IMAGES * 3 * SIDE * SIDE  # 112 MiB

# Run in a process of its own, to which a real SIGINT is sent once it decodes.
SCRIPT = """
import json, os, re, signal, sys, threading, time
from pathlib import Path
import torchvision.transforms.v2 as v2
import gpupreload as gp

def anonymous():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def tell(path):
    if threading.current_thread() is not threading.main_thread():
        os.write(1, b"decoding\\n")
    return Image.open(path).convert("RGB")

from PIL import Image
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background otherwise
root, small, cache = sys.argv[1:]
settings = {"device": "cpu", "progress": False, "workers": 2}
gp.preload(small, v2.Resize((8, 8)), **settings)  # what starts on the first use
before = anonymous()
try:
    gp.preload(root, decode=tell, cache=cache, cache_key="tell", **settings)
except KeyboardInterrupt as error:
    ended = time.time()
    kept = error  # as a notebook keeps the last one
print(json.dumps({
    "ended": ended,
    "grown": anonymous() - before,
    "threads": [t.name for t in threading.enumerate() if t is not threading.main_thread()],
    "files": [str(path) for path in Path(cache).glob("*")],
    "resident": gp.plan(small, v2.Resize((8, 8)), device="cpu").resident_bytes,
    "again": len(gp.preload(small, v2.Resize((8, 9)), **settings)),
}))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 PNG files of 512×512, which take some seconds to decode."""
    root = tmp_path_factory.mktemp("large")
    (root / "a").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    first = root / "a" / "0.png"
    Image.fromarray(noise).save(first)
    for i in range(1, N_IMAGES):
        shutil.copy(first, root / "a" / f"{i}.png")
    return root


def interrupted(large: Path, small: Path, cache: Path, after: int) -> dict[str, Any]:
    """Run the script, send SIGINT after some files, and return what it says."""
    command = [sys.executable, "-c", SCRIPT, str(large), str(small), str(cache)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(after):
        assert process.stdout.readline() == "decoding\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return dict(json.loads(out.splitlines()[-1]))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is read from /proc")
@pytest.mark.parametrize("after", [1, 60])
def test_ctrl_c_leaves_nothing(large: Path, photo_folder: Path, tmp_path: Path, after: int) -> None:
    """After a real SIGINT no thread, no memory and no half cache is left; the next load works."""
    found = interrupted(large, photo_folder, tmp_path / "cache", after)
    assert found["threads"] == []
    assert found["files"] == []
    assert found["resident"] == 0
    assert found["again"] == 12
    # of 112 MiB of store, of which a good part was filled; decoders keep some MiB for themselves
    assert found["grown"] < 24 * MIB


class Held:
    """Something that is alive or not."""


def test_what_our_functions_held_is_forgotten() -> None:
    """An error that is kept keeps nothing of the package's functions, but all of the caller's."""
    held = [Held(), Held()]
    alive = [weakref.ref(thing) for thing in held]
    source = "def ours(held, error):\n    kept = held.pop()\n    raise error"
    errors = []
    for name in ("gpupreload.something", "gpupreloads"):
        module: dict[str, Any] = {"__name__": name}
        exec(source, module)
        with pytest.raises(KeyError) as raised, letting_go():
            module["ours"](held, KeyError())
        errors.append(raised.value)
    gc.collect()
    assert [reference() is None for reference in alive] == [False, True]


def test_an_error_of_a_step_leaves_no_memory_either(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a step fails, the store is gone though the error is kept; its cause is kept whole."""
    stores = []
    empty = host.empty

    def watched(*arguments: Any, **settings: Any) -> Any:
        tensor = empty(*arguments, **settings)
        stores.append(weakref.ref(tensor))
        return tensor

    def step(image: Image.Image) -> Image.Image:
        mine = image.size
        if building.host.empty is watched and stores:
            raise ValueError(f"no such size as {mine}")
        return image

    monkeypatch.setattr(building.host, "empty", watched)
    with pytest.raises(gp.TransformError) as raised:
        gp.preload(
            photo_folder, v2.Compose([v2.Resize((9, 9)), step]), device="cpu", progress=False
        )
    kept, cause = raised.value, raised.value.__cause__
    gc.collect()
    assert len(stores) == 1
    assert stores[0]() is None
    assert kept is not None
    frame = cause.__traceback__.tb_next.tb_frame if cause and cause.__traceback__ else None
    assert frame is not None
    assert frame.f_locals["mine"] == (9, 9)
