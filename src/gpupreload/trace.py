"""What images look like between the steps of a transform, found by running the steps.

Steps of torchvision's are run on blank images, one for each distinct size in the set, so that no
file is decoded. From the first step on that only its caller knows, a few real images are used.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode

from gpupreload.calling import by_name, check_layout
from gpupreload.catalog import is_conversion, is_resize, kind_of
from gpupreload.errors import DataError, TransformError, UnreadableError
from gpupreload.leaves import Leaf
from gpupreload.probe import Randomness, Verdict, copy_of, generators_kept, probe
from gpupreload.source import ImageSpec, Source, describe

Takes = Literal["PIL", "tensor", "array"]

_N_TRIED = 4
_UNKNOWN = Verdict("unknown")


@dataclass(frozen=True)
class Form:
    """What an image is between two steps, without its pixels.

    Attributes:
        takes: "PIL", "tensor" ([C, H, W]) or "array" (NumPy's, [H, W, C]).
        mode: Pillow's mode, or the name of the dtype.
        shape: (C, H, W).
        is_tv_image: whether the tensor is a `torchvision.tv_tensors.Image`.
        dtype: in what dtype its pixels can be stored as they are, or None where they cannot: uint8
            for 8-bit pixels, a float dtype for float tensors.
    """

    takes: Takes
    mode: str
    shape: tuple[int, int, int]
    is_tv_image: bool = False
    dtype: torch.dtype | None = None

    @classmethod
    def of(cls, image: Any) -> Form:
        """Return the form of an image; a `DataError` for a value that is none."""
        if isinstance(image, np.ndarray) and image.ndim in (2, 3):
            height, width, *channels = image.shape
            # [H, W] would come back as [H, W, 1]
            dtype = torch.uint8 if channels and image.dtype == np.uint8 else None
            shape = (channels[0] if channels else 1, height, width)
            return cls("array", str(image.dtype), shape, dtype=dtype)
        form = cls.from_spec(ImageSpec.of(image))
        return replace(form, is_tv_image=True) if isinstance(image, tv_tensors.Image) else form

    @classmethod
    def from_spec(cls, spec: ImageSpec) -> Form:
        """Return the form of an image of this spec."""
        dtype = torch.uint8 if spec.is_uint8 else None
        if spec.kind == "tensor" and getattr(torch, spec.mode).is_floating_point:
            dtype = getattr(torch, spec.mode)
        return cls(spec.kind, spec.mode, spec.shape, dtype=dtype)

    @property
    def n_bytes(self) -> int:
        """Bytes that the pixels take when they are stored."""
        channels, height, width = self.shape
        return channels * height * width * (self.dtype.itemsize if self.dtype else 0)

    def blank(self) -> Any:
        """Make a black image of this form."""
        channels, height, width = self.shape
        if self.takes == "array":
            return np.zeros((height, width, channels), dtype=self.mode)
        image = ImageSpec(self.takes, self.mode, channels, height, width).blank()
        return tv_tensors.Image(image) if self.is_tv_image else image

    def __str__(self) -> str:
        return f"{self.shape[2]}×{self.shape[1]} {self.mode}"


@dataclass(frozen=True)
class Point:
    """The place before, between or after steps.

    Attributes:
        forms: the distinct forms of the images there, each with an item that has it.
        images: a few of the real images there, by item; None where all was done on blanks.
        is_traced: False after a step that was not run.
    """

    forms: Mapping[Form, int]
    images: Mapping[int, Any] | None = None
    is_traced: bool = True

    @property
    def first(self) -> Form:
        """The form of the first item."""
        return next(iter(self.forms))

    @property
    def one_form(self) -> Form | None:
        """The form of all images where they agree in shape and dtype, else None."""
        same = {(form.shape, form.dtype) for form in self.forms}
        return self.first if len(same) == 1 and self.is_traced else None


@dataclass(frozen=True)
class Trace:
    """A transform run through.

    Attributes:
        points: one before each step, and one after the last.
        randomness: of each step; "unknown" where it was not run.
        signs: for steps that were tried, what showed that they are random, or "".
        n_decoded: how many items were decoded for it.
    """

    points: tuple[Point, ...]
    randomness: tuple[Randomness, ...]
    signs: tuple[str, ...]
    n_decoded: int

    @property
    def first_random(self) -> int:
        """The position of the first step that is not known to be deterministic, or the end."""
        found = (i for i, kind in enumerate(self.randomness) if kind != "deterministic")
        return next(found, len(self.randomness))


def follow(leaves: Sequence[Leaf], source: Source, done: Trace | None = None) -> Trace:
    """Run steps one by one, and note what images look like before and after each.

    After a step marked `gp.batched`, and from a callable of the caller's own in `train_aug` on,
    nothing is run: those may want batches, or a device.

    Args:
        leaves: the steps.
        source: the images.
        done: the trace of the first of these steps, to be continued.

    Raises:
        TransformError: a step raises an error, or returns something other than one image.
        DataError: there are no images.
    """
    if not source.specs:
        raise DataError(f"{source.name} holds no images; expected at least one.")
    points = list(done.points) if done else [_start(source)]
    verdicts = (
        [Verdict(*pair) for pair in zip(done.randomness, done.signs, strict=True)] if done else []
    )
    with generators_kept(), torch.no_grad():
        for leaf in leaves[len(verdicts) :]:
            ready = _ready(leaf, points, leaves, source)
            point, verdict = _advance(leaf, ready, source)
            points.append(point)
            verdicts.append(verdict)
    return Trace(
        tuple(points),
        tuple(verdict.randomness for verdict in verdicts),
        tuple(verdict.sign for verdict in verdicts),
        next((len(p.images) for p in points if p.images is not None), 0),
    )


def _start(source: Source) -> Point:
    specs: dict[ImageSpec, int] = {}
    for i, spec in source.specs.items():
        specs.setdefault(spec, i)
    return Point(_distinct((Form.from_spec(spec), i) for spec, i in specs.items()))


def _ready(leaf: Leaf, points: list[Point], leaves: Sequence[Leaf], source: Source) -> Point:
    """The point before a step, with real images there where the step needs them."""
    point = points[-1]
    if leaf.mark == "batched" or (leaf.argument == "train_aug" and not leaf.is_known):
        return replace(point, is_traced=False)
    if leaf.is_known or point.images is not None or not point.is_traced:
        return point
    images = _read_some(source, _candidates(points[0].forms, len(source)))
    for before in leaves[: len(points) - 1]:
        images = _run_on_all(before, images, source)
    return _point_of(images)


def _candidates(forms: Mapping[Form, int], n_items: int) -> list[int]:
    """Items to try steps on: the extremes of aspect and of size, then a spread over all."""
    by_aspect = sorted(forms, key=lambda form: form.shape[2] / form.shape[1])
    by_area = sorted(forms, key=lambda form: form.shape[2] * form.shape[1])
    extremes = [forms[of[end]] for of in (by_aspect, by_area) for end in (0, -1)]
    spread = range(0, n_items, max(1, n_items // (2 * _N_TRIED)))
    return list(dict.fromkeys([*extremes, *spread]))


def _read_some(source: Source, items: Sequence[int]) -> dict[int, Any]:
    """Read the first four items that can be read; what cannot is the loading's to report."""
    images: dict[int, Any] = {}
    unreadable = None
    for item in items:
        try:
            images[item] = source.read(item)[0]
        except UnreadableError as error:
            unreadable = error
        if len(images) == _N_TRIED:
            break
    if unreadable and not images:
        raise unreadable
    return images


def _advance(leaf: Leaf, point: Point, source: Source) -> tuple[Point, Verdict]:
    """Run one step from the point before it to the point after it."""
    if not point.is_traced:
        to_tensor = leaf.mark == "batched" or is_conversion(leaf.transform)
        form = replace(point.first, takes="tensor") if to_tensor else point.first
        return Point({form: 0}, is_traced=False), _UNKNOWN
    if point.images is None:
        after = Point(_run_on_blanks(leaf, point.forms, source))
    else:
        after = _point_of(_run_on_all(leaf, point.images, source))
    return after, _verdict(leaf, point, source)


def _verdict(leaf: Leaf, point: Point, source: Source) -> Verdict:
    if leaf.mark:
        return Verdict("deterministic") if leaf.mark == "once" else _UNKNOWN
    kind = kind_of(leaf.transform)
    if kind == "random" or kind == "deterministic":
        return Verdict(kind)
    images = point.images or {}
    item, image = next(iter(images.items()))
    with _named(leaf, source.where(item), image):
        return probe(leaf.transform, list(images.values()))


def _run_on_all(leaf: Leaf, images: Mapping[int, Any], source: Source) -> dict[int, Any]:
    return {
        i: _run(leaf, leaf.transform, copy_of(image), source.where(i))[0]
        for i, image in images.items()
    }


def _run_on_blanks(leaf: Leaf, forms: Mapping[Form, int], source: Source) -> dict[Form, int]:
    """Run a step on a blank image of each form; of one only where the outcome is not stored."""
    found: dict[Form, int] = {}
    by_type: dict[Form, Form] = {}
    quick = _quick(leaf.transform)
    for form, item in forms.items():
        any_size = replace(form, shape=(form.shape[0], 0, 0)) if leaf.keeps_geometry else form
        if any_size in by_type:
            output = by_type[any_size]
            output = replace(output, shape=(output.shape[0], *form.shape[1:]))
        else:
            is_quick = bool(found) and quick is not leaf.transform
            blank = _quick_blank(form) if is_quick else form.blank()
            step = quick if is_quick else leaf.transform
            _, output = _run(leaf, step, blank, source.where(item))
            by_type[any_size] = output
        found.setdefault(output, item)
        if kind_of(leaf.transform) == "random" and leaf.argument != "deterministic_transform":
            break
    return found


def _quick(transform: Any) -> Any:
    """A step that gives the same size as this one at less cost, for sets of many sizes."""
    if not is_resize(transform):
        return transform
    quick = copy.copy(transform)
    quick.interpolation = InterpolationMode.NEAREST
    return quick


def _quick_blank(form: Form) -> Any:
    """A blank image for a quick step; of a tensor not even the pixels are needed."""
    if form.takes != "tensor":
        return form.blank()
    meta = torch.empty(form.shape, dtype=getattr(torch, form.mode), device="meta")
    return tv_tensors.Image(meta) if form.is_tv_image else meta


def _run(leaf: Leaf, step: Any, image: Any, where: str) -> tuple[Any, Form]:
    """Run a leaf's step, or what stands in for it, on one image."""
    with _named(leaf, where, image):
        output = step(image)
    check_layout(str(leaf), image, output)
    try:
        return output, Form.of(output)
    except DataError:
        raise TransformError(
            f"{leaf} returned {describe(output)} for {where}; expected one image: "
            "a PIL image, a tensor [C, H, W] or an array [H, W, C]."
        ) from None


@contextlib.contextmanager
def _named(leaf: Leaf, where: str, image: Any) -> Iterator[None]:
    """Say which step raised an error, and on what."""
    try:
        yield
    except Exception as error:
        way_on = "Correct the step, or what comes before it: the steps run in the order given."
        raise TransformError(
            f"{leaf} raised {type(error).__name__} on {where}: {error}\n"
            f"{by_name(leaf.transform, image, error) or way_on}"
        ) from error


def _point_of(images: Mapping[int, Any]) -> Point:
    return Point(_distinct((Form.of(image), i) for i, image in images.items()), images)


def _distinct(pairs: Iterable[tuple[Form, int]]) -> dict[Form, int]:
    """Each form with the first item that has it, in the order of coming."""
    found: dict[Form, int] = {}
    for form, item in pairs:
        found.setdefault(form, item)
    return found
