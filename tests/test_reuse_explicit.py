"""Another transform over a dataset of the explicit form."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp

RESIZE = v2.Resize((24, 20))
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
NORMALIZE = v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.1])
ANOTHER = (
    "this transform has another once-part than the images were loaded with, so they must be "
    "loaded again: gpupreload.preload(data, transform).\n"
)


def explicit(data: Any, once: Any, train_aug: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload in the explicit form, on the CPU, without a bar."""
    given = {"device": "cpu", "seed": 5, "progress": False}
    return gp.GPUPreloadDataset(data, once, train_aug, **given, **settings)


def epoch_of(data: Any) -> Tensor:
    """All images of one epoch of a loader."""
    return torch.cat([images.clone() for images, *_ in gp.Loader(data, 5)])


def files_of(folder: Path, *steps: Any) -> Tensor:
    """What ImageFolder gives for a transform."""
    return torch.stack([image for image, _ in ImageFolder(folder, v2.Compose(list(steps)))])


def test_another_train_aug(photo_folder: Path) -> None:
    """On the explicit form a transform that begins otherwise takes the place of train_aug."""
    train = explicit(photo_folder, v2.Compose([RESIZE, *FLOATS]), v2.RandomCrop(16))
    for aug in (v2.CenterCrop(16), v2.Compose([v2.CenterCrop(15), NORMALIZE]), lambda image: image):
        val = train.with_transform(aug)
        assert torch.equal(epoch_of(val), files_of(photo_folder, RESIZE, *FLOATS, aug))
        again = train.with_transform(val.transform)
        assert torch.equal(epoch_of(again), epoch_of(val))
    assert train.with_transform(v2.RandomCrop(12))[0][0].shape == (3, 12, 12)


def test_a_whole_transform_for_the_explicit_form(photo_folder: Path) -> None:
    """One that begins with what ran once, or with all of deterministic_transform, is whole."""
    train = explicit(photo_folder, v2.Compose([RESIZE, *FLOATS]), v2.RandomCrop(16))
    for steps in ([RESIZE, v2.CenterCrop(16), *FLOATS], [RESIZE, *FLOATS, v2.CenterCrop(9)]):
        val = train.with_transform(v2.Compose(steps))
        assert torch.equal(epoch_of(val), files_of(photo_folder, *steps))
    data = [(torch.full((3, 8, 8), i, dtype=torch.uint8), 0) for i in range(4)]
    expected = v2.functional.to_dtype(torch.stack([image for image, _ in data]), scale=True)
    floats = explicit(data, v2.ToDtype(torch.float32, scale=True), v2.RandomCrop(4))
    whole = [v2.ToDtype(torch.float32, scale=True), v2.CenterCrop(6)]
    for transform in (whole, v2.CenterCrop(6)):
        images = epoch_of(floats.with_transform(transform))
        assert torch.equal(images, expected[..., :6, :6])


def test_a_resize_is_no_augmentation(photo_folder: Path) -> None:
    """A Resize at the start of another once-part is refused, unless it is marked."""
    train = explicit(photo_folder, v2.Compose([RESIZE, *FLOATS]), v2.RandomCrop(16))
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform([v2.Resize(12), v2.CenterCrop(8), *FLOATS])
    assert str(raised.value) == (
        f"{ANOTHER}Or write gp.live(v2.Resize(12)), and it runs for each batch: on tensors, where "
        "its pixels may be a grey level or two beside those of PIL images.\n"
        "loaded with: Resize((24, 20)), ToImage()\nasked for:   Resize(12), CenterCrop(8)"
    )
    val = train.with_transform(gp.live(v2.Resize(12)))
    assert torch.equal(epoch_of(val), files_of(photo_folder, RESIZE, *FLOATS, v2.Resize(12)))


def test_frozen_steps_stay_as_they_are(photo_folder: Path) -> None:
    """Another train_aug over what was frozen on purpose shows the frozen pictures."""
    once = v2.Compose([RESIZE, v2.RandomCrop(16), *FLOATS])
    with pytest.warns(UserWarning, match="allow_frozen=True"):
        train = explicit(photo_folder, once, v2.RandomHorizontalFlip(), allow_frozen=True)
    with pytest.warns(UserWarning, match="allow_frozen=True"):
        flipped = train.with_transform(v2.RandomHorizontalFlip(1))
    assert torch.equal(epoch_of(flipped), v2.functional.to_dtype(train.images.flip(3), scale=True))
    with pytest.raises(gp.TransformError) as raised:
        train.with_transform([once, v2.CenterCrop(9)])
    assert str(raised.value) == (
        f"{ANOTHER}loaded with: Resize((24, 20)), RandomCrop(16), ToImage()\n"
        "asked for:   Resize((24, 20))"
    )


def test_an_explicit_dataset_can_be_sent(photo_folder: Path) -> None:
    """A pickled dataset of the explicit form serves alike."""
    train = explicit(photo_folder, v2.Compose([RESIZE, *FLOATS]), v2.RandomCrop(16))
    assert torch.equal(epoch_of(pickle.loads(pickle.dumps(train))), epoch_of(train))
