"""How image files are read, and what becomes of those that cannot be: the caller's choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gpupreload.decode import DecodeOptions
from gpupreload.errors import ArgumentError

Loader = Callable[[str], Any]

Decoder = Literal["exact", "fast", "gpu"]


@dataclass(frozen=True)
class Reading:
    """How image files are read, checked.

    Attributes:
        options: what the pixels become.
        loader: the caller's own, a callable from a path to a PIL image; None reads as
            `ImageFolder` does.
        skips_unreadable: whether a file that cannot be read is left out, not an error.
        decoder: "exact" for `ImageFolder`'s pixels, "fast" to resize tensors, not PIL images,
            "gpu" to decode JPEG files and resize them on a CUDA device.
    """

    options: DecodeOptions = DecodeOptions()  # noqa: RUF009 frozen
    loader: Loader | None = None
    skips_unreadable: bool = False
    decoder: Decoder = "exact"

    @classmethod
    def checked(
        cls,
        *,
        mode: Literal["RGB", "L"] = "RGB",
        exif_orientation: bool = False,
        decode: str | Loader = "exact",
        on_error: Literal["raise", "skip"] = "raise",
        loader: Loader | None = None,
    ) -> Reading:
        """Check the arguments of a preload that say how files are read.

        Args:
            mode: see `DecodeOptions`.
            exif_orientation: see `DecodeOptions`.
            decode: "exact", "fast", "gpu", or a callable from a path to a PIL image.
            on_error: "raise" or "skip".
            loader: the loader of an `ImageFolder`, where it has one of its own.

        Raises:
            ArgumentError: an argument has a value that cannot be used, or says how to read files
                that a loader of the caller's own reads.
        """
        if on_error not in ("raise", "skip"):
            raise ArgumentError(
                f"on_error is {on_error!r}; expected 'raise', to be told of all files that cannot "
                "be read, or 'skip', to leave them out."
            )
        options = DecodeOptions(mode, _checked_flag(exif_orientation))
        if loader is not None and callable(decode):
            raise ArgumentError(
                "decode= was given, but data is an ImageFolder with a loader of its own. Pass one: "
                "leave decode= out, or build the ImageFolder without a loader."
            )
        own = loader or _own(decode)
        if own is not None and options != DecodeOptions():
            name = "mode" if options.mode != "RGB" else "exif_orientation"
            raise ArgumentError(
                f"{name}= says how gpupreload reads a file, but here a loader of your own reads "
                f"it. Let that do it, and leave {name}= out."
            )
        decoder: Decoder = "fast" if decode == "fast" else "gpu" if decode == "gpu" else "exact"
        return cls(options, own, on_error == "skip", decoder)


def _checked_flag(exif_orientation: Any) -> bool:
    if not isinstance(exif_orientation, bool):
        raise ArgumentError(
            f"exif_orientation is {exif_orientation!r}; expected True, to turn photos upright as "
            "their EXIF block says, or False."
        )
    return exif_orientation


def _own(decode: Any) -> Loader | None:
    if isinstance(decode, str) and decode in get_args(Decoder):
        return None
    if callable(decode):
        own: Loader = decode
        return own
    raise ArgumentError(
        f"decode is {decode!r}; expected 'exact', for ImageFolder's pixels, 'fast', for pixels a "
        "level or two beside them, 'gpu', for a CUDA device to decode JPEG files, or a function "
        "that takes a path and returns a PIL image."
    )
