"""What is known of data before they are loaded: counts, what decoding takes, whether they draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from gpupreload.errors import FrozenAugmentationError
from gpupreload.probe import generators_kept
from gpupreload.source import Source
from gpupreload.table import counted

# decoded images in flight while loading; one larger than this is decoded alone
DECODE_BUDGET = 128 << 20
# of rows that wait for an accelerator in one of two buffers: enough for full copy bandwidth
STAGING_BYTES = 16 << 20
# why a file below the folder is no sample, by `PassedOver.kind`
_KINDS = {
    "hidden": "hidden",
    "system": "of the operating system",
    "suffix": "with a suffix that is no image's",
    "root": "outside the class folders",
    "link": "linked twice",
    "special": "no regular files",
    "class": "of classes left out",
}


def check_not_random(source: Source) -> int:
    """Read a few items twice; raise where they change by themselves. Returns the readings made."""
    for i in source.specs:
        first = source.read(i)
        # one that seeds a generator by itself leaves it the same after each reading
        with generators_kept() as moved:
            second = source.read(i)
            sign = moved()
        if sign or _contents(*first) != _contents(*second):
            how = f" ({sign})" if sign else ""
            raise FrozenAugmentationError(
                f"{source.where(i)} is drawn anew each time it is read{how}. Read once, its one "
                "draw would be frozen: every epoch would show the same picture. Take the random "
                "steps out of the data, and pass them as the transform."
            )
    return 2 * len(source.specs)


def _contents(image: Any, label: int) -> tuple[bytes, int]:
    if isinstance(image, torch.Tensor):
        image = image.detach().cpu().contiguous().view(torch.uint8).numpy()
    return image.tobytes(), label


def class_counts(source: Source) -> dict[str, int]:
    """Count images per class; labels that go beyond the class names go by their numbers."""
    if source.targets is None:
        return {}
    counts = Counter(source.targets)
    numbers = source.class_to_idx or {}
    if not set(counts) <= set(numbers.values()):
        numbers = {str(number): number for number in sorted(counts)}
    return {name: counts[number] for name, number in numbers.items()}


def decoding_bytes(source: Source, device: torch.device) -> int:
    """The most memory of the host that decoding takes.

    That is the budget for decoded images in flight, or one image that is larger; and two buffers
    of rows that wait for an accelerator.
    """
    in_flight = max(DECODE_BUDGET, max(spec.decoding_bytes for spec in source.specs.values()))
    return in_flight + (0 if device.type == "cpu" else 2 * STAGING_BYTES)


def in_kinds(passed_over: Mapping[str, int]) -> str:
    """How many files are no samples, and why, in words."""
    kinds = ", ".join(f"{n:,} {_KINDS[kind]}" for kind, n in passed_over.items())
    return f"{counted(sum(passed_over.values()), 'file')}: {kinds}"
