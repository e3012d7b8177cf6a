"""Blocks of images and labels, given where a dataset is expected: what to make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.source.spec import describe, is_channels_last


def check_not_arrays(data: Any) -> None:
    """Refuse arrays or tensors as they are, alone or as a pair (images, labels).

    Raises:
        ArgumentError: `data` is such; the message makes a dataset of it, where it is a pair.
    """
    if _is_block(data):
        raise ArgumentError(
            f"data is {describe(data)}, without labels; expected images and labels together, such "
            "as TensorDataset(images, labels), with images [N, C, H, W]."
        )
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_block, data)):
        images, labels = data
        raise ArgumentError(
            f"data is {describe(images)} and {describe(labels)}; expected a dataset. Pass "
            f"TensorDataset({_code(images, 'images')}, {_code(labels, 'labels')}), from "
            "torch.utils.data, with images [N, C, H, W] and labels [N]."
        )


def _is_block(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim > 0


def _code(block: Any, name: str) -> str:
    """How to get a tensor, with the channels before height and width, from a block."""
    code = f"torch.from_numpy({name})" if isinstance(block, np.ndarray) else name
    is_turned = block.ndim == 4 and is_channels_last(tuple(block.shape))
    return f"{code}.permute(0, 3, 1, 2)" if is_turned else code
