"""The store is never written after it is filled, and nothing served shares memory with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

import gpupreload as gp

SIZE = 16
ONCE = [v2.Resize((SIZE, SIZE))]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


def zeroed(image: Tensor) -> Tensor:
    """Write into what is given."""
    return image.zero_()


def returned(image: Tensor) -> Tensor:
    """Return what is given, as a step that has nothing to do."""
    return image


def seen(image: Tensor) -> Tensor:
    """Return a view of what is given."""
    return image[:, 2:10, 2:10]


class InPlace(nn.Module):
    """A module that works in place."""

    def forward(self, image: Tensor) -> Tensor:
        """Add to what is given."""
        image += 1
        return image


STEPS: dict[str, list[Any]] = {
    "nothing": [],
    "an identity": [v2.Identity()],
    "conversions that have nothing to do": [v2.ToImage(), v2.ToPureTensor()],
    "ToDtype to the same": [v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)],
    "v1 conversions": [v1.PILToTensor(), v1.ConvertImageDtype(torch.uint8)],
    "a flip that is never drawn": [v2.ToImage(), v2.RandomHorizontalFlip(p=0)],
    "a flip that is always drawn": [v2.RandomVerticalFlip(p=1), v2.ToImage()],
    "a crop of the same size": [v2.ToImage(), v2.RandomCrop(SIZE)],
    "a smaller crop": [v2.ToImage(), v2.RandomCrop(SIZE - 3)],
    "a turn by nothing": [v2.ToImage(), v2.RandomRotation(0)],
    "a resize to the same size": [v2.RandomApply([v2.Resize(SIZE)], p=1), v2.ToImage()],
    "grey as it is": [v2.Grayscale(3), v2.ToImage()],
    "Normalize in place": [*FLOATS, v2.Normalize([0.4] * 3, [0.3] * 3, inplace=True)],
    "v1 Normalize in place": [v1.ToTensor(), v1.Normalize([0.4] * 3, [0.3] * 3, inplace=True)],
    "erasing in place": [*FLOATS, v2.RandomErasing(p=1, inplace=True)],
    "erasing uint8 in place": [v2.ToImage(), v2.RandomErasing(p=1, value=7, inplace=True)],
    "v1 erasing in place": [v1.PILToTensor(), v1.RandomErasing(p=1, inplace=True)],
    "RandomApply": [v2.ToImage(), v2.RandomApply([v2.RandomInvert(1)], p=0)],
    "RandomOrder": [v2.ToImage(), v2.RandomOrder([v2.Identity(), v2.RandomInvert(0)])],
    "a callable in place": [v2.ToImage(), gp.live(zeroed)],
    "a callable in place on floats": [*FLOATS, gp.live(zeroed)],
    "a callable that returns its argument": [v2.ToImage(), gp.live(returned)],
    "a callable that returns a view": [v2.ToImage(), gp.live(seen)],
    "a module in place": [v2.ToImage(), gp.live(InPlace())],
    "a batched callable in place": [v2.ToImage(), gp.batched(zeroed)],
    "a batched callable that returns its argument": [v2.ToImage(), gp.batched(returned)],
    "Lambda": [v2.ToImage(), v2.RandomInvert(0), v2.Lambda(zeroed)],
}


def checksum(tensor: Tensor) -> str:
    """The SHA-256 of a tensor's values."""
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def served(data: gp.GPUPreloadDataset) -> Iterator[Tensor]:
    """Everything that a dataset gives out: images and labels, by every way."""
    for image, _ in (data[0], data[-1]):
        yield image
    fetched = data.__getitems__(range(len(data)))
    yield from (fetched.images, fetched.labels)
    yield from (image for image, _ in fetched)
    for batch in DataLoader(data, 5):
        yield from batch
    for batch in DataLoader(Subset(data, [0, -1]), 2):
        yield from batch
    for reuse_buffers in (False, True):
        loader = gp.Loader(data, 5, shuffle=True, reuse_buffers=reuse_buffers)
        for batch in [*loader, *loader]:
            yield from batch
    yield from data.as_tensor_dataset().tensors


def spoil(data: gp.GPUPreloadDataset) -> None:
    """Write into everything that is served, and see that none of it is the store's memory."""
    kept = {t.untyped_storage().data_ptr() for t in (data.images, data.labels)}
    for _ in range(2):
        for tensor in served(data):
            assert tensor.untyped_storage().data_ptr() not in kept
            tensor.fill_(77)


@pytest.fixture
def unchanged() -> Iterator[Callable[[gp.GPUPreloadDataset], gp.GPUPreloadDataset]]:
    """A function that notes a dataset's store; at the end the store must be as it was noted."""
    noted: list[tuple[Tensor, str]] = []

    def note(data: gp.GPUPreloadDataset) -> gp.GPUPreloadDataset:
        noted.extend((tensor, checksum(tensor)) for tensor in (data.images, data.labels))
        return data

    yield note
    assert noted
    assert all(checksum(tensor) == before for tensor, before in noted)


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_preloaded(photo_folder: Path, unchanged: Callable[..., Any], steps: list[Any]) -> None:
    """After epochs with steps and callers that write in place, the store is as it was filled."""
    transform = v1.Compose([*ONCE, *steps])
    spoil(unchanged(gp.preload(photo_folder, transform, device="cpu", progress=False)))


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_explicit(photo_folder: Path, unchanged: Callable[..., Any], steps: list[Any]) -> None:
    """The same holds where the caller says what runs when."""
    to_tensor, aug = [v2.PILToTensor()], steps
    if steps and isinstance(steps[0], v1.PILToTensor | v1.ToTensor):
        to_tensor, aug = steps[:1], steps[1:]
    arguments = v1.Compose([*ONCE, *to_tensor]), v1.Compose(aug) if aug else None
    spoil(unchanged(gp.GPUPreloadDataset(photo_folder, *arguments, device="cpu", progress=False)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("steps", [[], [v2.Normalize([0.4], [0.3], inplace=True)], [zeroed]])
def test_float_stores(unchanged: Callable[..., Any], dtype: torch.dtype, steps: list[Any]) -> None:
    """A store of floats is as little written to as one of uint8."""
    items = [(torch.full((3, 8, 8), i / 8, dtype=dtype), i) for i in range(9)]
    live = [gp.live(step) if step is zeroed else step for step in steps]
    transform = v1.Compose([v2.RandomHorizontalFlip(0), *live])
    spoil(unchanged(gp.preload(items, transform, device="cpu", progress=False)))


def test_a_store_of_one_image(unchanged: Callable[..., Any]) -> None:
    """A gather of all rows of the store is a copy, too."""
    data = [(Image.new("RGB", (4, 4), "teal"), 1)]
    spoil(unchanged(gp.preload(data, device="cpu", progress=False)))


def test_writing_into_an_item_changes_no_later_one(photo_folder: Path) -> None:
    """`ds[i][0].zero_()` is forgotten by the next reading."""
    ours = gp.preload(photo_folder, v1.Compose([*ONCE, v1.PILToTensor()]), device="cpu")
    before = ours[3][0].clone()
    assert before.any()
    ours[3][0].zero_()
    assert torch.equal(ours[3][0], before)


def test_shared_stores_are_not_written_by_each_other(photo_folder: Path) -> None:
    """Two datasets over one store do not see each other's steps in place."""
    one = gp.preload(photo_folder, v1.Compose([*ONCE, v2.PILToTensor()]), device="cpu")
    two = gp.preload(photo_folder, v1.Compose([*ONCE, v2.PILToTensor(), gp.live(zeroed)]))
    assert one.images is two.images
    before = one[0][0].clone()
    assert not two[0][0].any()
    assert torch.equal(one[0][0], before)
