"""Labels that are written to."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.labels import Labels


@pytest.fixture
def whole() -> gp.GPUPreloadDataset:
    """Eight images that are their own numbers; the first four are of class 0, the others of 1."""
    data = [(torch.full((1, 1, 1), i, dtype=torch.uint8), i // 4) for i in range(8)]
    return gp.preload(data, device="cpu", seed=0, progress=False)


def labels_of(loader: Any) -> list[int]:
    """The labels of one epoch."""
    return [label for _, labels in loader for label in labels.tolist()]


def check_labels(data: gp.GPUPreloadDataset, expected: list[int]) -> None:
    """Check every way of reading labels."""
    assert data.labels.tolist() == data.targets == expected
    assert [data[i][1] for i in range(len(data))] == expected
    assert labels_of(gp.Loader(data, 3)) == labels_of(DataLoader(data, 3)) == expected
    assert labels_of(gp.Loader(Subset(data, [1, 0]))) == [expected[1], expected[0]]
    assert data.as_tensor_dataset().tensors[1].tolist() == expected
    assert data.subset([1, 0]).labels.tolist() == [expected[1], expected[0]]


def test_labels_of_a_subset_may_be_written(whole: gp.GPUPreloadDataset) -> None:
    """What is written to a subset's labels is what it serves, and what nothing else serves."""
    part, other = whole.subset([6, 2, 1]), whole.subset([6, 2])
    part.labels[0] = 0
    check_labels(part, [0, 0, 0])
    check_labels(whole, [0, 0, 0, 0, 1, 1, 1, 1])
    check_labels(other, [1, 0])


def test_labels_of_the_whole_may_be_written(whole: gp.GPUPreloadDataset) -> None:
    """They reach subsets that are taken afterwards, and none from before."""
    before = whole.subset([0, 5])
    whole.labels[0] = 1
    check_labels(whole, [1, 0, 0, 0, 1, 1, 1, 1])
    check_labels(before, [0, 1])
    check_labels(whole.subset([0, 5]), [1, 1])


def test_another_transform_shares_the_labels(whole: gp.GPUPreloadDataset) -> None:
    """The same samples have the same labels, whatever is done to their images."""
    part = whole.subset([6, 2])
    twin = part.with_transform(v2.Pad(1))
    twin.labels[1] = 1
    check_labels(part, [1, 1])
    check_labels(twin, [1, 1])


def test_what_counts_labels_follows(whole: gp.GPUPreloadDataset) -> None:
    """Balanced weights, weights by class and stratified parts go by the labels as they are."""
    part = whole.subset(slice(0, 8))
    part.labels[:3] = 1
    loader = gp.Loader(part, weights="balanced")
    served = Counter(int(image) for _ in range(60) for images, _ in loader for image in images)
    assert served[3] > 4 * max(served[i] for i in (0, 1, 2, 4, 5, 6, 7))
    assert set(labels_of(gp.Loader(part, weights={"0": 0}))) == {1}
    part.labels[:] = torch.tensor([0, 1] * 4)
    assert [sum(half.targets) for half in part.split([4, 4])] == [2, 2]


def test_weights_of_a_loader_follow(whole: gp.GPUPreloadDataset) -> None:
    """The next epoch of a loader that goes by labels draws by them as they are then."""
    part = whole.subset(slice(0, 8))
    balanced = gp.Loader(part, weights="balanced", num_samples=4000)
    zeros = gp.Loader(part, weights={"1": 0}, num_samples=100)
    part.labels[:] = 0
    part.labels[0] = 1
    assert abs(sum(labels_of(balanced)) - 2000) < 200  # six standard deviations
    assert set(labels_of(zeros)) == {0}
    part.labels[1] = -1  # as some mark what has no label
    drawn = Counter(labels_of(balanced))
    assert all(abs(drawn[label] - 1333) < 200 for label in (-1, 0, 1))
    part.labels[:] = 1
    with pytest.raises(gp.ArgumentError) as caught:
        labels_of(zeros)
    assert str(caught.value).startswith("weights run from 0 to 0; expected one number for each")


def test_a_loader_that_is_there_already_follows(whole: gp.GPUPreloadDataset) -> None:
    """The next epoch of a loader has the labels as they were when it began."""
    part = whole.subset([6, 2])
    loader = gp.Loader(part)
    assert labels_of(loader) == [1, 0]
    part.labels[0] = 0
    assert labels_of(loader) == [0, 0]


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))], ids=["deep", "pickle"]
)
def test_copies_keep_what_was_written(whole: gp.GPUPreloadDataset, copied: Any) -> None:
    """A copy has the labels as they are, and its own from then on."""
    part = whole.subset([6, 2])
    part.labels[0] = whole.labels[7] = 0
    for data, expected in ((part, [0, 0]), (whole, [0, 0, 0, 0, 1, 1, 1, 0])):
        twin = copied(data)
        check_labels(twin, expected)
        twin.labels[0] = 1
        check_labels(data, expected)


def test_targets_are_one_list_until_a_write(whole: gp.GPUPreloadDataset) -> None:
    """Asking for targets again and again makes no new list."""
    first = whole.targets
    assert whole.targets is first
    whole.labels[0] = 1
    assert (first[0], whole.targets[0]) == (0, 1)


def test_labels_on_the_cpu_follow_a_device() -> None:
    """Where the two are not one tensor, those on the CPU are read again after a write."""
    labels = Labels(torch.tensor([3, 1, 2]), torch.device("cpu"))
    labels._on_device = labels._on_cpu.clone()  # as on an accelerator
    labels._read = labels.version
    before = labels.on_cpu
    assert labels.on_cpu is before
    labels.on_device[1] = 7
    assert labels.as_list == labels.on_cpu.tolist() == [3, 7, 2]
    assert labels.on_cpu is labels.on_cpu
    assert labels.picked(torch.tensor([1, 0])).on_device.tolist() == [7, 3]
    assert pickle.loads(pickle.dumps(labels)).on_device.tolist() == [3, 7, 2]


def test_targets_that_were_read_stay(whole: gp.GPUPreloadDataset) -> None:
    """After free() targets are those that were read last; where none were, it is an error."""
    part, other = whole.subset([6, 2]), whole.subset([1])
    assert part.targets == [1, 0]
    for data in (part, other):
        data.free()
    assert part.targets == [1, 0]
    with pytest.raises(gp.FreedError):
        _ = other.targets
