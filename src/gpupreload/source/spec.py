"""What an image is, without its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gpupreload.errors import DataError

_EIGHT_BIT_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "RGBX": 4, "CMYK": 4, "YCbCr": 3}


@dataclass(frozen=True)
class ImageSpec:
    """What an image is, without its pixels: enough to make a blank one.

    Attributes:
        kind: "PIL" for a `PIL.Image.Image`, "tensor" for a `torch.Tensor` of shape [C, H, W].
        mode: Pillow's mode ("RGB"), or the tensor's dtype as torch names it ("uint8").
        channels: C.
        height: H, in pixels.
        width: W, in pixels.
    """

    kind: Literal["PIL", "tensor"]
    mode: str
    channels: int
    height: int
    width: int

    @classmethod
    def of(cls, image: Any) -> ImageSpec:
        """Return the spec of a PIL image or of a tensor [C, H, W]; a `DataError` for all else."""
        if isinstance(image, Image.Image):
            return cls("PIL", image.mode, len(image.getbands()), image.height, image.width)
        if isinstance(image, Tensor) and image.ndim == 3:
            channels, height, width = image.shape
            return cls("tensor", str(image.dtype).removeprefix("torch."), channels, height, width)
        found = f"expected a PIL image or a tensor [C, H, W], got {describe(image)}."
        raise DataError(f"{found}{_way_on(image)}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (C, H, W)."""
        return self.channels, self.height, self.width

    @property
    def is_uint8(self) -> bool:
        """Whether the pixels are whole numbers of 0 to 255, 8 bits a channel."""
        return self.mode in (_EIGHT_BIT_CHANNELS if self.kind == "PIL" else ("uint8",))

    @property
    def decoding_bytes(self) -> int:
        """What decoding takes for a while: the pixels twice, for decoders have their own buffer."""
        itemsize = getattr(torch, self.mode).itemsize if self.kind == "tensor" else 1
        return 2 * self.channels * self.height * self.width * int(itemsize)

    def blank(self) -> Any:
        """Make a black image of this spec: a PIL image, or a CPU tensor of zeros."""
        if self.kind == "PIL":
            return Image.new(self.mode, (self.width, self.height))
        return torch.zeros(self.shape, dtype=getattr(torch, self.mode), device="cpu")

    def __str__(self) -> str:
        return f"{self.width}×{self.height} {self.mode}"


_CHANNELS = (1, 3, 4)
_LEAST_SIDE = 8  # of a photo, in pixels; a shorter one may be a number of channels


def is_channels_last(shape: tuple[int, ...]) -> bool:
    """Whether the last three dimensions seem to be [H, W, C], and cannot well be [C, H, W].

    >>> is_channels_last((32, 32, 3)), is_channels_last((3, 32, 32)), is_channels_last((8, 3, 3, 3))
    (True, False, False)
    """
    height, width, channels = shape[-3:]
    return channels in _CHANNELS and min(height, width) >= _LEAST_SIDE


def check_layout_of_item(image: Any) -> None:
    """Refuse a tensor [H, W, C], whose dimensions would be taken for one another."""
    if isinstance(image, Tensor) and image.ndim == 3 and is_channels_last(tuple(image.shape)):
        raise DataError(
            f"expected a PIL image or a tensor [C, H, W], got {describe(image)}, which looks like "
            "[H, W, C]. Use .permute(2, 0, 1) on each image, or .permute(0, 3, 1, 2) on all."
        )


def _way_on(image: Any) -> str:
    """What to do with an array, or with a tensor that lacks its channels; "" for all else."""
    is_array = isinstance(image, np.ndarray)
    if not is_array and not isinstance(image, Tensor):
        return ""
    code = "torch.from_numpy(array)" if is_array else ""
    if image.ndim == 2:
        return f" Return {code or 'image'}[None] instead."
    if not is_array or image.ndim != 3:
        return ""
    is_last = image.shape[-1] in _CHANNELS  # as arrays of images mostly are
    return f" Return {code}{'.permute(2, 0, 1)' if is_last else ''} instead."


def describe(value: Any) -> str:
    """Say what a value is in a few words, for error messages: its type, and shape and dtype."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a NumPy {value.dtype} array of shape {value.shape}"
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
