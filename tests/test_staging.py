"""Buffers on the way to and from an accelerator: no row is lost, none is overwritten too early."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from gpupreload import cache_file, cache_writing, staging
from gpupreload.staging import Staging, on_host

CPU = torch.device("cpu")


class Copy:
    """Stands for CUDA's event after a copy, which ends when it is waited for."""

    def __init__(self, log: list[str], number: int) -> None:
        self.log, self.number = log, number

    def synchronize(self) -> None:
        """Note that the program waited."""
        self.log.append(f"waited for {self.number}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was copied and waited for, in order, as if copies took until they are waited for."""
    lines: list[str] = []

    def after_copies(device: torch.device) -> Copy:
        number = sum(line.startswith("copy") for line in lines)
        lines.append(f"copy {number}")
        return Copy(lines, number)

    monkeypatch.setattr(staging, "_after_copies", after_copies)
    return lines


def test_a_buffer_is_filled_when_it_has_been_sent(log: list[str]) -> None:
    """Two windows are on their way; the third waits for the first, the fourth for the second."""
    images = torch.zeros(8, 1, 1, 2)
    buffers = Staging((2, 1, 1, 2), images.dtype, CPU)
    for turn in range(4):
        rows = images[2 * turn : 2 * turn + 2]
        buffers.buffer(turn).fill_(turn)
        log.append(f"filled {turn}")
        buffers.send(turn, rows)
    assert images[:, 0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert log == [
        *("filled 0", "copy 0", "filled 1", "copy 1"),
        *("waited for 0", "filled 2", "copy 2", "waited for 1", "filled 3", "copy 3"),
    ]


def test_a_piece_is_given_when_it_has_come(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next copy is asked for before a piece is given, and the piece's own is waited for."""
    monkeypatch.setattr(staging, "is_on_host", lambda rows: False)
    images = torch.arange(10).reshape(5, 1, 1, 2)
    seen = []
    for rows in on_host(images.split(2), 2):
        log.append(f"got {len(rows)}")
        seen.append(rows.clone())
    assert torch.equal(torch.cat(seen), images)
    assert [line for line in log if "waited" not in line] == [
        *("copy 0", "copy 1", "got 2", "copy 2", "got 2", "got 1"),
    ]
    for number, at in enumerate([i for i, line in enumerate(log) if line.startswith("got")]):
        assert f"waited for {number}" in log[:at]


def test_pieces_of_the_host_are_given_as_they_are() -> None:
    """What is on the CPU already is not copied."""
    pieces = torch.arange(10).reshape(5, 1, 1, 2).split(2)
    assert [rows.data_ptr() for rows in on_host(pieces, 2)] == [p.data_ptr() for p in pieces]
    assert list(on_host([], 2)) == []


@pytest.mark.parametrize("here", [(0, 2), (1,), (0, 1, 2)], ids=str)
def test_pieces_of_several_places(here: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pieces on the host and some not come in order."""
    pieces = torch.arange(12).reshape(6, 1, 1, 2).split(2)
    places = {pieces[i].data_ptr() for i in here}

    def is_here(rows: Tensor) -> bool:
        return rows.data_ptr() in places

    monkeypatch.setattr(staging, "is_on_host", is_here)
    seen = torch.cat([rows.clone() for rows in on_host(pieces, 2)])
    assert torch.equal(seen, torch.cat(pieces))


def test_buffers_are_plain_tensors() -> None:
    """Buffers that were made in inference mode can be written to after it."""
    with torch.inference_mode():
        buffers = Staging((1, 1, 1, 1), torch.uint8, CPU)
    assert not buffers.buffer(0).is_inference()


@pytest.mark.needs_cuda
def test_a_cuda_store_is_written_and_read(tmp_path: Path) -> None:
    """What a GPU holds comes back to it bit for bit, in more windows than there are buffers."""
    images = torch.randint(0, 256, (3000, 3, 96, 96), dtype=torch.uint8).cuda()
    path = tmp_path / "a.safetensors"
    cache_writing.write(path, images, torch.arange(3000), "")
    filled = torch.zeros_like(images)
    cache_file.read(cache_file.look(path), filled, workers=4)
    assert torch.equal(filled, images)
