"""The ladder: images on the device, some of them there, in the host's memory, or in a file.

Each rung serves the same batches. What differs is where a batch's pixels come from, and so the
time it takes to fetch them; augmentation runs on the device on every rung.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch

from gpupreload.devices import Memory
from gpupreload.errors import ArgumentError
from gpupreload.table import in_units

Rung = Literal["device", "mixed", "host", "disk"]
Placement = Literal["auto", "device", "mixed", "host", "disk"]
"""What may be asked for: a rung, or "auto" for the highest that has room."""

# of rows that are decoded before they go to a file, or to both sides: enough for many threads
WINDOW_BYTES = 32 << 20
_AS_ASKED = "as asked for"
_HOST = "the host's memory"
# of the memory, kept free for the model and its activations
MARGIN = 0.1
# of the memory: a set that takes less than this leaves the margin as it finds it
_SMALL = 0.01
# of the images: with fewer on the device, `mixed` is no faster than `host` and a harder thing
_LEAST_MIXED = 0.1


@dataclass(frozen=True)
class Sizes:
    """What has to be kept, in bytes.

    Attributes:
        n_images: number of images.
        image_bytes: of one image.
        label_bytes: of all labels, which are on the device whatever the rung.
        loading_bytes: memory of the host that loading takes at most, beside the store.
    """

    n_images: int
    image_bytes: int
    label_bytes: int
    loading_bytes: int


@dataclass(frozen=True)
class Room:
    """Where there is room for images, in bytes.

    Attributes:
        device: where batches are served.
        on_device: its memory.
        on_host: the host's memory; the same where the device is the CPU.
        folder: for the file of the rung `disk`.
        on_disk: free bytes there; None where the file is there already.
    """

    device: torch.device
    on_device: Memory
    on_host: Memory
    folder: Path
    on_disk: int | None

    @property
    def is_one_memory(self) -> bool:
        """Whether the device has no memory of its own."""
        return self.device.type == "cpu"


@dataclass(frozen=True)
class Place:
    """A rung, and why it was taken.

    Attributes:
        rung: where the images are kept.
        n_on_device: how many of them on the device.
        why: in words.
    """

    rung: Rung
    n_on_device: int
    why: str

    @property
    def is_asked_for(self) -> bool:
        """Whether the caller named this rung."""
        return self.why == _AS_ASKED


@dataclass(frozen=True)
class Needs:
    """What one rung takes at most while it is loaded, in bytes.

    Attributes:
        device: of the device's memory; on the CPU, of the only memory there is.
        host: of the host's memory, where that is another.
        disk: of the room in the folder.
    """

    device: int
    host: int
    disk: int

    def fit(self, room: Room, *, margin: float = 0) -> bool:
        """Whether there is room for all of it, with a share of each memory left free."""
        return (
            _fits(self.device, room.on_device, margin)
            and _fits(self.host, room.on_host, 0 if room.is_one_memory else margin)
            and (room.on_disk is None or self.disk <= room.on_disk)
        )

    def too_much(self, room: Room) -> str:
        """By how much it does not fit, and where that is not the device's memory; "" if it fits."""
        name, n_bytes, free = self._tightest(room)
        where = "" if name == str(room.device) else f" for {name}"
        return "" if n_bytes <= free else f"{in_units(n_bytes - free)} too much{where}"

    def refusal(self, room: Room) -> str:
        """What is needed and what is there, where it does not fit."""
        name, n_bytes, free = self._tightest(room)
        total = {str(room.device): room.on_device, _HOST: room.on_host}.get(name)
        of_all = "" if total is None else f" of {in_units(total.total)}"
        return f"{in_units(n_bytes)}, and {name} has {in_units(free)} free{of_all}"

    def _tightest(self, room: Room) -> tuple[str, int, int]:
        """Where most is missing: its name, the bytes needed, and the bytes that are free."""
        host_free = self.host if room.is_one_memory else room.on_host.free
        disk_free = self.disk if room.on_disk is None else room.on_disk
        places = (
            (str(room.device), self.device, room.on_device.free),
            (_HOST, self.host, host_free),
            (f"the disk of {room.folder}", self.disk, disk_free),
        )
        return max(places, key=lambda place: place[1] - place[2] if place[1] else -math.inf)


def checked(placement: Any) -> Placement:
    """Return what was asked for; an `ArgumentError` for what is no rung."""
    if placement not in get_args(Placement):
        raise ArgumentError(
            f"placement is {placement!r}; expected 'auto', or where to keep the images: 'device', "
            "'mixed' (as many there as fit, the rest in the host's memory), 'host' or 'disk'."
        )
    return cast(Placement, placement)


def choose(asked: Placement, sizes: Sizes, room: Room) -> Place:
    """Take the rung that was asked for, or the highest that has room and leaves the margin.

    Where none has room, the first is returned: that it does not fit is said by the plan.

    >>> gib = 1 << 30
    >>> on_gpu = Memory(free=4 * gib, total=8 * gib), Memory(free=100 * gib, total=128 * gib)
    >>> room = Room(torch.device("cuda:0"), *on_gpu, Path("stores"), 100 * gib)
    >>> for n_images in (3, 6, 60, 90):
    ...     place = choose("auto", Sizes(n_images, gib, 8 * n_images, gib), room)
    ...     print(place.rung, place.n_on_device)
    device 3
    mixed 3
    host 0
    disk 0
    """
    if asked != "auto":
        return Place(asked, _n_on_device(asked, sizes, room), _AS_ASKED)
    for place in _from_above(sizes, room):
        margin = 0 if place.rung == "disk" else MARGIN
        if needs(place, sizes, room.device).fit(room, margin=margin):
            return Place(place.rung, place.n_on_device, _why(place, sizes, room))
    return Place("device", sizes.n_images, "nothing else has room for them either")


def taken(rung: Rung, bytes_on_device: int, sizes: Sizes, room: Room) -> Place:
    """The place of a store that is alive, of which so many bytes are on the device."""
    n_on_device = _n_on_device(rung, sizes, room)
    if rung == "mixed" and not room.is_one_memory:
        n_on_device = (bytes_on_device - sizes.label_bytes) // max(1, sizes.image_bytes)
    return Place(rung, n_on_device, "where they are already")


def _from_above(sizes: Sizes, room: Room) -> list[Place]:
    """What may be taken by itself, the best first."""
    rungs: tuple[Rung, ...] = ("device", "mixed", "host", "disk")
    if room.is_one_memory:
        rungs = ("device", "disk")
    elif _n_on_device("mixed", sizes, room) < _LEAST_MIXED * sizes.n_images:
        rungs = ("device", "host", "mixed", "disk")
    return [Place(rung, _n_on_device(rung, sizes, room), "") for rung in rungs]


def needs(place: Place, sizes: Sizes, device: torch.device) -> Needs:
    """What a rung takes while it is loaded."""
    pixels = sizes.n_images * sizes.image_bytes
    on_device = place.n_on_device * sizes.image_bytes
    on_host = 0 if place.rung == "disk" else pixels - on_device
    on_disk = pixels + sizes.label_bytes if place.rung == "disk" else 0
    on_device += sizes.label_bytes
    on_host += sizes.loading_bytes + (WINDOW_BYTES if place.rung in ("mixed", "disk") else 0)
    if device.type == "cpu":
        return Needs(on_device + on_host, 0, on_disk)
    return Needs(on_device, on_host, on_disk)


def other_choices(place: Place, device: torch.device) -> str:
    """What else can be done where a rung has no room; the end of a list."""
    if place.rung == "disk":
        return ", or name a folder with more room with cache="
    ways = [] if device.type == "cpu" else ["keep them on the CPU with device='cpu'"]
    if place.is_asked_for:
        ways.append("leave placement out, so that they are kept wherever there is room")
    return "".join(f", or {way}" for way in ways)


def free_on_disk(folder: Path) -> int:
    """The bytes that are free where a folder is, or would be made; 0 where that is unknown."""
    for path in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(path).free
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            break
    return 0


def in_words(place: Place, sizes: Sizes, room: Room) -> str:
    """Where the images are, with sizes, and why; for the table of a plan."""
    n_below = sizes.n_images - place.n_on_device
    on_device, below = (in_units(n * sizes.image_bytes) for n in (place.n_on_device, n_below))
    where = {
        "device": f"{on_device} on {room.device}",
        "mixed": f"{place.n_on_device:,} images ({on_device}) on {room.device}, {n_below:,} "
        f"({below}) in the host's memory, {_free(room)}",
        "host": f"{below} in the host's memory, {_free(room)}",
        "disk": f"{below} in a file in {room.folder}, {_free_on_disk(room)}",
    }[place.rung]
    return f"{place.rung}: {where}; {place.why}"


def _free(room: Room) -> str:
    return f"{in_units(room.on_host.free)} free of {in_units(room.on_host.total)}"


def _free_on_disk(room: Room) -> str:
    if room.on_disk is None:
        return "which is there already"
    return f"{in_units(room.on_disk)} free there"


def _fits(n_bytes: int, memory: Memory, margin: float) -> bool:
    left = memory.free - n_bytes
    return left >= (0 if n_bytes < _SMALL * memory.total else margin * memory.total)


def _n_on_device(rung: Rung, sizes: Sizes, room: Room) -> int:
    if rung == "device":
        return sizes.n_images
    if rung != "mixed":
        return 0
    if room.is_one_memory:  # nothing is gained, but it can be tried
        return sizes.n_images // 2
    memory = room.on_device
    left = int(memory.free - MARGIN * memory.total) - sizes.label_bytes
    return max(0, min(sizes.n_images, left // max(1, sizes.image_bytes)))


def _why(place: Place, sizes: Sizes, room: Room) -> str:
    kept_free = f"with {in_units(int(MARGIN * room.on_device.total))} left free"
    if place.rung == "device":
        return "all of them fit"
    if place.rung == "mixed":
        return f"more do not fit on {room.device} {kept_free}"
    n_fit = _n_on_device("mixed", sizes, room)
    if place.rung == "host":
        return f"only {n_fit:,} of {sizes.n_images:,} would fit on {room.device} {kept_free}"
    if room.is_one_memory:
        return f"they do not fit in memory {kept_free}"
    return f"neither {room.device} nor the host's memory has room for them"
