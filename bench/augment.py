"""How fast is augmentation with a draw for every row, beside torchvision and kornia?

Batches of 256 uint8 images of smooth noise, every way on the same batch, in turn. torchvision v2 is
called on image after image, and also on the whole batch: that is the mistake, for all rows share
one draw, as the last column shows: how many different images come out of 64 equal ones. kornia
takes floats, and the conversion is part of its time. The limit reads the batch and writes as many
bytes as come out, and does nothing else. A Loader's epoch is of 8 such batches, for it draws for
many at once; beside store and batch it keeps the batch as uint8, and some 6 MiB in which it pads.

Before anything is timed, some of our rows are made again with torchvision's own functions, from the
parameters that were drawn for them; 199 values of 200 must lie within two levels of 256. kornia
draws its own parameters and defines some of them in another way, so that only the mean and the
standard deviation over 64 images are held near ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import interleaved
import torch
import torchvision.transforms.v2 as v2
from process_memory import field, high_water
from torch import Tensor
from torchvision.transforms.v2 import functional as F

import gpupreload as gp
from gpupreload.native.policy_ops import OPERATIONS
from gpupreload.table import in_units

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LOOP = "torchvision v2, sample by sample"
OURS, N_BATCHES = "gp.Loader(reuse_buffers=True)", 8
N_COPIES, N_REPLAYED = 64, 8
# of values on a scale of 0 to 1: kornia's draws are other ones, and so are some of its formulas
NEAR = 0.12

Way = Callable[[Tensor], Tensor]
Replay = Callable[[Tensor, gp.Parameters, int], Tensor]


@dataclass(frozen=True)
class Recipe:
    """A transform, torchvision's replay of one row, and kornia's way, made when it is there.

    Attributes:
        steps: of torchvision, for a side of so many pixels.
        replay: makes row i of a batch again, from image and parameters.
        kornia: makes kornia's modules for that side; floats of 0 to 1 go in.
    """

    steps: Callable[[int], list[Any]]
    replay: Replay
    kornia: Callable[[int], list[torch.nn.Module]]


def cropped(image: Tensor, drawn: gp.Parameters, i: int) -> Tensor:
    """Pad, crop, flip, erase, and normalise one image."""
    side, padding = image.shape[-1], image.shape[-1] // 14
    image = F.pad(image, [padding])
    image = F.crop(image, **drawn["RandomCrop"].row(i), height=side, width=side)
    hole = drawn["RandomErasing"].row(i)
    image = flipped(image, drawn, i)
    if hole.pop("applied"):
        image = F.erase(image, **hole, v=torch.zeros(3, 1, 1, dtype=torch.uint8))
    return F.normalize(F.to_dtype(image, torch.float32, scale=True), MEAN, STD)


def flipped(image: Tensor, drawn: gp.Parameters, i: int) -> Tensor:
    """Mirror one image, or not."""
    applied = drawn["RandomHorizontalFlip"].row(i)["applied"]
    return F.horizontal_flip(image) if applied else image


def resized(image: Tensor, drawn: gp.Parameters, i: int) -> Tensor:
    """Crop, resize and flip one image."""
    size = list(image.shape[-2:])
    box = drawn["RandomResizedCrop"].row(i)
    return flipped(F.resized_crop(image, **box, size=size, antialias=True), drawn, i)


def jittered(image: Tensor, drawn: gp.Parameters, i: int) -> Tensor:
    """Change the colours of one image."""
    row = drawn["ColorJitter"].row(i)
    for k in row["fn_idx"].tolist():
        name = ("brightness", "contrast", "saturation", "hue")[k]
        image = getattr(F, f"adjust_{name}")(image, row[f"{name}_factor"])
    return image


def mapped(image: Tensor, drawn: gp.Parameters, i: int) -> Tensor:
    """Rotate, move, scale and shear one image."""
    row = drawn["RandomAffine"].row(i)
    pairs = {name: row[name].tolist() for name in ("translate", "shear")}
    return F.affine(image, **row | pairs)


def operated(image: Tensor, drawn: gp.Parameters, i: int) -> Tensor:
    """Run the operations that a policy drew for one image."""
    [step] = drawn
    row, policy = step.row(i), v2.RandAugment()
    for op, magnitude in zip(row["op_index"].tolist(), row["magnitude"].tolist(), strict=True):
        image = policy._apply_image_or_video_transform(
            image, OPERATIONS[op], magnitude, policy.interpolation, policy._fill
        )
    return image


def recipe_of_kornia(side: int) -> list[torch.nn.Module]:
    """A crop, a flip, a hole and normalisation by kornia."""
    import kornia.augmentation as K

    return [
        K.RandomCrop((side, side), padding=side // 14),
        K.RandomHorizontalFlip(0.5),
        K.RandomErasing(p=0.5),
        K.Normalize(MEAN, STD),
    ]


def crop_of_kornia(side: int) -> list[torch.nn.Module]:
    """A resized crop and a flip by kornia."""
    import kornia.augmentation as K

    return [K.RandomResizedCrop((side, side)), K.RandomHorizontalFlip(0.5)]


def jitter_of_kornia(side: int) -> list[torch.nn.Module]:
    """The ColorJitter of kornia, which has torchvision's formulas."""
    import kornia.augmentation as K

    return [K.ColorJitter(0.4, 0.4, 0.4, 0.1)]


def affine_of_kornia(side: int) -> list[torch.nn.Module]:
    """The RandomAffine of kornia, by nearest interpolation as torchvision's."""
    import kornia.augmentation as K

    moves = {"translate": (0.1, 0.1), "scale": (0.8, 1.2), "shear": 10.0}
    return [K.RandomAffine(20.0, **moves, p=1.0, resample="nearest")]


def rand_augment_of_kornia(side: int) -> list[torch.nn.Module]:
    """The RandAugment of kornia."""
    from kornia.augmentation.auto import RandAugment

    return [RandAugment(n=2, m=9)]


def trivial_augment_of_kornia(side: int) -> list[torch.nn.Module]:
    """The TrivialAugment of kornia."""
    from kornia.augmentation.auto import TrivialAugment

    return [TrivialAugment()]


RECIPES = {
    "crop + flip + erase + normalise": Recipe(
        lambda side: [
            v2.RandomCrop(side, padding=side // 14),
            v2.RandomHorizontalFlip(),
            v2.RandomErasing(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ],
        cropped,
        recipe_of_kornia,
    ),
    "RandomResizedCrop + flip": Recipe(
        lambda side: [v2.RandomResizedCrop(side), v2.RandomHorizontalFlip()],
        resized,
        crop_of_kornia,
    ),
    "ColorJitter, all four": Recipe(
        lambda side: [v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], jittered, jitter_of_kornia
    ),
    "RandomAffine": Recipe(
        lambda side: [v2.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10)], mapped, affine_of_kornia
    ),
    "RandAugment": Recipe(lambda side: [v2.RandAugment()], operated, rand_augment_of_kornia),
    "TrivialAugmentWide": Recipe(
        lambda side: [v2.TrivialAugmentWide()], operated, trivial_augment_of_kornia
    ),
}


def main() -> None:
    """Measure every recipe at both sizes, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few small images, for tests")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    print(interleaved.machine())
    print(f"kornia {version_of_kornia() or 'is not installed: pip install -e .[bench]'}")
    n_images, sides, rounds = (16, (28,), 2) if quick else (256, (112, 224), 5)
    for side in sides:
        for name, recipe in RECIPES.items():
            print()
            print(compare(name, recipe, n_images, side, rounds))
    name, recipe = next(iter(RECIPES.items()))
    print()
    print(compare(name, recipe, n_images // 4, sides[0], 2 if quick else 15))


def version_of_kornia() -> str:
    """The version of kornia, or "" where it is not installed."""
    if importlib.util.find_spec("kornia") is None:
        return ""
    import kornia

    return str(kornia.__version__)


def compare(name: str, recipe: Recipe, n_images: int, side: int, rounds: int) -> object:
    """Check every way of a recipe, measure them in turn, and lay them side by side."""
    images = smooth(n_images, side)
    ways = ways_of(recipe, side)
    check_replay(recipe, side, images)
    check_near(ways, images)
    copies = images[:1].repeat(N_COPIES, 1, 1, 1)
    notes = {
        label: f"{n_different(way(copies))} of {N_COPIES} differ" for label, way in ways.items()
    }
    if "erase" in name:
        for label in [*ways, OURS]:
            extra = in_units(extra_in_a_new_process(label, n_images, side))
            notes[label] = f"{notes.get(label, '')}; {extra} more memory".removeprefix("; ")
    timed = {label: (lambda way=way: way(images)) for label, way in ways.items()}
    if "ColorJitter" in name and n_images > N_COPIES and shutil.which("g++"):
        timed["gp.per_sample, compiled"] = compiled(recipe, side, images)
    if "erase" in name:
        timed[OURS] = epoch_of(recipe, side, images)
    timed["limit: copying the bytes"] = copying(images, ways["gp.per_sample"](images[:1]).dtype)
    seconds = interleaved.measure(timed, rounds)
    if OURS in seconds:
        seconds[OURS] = [elapsed / N_BATCHES for elapsed in seconds[OURS]]
    title = f"{name}: {n_images} × 3×{side}×{side} from uint8"
    return interleaved.table(seconds, n_images, title=title, base=LOOP, notes=notes)


def extra_in_a_new_process(label: str, n_images: int, side: int) -> int:
    """What making a batch of the first recipe takes beside its images and floats, in bytes.

    In a process of its own, for what one way has freed hides what the next one takes.
    """
    code = f"import augment; print(augment.extra({label!r}, {n_images}, {side}))"
    command, here = [sys.executable, "-c", code], Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    return int(done.stdout)


def extra(label: str, n_images: int, side: int) -> int:
    """The rise of this process's memory above images and result, when a batch is made."""
    recipe, images = next(iter(RECIPES.values())), smooth(n_images, side)
    few = images[:8]
    if label == OURS:
        loader, first = (loader_of(recipe, side, batch) for batch in (images, few))
        list(first)  # what is loaded and started on the first use
        make: Callable[[], object] = partial(deque, loader, maxlen=0)
    else:
        way = ways_of(recipe, side)[label]
        way(few)
        make = partial(way, images)
    high_water(anew=True)
    before = field("VmRSS")
    make()
    return max(0, high_water() - before - 4 * images.numel())


def ways_of(recipe: Recipe, side: int) -> dict[str, Way]:
    """Every way to augment a batch."""
    transform = v2.Compose(recipe.steps(side))
    ways: dict[str, Way] = {
        LOOP: lambda images: torch.stack([transform(image) for image in images]),
        "torchvision v2 on the batch (wrong: one draw)": transform,
    }
    if version_of_kornia():
        modules = torch.nn.Sequential(*recipe.kornia(side))
        ways["kornia"] = lambda images: modules(images / 255)
    ways["gp.per_sample"] = gp.per_sample(transform, seed=0)
    return ways


def epoch_of(recipe: Recipe, side: int, images: Tensor) -> Callable[[], object]:
    """An epoch of `N_BATCHES` batches from a resident store."""
    loader = loader_of(recipe, side, images)
    batch, _ = next(iter(gp.Loader(loader.dataset, len(images))))
    expected = gp.per_sample(recipe.steps(side), seed=0)(images, epoch=0)
    assert torch.equal(batch, expected), "the loader differs"
    return lambda: [None for _ in loader]


def loader_of(recipe: Recipe, side: int, images: Tensor) -> gp.Loader:
    """A loader of `N_BATCHES` batches from a resident store."""
    data = [(image, 0) for image in images.repeat(N_BATCHES, 1, 1, 1)]
    dataset = gp.preload(data, recipe.steps(side), device="cpu", seed=0, progress=False)
    return gp.Loader(dataset, len(images), shuffle=True, reuse_buffers=True)


def compiled(recipe: Recipe, side: int, images: Tensor) -> Callable[[], object]:
    """Ours by torch.compile; compiled here, before anything is timed."""
    module = gp.per_sample(recipe.steps(side), seed=0)
    run = torch.compile(module, fullgraph=True, dynamic=False)
    apart = (run(images, epoch=0).int() - module(images, epoch=0).int()).abs()
    assert (apart > 2).double().mean() <= 1e-3, "compiled, our rows are others"
    run(images)  # a call without an epoch is another graph
    return lambda: run(images)


def copying(images: Tensor, dtype: torch.dtype) -> Callable[[], object]:
    """Read the batch, and write what comes out."""
    out = torch.empty_like(images, dtype=dtype)
    return lambda: out.copy_(images)


def check_replay(recipe: Recipe, side: int, images: Tensor) -> None:
    """Refuse to time rows that are not torchvision's, with the parameters drawn for them."""
    module, some = gp.per_sample(recipe.steps(side), seed=0), images[:N_REPLAYED]
    found = module(some, epoch=0)
    drawn = gp.parameters_of(module, some, epoch=0)
    expected = torch.stack([recipe.replay(image, drawn, i) for i, image in enumerate(some)])
    apart = (found.double() - expected.double()).abs()
    level = 1 if found.dtype == torch.uint8 else 1 / (255 * min(STD))
    # where a change follows another, or pixels fall the other way by nearest interpolation
    assert (apart > 2 * level).double().mean() <= 5e-3, "our rows are not torchvision's"


def check_near(ways: dict[str, Way], images: Tensor) -> None:
    """Refuse to time a peer whose mean or standard deviation lies far from ours.

    kornia's policies draw their operations for the whole batch, so each image is a batch here.
    """
    some = images[:N_COPIES]
    ours = ways["gp.per_sample"](some)
    limit = NEAR / (min(STD) if ours.is_floating_point() else 1)
    for label in {*ways} & {LOOP, "kornia"}:
        theirs = torch.cat([ways[label](image[None]) for image in some])
        for statistic in (torch.mean, torch.std):
            apart = abs(statistic(as_floats(theirs)) - statistic(as_floats(ours)))
            assert apart <= limit, f"{label} differs by {apart:.3f} in {statistic.__name__}"


def as_floats(images: Tensor) -> Tensor:
    """Floats as they are, and uint8 on a scale of 0 to 1."""
    return images.double() / 255 if images.dtype == torch.uint8 else images.double()


def n_different(images: Tensor) -> int:
    """Count the different images of a batch."""
    return len(torch.unique(images.flatten(1), dim=0))


def smooth(n_images: int, side: int) -> Tensor:
    """Images that have edges and areas, as photos have, and some noise."""
    generator = torch.Generator().manual_seed(0)
    colours = torch.rand((n_images, 3, 7, 7), generator=generator)
    images = torch.nn.functional.interpolate(colours, (side, side), mode="bilinear")
    noise = torch.rand(images.shape, generator=generator) * 0.1
    return ((images * 0.9 + noise) * 255).to(torch.uint8)


if __name__ == "__main__":
    main()
