"""What a load that ended in unreadable files had decoded, kept for the next one, file by file.

It is a file of the same form as a whole store, under a name that no whole store has. Its rows are
looked up by the file each came from, so that they are of use when other files have changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from gpupreload import cache_file, cache_writing
from gpupreload.cache_file import UnusableError
from gpupreload.cache_key import key_of_once, key_of_reading
from gpupreload.gaps import spread, without_rows
from gpupreload.source import Source
from gpupreload.steps import Steps


def path_of(folder: Path, source: Source, steps: Steps, cache_key: str | None) -> Path | None:
    """Where rows of such data, read this way, are kept; None where nothing can be."""
    keys = key_of_reading(source, cache_key), key_of_once(steps, cache_key)
    return folder / f"{keys[0]}-{keys[1]}.safetensors" if all(keys) else None


def write(
    path: Path, images: Tensor, labels: Tensor, source: Source, unreadable: Sequence[int]
) -> None:
    """Keep the rows that could be read.

    Args:
        path: of the file.
        images: [N, C, H, W] on any device; its rows are moved.
        labels: int64 [N] on the CPU; moved likewise.
        source: of these images.
        unreadable: the numbers of the rows that hold anything.

    Raises:
        UnwritableError: the file cannot be written.
    """
    left_out = set(unreadable)
    names = [name for i, name in enumerate(_names(source)) if i not in left_out]
    rows = without_rows(images, left_out), without_rows(labels, left_out)
    cache_writing.write(path, *rows, json.dumps(names))


def read(path: Path, images: Tensor, labels: Tensor, source: Source, workers: int) -> list[int]:
    """Fill the rows of the files that are kept as they are now.

    Args:
        path: of the file, which need not be there.
        images: [N, C, H, W] on any device; written to.
        labels: int64 [N] on the CPU; written to.
        source: of these images.
        workers: number of threads.

    Returns:
        The numbers of the rows that are still to be filled: all of them where nothing is kept,
        where what is kept is damaged, has more rows than `images` or has them in another order.
    """
    everything = list(range(len(images)))
    numbers = {name: i for i, name in enumerate(_names(source))}
    try:
        contents = cache_file.look(path)
        places = [numbers.get(name) for name in json.loads(contents.facts)]
        found = [place for place in places if place is not None]
        if not found or len(places) > len(images) or found != sorted(set(found)):
            return everything
        cache_file.read(contents, images[: len(places)], workers)
    except (UnusableError, ValueError):
        return everything
    spread(images, places)
    kept = [k for k, place in enumerate(places) if place is not None]
    labels[found] = contents.labels[kept]
    return sorted(set(everything) - set(found))


def _names(source: Source) -> list[str]:
    """Of each file its path below the folder, size, time of change and label, in one text."""
    found = source.portable()
    texts = found.files.split("\0") if found else []
    return [f"{path}\0{rest}" for path, rest in zip(texts[::2], texts[1::2], strict=True)]
