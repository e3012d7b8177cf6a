"""What a cached store depends on, as text that is equal in every process that asks for the same."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Hashable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
from PIL import ImageFile, features

from gpupreload.parts import Step, Steps
from gpupreload.reuse import once_identity
from gpupreload.settings import ByIdentity, fingerprint, is_portable, name_of
from gpupreload.source import Portable, Source

# raised whenever a file of an older version would be read wrongly
FORMAT = 1
# of the files, read whole: folders whose files agree in name, size and time, as those from an
# archive may, are told apart
_N_READ = 8

# looked up among all that is installed, which takes a millisecond
_installed = functools.cache(version)


def key_of_source(source: Source, cache_key: str | None) -> str | None:
    """Return 32 hexadecimal digits that stand for the files and the way they are read.

    Of each file count its path below the folder, its size, the time of its last change and its
    label; of a few, spread over all, the contents. To that come the options of reading, the
    versions of all that decodes, and `cache_key`.

    Returns:
        None for data that are not made of files, or that are read by a loader that only its
        caller knows, where there is no `cache_key`.
    """
    found = source.portable()
    if found is None or (found.loader is not None and cache_key is None):
        return None
    options = (*_options(found), found.skips_unreadable)
    paths = [path for path, _ in source.samples or ()]
    contents = (_contents(path) for path in paths[:: max(1, len(paths) // _N_READ)])
    parts = (*_versions(), str(cache_key), repr(options), found.files, *contents)
    return _digest(parts)


def key_of_reading(source: Source, cache_key: str | None) -> str | None:
    """Return 32 hexadecimal digits that stand for a folder and how its files are read.

    What the files are does not count, nor what becomes of those that cannot be read.

    Returns:
        None as for `key_of_source`.
    """
    found = source.portable()
    if found is None or (found.loader is not None and cache_key is None):
        return None
    return _digest((*_versions(), "rows", str(cache_key), repr(_options(found)), found.root))


def _options(found: Portable) -> tuple[Any, ...]:
    # of a loader cache_key says what it does
    return (*found.options, found.loader is not None)


def key_of_once(steps: Steps, cache_key: str | None) -> str | None:
    """Return 32 hexadecimal digits that stand for the once-part: its steps and their settings.

    Returns:
        None where a step means nothing outside this process (a lambda, a function of the
        caller's own) and there is no `cache_key`, and where one is random.
    """
    rows = steps.rows_of("once")
    if any(row.randomness == "random" for row in rows):
        return None
    identity = once_identity(steps)
    if not is_portable(identity) and cache_key is None:
        return None
    return _digest((str(cache_key), _text(identity)))


def why_no_key(of: Source | Steps) -> str:
    """Say why data, or a once-part, have no key, and the way on; the end of a sentence."""
    if isinstance(of, Source) and of.portable() is None:
        return f"{of.name} is not made of files, whose changes would be seen"
    if isinstance(of, Source):
        what = "a loader of your own reads the files, and nobody else can tell what it does"
    else:
        steps = [row for row in of.rows_of("once") if not _has_key(row)]
        if any(row.randomness == "random" for row in steps):
            return f"{steps[0].name} is random, and every load would show the same draws"
        what = f"nobody but you can tell what {steps[0].name} does"
    return (
        f"{what}; cache_key= a text of your own, which you change whenever that changes, lets it "
        "be kept"
    )


def _has_key(step: Step) -> bool:
    is_random = step.randomness == "random"
    return not is_random and is_portable(fingerprint(step.transform))


def _versions() -> tuple[str, ...]:
    """What decodes and resizes, with its version, and how Pillow is set to treat damage."""
    return (
        f"format {FORMAT}",
        f"torch {torch.__version__}",
        f"torchvision {torchvision.__version__}",
        f"numpy {np.__version__}",
        f"pillow {PIL.__version__}",
        f"simplejpeg {_installed('simplejpeg')}",
        *(f"{name} {features.version(name)}" for name in ("libjpeg_turbo", "libtiff", "webp")),
        f"truncated files {'allowed' if ImageFile.LOAD_TRUNCATED_IMAGES else 'refused'}",
    )


def _contents(path: str) -> str:
    try:
        return hashlib.blake2b(Path(path).read_bytes()).hexdigest()
    except OSError:  # reading it says so
        return ""


def _text(value: Hashable) -> str:
    """Write a fingerprint down; sets, whose order changes from process to process, sorted."""
    if isinstance(value, tuple):
        return f"({','.join(_text(item) for item in value)})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(_text(item) for item in value))}}}"
    # of such a thing cache_key says what it does
    return f"<{name_of(value.value)}>" if isinstance(value, ByIdentity) else repr(value)


def _digest(parts: Iterable[str]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(f"{len(part)}:{part}".encode("utf-8", "surrogateescape"))
    return found.hexdigest()
