"""Subsets, splits and other transforms over one store."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.selection import parts_of
from gpupreload.store import Store
from gpupreload.view import View

ONCE = [v2.Resize(20), v2.CenterCrop(16)]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
RANDOM = [v2.RandomCrop(12), v2.RandomHorizontalFlip()]
IGNORED = (
    "a torch.utils.data.Subset of this dataset was given a transform, which torch ignores: images "
    "would come out as without it. Write dataset.subset(indices).with_transform(transform), which "
    "shares the same memory."
)


def preload(data: Any, *steps: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    transform = v2.Compose(list(steps)) if steps else None
    return gp.preload(data, transform, device="cpu", seed=5, progress=False)


@pytest.fixture
def drawn(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve photos with random steps."""
    return preload(photo_folder, *ONCE, *RANDOM, *FLOATS)


def epoch_of(data: Any, **settings: Any) -> Tensor:
    """All images of one epoch of a loader."""
    return torch.cat([images.clone() for images, *_ in gp.Loader(data, 5, **settings)])


# --- subset


def test_a_subset_follows_in_everything(photo_folder: Path, drawn: gp.GPUPreloadDataset) -> None:
    """Length, labels, targets, samples and classes of a subset are those of its samples."""
    files = ImageFolder(photo_folder)
    part = drawn.subset([7, 3, 11])
    assert len(part) == 3
    assert part.targets == part.labels.tolist() == [1, 0, 2]
    assert part.samples == part.imgs == [files.samples[i] for i in (7, 3, 11)]
    assert (part.classes, part.class_to_idx) == (files.classes, files.class_to_idx)
    assert part.indices.tolist() == [7, 3, 11]
    assert drawn.indices.tolist() == list(range(12))


def test_a_subset_copies_no_pixel(drawn: gp.GPUPreloadDataset) -> None:
    """Subsets share the store; what `images` and `stored` give of one are copies."""
    part = drawn.subset([7, 3])
    assert part.view.store is drawn.view.store
    before = drawn.images.clone()
    for copied in (part.images, part.stored([0, 1])):
        assert torch.equal(copied, before[[7, 3]])
        copied.zero_()
    assert torch.equal(drawn.images, before)


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([7, 3, 3], [7, 3, 3]),
        ([-1, 0], [11, 0]),
        (range(2, 9, 3), [2, 5, 8]),
        (slice(9, None), [9, 10, 11]),
        (torch.tensor([4, 5], dtype=torch.uint8), [4, 5]),
        (np.array([4, 5]), [4, 5]),
        ([np.int64(4), torch.tensor(5)], [4, 5]),
        (torch.arange(12) > 9, [10, 11]),
        (np.arange(12) == 4, [4]),
    ],
)
def test_ways_to_name_samples(
    drawn: gp.GPUPreloadDataset, indices: Any, expected: list[int]
) -> None:
    """Indices come as numbers in any sequence, as a slice, or as a mask."""
    assert drawn.subset(indices).indices.tolist() == expected


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "indices names no sample; expected one or more."),
        (torch.zeros(12, dtype=torch.bool), "indices names no sample; expected one or more."),
        (
            "cat",
            "indices is str; expected sample numbers, such as [0, 2], a slice, or a mask with one "
            "bool for each image.",
        ),
        (
            [1.0, 2.0],
            "indices is list; expected sample numbers, such as [0, 2], a slice, or a mask with one "
            "bool for each image.",
        ),
        (
            [True, False],
            "indices is a mask of 2 bools; expected one for each of the 12 images, or sample "
            "numbers.",
        ),
    ],
    ids=["none", "empty mask", "text", "floats", "short mask"],
)
def test_indices_that_cannot_be_used(
    drawn: gp.GPUPreloadDataset, indices: Any, message: str
) -> None:
    """Indices that name nothing are refused, with what was expected."""
    with pytest.raises(gp.ArgumentError) as raised:
        drawn.subset(indices)
    assert str(raised.value) == message


@pytest.mark.parametrize("index", [12, -13])
def test_an_index_out_of_range(drawn: gp.GPUPreloadDataset, index: int) -> None:
    """A subset of samples that are not there is an IndexError."""
    with pytest.raises(IndexError) as raised:
        drawn.subset([0, index])
    assert str(raised.value) == f"index {index} is out of range for 12 images."


def test_a_sample_looks_the_same_in_a_subset(drawn: gp.GPUPreloadDataset) -> None:
    """Draws go by the number in the whole dataset, however deep a subset lies, however it is read.

    So a split changes no picture.
    """
    whole = epoch_of(drawn)
    part = drawn.subset([9, 2, 7, 4]).subset([2, 0])
    assert torch.equal(epoch_of(part), whole[[7, 9]])
    assert torch.equal(epoch_of(Subset(Subset(drawn, [9, 2, 7, 4]), [2, 0])), whole[[7, 9]])
    for data in (part, drawn):
        data.set_epoch(0)
    assert torch.equal(part[0][0], whole[7])
    assert torch.equal(next(iter(DataLoader(part, 2)))[0], whole[[7, 9]])
    assert torch.equal(part.replay(0, [1]), whole[[9]])


def test_a_sample_twice_in_a_subset_is_drawn_twice(drawn: gp.GPUPreloadDataset) -> None:
    """Where a subset repeats a sample, each occurrence has its own picture, in any batch."""
    part = drawn.subset([3] * 11)
    images = epoch_of(part)
    assert len({image.numpy().tobytes() for image in images}) > 6
    assert torch.equal(images[:1], drawn.replay(0, [3]))
    assert torch.equal(images[7:8], drawn.replay(0, [3], occurrence=7))


def test_epochs_of_subsets_are_their_own(drawn: gp.GPUPreloadDataset) -> None:
    """set_epoch of a subset leaves the whole alone, and readings of both draw anew."""
    part = drawn.subset([3])
    part.set_epoch(4)
    assert (part.epoch, drawn.epoch) == (4, None)
    part.set_epoch(None)
    seen = [data[i][0].numpy().tobytes() for data, i in [(part, 0), (drawn, 3)] * 6]
    assert len(set(seen)) > 6


def test_the_last_subset_frees_the_store(photo_folder: Path) -> None:
    """Memory is given back when the whole and its subsets have let go."""
    ours = preload(photo_folder, v2.Resize((9, 7)), *FLOATS)
    part = ours.subset([1, 2])
    assert ours.free() == 0
    assert len(epoch_of(part)) == 2
    assert part.free() == 12 * (3 * 9 * 7 + 8)
    with pytest.raises(gp.FreedError):
        len(part)


def test_the_last_subset_to_be_forgotten_frees_the_store(photo_folder: Path) -> None:
    """free() gives nothing back while another lives; the last one takes the memory with it."""
    ours = preload(photo_folder, v2.Resize((9, 7)), v2.RandomHorizontalFlip(), *FLOATS)
    part, plain = ours.subset([1, 2]), ours.with_transform(None)
    store = weakref.ref(ours.view.store)
    assert (ours.free(), part.free()) == (0, 0)
    assert len(epoch_of(plain)) == 12
    del plain
    gc.collect()
    assert store() is None


def test_a_subset_can_be_copied_and_shown(drawn: gp.GPUPreloadDataset) -> None:
    """A deep copy of a subset serves the same; the repr says what it is a part of."""
    part = drawn.subset([8, 1])
    assert torch.equal(epoch_of(copy.deepcopy(part)), epoch_of(part))
    assert repr(part) == (
        "GPUPreloadDataset: 2 of 12 images of 3×16×16, 3 classes\n"
        "  on cpu: 9.1 KiB for all 12, kept as uint8\n"
        "  once: Resize(20), CenterCrop(16)\n"
        "  each batch: RandomCrop(12), RandomHorizontalFlip(p=0.5), ToImage(), "
        "ToDtype(torch.float32, scale=True)"
    )


def test_tensors_of_a_subset(drawn: gp.GPUPreloadDataset) -> None:
    """as_tensor_dataset gives the float images of the subset alone."""
    images, labels = drawn.subset([8, 1]).as_tensor_dataset().tensors
    assert torch.equal(images, drawn.as_tensor_dataset().tensors[0][[8, 1]])
    assert labels.tolist() == [2, 0]


def test_pictures_and_parameters_of_a_subset(drawn: gp.GPUPreloadDataset) -> None:
    """What is asked of a subset by its own numbers is told of the right samples."""
    part = drawn.subset([8, 1])
    of_part = gp.parameters_of(part, indices=[1, 0], epoch=3)
    of_whole = gp.parameters_of(drawn, indices=[1, 8], epoch=3)
    assert torch.equal(of_part["RandomCrop"]["top"], of_whole["RandomCrop"]["top"])
    figures = [gp.show_augmented(data, i, 3) for data, i in ((part, 0), (drawn, 8))]
    one, two = ([axis.get_images()[0].get_array() for axis in f.axes[:4]] for f in figures)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


# --- split


def test_parts_share_nothing_and_leave_nothing_out(drawn: gp.GPUPreloadDataset) -> None:
    """A split is a partition, in the sizes asked for, by fractions or by numbers."""
    for sizes in ([0.5, 0.25, 0.25], [6, 3, 3]):
        parts = drawn.split(sizes, seed=1)
        assert [len(part) for part in parts] == [6, 3, 3]
        assert sorted(i for part in parts for i in part.indices.tolist()) == list(range(12))
        assert all(part.indices.tolist() == sorted(part.indices.tolist()) for part in parts)


def test_a_split_is_a_function_of_its_seed(drawn: gp.GPUPreloadDataset) -> None:
    """The same seed divides alike, another differently, and no global generator takes part."""

    def first(seed: int) -> list[int]:
        return drawn.split([0.5, 0.5], seed=seed)[0].indices.tolist()

    before = torch.get_rng_state()
    assert first(3) == first(3)
    assert len({tuple(first(seed)) for seed in range(8)}) > 4
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [[0.8, 0.2], [0.1, 0.9], [0.6, 0.3, 0.1]])
def test_stratified_parts_have_their_share_of_each_class(seed: int, sizes: list[float]) -> None:
    """Of two parts, and of the first of more, no class is off by a whole sample."""
    counts = [50, 3, 17, 30, 1]
    labels = [label for label, n in enumerate(counts) for _ in range(n)]
    ours = preload([(torch.zeros(1, 1, 1, dtype=torch.uint8), label) for label in labels])
    parts = ours.split(sizes, seed=seed, stratify=True)
    assert [len(part) for part in parts] == [round(101 * size) for size in sizes]
    for part in parts if len(parts) == 2 else parts[:1]:
        found = np.bincount(part.targets, minlength=5)
        assert (abs(found - len(part) / 101 * np.array(counts)) < 1).all()


def test_chance_says_which_class_gets_the_odd_sample() -> None:
    """Ten classes of one sample each: over seeds, every one of them comes to the small part."""
    ours = preload([(torch.zeros(1, 1, 1, dtype=torch.uint8), label) for label in range(10)])
    small = {ours.split([0.9, 0.1], seed=seed)[1].targets[0] for seed in range(120)}
    assert small == set(range(10))


@pytest.mark.parametrize("seed", range(10))
def test_a_small_class_is_held_back_too(seed: int) -> None:
    """The sample that is left over goes to the class with the largest rest, whatever the seed.

    A fifth of 41 are 8: of 30, 4 and 7 that is 6, 0.8 and 1.4, or of whole samples 6, 0 and 1.
    """
    labels = torch.tensor([0] * 30 + [1] * 4 + [2] * 7)
    _, held_back = parts_of(labels, [0.8, 0.2], seed, stratify=True)
    assert torch.bincount(labels[held_back]).tolist() == [6, 1, 1]


def test_chance_decides_between_equal_rests() -> None:
    """Of two classes that could have the odd sample, now one has it and now the other."""
    labels = torch.tensor([0] * 5 + [1] * 5)
    parts = [parts_of(labels, [5, 5], seed, stratify=True) for seed in range(20)]
    counts = [torch.bincount(labels[first]).tolist() for first, _ in parts]
    assert {tuple(count) for count in counts} == {(2, 3), (3, 2)}


def test_without_stratify_any_sample_goes_anywhere() -> None:
    """Unstratified parts are a plain draw: class counts vary from seed to seed."""
    ours = preload([(torch.zeros(1, 1, 1, dtype=torch.uint8), i % 2) for i in range(40)])
    counts = {sum(ours.split([20, 20], seed=s, stratify=False)[0].targets) for s in range(20)}
    assert len(counts) > 2
    assert {sum(ours.split([20, 20], seed=s)[0].targets) for s in range(20)} == {10}


@pytest.mark.parametrize(
    "sizes",
    [
        [0.8, 0.1],
        [6, 5],
        [1.5, -0.5],
        [],
        [0.5, 6],
        1.0,
        float("nan"),
        12,
        -3,
        True,
        "abc",
        None,
        ["a", 1],
    ],
    ids=str,
)
def test_sizes_that_do_not_sum_up(drawn: gp.GPUPreloadDataset, sizes: Any) -> None:
    """Sizes that are no division are refused."""
    with pytest.raises(gp.ArgumentError) as raised:
        drawn.split(sizes)
    assert str(raised.value) == (
        f"sizes is {sizes!r}; expected fractions above 0 that sum to 1, such as [0.8, 0.2], or "
        "whole numbers above 0 that sum to 12, the number of images."
    )


@pytest.mark.parametrize(
    ("stratify", "message"),
    [
        ("no", "stratify is 'no'; expected True or False."),
        (None, "stratify is None; expected True or False."),
        (
            torch.zeros(12, dtype=torch.int64),
            "stratify is a torch.int64 tensor of shape (12,); expected True or False. "
            "stratify=True goes by the dataset's own labels.",
        ),
        (
            [0] * 12,
            "stratify is list; expected True or False. stratify=True goes by the dataset's own "
            "labels.",
        ),
    ],
    ids=["text", "None", "labels", "list"],
)
def test_stratify_is_a_switch(drawn: gp.GPUPreloadDataset, stratify: Any, message: str) -> None:
    """Labels to go by, as scikit-learn takes them, and words are refused."""
    with pytest.raises(gp.ArgumentError) as raised:
        drawn.split([0.5, 0.5], stratify=stratify)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("size", "both"),
    [(0.8, "[0.8, 0.2]"), (10, "[10, 2]"), (np.float32(0.25), "[0.25, 0.75]")],
)
def test_one_size_alone(drawn: gp.GPUPreloadDataset, size: float, both: str) -> None:
    """A single fraction or number might mean either part, and is refused with both written out."""
    with pytest.raises(gp.ArgumentError) as raised:
        drawn.split(size)
    assert str(raised.value) == (
        f"sizes is {size}; expected a size for each part, which sum up: split({both})."
    )
    parts = drawn.split(np.array([0.75, 0.25]))
    assert [len(part) for part in parts] == [9, 3]


def test_a_split_without_a_seed_is_the_same_each_time(drawn: gp.GPUPreloadDataset) -> None:
    """What is held back stays held back, whatever torch was seeded with."""
    parts = []
    for seed in range(2):
        torch.manual_seed(seed)
        parts.append(drawn.split([0.5, 0.5])[0].indices.tolist())
    assert parts[0] == parts[1] == drawn.split([0.5, 0.5], seed=0)[0].indices.tolist()


def test_a_part_that_would_be_empty(drawn: gp.GPUPreloadDataset) -> None:
    """A fraction of less than a sample is refused."""
    with pytest.raises(gp.ArgumentError) as raised:
        drawn.split([0.99, 0.01])
    assert str(raised.value) == (
        "sizes is [0.99, 0.01], which leaves a part of 12 images empty; expected larger fractions."
    )


# --- other transforms


def test_without_augmentation(photo_folder: Path, drawn: gp.GPUPreloadDataset) -> None:
    """with_transform(None) leaves the random steps out, and keeps the others."""
    train, val = drawn.split([8, 4])
    plain = val.with_transform(None)
    expected = ImageFolder(photo_folder, v2.Compose([*ONCE, *FLOATS]))
    assert torch.equal(epoch_of(plain), torch.stack([expected[i][0] for i in val.indices]))
    assert plain.view.store is drawn.view.store
    assert plain.transform is None
    assert [s.name for s in plain.steps.each_batch_steps] == [
        "ToImage()",
        "ToDtype(torch.float32, scale=True)",
    ]
    assert epoch_of(train).shape == (8, 3, 12, 12)
    assert val.transform is drawn.transform


def test_another_transform(photo_folder: Path, drawn: gp.GPUPreloadDataset) -> None:
    """with_transform divides another transform over the same store, and changes no other view."""
    transform = v2.Compose([*ONCE, *FLOATS, v2.Normalize([0.5] * 3, [0.2] * 3)])
    other = drawn.with_transform(transform)
    expected = torch.stack([image for image, _ in ImageFolder(photo_folder, transform)])
    assert torch.equal(epoch_of(other), expected)
    assert other.transform is transform
    assert epoch_of(drawn).shape == (12, 3, 12, 12)
    with pytest.raises(gp.TransformError, match="this transform has another once-part"):
        drawn.with_transform(v2.Compose([v2.Resize((9, 9)), *FLOATS]))


def test_a_subset_of_ours_takes_a_transform(drawn: gp.GPUPreloadDataset) -> None:
    """Assigning the transform of a subset changes the subset, and nothing else."""
    part = drawn.subset([1, 2])
    part.transform = v2.Compose([*ONCE, *FLOATS])
    assert part[0][0].shape == (3, 16, 16)
    assert drawn[0][0].shape == (3, 12, 12)


def test_a_transform_set_on_torchs_subset_is_not_ignored(drawn: gp.GPUPreloadDataset) -> None:
    """Torch would pass it over without a word; reading says what to write instead."""
    part, _ = random_split(drawn, [8, 4])
    part.transform = None
    for read in (
        lambda: part[0],
        lambda: Subset(part, [0])[0],
        lambda: next(iter(DataLoader(part, 2))),
        lambda: next(iter(DataLoader(Subset(part, [0, 1]), 2))),
        lambda: gp.Loader(part),
        lambda: gp.Loader(Subset(part, [0])),
    ):
        with pytest.raises(gp.TransformError) as raised:
            read()
        assert str(raised.value) == IGNORED


class Doubled(Subset[Any]):
    """A subset of a user's own, which does use its transform."""

    transform = staticmethod(lambda image: image * 2)

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return self.transform(image), label

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


def test_subsets_with_a_reading_of_their_own(drawn: gp.GPUPreloadDataset) -> None:
    """A subclass of Subset that applies its transform is left alone; a Loader refuses it."""
    plain = drawn.with_transform(None)
    part = Doubled(plain, [3, 4])
    part.transform = lambda image: image * 2
    expected = 2 * epoch_of(plain)[[3, 4]]
    assert torch.equal(next(iter(DataLoader(part, 2)))[0], expected)
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(part)
    assert str(raised.value) == (
        "dataset is test_subset.Doubled, a Subset with a way of reading of its own, which a Loader "
        "would pass over. Pass dataset.subset(indices).with_transform(transform), or use "
        "torch.utils.data.DataLoader."
    )


def test_torchs_own_tools_over_ours(drawn: gp.GPUPreloadDataset) -> None:
    """random_split goes to a Loader; ConcatDataset of parts reads in a DataLoader."""
    one, two = random_split(drawn, [7, 5], torch.Generator().manual_seed(0))
    whole = epoch_of(drawn)
    assert torch.equal(epoch_of(one), whole[list(one.indices)])
    drawn.set_epoch(0)
    both = ConcatDataset([one, two, drawn.subset([5])])
    both.datasets[2].set_epoch(0)
    images = torch.cat([images for images, _ in DataLoader(both, 4)])
    assert torch.equal(images, whole[[*one.indices, *two.indices, 5]])


# --- beyond 2**31


@pytest.fixture(scope="module")
def huge() -> gp.GPUPreloadDataset:
    """2,800 images of 3×512×512, 2.2e9 bytes; only the rows that are read are ever touched."""
    ours = preload([(torch.zeros(3, 512, 512, dtype=torch.uint8), 0)], *FLOATS)
    pixels = torch.from_numpy(np.empty((2800, 3, 512, 512), np.uint8))
    assert pixels.numel() > 2**31
    for row in (3, 2731, 2799):  # 2,731 images are just above 2**31 elements
        pixels[row] = (torch.arange(3 * 512 * 512) % 251 + row % 5).view(3, 512, 512)
    store = Store(pixels, torch.arange(2800) % 7)
    ours._view = View(store)
    store.hold(ours)
    return ours


def test_subsets_beyond_31_bits(huge: gp.GPUPreloadDataset) -> None:
    """Rows beyond element 2**31 are the right ones, in a subset, a Loader and a DataLoader."""
    rows = [2799, 3, 2731]
    part = huge.subset(rows)
    expected = torch.stack([huge.view.store.images[row] for row in rows])
    assert torch.equal(part.images, expected)
    assert part.targets == [2799 % 7, 3, 2731 % 7]
    floats = v2.functional.to_dtype(expected, scale=True)
    assert torch.equal(next(iter(gp.Loader(part, 3)))[0], floats)
    assert torch.equal(next(iter(DataLoader(Subset(huge, rows), 3)))[0], floats)
    both = ConcatDataset([huge, part])
    assert torch.equal(both[2799][0], floats[0])
    assert torch.equal(both[2802][0], floats[2])


def test_crops_beyond_31_bits(huge: gp.GPUPreloadDataset) -> None:
    """A crop and a flip out of a store beyond 2**31 elements are torchvision's own."""
    part = huge.subset([2799, 3, 2731])
    part.transform = v2.Compose([v2.RandomCrop(100), v2.RandomHorizontalFlip(), v2.ToImage()])
    images, _ = next(iter(gp.Loader(part, 3)))
    drawn = gp.parameters_of(part, indices=[0, 1, 2], epoch=0)
    crop, flip = drawn["RandomCrop"], drawn["RandomHorizontalFlip"]
    for i, image in enumerate(part.images):
        top, left = int(crop["top"][i]), int(crop["left"][i])
        expected = v2.functional.crop(image, top, left, 100, 100)
        expected = v2.functional.hflip(expected) if flip["applied"][i] else expected
        assert torch.equal(images[i], expected)
