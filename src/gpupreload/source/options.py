"""What may be said of a folder of image files: how it is listed, and how its files are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict


class ReadingOptions(TypedDict, total=False):
    """How the image files of a folder or an `ImageFolder` are read; all may be left out.

    Attributes:
        mode: "RGB" for three channels, "L" for one, the luma. Default: "RGB".
        exif_orientation: whether photos are turned upright as their EXIF block says. Default:
            False, as `ImageFolder`.
        decode: "exact" for `ImageFolder`'s pixels; "fast" to resize tensors, not PIL images: at
            most two levels of 255 beside them; "gpu" to decode JPEG files on the CUDA device that
            the images go to, and resize them there; or a loader of your own: a function that takes
            a path and returns a PIL image. Default: "exact".
        on_error: what to do about files that cannot be read: "raise" an error that names them
            (those with unreadable headers before anything is decoded, those with unreadable
            pixels after all others were), or "skip" them; `report` then names them. Default:
            "raise".
    """

    mode: Literal["RGB", "L"]
    exif_orientation: bool
    decode: Any
    on_error: Literal["raise", "skip"]


class FolderOptions(ReadingOptions, total=False):
    """How a folder given by its path is listed, and its files are read; all may be left out.

    What the files are read by is described in `ReadingOptions`.

    Attributes:
        classes: the class names in the order of their numbers, or a dataset that has them: a
            validation set then takes the training set's numbering. A class that has no folder
            here keeps its number. Default: the names of the class folders, sorted.
        extensions: the suffixes of image files, in any case. Default: `ImageFolder`'s.
        allow_empty: whether a class folder may hold no image. Default: False.
        on_unknown: what to do with a class folder that is not in `classes`: "raise" an error, or
            "skip" it. Default: "raise".
    """

    classes: Any
    extensions: Iterable[str]
    allow_empty: bool
    on_unknown: Literal["raise", "skip"]
