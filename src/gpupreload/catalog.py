"""What each transform class of `torchvision.transforms` and `.v2` is: the table behind the split.

A name proves nothing (`ColorJitter`, `RandAugment`, `GaussianBlur`, `ScaleJitter` and `JPEG` are
random without saying so), therefore every public class is listed here by hand. Names are those of
torchvision 0.29. Only the classes themselves are known: a subclass may do anything, so it counts
as the caller's own callable, and so does a class that a later torchvision adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import _presets, v2

from gpupreload.cover import ResizeToCover

Kind = Literal["deterministic", "random", "container", "function", "refused"]

CONVERSIONS = (
    "ConvertImageDtype",
    "PILToTensor",
    "ToDtype",
    "ToImage",
    "ToPureTensor",
    "ToTensor",
)
"""Steps that change the type of an image or of its numbers, and neither its size nor its look."""

DETERMINISTIC = (
    *CONVERSIONS,
    "CenterCrop",
    "Grayscale",
    "Identity",
    "LinearTransformation",
    "Normalize",
    "Pad",
    "RGB",
    "Resize",
    "ToPILImage",
)

COLOR = (
    "AugMix",
    "AutoAugment",
    "ColorJitter",
    "GaussianNoise",
    "Grayscale",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomSolarize",
    "TrivialAugmentWide",
)
"""Steps that read an image's numbers as colours, float ones as lying between 0 and 1."""

# GaussianBlur and JPEG draw from torch's generator even where they are set to a single value.
RANDOM = (
    *(name for name in COLOR if name != "Grayscale"),
    "ElasticTransform",
    "GaussianBlur",
    "JPEG",
    "RandomAffine",
    "RandomApply",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomOrder",
    "RandomPerspective",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "ScaleJitter",
)

_OF_A_BATCH = (
    "mixes the images of a batch with each other and their labels likewise; give it to the loader, "
    "as gp.Loader(dataset, mix=...), or put it last in gp.per_sample"
)
_OF_BOXES = "is about boxes or points in an image, which image classification does not have"
_SEVERAL = "returns {} images for one; choose one crop, such as v2.CenterCrop, instead"

REFUSED = {
    "ClampBoundingBoxes": _OF_BOXES,
    "ClampKeyPoints": _OF_BOXES,
    "ConvertBoundingBoxFormat": _OF_BOXES,
    "CutMix": _OF_A_BATCH,
    "FiveCrop": _SEVERAL.format("five"),
    "MixUp": _OF_A_BATCH,
    "RandomIoUCrop": _OF_BOXES,
    "SanitizeBoundingBoxes": _OF_BOXES,
    "SanitizeKeyPoints": _OF_BOXES,
    "SetClampingMode": _OF_BOXES,
    "TenCrop": _SEVERAL.format("ten"),
    "Transform": "is the base of torchvision's transforms and does nothing itself; use a subclass",
    "UniformTemporalSubsample": "takes videos, not images",
}
"""Classes that are no step from one image to one image, and what to say about each."""

_OWN_SIZE = "gives each image a size of its own, and the images of a batch need one; {}"
_RESIZED_CROP = "v2.RandomResizedCrop is random too, and gives all the same size"
OF_ITS_OWN_SIZE = {
    "RandomResize": _OWN_SIZE.format(_RESIZED_CROP),
    "RandomShortestSize": _OWN_SIZE.format(_RESIZED_CROP),
    "RandomZoomOut": _OWN_SIZE.format("v2.RandomAffine zooms out in an image that keeps its size"),
    "ScaleJitter": _OWN_SIZE.format(_RESIZED_CROP),
}
"""Classes whose images no longer make a batch, and what to say about each."""

_EXPANDED = _OWN_SIZE.format("with expand=False an image keeps its size")


def _classes(names: Iterable[str]) -> set[type]:
    """The classes of these names, in v1 and in v2; a name may stand in one of the two only."""
    return {getattr(m, name) for name in names for m in (v1, v2) if hasattr(m, name)}


_REFUSED: dict[type, str] = {
    **{cls: reason for name, reason in REFUSED.items() for cls in _classes([name])},
    _presets.VideoClassification: "takes videos, not images",
    _presets.OpticalFlow: "takes two images at a time",
}
_PRESETS = {
    _presets.ImageClassification,
    _presets.SemanticSegmentation,
    _presets.ObjectDetection,
}
_KINDS: dict[type, Kind] = {
    **dict.fromkeys({*_classes(DETERMINISTIC), ResizeToCover}, "deterministic"),
    **dict.fromkeys(_classes(RANDOM), "random"),
    **dict.fromkeys({*_classes(["Compose"]), nn.Sequential, *_PRESETS}, "container"),
    **dict.fromkeys(_classes(["Lambda"]), "function"),
    **dict.fromkeys(_REFUSED, "refused"),
}
_CONVERSIONS = _classes(CONVERSIONS)
_TO_FLOATS = _classes(["ConvertImageDtype", "ToDtype", "ToTensor"])
_COLOR = _classes(COLOR)
_HOLDING = _classes(["Compose", "RandomApply", "RandomChoice", "RandomOrder"])
_NORMALIZE = _classes(["Normalize"])
_SIZE_OF_ITS_OWN = {c: why for name, why in OF_ITS_OWN_SIZE.items() for c in _classes([name])}
_ROTATION = _classes(["RandomRotation"])
# a weighted sum of the channels, whatever their range
_GRAY = _classes(["Grayscale", "RandomGrayscale"])
_TO_TENSOR = _classes(["ToTensor"])
_TO_PIL = _classes(["ToPILImage"])
_RESIZE = _classes(["Resize"])
_CENTER_CROP = _classes(["CenterCrop"])
_PAD = _classes(["Pad"])
_TO_GRAY = _classes(["Grayscale"])
_RGB = _classes(["RGB"])


def kind_of(transform: Any) -> Kind | None:
    """Return what a transform of torchvision's is, or None for everything else.

    "function" is `Lambda`, which is what its function is. "container" is a `Compose`, a
    `torch.nn.Sequential` or the preset of a model's weights, which are what their steps are.

    >>> kind_of(v2.ColorJitter(0.4)), kind_of(v2.Resize(112)), kind_of(abs)
    ('random', 'deterministic', None)
    """
    return _KINDS.get(type(transform))


def why_refused(transform: Any) -> str | None:
    """Say why a class of torchvision's is no step from one image to one image, or None."""
    return _REFUSED.get(type(transform))


def why_no_batch(transform: Any) -> str | None:
    """Say why the images that a step makes of a batch may differ in size, or None."""
    if type(transform) in _ROTATION and transform.expand:
        return _EXPANDED
    return _SIZE_OF_ITS_OWN.get(type(transform))


def is_known(transform: Any) -> bool:
    """Whether the table tells all of what a step does, and what the steps that it holds do."""
    held = held_by(transform)
    is_listed = kind_of(transform) in ("deterministic", "random") or bool(held)
    return is_listed and all(is_known(step) for step in held)


def is_conversion(transform: Any) -> bool:
    """Whether a step changes only the type of an image or of its numbers."""
    return type(transform) in _CONVERSIONS


def makes_floats(transform: Any) -> bool:
    """Whether a step is a conversion that turns whole numbers into floats, or may do so."""
    return type(transform) in _TO_FLOATS


def is_normalize(transform: Any) -> bool:
    """Whether a step is a `Normalize`, which takes values out of the range 0 to 1."""
    return type(transform) in _NORMALIZE


def is_to_tensor(transform: Any) -> bool:
    """Whether a step is a `ToTensor`, which leaves tensors as they are."""
    return type(transform) in _TO_TENSOR


def is_to_pil(transform: Any) -> bool:
    """Whether a step is a `ToPILImage`."""
    return type(transform) in _TO_PIL


def is_resize(transform: Any) -> bool:
    """Whether a step is a `Resize`."""
    return type(transform) in _RESIZE


def is_center_crop(transform: Any) -> bool:
    """Whether a step is a `CenterCrop`."""
    return type(transform) in _CENTER_CROP


def is_pad(transform: Any) -> bool:
    """Whether a step is a `Pad`."""
    return type(transform) in _PAD


def is_grayscale(transform: Any) -> bool:
    """Whether a step is a `Grayscale`."""
    return type(transform) in _TO_GRAY


def is_rgb(transform: Any) -> bool:
    """Whether a step is an `RGB`."""
    return type(transform) in _RGB


def held_by(transform: Any) -> list[Any]:
    """Return the steps that one of torchvision's containers holds, `RandomApply`'s too."""
    if isinstance(transform, nn.Sequential):
        return list(transform)
    return list(transform.transforms) if type(transform) in _HOLDING else []


def reads_colors(transform: Any) -> bool:
    """Whether a step, or one held by a `RandomApply` or its like, reads numbers as colours."""
    return type(transform) in _COLOR or any(reads_colors(step) for step in held_by(transform))


def expects_0_to_1(transform: Any) -> bool:
    """Whether a step, or one that it holds, takes black for 0 and white for 1 in float images.

    Steps that read colours do, but for grayscale, and noise that is not clipped.
    """
    if type(transform) is v2.GaussianNoise:
        return bool(transform.clip)
    reads = type(transform) in _COLOR - _GRAY
    return reads or any(expects_0_to_1(step) for step in held_by(transform))


def steps_of_preset(preset: Any) -> list[Any]:
    """Return the steps that the preset of a model's weights takes, as transforms; equal in bits.

    Args:
        preset: what `weights.transforms()` gives for a classification, segmentation or detection
            model (`torchvision.transforms._presets`); it calls these steps' v1 functions in turn.
    """
    steps: list[Any] = []
    if getattr(preset, "resize_size", None) is not None:
        # named, because v1.Resize takes max_size before antialias
        size, how = preset.resize_size, preset.interpolation
        steps.append(v1.Resize(size, interpolation=how, antialias=preset.antialias))
    if hasattr(preset, "crop_size"):
        steps.append(v1.CenterCrop(preset.crop_size))
    # v2's PILToTensor, as the preset itself, lets a tensor pass
    steps += [v2.PILToTensor(), v1.ConvertImageDtype(torch.float32)]
    if hasattr(preset, "mean"):
        steps.append(v1.Normalize(preset.mean, preset.std))
    return steps


def is_preset(transform: Any) -> bool:
    """Whether a transform is the preset of a model's weights that `steps_of_preset` can expand."""
    return type(transform) in _PRESETS
