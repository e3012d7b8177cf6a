"""Arguments that a function does not take, and which may be meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from gpupreload.source import FolderOptions

_ELSEWHERE = {
    "gpupreload.Loader": ("batch_size", "drop_last", "mix", "sampler", "shuffle", "weights"),
    "gpupreload.preload": ("cache", "device", "placement", "transform", "workers"),
}


def check_keywords(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Refuse keyword arguments that a function collects but does not know.

    Args:
        function: one of this library's, with named arguments and `**folder` or others.
        given: the names that it collected.

    Raises:
        TypeError: one is neither an argument nor one of `FolderOptions`, where it takes those.
    """
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    if any(p.name == "folder" for p in parameters):
        known += FolderOptions.__annotations__
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise TypeError(
            f"gpupreload.{function.__name__} takes no argument {unknown!r}. "
            f"{_meant(unknown, known)}"
        )


def _meant(unknown: str, known: list[str]) -> str:
    """Say which function takes it, or which argument is like it, or else all that there are."""
    other = next((other for other, names in _ELSEWHERE.items() if unknown in names), None)
    if other is not None:
        return f"{other} takes it."
    near = get_close_matches(unknown.lower(), known, n=1)
    return f"Did you mean {near[0]}=?" if near else f"It takes {', '.join(known)}."
