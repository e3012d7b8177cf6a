"""Which rung is taken, and how that is said: numbers alone, for devices that are not there."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.devices import Memory
from gpupreload.placement import Needs, Place, Room, Sizes, choose, free_on_disk, needs, taken

plan_module = importlib.import_module("gpupreload.plan")
GIB = 1 << 30
MIB = 1 << 20
CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
FOLDER = Path("stores")


def room(device: float, host: float, disk: int | None = 1000 * GIB) -> Room:
    """A GPU of 10 GiB and a host of 100 GiB, with so many GiB free."""
    memories = Memory(int(device * GIB), 10 * GIB), Memory(int(host * GIB), 100 * GIB)
    return Room(CUDA, *memories, FOLDER, disk)


def sizes(n_images: int, loading_bytes: int = 0) -> Sizes:
    """Images of 1 MiB."""
    return Sizes(n_images, MIB, 8 * n_images, loading_bytes)


@pytest.mark.parametrize(
    ("gib", "device", "host", "expected"),
    [
        (5, 10, 100, ("device", 5 * 1024)),
        (8, 10, 100, ("device", 8 * 1024)),  # 1 GiB is a tenth; labels take little
        (9, 10, 100, ("mixed", 9 * 1024 - 1)),  # labels take some of the ninth
        (20, 10, 100, ("mixed", 9 * 1024 - 1)),
        (80, 10, 100, ("mixed", 9 * 1024 - 1)),
        (88, 9, 100, ("host", 0)),  # 8 of 88 GiB are less than a tenth
        (20, 2.5, 100, ("host", 0)),
        (20, 0.5, 100, ("host", 0)),
        (95, 10, 100, ("mixed", 9 * 1024 - 1)),  # less than a tenth, but the host has no room
        (100, 10, 100, ("disk", 0)),
        (20, 2.5, 25, ("disk", 0)),
    ],
)
def test_auto_takes_the_highest_that_fits(
    gib: int, device: float, host: float, expected: tuple[str, int]
) -> None:
    """The first of device, mixed, host and disk that has room and leaves a tenth free."""
    place = choose("auto", sizes(gib * 1024), room(device, host))
    assert (place.rung, place.n_on_device) == expected


def test_auto_on_the_cpu_is_memory_or_a_file() -> None:
    """Where all memory is one, nothing is gained by a side of it."""
    memory = Memory(20 * GIB, 30 * GIB)
    on_cpu = Room(CPU, memory, memory, FOLDER, 100 * GIB)
    rungs = [choose("auto", sizes(gib * 1024), on_cpu).rung for gib in (10, 16, 18, 90, 200)]
    assert rungs == ["device", "device", "disk", "disk", "device"]
    nowhere = choose("auto", sizes(200 * 1024), on_cpu)
    assert nowhere.why == "nothing else has room for them either"


def test_a_small_set_goes_on_the_device_wherever_it_fits() -> None:
    """A set of less than a hundredth of the memory leaves the margin as it finds it."""
    assert choose("auto", sizes(90), room(0.2, 100)).rung == "device"
    assert choose("auto", sizes(150), room(0.2, 100)).rung != "device"


@pytest.mark.parametrize(
    ("rung", "n_on_device", "on_gpu", "on_cpu"),
    [
        ("device", 100, Needs(100 * MIB + 800, 7, 0), Needs(100 * MIB + 807, 0, 0)),
        ("mixed", 30, Needs(30 * MIB + 800, 102 * MIB + 7, 0), Needs(132 * MIB + 807, 0, 0)),
        ("host", 0, Needs(800, 100 * MIB + 7, 0), Needs(100 * MIB + 807, 0, 0)),
        (
            "disk",
            0,
            Needs(800, 32 * MIB + 7, 100 * MIB + 800),
            Needs(32 * MIB + 807, 0, 100 * MIB + 800),
        ),
    ],
)
def test_what_each_rung_takes(rung: Any, n_on_device: int, on_gpu: Needs, on_cpu: Needs) -> None:
    """Labels are on the device everywhere; decoding is the host's, which a CPU is itself.

    Rows on their way to a file or to both sides take 32 MiB.
    """
    place = Place(rung, n_on_device, "")
    assert needs(place, sizes(100, 7), CUDA) == on_gpu
    assert needs(place, sizes(100, 7), CPU) == on_cpu


@pytest.mark.parametrize(
    ("rung", "n_on_device"), [("device", 100), ("mixed", 30), ("host", 0), ("disk", 0)]
)
def test_the_place_of_what_is_there(rung: Any, n_on_device: int) -> None:
    """Of a store that is alive its bytes tell how many images are on the device."""
    place = taken(rung, n_on_device * MIB + 800, sizes(100), room(1, 1))
    assert place == Place(rung, n_on_device, "where they are already")


def test_a_file_that_is_there_needs_no_room() -> None:
    """Only a file that is yet to be written asks for free bytes."""
    need = Needs(0, 0, 5 * GIB)
    assert not need.fit(room(1, 1, disk=0))
    assert need.fit(room(1, 1, disk=None))


def test_free_bytes_where_a_folder_would_be(tmp_path: Path) -> None:
    """Of a folder that is yet to be made, the disk above it tells."""
    assert free_on_disk(tmp_path / "a" / "b") > 0
    (tmp_path / "file").write_text("")
    assert free_on_disk(tmp_path / "file" / "b") > 0


# --- in a plan


@pytest.fixture
def planned(photo_folder: Path) -> Callable[..., gp.Plan]:
    """A function that plans 12 images of 3 KiB for a GPU that is not there, with little memory."""
    on_cpu = gp.plan(photo_folder, v2.Resize((32, 32)), device="cpu")

    def on_gpu(asked: Any, device: int, host: int, disk: int = GIB) -> gp.Plan:
        memory = Memory(device, 64 * 1024)
        there = Room(CUDA, memory, Memory(host, GIB), FOLDER, disk)
        found = dataclasses.replace(
            on_cpu, device=CUDA, free_bytes=device, total_bytes=64 * 1024, room=there
        )
        return found.placed(asked, None)

    return on_gpu


@pytest.mark.parametrize(
    ("asked", "device", "host", "text"),
    [
        ("auto", 60 << 10, 512 * MIB, "device: 36.0 KiB on cuda:0; all of them fit"),
        (
            "auto",
            30 << 10,
            512 * MIB,
            "mixed: 7 images (21.0 KiB) on cuda:0, 5 (15.0 KiB) in the host's memory, 512.0 MiB "
            "free of 1.0 GiB; more do not fit on cuda:0 with 6.4 KiB left free",
        ),
        (
            "auto",
            7 << 10,
            512 * MIB,
            "host: 36.0 KiB in the host's memory, 512.0 MiB free of 1.0 GiB; only 0 of 12 would "
            "fit on cuda:0 with 6.4 KiB left free",
        ),
        (
            "auto",
            10 << 10,
            165 * MIB,
            "disk: 36.0 KiB in a file in stores, 1.0 GiB free there; neither cuda:0 nor the host's "
            "memory has room for them",
        ),
        (
            "host",
            60 << 10,
            512 * MIB,
            "host: 36.0 KiB in the host's memory, 512.0 MiB free of 1.0 GiB; as asked for",
        ),
    ],
)
def test_the_plan_says_where_and_why(
    planned: Callable[..., gp.Plan], asked: str, device: int, host: int, text: str
) -> None:
    """The rung, what is where, the memory there, and why it was taken."""
    found = planned(asked, device, host)
    assert found.placement == text
    assert f"placement   {text}\n" in str(found)


MORE = "Make the images smaller with a Resize, or load fewer with "
MORE += "torch.utils.data.Subset(ImageFolder(...), indices)"


@pytest.mark.parametrize(
    ("asked", "settings", "verdict", "refusal"),
    [
        (
            "device",
            (30 << 10, GIB),
            "6.1 KiB too much",
            "36.1 KiB, and cuda:0 has 30.0 KiB free of 64.0 KiB.\n"
            f"{MORE}, or keep them on the CPU with device='cpu', or leave placement out, so that "
            "they are kept wherever there is room.",
        ),
        (
            "host",
            (60 << 10, 100 * MIB),
            "28.0 MiB too much for the host's memory",
            "128.0 MiB, and the host's memory has 100.0 MiB free of 1.0 GiB.\n"
            f"{MORE}, or keep them on the CPU with device='cpu', or leave placement out, so that "
            "they are kept wherever there is room.",
        ),
        (
            "disk",
            (60 << 10, GIB, 6 << 10),
            "30.1 KiB too much for the disk of stores",
            "36.1 KiB, and the disk of stores has 6.0 KiB free.\n"
            f"{MORE}, or name a folder with more room with cache=.",
        ),
    ],
)
def test_what_was_asked_for_and_does_not_fit(
    planned: Callable[..., gp.Plan],
    asked: str,
    settings: tuple[int, ...],
    verdict: str,
    refusal: str,
) -> None:
    """A rung that was named is taken or refused, with both sizes of the place that is too small."""
    found = planned(asked, *settings)
    assert not found.fits
    assert found.verdict == f"does not fit: {verdict}"
    with pytest.raises(gp.DoesNotFitError) as raised:
        found.check_fits()
    assert str(raised.value) == f"12 images of 3×32×32 need {refusal}"


def test_auto_says_that_it_went_down(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a lower rung was taken by itself, a warning says which and why, before decoding."""
    memory = Memory(170 * MIB, 512 * MIB)
    monkeypatch.setattr(plan_module, "memory_of", lambda device: memory)
    monkeypatch.setattr(plan_module, "free_on_disk", lambda folder: GIB)
    side = v2.Resize((400, 450))  # 6.2 MiB in all
    with pytest.warns(UserWarning, match="are not all on cpu") as caught:
        ours = gp.preload(photo_folder, side, device="cpu", progress=False, cache=tmp_path)
    assert str(caught[0].message) == (
        f"The images are not all on cpu. disk: 6.2 MiB in a file in {tmp_path}, 1.0 GiB free "
        "there; they do not fit in memory with 51.2 MiB left free. The batches are the same, and "
        "take longer to fetch. placement= says where to keep them."
    )
    assert ours.store.rung == "disk"
