"""Policies: each row is what torchvision's own operations give its image alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import autoaugment, v2

from gpupreload import draws
from gpupreload.native.policies import POLICIES
from gpupreload.native.policy_ops import NUMBER_OF, OPERATIONS, apply_operations
from gpupreload.native.policy_space import OperationChain
from gpupreload.native.step import rows_of

SIZE = (17, 22)
POLICY = v1.AutoAugmentPolicy
TRANSFORMS = [
    *(m.RandAugment(3, magnitude=20) for m in (v1, v2)),
    *(m.TrivialAugmentWide() for m in (v1, v2)),
    *(m.AutoAugment(policy) for m in (v1, v2) for policy in POLICY),
    *(m.AugMix() for m in (v1, v2)),
]
CHAINS = [t for t in TRANSFORMS if "AugMix" not in type(t).__name__]
EXACT = [
    *("Identity", "TranslateX", "TranslateY", "Posterize"),
    *("Solarize", "AutoContrast", "Equalize", "Invert"),
]
WARPED = ["ShearX", "ShearY", "Rotate"]
SIGNED = [*WARPED, "TranslateX", "TranslateY", "Brightness", "Color", "Contrast", "Sharpness"]
FILLS: list[Any] = [None, 77, (10.0, 200.6, 99.0)]


def label(transform: Any) -> str:
    """A transform's name for pytest."""
    version = "v2" if isinstance(transform, v2.Transform) else "v1"
    policy = getattr(transform, "policy", None)
    return f"{version}.{type(transform).__name__}" + (f"-{policy.value}" if policy else "")


def native_of(transform: Any) -> OperationChain:
    """The native form of a policy."""
    native = POLICIES[type(transform)](transform)
    assert isinstance(native, OperationChain)
    return native


def batch(n: int, channels: int = 3, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Images of noise, every third one dull, and one of a single colour."""
    generator = torch.Generator().manual_seed(n)
    images = torch.randint(0, 256, (n, channels, *SIZE), generator=generator).to(torch.uint8)
    images[1::3] = images[1::3] // 4 + 90
    images[-1:] = 77
    return images if dtype == torch.uint8 else images.to(dtype) / 255


def keys(n: int) -> Tensor:
    """The keys of n samples."""
    return draws.keys(3, 1, torch.arange(n))


def alone(
    image: Tensor, op: int, magnitude: float, interpolation: str = "nearest", fill: Any = None
) -> Tensor:
    """What torchvision's v2 does to one image."""
    name = OPERATIONS[op]
    policy = v2.RandAugment(interpolation=interpolation, fill=fill)
    result: Tensor = policy._apply_image_or_video_transform(
        image, name, magnitude, policy.interpolation, policy._fill
    )
    return result


def ladder(name: str) -> list[float]:
    """Magnitudes of an operation, from all policies' first bins to their last; of some, a part."""
    found = {
        float(size)
        for transform in CHAINS[:5] + TRANSFORMS[-1:]
        for size in native_of(transform).magnitudes((3, *SIZE))[NUMBER_OF[name]].tolist()
    }
    if name not in SIGNED:
        return sorted(found)
    some = [*sorted(found)[:: len(found) // 8], max(found)]
    return [*some, *(-size for size in some)]


@pytest.mark.parametrize("fill", FILLS, ids=str)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_torchvisions(
    name: str, dtype: torch.dtype, interpolation: str, fill: Any
) -> None:
    """At every magnitude a row is v2's result; exact, or within a level where colours are mixed."""
    sizes = ladder(name)
    if dtype != torch.uint8 and fill is not None:
        fill = tuple(x / 255 for x in fill) if isinstance(fill, tuple) else fill / 255
    for channels in (3, 1) if not isinstance(fill, tuple) else (3,):
        images = batch(len(sizes), channels, dtype)
        ops = torch.full((len(sizes), 1), NUMBER_OF[name])
        m = torch.tensor(sizes, dtype=torch.float64)[:, None]
        found = apply_operations(images, ops, m, interpolation=interpolation, fill=fill)
        expected = torch.stack(
            [
                alone(x, NUMBER_OF[name], s, interpolation, fill)
                for x, s in zip(images, sizes, strict=True)
            ]
        )
        assert_law(found, expected, name, interpolation)


def assert_law(found: Tensor, expected: Tensor, name: str, interpolation: str = "nearest") -> None:
    """The law of the rows, for one operation on the same input."""
    assert found.dtype == expected.dtype
    apart = (found.double() - expected.double()).abs()
    differing = (apart > 0).double().mean()
    if name in WARPED and interpolation == "nearest":
        # none on a machine that rounds every product of torchvision's matrix product by itself
        assert differing <= 1e-3, name
    elif found.dtype != torch.uint8:
        # a move by whole pixels is exact here, where torchvision interpolates a millionth beside
        assert apart.max() <= (2e-5 if interpolation == "bilinear" else 3e-7), name
    elif name in EXACT:
        assert differing == 0, name
    else:
        assert apart.max() <= 1, name
        assert differing <= 1e-3, name


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_that_of_version_1(name: str) -> None:
    """v1's functions, which round elsewhere, are met within a level."""
    sizes = ladder(name)
    for channels in (3, 1):
        images = batch(len(sizes), channels)
        ops = torch.full((len(sizes), 1), NUMBER_OF[name])
        found = apply_operations(images, ops, torch.tensor(sizes, dtype=torch.float64)[:, None])
        nearest = v1.InterpolationMode.NEAREST
        scale = 255 if name == "Solarize" else 1
        expected = torch.stack(
            [
                autoaugment._apply_op(x, name, size * scale, nearest, None)
                for x, size in zip(images, sizes, strict=True)
            ]
        )
        apart = (found.int() - expected.int()).abs()
        assert apart.max() <= (1 if name not in EXACT or name == "AutoContrast" else 0)


@pytest.mark.parametrize("transform", CHAINS, ids=label)
def test_a_policy_is_its_drawn_operations_one_after_another(transform: Any) -> None:
    """Each step of a policy, on the images that the step before left, is torchvision's."""
    native, n = native_of(transform), 60
    images = batch(n)
    params = native.draw(keys(n), (3, *SIZE))
    result = native.apply(images, params)
    for k in range(params["op_index"].shape[1]):
        step = {name: params[name][:, k : k + 1] for name in ("op_index", "magnitude")}
        changed = native.apply(images, step)
        for i in range(n):
            op, size = int(step["op_index"][i]), float(step["magnitude"][i])
            assert_law(changed[i], alone(images[i], op, size), OPERATIONS[op])
        images = changed
    assert torch.equal(result, images)


class ReplayedRandAugment(v2.RandAugment):
    """torchvision's RandAugment that takes its draws from a list."""

    def _get_random_item(self, dct: Any) -> Any:
        name, size = self.drawn.pop(0)
        return name, (lambda n_bins, height, width: torch.full((n_bins,), size).double(), False)


def test_chains_of_exact_operations_are_equal_to_torchvisions() -> None:
    """A chain of moves and level changes gives every bit of what v2's own forward gives."""
    native, images = native_of(v2.RandAugment(3, fill=9)), batch(80)
    params = native.draw(keys(80), (3, *SIZE))
    exact = torch.tensor([name in EXACT for name in OPERATIONS])
    params["op_index"] = torch.where(exact[params["op_index"]], params["op_index"], 0)
    found = native.apply(images, params)
    for i, image in enumerate(images):
        replayed = ReplayedRandAugment(3, fill=9)
        names = [OPERATIONS[op] for op in params["op_index"][i].tolist()]
        replayed.drawn = list(zip(names, params["magnitude"][i].tolist(), strict=True))
        assert torch.equal(found[i], replayed(image))


class ReplayedAugMix(v2.AugMix):
    """torchvision's AugMix that takes its draws from lists."""

    _get_random_item = ReplayedRandAugment._get_random_item

    def _sample_dirichlet(self, params: Tensor) -> Tensor:
        return self.weights.pop(0)[None]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("width", [1, 4])
def test_augmix_is_torchvisions(width: int, dtype: torch.dtype) -> None:
    """AugMix with chains of one operation is v2's forward with the same draws."""
    settings: dict[str, Any] = {"mixture_width": width, "chain_depth": 1, "severity": 8, "fill": 3}
    native, images = native_of(v2.AugMix(**settings)), batch(60, 3, dtype)
    params = native.draw(keys(60), (3, *SIZE))
    found = native.apply(images, params)
    for i, image in enumerate(images):
        replayed = ReplayedAugMix(**settings)
        names = [OPERATIONS[op] for op in params["op_index"][i, :, 0].tolist()]
        replayed.drawn = list(zip(names, params["magnitude"][i, :, 0].tolist(), strict=True))
        replayed.weights = [params[name][i].float() for name in ("m", "weights")]
        apart = (found[i].double() - replayed(image).double()).abs()
        assert apart.max() <= (1 if dtype == torch.uint8 else 2e-5)
        assert dtype != torch.uint8 or (apart > 0).double().mean() <= 1e-3


def test_augmix_runs_each_chain_of_each_row() -> None:
    """AugMix is the weighted mean of the image and its chains, decimals cut off."""
    native, images = native_of(v2.AugMix(mixture_width=2)), batch(40)
    params = native.draw(keys(40), (3, *SIZE))
    m, weights = params["m"].float(), params["weights"].float()
    mean = m[:, 0, None, None, None] * images
    for i in range(2):
        chain = native.run(images, params["op_index"][:, i], params["magnitude"][:, i])
        mean += (weights[:, i] * m[:, 1])[:, None, None, None] * chain
    assert torch.equal(native.apply(images, params), mean.to(torch.uint8))


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_no_image_and_one_image_are_batches_too(transform: Any, n: int) -> None:
    """A batch of none gives a batch of none; a batch of one gives the first row."""
    native = native_of(transform)
    found = native.apply(batch(5)[:n], native.draw(keys(n), (3, *SIZE)))
    expected = native.apply(batch(5), native.draw(keys(5), (3, *SIZE)))
    assert torch.equal(found, expected[:n])


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_rows_do_not_depend_on_each_other(transform: Any) -> None:
    """The draw for some samples is these rows of the draw for all, and so is the result."""
    native, images, rows = native_of(transform), batch(30), torch.tensor([28, 3, 17, 4])
    params = native.draw(keys(30), (3, *SIZE))
    some = native.draw(keys(30)[rows], (3, *SIZE))
    assert all(torch.equal(some[name], values) for name, values in rows_of(params, rows).items())
    assert torch.equal(native.apply(images[rows], some), native.apply(images, params)[rows])


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_equal_images_become_different(transform: Any) -> None:
    """64 copies of one image give at least 20 results."""
    native, images = native_of(transform), batch(2)[:1].expand(64, -1, -1, -1)
    found = native.apply(images, native.draw(keys(64), (3, *SIZE)))
    assert len(found.flatten(1).unique(dim=0)) >= 20


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_layout_is_kept_and_the_input_left_alone(transform: Any) -> None:
    """The result is new memory in the input's layout, and the same in each."""
    native, images = native_of(transform), batch(20)
    params, results = native.draw(keys(20), (3, *SIZE)), []
    for layout in (torch.contiguous_format, torch.channels_last):
        given = images.clone(memory_format=layout)
        results.append(native.apply(given, params))
        assert results[-1].is_contiguous(memory_format=layout)
        assert results[-1].untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
        assert torch.equal(given, images)
    assert torch.equal(*results)


def test_nothing_drawn_still_gives_new_memory() -> None:
    """RandAugment of no operations copies."""
    native, images = native_of(v2.RandAugment(0)), batch(4)
    found = native.apply(images, native.draw(keys(4), (3, *SIZE)))
    assert torch.equal(found, images)
    assert found.data_ptr() != images.data_ptr()


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_global_generators_are_left_alone(transform: Any) -> None:
    """Drawing and applying move none of torch's, Python's and NumPy's global generators."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]
    native = native_of(transform)
    native.apply(batch(8), native.draw(keys(8), (3, *SIZE)))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[2]) == states[1:]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=label)
def test_nothing_waits_for_the_device(transform: Any) -> None:
    """No policy reads a value back from the device: they run on images that have none."""
    native = native_of(transform)
    found = native.apply(batch(30).to("meta"), native.draw(keys(30), (3, *SIZE)))
    assert (found.shape, found.dtype) == ((30, 3, *SIZE), torch.uint8)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("transform", [t for t in CHAINS if "v2" in label(t)], ids=label)
def test_an_accelerator_gives_what_the_cpu_gives(transform: Any, dtype: torch.dtype) -> None:
    """Each step is within a level of the CPU's, and nothing on the way synchronises."""
    native, images = native_of(transform), batch(60, 3, dtype)
    params = native.draw(keys(60), (3, *SIZE))
    for k in range(params["op_index"].shape[1]):
        step = {name: params[name][:, k : k + 1] for name in ("op_index", "magnitude")}
        on_device = images.cuda()
        torch.cuda.set_sync_debug_mode("error")
        try:
            found = native.apply(on_device, step)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        images = native.apply(images, step)
        apart = (found.cpu().double() - images.double()).abs()
        # a place on the border of two pixels may fall to either side
        one_level = 1 if dtype == torch.uint8 else 1 / 255
        assert (apart > one_level).double().mean() <= 1e-3
