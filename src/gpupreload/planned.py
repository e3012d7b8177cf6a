"""The plan of a preload: its numbers, and what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from gpupreload import placement as places
from gpupreload.devices import Memory
from gpupreload.errors import DoesNotFitError
from gpupreload.outline import in_kinds
from gpupreload.placement import Needs, Place, Placement, Room, Sizes
from gpupreload.resident import Resident
from gpupreload.steps import Steps
from gpupreload.table import Table, in_bytes_and_units, in_units


@dataclass(frozen=True)
class Plan:
    """What a preload would need and do. Nothing is kept but numbers and the table of steps.

    Attributes:
        name: of the data: the folder's path, or the dataset's type.
        n_images: number of images.
        class_counts: images per class by the class's name; empty where only loading would tell.
        shape: (C, H, W) of every image after the once-part, in channels and pixels.
        dtype: of the pixels as they are kept: uint8, or a float type.
        device: where they would be kept.
        free_bytes: memory of the device that is free now.
        total_bytes: memory of the device in all.
        decoding_bytes: memory of the host that decoding takes at most, beside the store.
        margin_bytes: what the verdict leaves for the model: a tenth of the device's memory.
        resident_bytes: what stores that are alive already take on this device.
        is_resident: whether one of them holds just this, so that a preload would share it.
        room: where images could be kept, with free bytes.
        place: where they would be kept, and why there.
        passed_over: how many files below the folder are no samples, by the kind of the reason.
        n_decoded: how many times an image was decoded to find all this; 0 where headers told.
        steps: which step of the transform runs when, and why.
        notices: what about the classes may surprise, in sentences.
    """

    name: str
    n_images: int
    class_counts: Mapping[str, int]
    shape: tuple[int, int, int]
    dtype: torch.dtype
    device: torch.device
    free_bytes: int
    total_bytes: int
    decoding_bytes: int
    margin_bytes: int
    resident_bytes: int
    is_resident: bool
    room: Room
    place: Place
    passed_over: Mapping[str, int]
    n_decoded: int
    steps: Steps
    notices: tuple[str, ...] = ()

    @property
    def uint8_bytes(self) -> int:
        """The pixels at one byte each."""
        channels, height, width = self.shape
        return self.n_images * channels * height * width

    @property
    def float32_bytes(self) -> int:
        """The pixels at four bytes each."""
        return 4 * self.uint8_bytes

    @property
    def label_bytes(self) -> int:
        """The labels at eight bytes each (int64)."""
        return 8 * self.n_images

    @property
    def image_bytes(self) -> int:
        """One image in `dtype`."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def store_bytes(self) -> int:
        """What stays: the pixels in `dtype`, and the labels."""
        return self.n_images * self.image_bytes + self.label_bytes

    @property
    def needs(self) -> Needs:
        """The most that loading takes of each memory and of the disk; 0 where it is loaded."""
        if self.is_resident:
            return Needs(0, 0, 0)
        return places.needs(self.place, self._sizes, self.device)

    @property
    def peak_bytes(self) -> int:
        """The most memory that loading takes: the store, and decoding (in the host's memory)."""
        return self.needs.device + self.needs.host

    @property
    def fits(self) -> bool:
        """Whether the store fits in the memory that is free, the margin aside."""
        return self.needs.fit(self._room)

    @property
    def needed_on_device(self) -> int:
        """The most that loading takes of the device's own memory; 0 where it is loaded already."""
        return self.needs.device

    @property
    def _sizes(self) -> Sizes:
        return Sizes(self.n_images, self.image_bytes, self.label_bytes, self.decoding_bytes)

    @property
    def _room(self) -> Room:
        memory = Memory(self.free_bytes, self.total_bytes)
        return replace(self.room, device=self.device, on_device=memory)

    def placed(self, asked: Placement, living: Resident | None) -> Plan:
        """The plan on the rung that is asked for, or on that of a store that is alive already."""
        if living is None:
            return replace(self, place=places.choose(asked, self._sizes, self._room))
        place = places.taken(living.rung, living.bytes_on(self.device), self._sizes, self._room)
        return replace(self, place=place, is_resident=True)

    def in_memory(self) -> Plan:
        """The plan for keeping the images in the host's memory."""
        return replace(self, place=Place("host", 0, "the file cannot be written"))

    @property
    def placement(self) -> str:
        """On which rung the images would be kept, with sizes, and why there."""
        return places.in_words(self.place, self._sizes, self._room)

    @property
    def verdict(self) -> str:
        """Whether it fits, in one sentence."""
        left = self.free_bytes - self.needed_on_device
        if self.is_resident:
            return "is loaded already: preloading it again shares what is there"
        too_much = self.needs.too_much(self._room)
        if too_much:
            return f"does not fit: {too_much}"
        if left < self.margin_bytes:
            return (
                f"fits, but leaves only {in_units(left)} for the model "
                f"(less than {in_units(self.margin_bytes)}, a tenth of the device)"
            )
        return f"fits, and leaves {in_units(left)} for the model"

    def check_fits(self) -> None:
        """Raise `DoesNotFitError`, with both sizes and the choices, where it does not fit."""
        if self.fits:
            return
        channels, height, width = self.shape
        resident = (
            f"\nStores that are alive take {in_units(self.resident_bytes)} of it: "
            "give one back with its dataset's free()."
            if self.resident_bytes
            else ""
        )
        raise DoesNotFitError(
            f"{self.n_images:,} images of {channels}×{height}×{width} need "
            f"{self.needs.refusal(self._room)}.{resident}\nMake the images smaller with a Resize, "
            "or load fewer with torch.utils.data.Subset(ImageFolder(...), indices)"
            f"{places.other_choices(self.place, self.device)}."
        )

    @property
    def table(self) -> Table:
        """The plan as a small table."""
        channels, height, width = self.shape
        stored_as = str(self.dtype).removeprefix("torch.")
        rows = [
            ("images", f"{self.n_images:,} of {channels}×{height}×{width}"),
            ("classes", self._classes()),
            ("as uint8", in_bytes_and_units(self.uint8_bytes)),
            ("as float32", in_bytes_and_units(self.float32_bytes)),
            ("labels", in_bytes_and_units(self.label_bytes)),
            ("kept as", stored_as + self._why_floats()),
            ("device", f"{self.device}: {in_units(self.free_bytes)} free of "
                       f"{in_units(self.total_bytes)}"),
            ("placement", self.placement),
            ("peak", f"{in_units(self.peak_bytes)} while loading"),
            ("found from", self._found_from()),
            ("verdict", self.verdict),
        ]  # fmt: skip
        if self.resident_bytes:
            alive = f"{in_units(self.resident_bytes)} on {self.device}; free() gives them back"
            rows.insert(-2, ("stores alive", alive))
        if self.passed_over:
            rows.insert(2, ("passed over", in_kinds(self.passed_over)))
        return Table(tuple(rows), title=f"Plan for {self.name}", note="\n".join(self.notices))

    def _classes(self) -> str:
        if not self.class_counts:
            return "not known before loading"
        counts = self.class_counts.values()
        return f"{len(counts):,}, of {min(counts):,} to {max(counts):,} images each"

    def _why_floats(self) -> str:
        if self.dtype == torch.uint8:
            return ""
        return ": the once-part gives floats that uint8 cannot hold (see the steps)"

    def _found_from(self) -> str:
        if not self.n_decoded:
            return "file headers; no image was decoded"
        return f"decoding a few images, {self.n_decoded:,} times in all; loading checks the others"

    def __str__(self) -> str:
        return f"{self.table}\n\n{self.steps}"

    def _repr_html_(self) -> str:
        return self.table._repr_html_() + self.steps._repr_html_()

    __repr__ = __str__
