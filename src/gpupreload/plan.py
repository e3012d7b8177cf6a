"""What a preload would need and do, from file headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

import torch

from gpupreload import placement as places
from gpupreload.arguments import check_decode
from gpupreload.class_names import noticed
from gpupreload.devices import Memory, memory_of, resolve_device
from gpupreload.errors import ArgumentError
from gpupreload.keywords import check_keywords
from gpupreload.outline import check_not_random, class_counts, decoding_bytes
from gpupreload.placement import MARGIN, Place, Placement, Room, free_on_disk
from gpupreload.planned import Plan
from gpupreload.probe import generators_kept
from gpupreload.resident import check_not_preloaded, find, resident_bytes
from gpupreload.reuse import once_identity
from gpupreload.source import FolderOptions, ImageSpec, Source, open_source
from gpupreload.steps import Steps, split_transform
from gpupreload.user_cache import user_cache

WAY_TO_PLAN = (
    ", so there is nothing to plan: print(dataset) says what it takes. For another transform or "
    "size, plan the files' folder again."
)
"""What to say to data that are preloaded already."""


def plan(
    data: Any,
    transform: Callable[[Any], Any] | None = None,
    *,
    device: str | torch.device | None = None,
    store_size: tuple[int, int] | None = None,
    placement: Placement = "auto",
    **folder: Unpack[FolderOptions],
) -> Plan:
    """Say what preloading would need and do, without loading anything.

    For a folder and torchvision's steps only file headers are read, and the size after the
    once-part is found by running it on blank images. For other datasets and callables a few items
    are decoded; `Plan.n_decoded` says how many.

    Args:
        data: a folder of class folders, an `ImageFolder`, or any map-style dataset of (PIL image
            or uint8 tensor, int).
        transform: a torchvision transform; None takes the dataset's own.
        device: None means CUDA if there is one, else MPS, else the CPU.
        store_size: (height, width) in pixels to which every image is resized and centre-cropped
            once, before a random crop that photos of different sizes cannot go without.
        placement: as for `preload`.
        **folder: for the path of a folder: `classes`, `extensions`, `allow_empty`, `on_unknown`;
            for that or an `ImageFolder`: `mode`, `exif_orientation`, `decode`, `on_error`; see
            `gpupreload.source.FolderOptions`.

    Raises:
        FolderError, UnreadableError, DataError: the data cannot be used.
        ArgumentError: they are preloaded already, or an argument has a value that it cannot have.
        SizeError: the images do not come out of the deterministic steps in one size.
        TransformError: a step of the transform cannot be used.
        DeviceError: there is no such device.
        TypeError: there is no such argument; the message says which may be meant.

    >>> import torchvision.transforms.v2 as v2
    >>> from torchvision.datasets import FakeData
    >>> p = plan(FakeData(1550, (3, 112, 112), num_classes=10), v2.ToImage(), device="cpu")
    >>> p.float32_bytes, p.uint8_bytes, p.label_bytes  # 1,550 x 3 x 112 x 112, at 4 bytes and at 1
    (233318400, 58329600, 12400)
    """
    check_keywords(plan, folder)
    check_not_preloaded(data, WAY_TO_PLAN)
    found, asked = resolve_device(device), places.checked(placement)
    check_decode(folder.get("decode"), found)
    source = open_source(data, **folder).readable()
    with generators_kept():  # data of the caller's own may draw, or seed, while they are read
        steps = split_transform(own_transform(source, transform), source, store_size=store_size)
        return make_plan(source, steps, found, placement=asked)


def own_transform(source: Source, transform: Callable[[Any], Any] | None) -> Any:
    """Return the transform to be split: the argument, or the dataset's own; never both."""
    if transform is not None and source.transform is not None:
        raise ArgumentError(
            f"{source.name} has a transform of its own, and transform= was given too. Pass one: "
            "leave transform= out to use the dataset's, or build the dataset without one."
        )
    return transform if transform is not None else source.transform


def make_plan(
    source: Source,
    steps: Steps,
    device: torch.device,
    *,
    allow_frozen: bool = False,
    placement: Placement = "auto",
    folder: Path | None = None,
    has_file: bool = False,
) -> Plan:
    """Plan for a source and a split that are there already.

    A file of images would be in `folder`, by default the user's cache, or is there already.
    """
    stored = _stored(steps)
    n_read = 0 if source.has_headers or allow_frozen else check_not_random(source)
    memory = memory_of(device)
    plan = Plan(
        name=source.name,
        n_images=len(source),
        class_counts=MappingProxyType(class_counts(source)),
        shape=stored.shape,
        dtype=getattr(torch, stored.mode),
        device=device,
        free_bytes=memory.free,
        total_bytes=memory.total,
        decoding_bytes=decoding_bytes(source, device),
        margin_bytes=int(MARGIN * memory.total),
        resident_bytes=resident_bytes(device),
        is_resident=False,
        room=_room(device, memory, folder or user_cache("stores"), has_file),
        place=Place("device", len(source), ""),
        passed_over=MappingProxyType(dict(Counter(p.kind for p in source.passed_over))),
        n_decoded=source.n_decoded + steps.n_decoded + n_read,
        steps=steps,
        notices=tuple(notice.text for notice in noticed(source, source.targets or ())),
    )
    return plan.placed(placement, find(identity_of(source, steps), device, placement))


def _room(device: torch.device, memory: Memory, folder: Path, has_file: bool) -> Room:
    on_host = memory if device.type == "cpu" else memory_of(torch.device("cpu"))
    return Room(device, memory, on_host, folder, None if has_file else free_on_disk(folder))


def identity_of(source: Source, steps: Steps) -> Hashable | None:
    """Say what a store will hold: the source's contents and the once-part; None if unknown."""
    contents = source.identity()
    return None if contents is None else (contents, once_identity(steps))


def _stored(steps: Steps) -> ImageSpec:
    if steps.stored is None:
        raise ArgumentError("these steps were split without data; pass data to split_transform.")
    return steps.stored
