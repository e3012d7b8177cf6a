"""torch.compile of gp.per_sample: one graph, with the draws and the result of the eager module."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from native_examples import EXAMPLES, Example
from torch import Tensor
from torchvision.transforms import v2

import gpupreload as gp

FLOATS = v2.ToDtype(torch.float32, scale=True)
STD = 0.25
NORMALIZE = v2.Normalize([0.5] * 3, [STD] * 3)
RECIPE = [
    v2.RandomCrop(16, padding=2),
    v2.RandomHorizontalFlip(),
    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v2.RandomErasing(),
    FLOATS,
    NORMALIZE,
]
FIRST = list({example.name: example for example in EXAMPLES}.values())


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """Each test compiles anew."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def batch(n: int = 6) -> Tensor:
    """Different images of odd sides."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (n, 3, 17, 23), dtype=torch.uint8, generator=generator)


def traced(module: torch.nn.Module) -> Any:
    """The module as one graph, run by torch's own kernels."""
    return torch.compile(module, fullgraph=True, backend="eager")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_recipe_compiles_to_the_eager_result() -> None:
    """Crop, flip, colour jitter, erase and normalise: as eager, within two levels for 1 in 1,000.

    Compiled, products and sums are joined, so that a colour may be cut off to the next level, and
    a change of contrast after it may make two of one.
    """
    module, images = gp.per_sample(RECIPE, seed=0), batch(32)
    compiled = torch.compile(module, fullgraph=True)
    given = {"indices": torch.arange(32), "epoch": 3}
    found, expected = compiled(images, **given), module(images, **given)
    levels = (found - expected).abs() * 255 * STD
    assert levels.max() <= 2.001
    assert (levels > 0.001).float().mean() <= 1e-3


def test_the_recipe_is_one_graph() -> None:
    """Another epoch, seed, occurrence, or batch size is drawn anew, as it is eagerly."""
    module = gp.per_sample(RECIPE, seed=0)
    compiled = traced(module)
    for epoch, seed, occurrence, n in ((0, None, 0, 6), (1, 5, 0, 6), (7, 2**64 - 1, 2, 4)):
        given = {"indices": [9, 3, 5, 7, 1, 0][:n], "epoch": epoch, "seed": seed}
        given["occurrence"] = occurrence
        assert torch.equal(compiled(batch(n), **given), module(batch(n), **given))
    counts = torch.tensor([0, 1, 0, 0, 2, 0])
    found = compiled(batch(), epoch=1, occurrence=counts)
    assert torch.equal(found, module(batch(), epoch=1, occurrence=counts))


def test_calls_are_counted_without_compiling_anew() -> None:
    """Each call without an epoch draws for the next, by one graph for all of them."""
    module = gp.per_sample(RECIPE[:2], seed=0)
    compiled = traced(module)
    compiled(batch())
    with torch.compiler.set_stance("fail_on_recompile"):
        results = [compiled(batch()) for _ in range(12)]
    assert module.n_calls == 13
    for epoch, result in enumerate(results, start=1):
        assert torch.equal(result, module(batch(), epoch=epoch))


@pytest.mark.parametrize("example", FIRST, ids=lambda example: example.name)
def test_every_native_step_is_one_graph(example: Example) -> None:
    """A step is traced whole, its draw included, and has the eager result."""
    module = gp.per_sample(example.make(), seed=1)
    found, expected = traced(module)(batch(), epoch=2), module(batch(), epoch=2)
    assert (found.int() - expected.int()).abs().max() <= 1


WHOLE = [
    v2.Resize(9),
    v2.CenterCrop(9),
    v2.Pad(2),
    v2.Grayscale(3),
    v2.Compose([FLOATS, NORMALIZE]),
]


@pytest.mark.parametrize("step", WHOLE, ids=lambda step: type(step).__name__)
def test_deterministic_steps_are_one_graph(step: Any) -> None:
    """So are torchvision's own steps on the whole batch."""
    module = gp.per_sample(step)
    assert torch.equal(traced(module)(batch()), module(batch()))


@pytest.mark.parametrize("mix", [v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)])
def test_mixing_is_one_graph(mix: Any) -> None:
    """Images and soft labels come out as they do eagerly."""
    module, labels = gp.per_sample([FLOATS, mix], seed=1), torch.tensor([0, 1, 2, 3, 1, 2])
    found, soft = traced(module)(batch(), labels, epoch=4)
    expected, expected_soft = module(batch(), labels, epoch=4)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(soft, expected_soft)


def test_copies_draw_by_themselves() -> None:
    """A copy, or a module from another process, is traced as well as the one it came from."""
    module = gp.per_sample([RECIPE[0], FLOATS, v2.MixUp(num_classes=2)], seed=1)
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    expected = module(batch(), labels, epoch=0)
    copies = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    del module
    for one in copies:
        for way in (one, traced(one)):
            images, soft = way(batch(), labels, epoch=0)
            torch.testing.assert_close(images, expected[0], atol=1e-6, rtol=0)
            torch.testing.assert_close(soft, expected[1])
