"""Replay: the images that a Loader served, made again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

import gpupreload as gp

ROOT = Path(__file__).parents[1]
ONCE = [v2.Resize(24), v2.CenterCrop(20)]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4] * 3, [0.3] * 3)]
CHAINS = {
    "crop, flip, erase": [
        *(v2.RandomCrop(16, padding=2), v2.RandomHorizontalFlip(), *FLOATS, v2.RandomErasing()),
    ],
    "resized crop, colour": [v2.RandomResizedCrop(16), v2.ColorJitter(0.4, 0.4, 0.4, 0.1), *FLOATS],
    "a policy": [v2.RandAugment(), *FLOATS],
    "sample by sample": [v2.JPEG((20, 60)), *FLOATS],
    "uint8": [v2.RandomAffine(20), v2.ToImage()],
}


def preload(root: Path, steps: list[Any]) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    transform = v2.Compose([*ONCE, *steps])
    return gp.preload(root, transform, device="cpu", seed=2, progress=False)


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_replay_is_what_was_served(photo_folder: Path, steps: list[Any]) -> None:
    """Every image of every epoch comes again bit for bit, in any order, also one by one."""
    ours = preload(photo_folder, steps)
    loader = gp.Loader(ours, 5, shuffle=True, with_indices=True)
    for epoch in range(2):
        for images, _, indices in loader:
            assert torch.equal(ours.replay(epoch, indices), images)
            assert torch.equal(ours.replay(epoch, indices.flip(0)), images.flip(0))
            assert torch.equal(ours.replay(epoch, [int(indices[-1])]), images[-1:])


def test_replay_with_a_loaders_seed(photo_folder: Path) -> None:
    """A loader with a seed of its own is replayed with that seed, and with no other."""
    ours = preload(photo_folder, CHAINS["crop, flip, erase"])
    loader = gp.Loader(ours, 12, seed=77)
    images, _ = next(iter(loader))
    assert torch.equal(ours.replay(0, range(12), seed=loader.seed), images)
    assert not torch.equal(ours.replay(0, range(12)), images)


def test_replay_of_every_occurrence(photo_folder: Path) -> None:
    """With weights, replay tells the occurrences of a sample apart."""
    ours = preload(photo_folder, CHAINS["resized crop, colour"])
    loader = gp.Loader(ours, 5, weights=[1.0] * 3 + [0.0] * 9, with_indices=True)
    served = [(images.clone(), indices) for images, _, indices in loader]
    images, indices = (torch.cat(parts) for parts in zip(*served, strict=True))
    seen = [int((indices[:i] == indices[i]).sum()) for i in range(12)]
    assert max(seen) > 1
    assert torch.equal(ours.replay(0, indices, occurrence=torch.tensor(seen)), images)


def test_replay_leaves_no_trace(photo_folder: Path) -> None:
    """Looking back changes neither the store nor what is drawn next."""
    one, two = (preload(photo_folder, CHAINS["crop, flip, erase"]) for _ in range(2))
    before = one.images.clone()
    one.replay(3, [1, 2]).zero_()
    assert torch.equal(one.images, before)
    assert torch.equal(one[4][0], two[4][0])


def test_replay_refuses_what_is_no_epoch(photo_folder: Path) -> None:
    """Epochs count from 0."""
    with pytest.raises(gp.ArgumentError) as raised:
        preload(photo_folder, FLOATS).replay(-1, [0])
    assert str(raised.value) == "epoch is -1; expected a whole number, 0 or more."


def test_the_readmes_worst_predicted(photo_folder: Path) -> None:
    """The README's way to look at the worst-predicted samples runs, and shows what was served."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"<!-- worst: start -->\n```python\n(.*?)```", text, re.DOTALL)
    train = preload(photo_folder, CHAINS["crop, flip, erase"])
    served: list[Tensor] = []

    def model(images: Tensor) -> Tensor:
        """Watch the images; hold every photo for a cat, the more so the brighter it is."""
        served.append(images.clone())
        return torch.stack([images.mean((1, 2, 3)), *(images.new_zeros(2, len(images)))], 1)

    names: dict[str, Any] = {"gp": gp, "torch": torch, "train": train, "model": model}
    exec(code, names)
    images = torch.cat(served)
    order = torch.cat(names["indices"]).tolist()
    assert torch.equal(names["seen"], images[[order.index(i) for i in names["worst"].tolist()]])
    score = images.mean((1, 2, 3)).numpy()
    true = (torch.tensor(train.targets)[order] == 0).numpy() * score
    losses = torch.tensor(score).exp().add(2).log().numpy() - true
    expected = [order[k] for k in (-losses).argsort()[:8]]
    assert names["worst"].tolist() == expected


def test_the_readmes_test_time_augmentation(photo_folder: Path) -> None:
    """The README's eight draws of each image are those of eight epochs of a loader."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"<!-- draws: start -->\n```python\n(.*?)```", text, re.DOTALL)
    test = preload(photo_folder, CHAINS["crop, flip, erase"])
    names: dict[str, Any] = {
        "torch": torch,
        "test": test,
        "model": lambda images: images.mean((2, 3)),
    }
    exec(code, names)
    loader = gp.Loader(test, 5, seed=test.seed)
    epochs = [torch.cat([images for images, _ in loader]) for _ in range(8)]
    assert torch.equal(names["views"], torch.stack(epochs))
    # in float64: softmax over channels, mean over draws
    scores = torch.stack(epochs).mean((3, 4)).double().softmax(2).mean(0)
    assert torch.equal(names["predicted"], scores.argmax(1))
