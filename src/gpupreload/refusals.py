"""What to say when a transform cannot be divided: what is wrong, where, and the ways on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpupreload.catalog import is_conversion, is_resize
from gpupreload.leaves import Leaf
from gpupreload.settings import code_of, compose_code, imports_of
from gpupreload.source import Source
from gpupreload.trace import Form, Point, Trace

_CROPS = ("RandomCrop", "RandomResizedCrop")


def sizes_differ(leaves: Sequence[Leaf], trace: Trace, last: int, source: Source) -> str:
    """Write the message for images that have no one size before the first random step."""
    is_explicit = any(leaf.argument for leaf in leaves)
    first_random = leaves[last] if last < len(leaves) and not is_explicit else None
    place = " to deterministic_transform" if is_explicit else _before(first_random)
    while last and leaves[last - 1].keeps_geometry:
        last -= 1
    after = f"after {leaves[last - 1].name} " if last else ""
    (a, i), (b, j) = _two_that_differ(trace.points[last])
    found = f"{after}{source.where(i)} is {a} and {source.where(j)} is {b}."
    if a.shape == b.shape:
        return (
            f"images must agree in their dtype to be stored, but {found}\n"
            f"Add v2.ToDtype(torch.uint8, scale=True){place}."
        )
    if a.shape[1:] == b.shape[1:]:
        return (
            f"images must agree in their number of channels to be stored, but {found}\n"
            f"Add v2.RGB(){place}."
        )
    if first_random and type(first_random.transform).__name__ in _CROPS:
        return _two_ways_on(first_random, found)
    resize = leaves[last - 1] if last and is_resize(leaves[last - 1].transform) else None
    size = getattr(resize.transform, "size", None) if resize else None
    if resize and isinstance(size, int | list | tuple):
        crop = f"v2.CenterCrop({size if isinstance(size, int) else size[0]})"
        advice = f"{resize.name} keeps each photo's aspect: add {crop} after it"
    else:
        advice = f"Add steps that make one size, such as v2.Resize(128), v2.CenterCrop(112){place}"
    return f"images must have one size to be stored, but {found}\n{advice}."


def _two_that_differ(point: Point) -> tuple[tuple[Form, int], tuple[Form, int]]:
    first, *others = point.forms.items()
    by_size = [other for other in others if other[0].shape[1:] != first[0].shape[1:]]
    return first, (by_size or others)[0]


def _before(first_random: Leaf | None) -> str:
    return f" before {first_random.name}, the first random step" if first_random else ""


def _two_ways_on(crop: Leaf, found: str) -> str:
    height, width = _size_to_store(crop.transform)
    size = f"({height}, {width})"
    center = height if height == width else size
    return (
        f"{crop.name} is random and cannot run once, and what comes before it must be stored in "
        f"one size, but {found}\n"
        "There are two ways on:\n"
        f"- put v2.Resize({max(height, width)}), v2.CenterCrop({center}) before it, "
        "or other steps that make one size;\n"
        f"- pass store_size={size}, which does that for you.\n"
        "Both change something: the crops are then cut from the stored picture instead of the "
        "whole photo. What lies outside its centre is never seen, and small crops are enlarged "
        "from fewer pixels; a larger size keeps more."
    )


def _size_to_store(crop: Any) -> tuple[int, int]:
    """A size that leaves a crop room to move: 8/7 of it, as 256 is of 224."""
    height, width = crop.size
    return round(height * 8 / 7), round(width * 8 / 7)


def not_storable(leaves: Sequence[Leaf], trace: Trace, last: int, source: Source) -> str:
    """Write the message for images whose pixels are neither 8-bit nor floats."""
    forms = trace.points[last].forms
    form, item = next((form, i) for form, i in forms.items() if form.dtype is None)
    after = f"after {leaves[last - 1].name} " if last else ""
    advice = {
        "PIL": 'v2.Lambda(lambda image: image.convert("RGB"))',
        "array": "v2.ToImage()",
        "tensor": "v2.ToDtype(torch.float32)",
    }[form.takes]
    return (
        f"{after}{source.where(item)} is {form} ({form.takes}), whose pixels cannot be stored; "
        "expected an 8-bit image, such as RGB or L, or a tensor of uint8 or of floats.\n"
        f"Add {advice} there."
    )


def frozen(leaves: Sequence[Leaf], random: int, sign: str, train_aug: Sequence[Leaf]) -> str:
    """Write the message for a random step in `deterministic_transform`, with the right division.

    Args:
        leaves: the steps of `deterministic_transform`.
        random: the position of the first random one.
        sign: what showed that it is random, or "".
        train_aug: the steps of `train_aug`.
    """
    # conversions stay: train_aug is given float pixels all the same
    tail = leaves[random:]
    kept = [*leaves[:random], *(leaf for leaf in tail if is_conversion(leaf.transform))]
    moved = [leaf for leaf in tail if not is_conversion(leaf.transform)]
    how = f" ({sign})" if sign else ""
    return (
        f"{leaves[random]} is random{how}. Run once, its one draw would be frozen: every epoch "
        "would show the same picture. Divided correctly, the same steps are:\n\n"
        f"{_as_call(kept, [*moved, *train_aug])}\n\n"
        "If the step is not random as it is set, wrap it in gp.once. To see on purpose what "
        "freezing does, pass allow_frozen=True."
    )


def _as_call(kept: Sequence[Leaf], moved: Sequence[Leaf]) -> str:
    body = (
        "gp.GPUPreloadDataset(\n"
        "    data_root,\n"
        f"    deterministic_transform={_as_compose(kept)},\n"
        f"    train_aug={_as_compose(moved)},\n"
        ")"
    )
    return "\n".join([*imports_of(body), "", body])


def _as_compose(leaves: Sequence[Leaf]) -> str:
    return compose_code([_with_mark(leaf) for leaf in leaves], indent="    ")


def _with_mark(leaf: Leaf) -> str:
    code = code_of(leaf.transform)
    return f"gp.{leaf.mark}({code})" if leaf.mark else code


def color_after_normalize(normalize: Leaf, color: Leaf) -> str:
    """Write the warning for a step that reads colours where `Normalize` has changed their range."""
    return (
        f"{color} comes after {normalize} but reads values as colours between 0 and 1, which "
        f"Normalize has moved out of that range. Put it before {normalize.name}."
    )
