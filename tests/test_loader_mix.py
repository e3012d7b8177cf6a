"""gp.Loader(mix=...): batches that are mixed, as a function of seed, epoch and indices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch.utils.data import Dataset

import gpupreload as gp

FLOATS = v2.ToDtype(torch.float32, scale=True)
MIXUP, CUTMIX = v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)
MIXES = {"MixUp": MIXUP, "CutMix": CUTMIX, "either": v2.RandomChoice([MIXUP, CUTMIX])}


class Colours(Dataset[tuple[Tensor, int]]):
    """Twenty-two noisy images; the labels are 0 to 3 in turn, so that neighbours differ."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, 8, 9), dtype=torch.uint8, generator=generator)
        return image, index % 4


@pytest.fixture(scope="module")
def colours() -> gp.GPUPreloadDataset:
    """The images, flipped for each sample and made floats."""
    chain = [v2.RandomHorizontalFlip(), FLOATS]
    return gp.preload(Colours(), chain, device="cpu", seed=3, progress=False)


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
@pytest.mark.parametrize("reuse", [False, True])
def test_the_mixing_comes_last(mix: Any, reuse: bool, colours: gp.GPUPreloadDataset) -> None:
    """Batches are those of gp.per_sample with the mixing at its end, labels included."""
    loader = gp.Loader(colours, 8, shuffle=True, mix=mix, reuse_buffers=reuse)
    plain = gp.Loader(colours, 8, shuffle=True)
    module = gp.per_sample([v2.RandomHorizontalFlip(), FLOATS, mix], seed=3)
    numbered = gp.Loader(gp.preload(Numbers(), device="cpu", seed=3, progress=False), 8)
    numbered.shuffle = True
    for (images, soft), (_, labels), (numbers, _) in zip(loader, plain, numbered, strict=True):
        indices = numbers.flatten().long()
        given = colours.images[indices]
        expected, expected_soft = module(given, labels, indices=indices, epoch=0)
        assert torch.equal(images, expected)
        assert torch.equal(soft, expected_soft)
        assert soft.shape == (len(images), 4)


class Numbers(Colours):
    """Images of one pixel, each its own number, to see the order that a seed gives."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 1, 1), index, dtype=torch.uint8), index % 4


def test_each_row_has_its_own_weight(colours: gp.GPUPreloadDataset) -> None:
    """No two rows of an epoch are mixed alike, and another epoch mixes anew."""
    loader = gp.Loader(colours, 11, mix=MIXUP)
    first, second = (torch.cat([soft for _, soft in loader]).amax(1) for _ in range(2))
    assert len(first.unique()) == 22
    assert not torch.equal(first, second)


def test_an_epoch_repeats(colours: gp.GPUPreloadDataset) -> None:
    """Seed and epoch give the same mixed batches again, whatever was read in between."""
    loader = gp.Loader(colours, 8, shuffle=True, mix=MIXES["either"], seed=9)
    first = [(images, soft) for images, soft in loader]
    list(loader)
    loader.set_epoch(0)
    for (images, soft), (again, soft_again) in zip(first, loader, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(soft, soft_again)


def test_the_store_is_not_written(colours: gp.GPUPreloadDataset) -> None:
    """Mixing writes to no memory but its own."""
    before = colours.images.clone()
    loader = gp.Loader(colours, 8, mix=CUTMIX, reuse_buffers=True)
    list(loader)
    assert torch.equal(colours.images, before)


def test_format_and_dtype_are_kept(colours: gp.GPUPreloadDataset) -> None:
    """Mixed batches have the dtype and the memory format that the loader was asked for."""
    how = {"dtype": torch.float16, "memory_format": torch.channels_last}
    images, soft = next(iter(gp.Loader(colours, 8, mix=MIXUP, **how)))
    assert images.dtype == torch.float16
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert soft.dtype == torch.float32


WRONG: list[tuple[Any, str]] = [
    (
        v2.MixUp(),
        "mix is MixUp(), whose num_classes is None; expected the number of classes, for the "
        "labels are mixed too. Pass num_classes=4 to it.",
    ),
    (
        v2.CutMix(num_classes=3),
        "mix is CutMix(num_classes=3), but labels run up to 3; expected num_classes to be larger. "
        "Pass num_classes=4 to it.",
    ),
    (
        v2.RandomHorizontalFlip(),
        "RandomHorizontalFlip(p=0.5) mixes no images and labels; expected v2.MixUp, v2.CutMix, or "
        "a RandomChoice that holds nothing else. Steps on single images belong before the mixing.",
    ),
]


@pytest.mark.parametrize(("mix", "expected"), WRONG, ids=[m[:30] for _, m in WRONG])
def test_a_wrong_mix_is_refused(mix: Any, expected: str, colours: gp.GPUPreloadDataset) -> None:
    """What does not mix, or has too few classes, is refused when the loader is made."""
    with pytest.raises((gp.ArgumentError, gp.TransformError)) as caught:
        gp.Loader(colours, mix=mix)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (
            7,
            "labels run up to 7; expected num_classes to be larger. Correct the labels, for there "
            "are 4 classes, or pass num_classes=8 to it.",
        ),
        (-1, "labels hold -1; expected 0 to 3. Correct the labels."),
    ],
)
def test_labels_that_are_no_classes(
    label: int, expected: str, colours: gp.GPUPreloadDataset
) -> None:
    """After an edit of labels the message advises nothing that would be refused again."""
    part = colours.subset(range(22))
    part.labels[3] = label
    with pytest.raises(gp.ArgumentError) as caught:
        gp.Loader(part, mix=MIXUP)
    assert str(caught.value) == f"mix is MixUp(num_classes=4), but {expected}"
    if label > 0:
        _, soft = next(iter(gp.Loader(part, 4, mix=v2.MixUp(num_classes=8))))
        assert soft.shape == (4, 8)


def test_a_transform_that_mixes_is_sent_to_the_loader() -> None:
    """In a preload's transform MixUp has no place, and the message says where it has one."""
    with pytest.raises(gp.TransformError, match=r"give it to the loader, as gp\.Loader\(dataset, "):
        gp.preload(Colours(), [FLOATS, MIXUP], device="cpu", progress=False)
