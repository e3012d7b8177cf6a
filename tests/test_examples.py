"""The example scripts run as their first lines say."""

from __future__ import annotations

import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = str(Path(__file__).parents[1] / "examples" / "ddp.py")


def test_ddp_in_two_processes(
    photo_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The example trains in two processes, decodes once, and one process goes on from there."""
    places = ["--checkpoint", str(tmp_path / "checkpoint.pt"), "--cache", str(tmp_path / "kept")]
    arguments = [EXAMPLE, str(photo_folder), *places]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, *arguments, "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [re.sub(r": \d of", ": some of", line) for line in done.stdout.splitlines()] == [
        "epoch 0: some of 2 right, in 1 batches",
        "epoch 1: some of 2 right, in 1 batches",
    ]
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".safetensors"]

    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in {**alone, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(sys, "argv", [*arguments, "--epochs", "3"])
    runpy.run_path(EXAMPLE, run_name="__main__")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "going on in epoch 2"
    assert re.fullmatch(r"epoch 2: \d of 2 right, in 1 batches", second)

    # without a cache, and with a share, which is here all of them
    monkeypatch.setattr(sys, "argv", [EXAMPLE, str(photo_folder), "--no-cache", "--shard"])
    runpy.run_path(EXAMPLE, run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r": \d+ of", ": some of", line) for line in lines] == [
        "epoch 0: some of 12 right, in 1 batches",
        "epoch 1: some of 12 right, in 1 batches",
    ]


def test_ddp_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example says how it is started, where it was not started so."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(sys, "argv", [EXAMPLE])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(EXAMPLE, run_name="__main__")
    assert caught.value.code == (
        "Start it with torchrun: torchrun --nproc-per-node=2 examples/ddp.py"
    )
