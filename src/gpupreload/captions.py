"""Labels as the texts above pictures: class names, or the largest weights of soft labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.source import describe

_LEAST_SHOWN = 0.005  # smaller weights print as 0.00


def captions(labels: Any, names: Sequence[str] | None, n: int) -> list[str]:
    r"""Return a text for each of the first n images.

    Args:
        labels: int64 [N]; floats [N, K], the weights that MixUp and CutMix make, of which the two
            largest are told, in two lines; or None, for texts that are empty.
        names: the class names by number; None tells the numbers.
        n: how many.

    Raises:
        ArgumentError: `labels` are nothing of that, or do not go with the images or the names.

    >>> captions(torch.tensor([[0.7, 0.0, 0.3]]), ["cat", "dog", "owl"], 1)
    ['0.70 cat\n0.30 owl']
    """
    if labels is None:
        return [""] * n
    found = _as_tensor(labels)
    is_soft = found.ndim == 2 and found.is_floating_point()
    are_names_asked = names is not None and found.is_floating_point()
    if not is_soft and (found.ndim > 1 or are_names_asked):
        raise _no_labels(found)
    found = found if is_soft else found.flatten()
    if len(found) < n:
        raise ArgumentError(f"labels has {len(found)} labels for {n} images; expected one each.")
    return [_soft(row, names) for row in found[:n]] if is_soft else _hard(found[:n].tolist(), names)


def _as_tensor(labels: Any) -> Tensor:
    try:
        return torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise _no_labels(labels) from None


def _no_labels(labels: Any) -> ArgumentError:
    are_texts = isinstance(labels, list | tuple) and any(isinstance(one, str) for one in labels)
    advice = " Of names, pass labels=range(len(names)) and classes=names." if are_texts else ""
    return ArgumentError(
        f"labels is {describe(labels)}{' of texts' if are_texts else ''}; expected class numbers, "
        f"int64 [N], or weights, floats [N, K], as MixUp and CutMix make them.{advice}"
    )


def _hard(numbers: Sequence[int], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [str(number) for number in numbers]
    unknown = [number for number in numbers if not 0 <= number < len(names)]
    if unknown:
        raise ArgumentError(
            f"labels holds {unknown[0]}, but classes has {len(names)} names; expected "
            f"0 to {len(names) - 1}."
        )
    return [str(names[number]) for number in numbers]


def _soft(weights: Tensor, names: Sequence[str] | None) -> str:
    if names is not None and len(weights) != len(names):
        raise ArgumentError(
            f"labels has {len(weights)} weights an image, but classes has {len(names)} names; "
            "expected one weight for each class."
        )
    largest = weights.topk(min(2, len(weights)))
    pairs = zip(largest.values.tolist(), largest.indices.tolist(), strict=True)
    return "\n".join(
        f"{weight:.2f} {f'class {number}' if names is None else names[number]}"
        for weight, number in pairs
        if weight >= _LEAST_SHOWN
    )
