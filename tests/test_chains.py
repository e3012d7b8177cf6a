"""gp.per_sample of any transform: what runs how, what is refused, and labels that are mixed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F
from transform_examples import Make, examples

import gpupreload as gp
from gpupreload import catalog

OWN_SIZE = "gives each image a size of its own, and the images of a batch need one"
RESIZED_CROP = "v2.RandomResizedCrop is random too, and gives all the same size"
AT = {"indices": torch.arange(5), "epoch": 1}


@pytest.fixture
def images() -> Tensor:
    """Five different images of odd sides."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (5, 3, 31, 43), dtype=torch.uint8, generator=generator)


REFUSALS: list[tuple[Any, str]] = [
    (v2.RandomResize(3, 5), f"RandomResize(min_size=3, max_size=5)|{OWN_SIZE}; {RESIZED_CROP}"),
    (v2.ScaleJitter((3, 3)), f"ScaleJitter((3, 3))|{OWN_SIZE}; {RESIZED_CROP}"),
    (v2.RandomShortestSize(3), f"RandomShortestSize([3])|{OWN_SIZE}; {RESIZED_CROP}"),
    (
        v2.RandomZoomOut(),
        f"RandomZoomOut(p=0.5)|{OWN_SIZE}; v2.RandomAffine zooms out in an image that keeps its "
        "size",
    ),
    *(
        (
            module.RandomRotation(30, expand=True),
            f"RandomRotation([-30.0, 30.0], expand=True)|{OWN_SIZE}; with expand=False an "
            "image keeps its size",
        )
        for module in (v1, v2)
    ),
    (
        v1.FiveCrop(3),
        "FiveCrop(3)|returns five images for one; choose one crop, such as v2.CenterCrop, instead",
    ),
    (
        v2.TenCrop(3),
        "TenCrop(3)|returns ten images for one; choose one crop, such as v2.CenterCrop, instead",
    ),
    (
        v2.SanitizeBoundingBoxes(),
        "SanitizeBoundingBoxes()|is about boxes or points in an image, which image classification "
        "does not have",
    ),
    (
        v2.RandomApply([v2.ScaleJitter((3, 3))]),
        f"RandomApply([ScaleJitter((3, 3))], p=0.5)|holds ScaleJitter((3, 3)), which {OWN_SIZE}; "
        f"{RESIZED_CROP}",
    ),
    (
        v2.RandomApply([v2.CutMix(num_classes=3)]),
        "RandomApply([CutMix(num_classes=3)], p=0.5)|holds CutMix(num_classes=3), which mixes the "
        "images of a batch with each other and their labels likewise; give it to the loader, as "
        "gp.Loader(dataset, mix=...), or put it last in gp.per_sample",
    ),
]


@pytest.mark.parametrize(("transform", "expected"), REFUSALS, ids=lambda x: str(x)[:30])
def test_what_makes_no_batch_is_refused(transform: Any, expected: str) -> None:
    """What gives images sizes of their own, or is about boxes, is refused in one sentence."""
    name, reason = expected.split("|")
    with pytest.raises(gp.TransformError) as caught:
        gp.per_sample([v2.RandomInvert(), transform])
    assert str(caught.value) == f"step 2, {name}, cannot be used here: it {reason}."


def test_a_step_marked_once_is_refused() -> None:
    """What is to run once, at preload, has no place where all runs for each batch."""
    with pytest.raises(gp.TransformError) as caught:
        gp.per_sample(gp.once(abs))
    assert str(caught.value) == (
        "the step, abs, is marked gp.once, but gp.per_sample runs every step for each batch. "
        "Take it out, and run it before."
    )


@pytest.mark.parametrize("cls", [v1.ToTensor, v2.ToTensor, v2.ToImage, v1.PILToTensor])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_conversions_to_tensors_do_nothing(cls: Any, dtype: torch.dtype, images: Tensor) -> None:
    """A batch is tensors already: ToTensor and its like leave it as it is, in memory of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v2.ToTensor says that it is deprecated
        module = gp.per_sample(cls())
    given = images.to(dtype)
    result = module(given)
    assert result.dtype == dtype
    assert torch.equal(result, given)
    assert result.data_ptr() != given.data_ptr()


NAMES = [n for n in [*catalog.DETERMINISTIC, *catalog.RANDOM] if n not in catalog.OF_ITS_OWN_SIZE]
TAKES_NO_UINT8 = {"LinearTransformation", "Normalize", "GaussianNoise"}


@pytest.mark.parametrize(("label", "make"), examples(NAMES).items())
def test_every_transform_of_torchvision_runs(label: str, make: Make, images: Tensor) -> None:
    """Each class, v1 and v2, makes a module whose rows do not depend on their batch."""
    transform, name = make(), label[3:].split("-")[0]
    if getattr(transform, "expand", False):
        return  # refused, as another test says
    if name in ("RandomChoice", "RandomOrder"):  # the examples change the size by chance
        transform = type(transform)([v2.RandomInvert(), v2.RandomAffine(30)])
    given = images[:, :, :30, :40]
    module = gp.per_sample(transform, seed=3)
    given = v2.functional.to_dtype(given, scale=True) if name in TAKES_NO_UINT8 else given
    whole = module(given, **AT)
    some = module(given[3:], indices=AT["indices"][3:], epoch=1)
    close = 1e-5 if name == "LinearTransformation" else 0  # a product of matrices of other sizes
    torch.testing.assert_close(some, whole[3:], atol=close, rtol=0)


def test_deterministic_steps_are_torchvision_s(images: Tensor) -> None:
    """What draws nothing gives on a batch what torchvision gives each image."""
    chain = [v2.Resize(25), v2.CenterCrop(20), v2.ToDtype(torch.float32, True)]
    chain.append(v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]))
    expected = torch.stack([v2.Compose(chain)(image) for image in images])
    assert torch.equal(gp.per_sample(chain)(images), expected)


def test_the_chain_of_a_dataset_draws_the_same(photo_folder: Any) -> None:
    """A transform on its own gives the rows that a dataset with that transform gives."""
    once = [v2.Resize((20, 20))]
    chain = [v2.RandomCrop(16), v2.ColorJitter(0.4), v2.ToImage(), v2.ToDtype(torch.float32, True)]
    ds = gp.preload(photo_folder, [*once, *chain], device="cpu", seed=5, progress=False)
    [(expected, _)] = gp.Loader(ds, batch_size=len(ds))
    result = gp.per_sample(chain, seed=5)(ds.images, epoch=0)
    assert torch.equal(result, expected)
    assert torch.equal(ds.each_batch(ds.images, epoch=0), expected)


def test_the_seed_is_drawn_once_from_torch_s_generator(images: Tensor) -> None:
    """torch.manual_seed governs the seed, which is kept, and no call moves the generator."""
    modules = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        modules.append(gp.per_sample(v2.RandomAffine(30)))
    first, same, other = modules
    before = torch.get_rng_state()
    result = first(images)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.seed == same.seed != other.seed
    assert torch.equal(same(images), result)
    assert torch.equal(other(images, epoch=0, seed=first.seed), result)
    assert not torch.equal(other(images, epoch=0), result)


def test_calls_without_an_epoch_are_counted(images: Tensor) -> None:
    """Each call draws anew, as for the epoch of its number; calls with an epoch do not count."""
    module = gp.per_sample(v2.RandomAffine(30), seed=0)
    results = [module(images) for _ in range(3)]
    assert module.n_calls == 3
    assert [torch.equal(module(images, epoch=e), r) for e, r in enumerate(results)] == [True] * 3
    assert not torch.equal(results[0], results[1])
    assert module.n_calls == 3


def test_a_module_can_be_part_of_another(images: Tensor) -> None:
    """It is a torch.nn.Module: it stands in a Sequential, and has nothing to learn."""
    module = gp.per_sample(v2.RandomInvert(1.0))
    assert torch.equal(nn.Sequential(module, nn.Identity())(images), 255 - images)
    assert list(module.parameters()) == []


def test_the_repr_says_how_each_step_runs() -> None:
    """Each step is shown with its settings and the way it runs, slow ones marked."""
    chain = [
        v1.RandomCrop(32, padding=4),
        v2.JPEG(50),
        abs,
        gp.batched(abs),
        v2.Resize(16),
        v2.ToDtype(torch.float32, scale=True),
        v2.MixUp(num_classes=10),
    ]
    assert repr(gp.per_sample(chain, seed=7)).splitlines() == [
        "PerSample(",
        "  RandomCrop(32, padding=4) (native)",
        "  JPEG([50, 50]) (sample by sample: slow)",
        "  abs (sample by sample: slow; a random generator of its own is not seeded)",
        "  abs (gp.batched: called on the whole batch)",
        "  Resize(16) (on the whole batch)",
        "  ToDtype(torch.float32, scale=True) (on the whole batch)",
        "  MixUp(num_classes=10) (native)",
        "  seed=7",
        ")",
    ]


def test_callables_are_given_what_stands_before_them(images: Tensor) -> None:
    """A callable gets a tensor; after ToImage a tv_tensors.Image, after ToPILImage a PIL image."""
    seen: list[type] = []

    def see(value: Any) -> Any:
        seen.append(type(value))
        return value

    chain = [see, v2.ToImage(), see, v2.ToDtype(torch.uint8), see, v2.ToPILImage(), see]
    result = gp.per_sample([*chain, v1.ToTensor(), see])(images[:1])
    Img = tv_tensors.Image  # noqa: N806
    assert seen == [Tensor, Img, Img, Image.Image, Tensor]
    assert torch.equal(result, images[:1] / 255)


# --- mixing

LABELS = torch.tensor([0, 3, 1, 1, 2])
MIXES = {
    "MixUp": v2.MixUp(num_classes=4),
    "CutMix": v2.CutMix(alpha=0.5, num_classes=4),
    "RandomChoice": v2.RandomChoice([v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)]),
    "v1.RandomChoice": v1.RandomChoice([v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)]),
}


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_mixing_gives_images_and_soft_labels(mix: Any, images: Tensor) -> None:
    """Each row is mixed with the row before it, by a draw of its own; so is its label."""
    floats = images / 255
    mixed, soft = gp.per_sample(mix)(floats, LABELS, **AT)
    assert mixed.shape == floats.shape
    assert soft.shape == (5, 4)
    torch.testing.assert_close(soft.sum(1), torch.ones(5))
    own, partner = soft[range(5), LABELS], soft[range(5), LABELS.roll(1)]
    different = LABELS.roll(1) != LABELS
    torch.testing.assert_close((own + partner)[different], torch.ones(4))
    assert len(own.unique()) >= 4


def test_mixup_is_torchvision_s_with_its_lam(images: Tensor) -> None:
    """Row i is lam times image i and 1 - lam times the one before, and so is its label."""
    floats = images / 255
    mixed, soft = gp.per_sample(MIXES["MixUp"])(floats, LABELS, **AT)
    lam = soft[1, 3].item()  # the labels of rows 0 and 1 differ
    one = MIXES["MixUp"]
    expected = one.transform(floats[:2], {"lam": lam, "labels": LABELS[:2], "batch_size": 2})
    torch.testing.assert_close(mixed[1], expected[1], atol=1e-6, rtol=0)


def test_mixing_may_end_a_chain(images: Tensor) -> None:
    """Steps on single images come first; the same draws are made for them as without mixing."""
    chain = [v2.RandomCrop(8), v2.ToDtype(torch.float32, True)]
    plain = gp.per_sample(chain, seed=4)(images, **AT)
    mixed, soft = gp.per_sample([*chain, MIXES["CutMix"]], seed=4)(images, LABELS, **AT)
    from_own_or_partner = (mixed == plain) | (mixed == plain.roll(1, 0))
    assert from_own_or_partner.all()
    share = (mixed == plain).all(1).float().mean((1, 2))
    torch.testing.assert_close(share[1], soft[1, 3])


def test_mixing_is_a_function_of_the_index(images: Tensor) -> None:
    """The weight of a row depends on seed, epoch and its index, not on its place in the batch."""
    module, floats = gp.per_sample(MIXES["MixUp"], seed=0), images / 255
    numbers = torch.arange(5)
    _, soft = module(floats, numbers % 4, indices=numbers, epoch=0)
    _, moved = module(floats.roll(1, 0), (numbers % 4).roll(1), indices=numbers.roll(1), epoch=0)
    assert torch.equal(moved, soft.roll(1, 0))
    _, other = module(floats, numbers % 4, indices=numbers, epoch=1)
    assert not torch.equal(other, soft)


def test_mixing_in_the_middle_is_refused() -> None:
    """After mixing there are no single images any more, so it can only come last."""
    with pytest.raises(gp.TransformError) as caught:
        gp.per_sample([v2.CutMix(num_classes=4), v2.RandomHorizontalFlip()])
    assert str(caught.value) == (
        "step 1, CutMix(num_classes=4), cannot be used here: it mixes the images of a batch with "
        "each other and their labels likewise; give it to the loader, as gp.Loader(dataset, "
        "mix=...), or put it last in gp.per_sample."
    )


def test_a_choice_between_mixing_and_not_is_refused() -> None:
    """A RandomChoice mixes every row or none, for a batch has one kind of labels."""
    with pytest.raises(gp.TransformError) as caught:
        gp.per_sample(v2.RandomChoice([v2.MixUp(num_classes=4), v2.Identity()]))
    assert str(caught.value) == (
        "Identity() mixes no images and labels; expected v2.MixUp, v2.CutMix, or a RandomChoice "
        "that holds nothing else. Steps on single images belong before the mixing."
    )


def test_flips_are_torchvision_s(images: Tensor) -> None:
    """Every row is the image or its mirror, and both come."""
    result = gp.per_sample(v2.RandomHorizontalFlip(), seed=0)(images.repeat(8, 1, 1, 1))
    given = images.repeat(8, 1, 1, 1)
    mirrored = F.horizontal_flip(given)
    kinds = [
        "same" if torch.equal(r, g) else "mirrored" if torch.equal(r, m) else "other"
        for r, g, m in zip(result, given, mirrored, strict=True)
    ]
    assert set(kinds) == {"same", "mirrored"}


@pytest.mark.needs_cuda
@pytest.mark.parametrize("mix", [None, *MIXES.values()], ids=["none", *MIXES])
def test_a_gpu_gives_the_same_without_waiting(mix: Any, images: Tensor) -> None:
    """On CUDA nothing synchronises, floats and labels included, and rows are those of the CPU."""
    steps = [v2.RandomResizedCrop(16), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)]
    chain = [v2.ToDtype(torch.float32, True), *steps, v2.RandomErasing(), *([mix] if mix else [])]
    module, given = gp.per_sample(chain, seed=1), (images, LABELS)[: 2 if mix else 1]
    on_device = [tensor.cuda() for tensor in given]
    module(*on_device, **AT)  # CUDA starts, and the float steps look at their table once
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = module(*on_device, **AT)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = module(*given, **AT)
    pairs = zip(found, expected, strict=True) if mix else [(found, expected)]
    for mine, wanted in pairs:
        torch.testing.assert_close(mine.cpu(), wanted, atol=1 / 255, rtol=0)
