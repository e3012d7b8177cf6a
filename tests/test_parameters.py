"""gp.parameters_of: with its numbers, torchvision's own functions make every row again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from native_examples import EXAMPLES, Example
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import gpupreload as gp
from gpupreload.native.policy_ops import OPERATIONS

FLOATS = v2.ToDtype(torch.float32, scale=True)
N = 13
AT: dict[str, Any] = {"indices": torch.arange(20, 20 + N), "epoch": 4, "seed": 9}


def batch(dtype: torch.dtype = torch.uint8, n: int = N, channels: int = 3) -> Tensor:
    """Smooth images with some noise, of odd sides."""
    generator = torch.Generator().manual_seed(0)
    colours = torch.rand((n, channels, 6, 5), generator=generator)
    smooth = torch.nn.functional.interpolate(colours, (23, 31), mode="bicubic")
    images = (smooth + torch.rand(smooth.shape, generator=generator) * 0.1).clamp(0, 1)
    return images if dtype.is_floating_point else (images * 255).to(dtype)


def assert_law(found: Tensor, expected: Tensor, share: float = 0.0, apart: float = 0.0) -> None:
    """uint8 within a level for a share of all values, floats within `apart`."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    difference = (found.double() - expected.double()).abs()
    if found.dtype == torch.uint8:
        assert difference.max() <= (1 if share else 0)
        assert (difference > 0).double().mean() <= share
    else:
        assert difference.max() <= apart


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_row_can_be_made_again(example: Example, dtype: torch.dtype) -> None:
    """Row i is torchvision's result for image i with the parameters that were drawn for it."""
    transform, images = example.make(), batch(dtype)
    module = gp.per_sample(transform)
    found = module(images, **AT)
    [step] = gp.parameters_of(module, images, **AT)
    expected = [example.replay(transform, image, step.row(i)) for i, image in enumerate(images)]
    assert_law(found, torch.stack(expected), example.share, example.apart)


def operated(image: Tensor, row: dict[str, Any], interpolation: str = "nearest") -> Tensor:
    """What torchvision's v2 makes of one image by the operations that a policy drew for it."""
    policy = v2.RandAugment(interpolation=interpolation)
    pairs = zip(
        row["op_index"].flatten().tolist(), row["magnitude"].flatten().tolist(), strict=True
    )
    for op, magnitude in pairs:
        image = policy._apply_image_or_video_transform(
            image, OPERATIONS[op], magnitude, policy.interpolation, policy._fill
        )
    return image


ONE_OPERATION = [m.RandAugment(num_ops=1) for m in (v1, v2)]
ONE_OPERATION += [m.TrivialAugmentWide() for m in (v1, v2)]


@pytest.mark.parametrize("policy", ONE_OPERATION, ids=lambda p: type(p).__module__[-9:])
def test_an_operation_of_a_policy_can_be_made_again(policy: Any) -> None:
    """Its number and magnitude are what torchvision needs."""
    images = batch(n=80)
    module = gp.per_sample(policy, seed=1)
    [step] = gp.parameters_of(module, images, epoch=0)
    expected = [operated(image, step.row(i)) for i, image in enumerate(images)]
    # by nearest interpolation a coordinate between two pixels may fall either way
    assert (module(images) != torch.stack(expected)).double().mean() <= 1e-3
    assert len(step["op_index"].unique()) > 8


@pytest.mark.parametrize("policy", v1.AutoAugmentPolicy, ids=lambda p: p.value)
def test_pairs_of_operations_can_be_made_again(policy: Any) -> None:
    """AutoAugment's pairs follow one another; those that are exact by themselves are together."""
    images = batch(n=200)
    module = gp.per_sample(v2.AutoAugment(policy), seed=1)
    [step] = gp.parameters_of(module, images, epoch=0)
    found, n_exact = module(images), 0
    mixes_colours = {"Brightness", "Color", "Contrast", "Sharpness", "ShearX", "ShearY", "Rotate"}
    for i, image in enumerate(images):
        if not mixes_colours & {OPERATIONS[op] for op in step["op_index"][i].tolist()}:
            assert torch.equal(found[i], operated(image, step.row(i)))
            n_exact += 1
    assert n_exact > 20


def test_augmix_can_be_made_again() -> None:
    """AugMix is the mean of the image and its chains, weighted as was drawn, decimals cut off."""
    images = batch(n=40)
    module = gp.per_sample(v2.AugMix(mixture_width=2, chain_depth=1), seed=1)
    [step] = gp.parameters_of(module, images, epoch=0)
    expected = []
    for i, image in enumerate(images):
        row = step.row(i)
        mean = row["m"][0].float() * image
        for k in range(2):
            chain = {name: row[name][k] for name in ("op_index", "magnitude")}
            weight = (row["weights"][k].float() * row["m"][1].float()).float()
            mean = mean + weight * operated(image, chain, "bilinear")
        expected.append(mean.to(torch.uint8))
    assert_law(module(images), torch.stack(expected), share=1e-3)


def test_a_container_can_be_made_again() -> None:
    """Of a choice, `choice` is the number of the step, whose parameters have it before them."""
    images = batch()
    turn, flip = v2.RandomRotation(30), v2.RandomHorizontalFlip(0.7)
    module = gp.per_sample(v2.RandomChoice([turn, flip]))
    found = module(images, **AT)
    [step] = gp.parameters_of(module, images, **AT)
    for i, image in enumerate(images):
        row = step.row(i)
        if row["choice"] == 0:
            assert torch.equal(found[i], F.rotate(image, row["0.angle"]))
        else:
            flipped = F.horizontal_flip(image) if row["1.applied"] else image
            assert torch.equal(found[i], flipped)


def test_a_chain_can_be_made_again_step_by_step() -> None:
    """Each step is drawn for the size that comes to it, deterministic steps draw nothing."""
    images = batch()
    chain = [
        v2.RandomResizedCrop((19, 21)),
        v2.Pad(2),
        v2.RandomCrop(17),
        FLOATS,
        v2.RandomErasing(),
    ]
    module = gp.per_sample(chain)
    found = module(images, **AT)
    drawn = gp.parameters_of(module, images, **AT)
    assert [step.shape for step in drawn] == [
        *((3, 23, 31), (3, 19, 21), (3, 23, 25), (3, 17, 17), (3, 17, 17))
    ]
    assert [len(step) for step in drawn] == [4, 0, 2, 0, 5]
    for i, image in enumerate(images):
        box, crop, hole = (drawn[k].row(i) for k in (0, 2, 4))
        result = F.resized_crop(image, **box, size=[19, 21], antialias=True)
        result = F.to_dtype(F.crop(F.pad(result, [2]), **crop, height=17, width=17), scale=True)
        if hole.pop("applied"):
            result = F.erase(result, **hole, v=torch.zeros(3, 1, 1))
        assert torch.equal(found[i], result)


def colour(image: Tensor) -> Tensor:
    """A callable that draws from all three global generators."""
    numbers = torch.rand(1) + random.random() + np.random.rand()
    return (image * float(numbers)).to(torch.uint8)


@pytest.mark.parametrize("step", [v2.JPEG((5, 95)), v2.Lambda(colour)])
def test_what_runs_by_sample_can_be_made_again(step: Callable[[Tensor], Tensor]) -> None:
    """With the global generators set from its seed, the step itself gives the row."""
    images = batch()
    module = gp.per_sample([v2.RandomInvert(), step])
    found = module(images, **AT)
    invert, by_sample = gp.parameters_of(module, images, **AT)
    for i, image in enumerate(images):
        seed = by_sample.row(i)["seed"]
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        given = F.invert(image) if invert.row(i)["applied"] else image
        assert torch.equal(found[i], step(given))


def test_what_runs_on_the_batch_can_be_made_again() -> None:
    """A gp.batched callable has one seed, that of a batch of just these samples."""
    images = batch(torch.float32)
    noise = gp.batched(lambda x: x + torch.rand_like(x))
    module = gp.per_sample(noise)
    found = module(images, **AT)
    [step] = gp.parameters_of(module, images, **AT)
    torch.manual_seed(step.row(0)["seed"])
    assert torch.equal(found, noise(images))
    assert len(step["seed"]) == N


def test_mixing_can_be_made_again() -> None:
    """MixUp's lam and CutMix's box, for the row itself and the one before it."""
    images, labels = batch(torch.float32), torch.arange(N) % 3
    both = v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)])
    module = gp.per_sample([v2.RandomCrop(17), both])
    found, soft = module(images, labels, **AT)
    crop, mix = gp.parameters_of(module, images, **AT)
    crops = [F.crop(x, **crop.row(i), height=17, width=17) for i, x in enumerate(images)]
    for i in range(N):
        row, expected = mix.row(i), crops[i].clone()
        if row["choice"] == 0:
            lam = row["0.lam"]
            expected = crops[i] * lam + crops[i - 1] * (1 - lam)
        else:
            lam = row["1.lam_adjusted"]
            x1, y1, x2, y2 = row["1.box"].tolist()
            expected[:, y1:y2, x1:x2] = crops[i - 1][:, y1:y2, x1:x2]
        torch.testing.assert_close(found[i], expected, atol=1e-6, rtol=0)
        if labels[i] != labels[i - 1]:
            assert soft[i, labels[i]].item() == pytest.approx(lam)


# --- of datasets and loaders


@pytest.fixture
def photos(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve small pictures, cropped for each sample."""
    chain = [v2.Resize((30, 30)), v2.RandomCrop(20), v2.ToImage(), FLOATS]
    return gp.preload(photo_folder, chain, device="cpu", seed=3, progress=False)


def test_what_a_loader_served_can_be_made_again(photos: gp.GPUPreloadDataset) -> None:
    """By sample number, epoch and the loader's own seed, each picture of the loader."""
    loader = gp.Loader(photos, 12, seed=8, mix=v2.MixUp(num_classes=3))
    plain = gp.Loader(photos, 12, seed=8)
    for _ in range(3):
        [(mixed, _)], [(found, _)] = loader, plain
    crop, *_, mix = gp.parameters_of(loader, indices=range(12))
    for i in range(12):
        cut = F.crop(photos.images[i], **crop.row(i), height=20, width=20)
        assert torch.equal(found[i], F.to_dtype(cut, scale=True))
        lam = mix.row(i)["lam"]
        expected = found[i] * lam + found[i - 1] * (1 - lam)
        torch.testing.assert_close(mixed[i], expected, atol=1e-6, rtol=0)


def test_what_a_dataset_served_can_be_made_again(photos: gp.GPUPreloadDataset) -> None:
    """By sample number and epoch, set or given; a second occurrence is another draw."""
    photos.set_epoch(5)
    drawn = gp.parameters_of(photos, indices=[7, 7], occurrence=torch.tensor([0, 1]))
    found = photos.__getitems__([7, 7]).images
    for i in range(2):
        cut = F.crop(photos.images[7], **drawn["RandomCrop"].row(i), height=20, width=20)
        assert torch.equal(found[i], F.to_dtype(cut, scale=True))
    other = gp.parameters_of(photos, indices=[7], epoch=6)
    assert other["RandomCrop"].row(0) != drawn["RandomCrop"].row(0)


def test_looking_changes_nothing(photos: gp.GPUPreloadDataset) -> None:
    """Neither a module's count of calls, nor a global generator, nor the store moves."""
    module, images = gp.per_sample(v2.RandomCrop(8)), batch()
    module(images)
    before = torch.get_rng_state(), photos.images.clone()
    last = gp.parameters_of(module, images)
    gp.parameters_of(photos, indices=[0], epoch=0)
    assert (module.n_calls, last.epoch) == (1, 0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(photos.images, before[1])


def test_steps_are_found_by_class_and_by_number() -> None:
    """By the name of a class where it stands once; else the message lists the steps."""
    flips = [v2.RandomHorizontalFlip(), v2.RandomInvert(), v2.RandomHorizontalFlip(0.1)]
    drawn = gp.parameters_of(gp.per_sample(flips), batch())
    assert drawn["RandomInvert"] is drawn[1]
    assert drawn["RandomHorizontalFlip(p=0.1)"] is drawn[-1]
    assert len(drawn[:2]) == 2
    with pytest.raises(gp.ArgumentError) as caught:
        drawn["RandomHorizontalFlip"]
    assert str(caught.value) == (
        "'RandomHorizontalFlip' names 2 of the steps; expected the class of one, or its number. "
        "The steps are 0: RandomHorizontalFlip(p=0.5), 1: RandomInvert(p=0.5), 2: "
        "RandomHorizontalFlip(p=0.1)."
    )


def test_the_repr_is_a_table() -> None:
    """Every step with its parameters, and what the first sample was given; no images."""
    chain = [v2.RandomErasing(value="random"), FLOATS, v2.RandomVerticalFlip(p=1)]
    drawn = gp.parameters_of(gp.per_sample(chain, seed=2), batch(n=2), indices=[5, 6], epoch=1)
    lines = [line.split() for line in repr(drawn).splitlines()]
    assert lines[0] == ["step", "parameter", "tensor", "sample", "5"]
    assert ["h", "2", "int64", str(drawn[0].row(0)["h"])] in lines
    assert lines[-3] == ["1", "ToDtype(torch.float32,", "scale=True)"]
    assert lines[-2][-4:] == ["applied", "2", "bool", "True"]
    assert lines[-1] == ["2", "samples,", "epoch", "1,", "seed", "2"]
    assert "2×3×23×31 float32  …" in repr(drawn)
    assert repr(drawn[2]) == "RandomVerticalFlip(p=1): applied: 2 bool"
    assert repr(drawn[1]) == "ToDtype(torch.float32, scale=True): draws nothing"
    assert "<td" in drawn._repr_html_()


def test_no_samples_have_no_parameters() -> None:
    """An empty batch is a batch."""
    module = gp.per_sample([v2.RandomCrop(8), v2.RandomErasing()])
    drawn = gp.parameters_of(module, batch(n=0))
    assert [len(step["top" if i == 0 else "applied"]) for i, step in enumerate(drawn)] == [0, 0]
    assert "0 samples" in repr(drawn)


MODULE = gp.per_sample(v2.RandomCrop(8), seed=0)
WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (
        (v2.RandomCrop(8),),
        {},
        "source is torchvision.transforms.v2._geometry.RandomCrop; expected a GPUPreloadDataset, "
        "a gpupreload.Loader, or a module from gpupreload.per_sample.",
    ),
    (
        (MODULE,),
        {"indices": [0]},
        "images is None; expected the batch that the module is called with, for what is drawn "
        "depends on its shape: parameters_of(module, images, indices=..., epoch=...).",
    ),
    (
        (MODULE, torch.zeros(2, 3, 9, 9)),
        {"indices": [0]},
        "indices is a torch.int64 tensor of shape (1,); expected an int64 tensor of shape (2,), "
        "the sample number of each row of images.",
    ),
]
OF_PHOTOS: list[tuple[dict[str, Any], str]] = [
    (
        {},
        "images is None and indices is None; expected indices alone, the numbers of samples in "
        "the dataset, such as indices=[0, 1].",
    ),
    (
        {"images": torch.zeros(1, 3, 30, 30), "indices": [0]},
        "images is a torch.float32 tensor of shape (1, 3, 30, 30) and indices is list; expected "
        "indices alone, the numbers of samples in the dataset, such as indices=[0, 1].",
    ),
    (
        {"indices": [3, 12]},
        "indices run from 3 to 12; expected sample numbers from 0 to 11.",
    ),
    (
        {"indices": [0.7], "epoch": 0},
        "indices is a torch.float32 tensor of shape (1,); expected whole numbers of samples. Of a "
        "mask, pass mask.nonzero().",
    ),
    (
        {"indices": [True, False], "epoch": 0},
        "indices is a torch.bool tensor of shape (2,); expected whole numbers of samples. Of a "
        "mask, pass mask.nonzero().",
    ),
    (
        {"indices": map(int, "01"), "epoch": 0},
        "indices is map; expected the number of each sample, as an int64 tensor or a list of int. "
        "Of anything that yields numbers, pass list(...).",
    ),
    (
        {"indices": [3]},
        "epoch is None, and the dataset is set to none, so that every reading draws anew; "
        "expected the number of an epoch, such as epoch=0.",
    ),
]


@pytest.mark.parametrize(("args", "kwargs", "expected"), WRONG)
def test_wrong_arguments_are_named(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: str
) -> None:
    """What is missing or does not go with a module is said in one sentence."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.parameters_of(*args, **kwargs)
    assert str(caught.value) == expected


@pytest.mark.parametrize(("kwargs", "expected"), OF_PHOTOS)
def test_wrong_arguments_for_a_dataset_are_named(
    kwargs: dict[str, Any], expected: str, photos: gp.GPUPreloadDataset
) -> None:
    """The same for a dataset, which holds its images."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.parameters_of(photos, **kwargs)
    assert str(caught.value) == expected
