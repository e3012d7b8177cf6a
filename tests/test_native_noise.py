"""Noise drawn for whole images: torch's distribution, and what torchvision makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from native_examples import keys, native
from one_distribution import UNLIKELY, N, assert_one_distribution, columns, likelihood
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.native import erasing
from gpupreload.native.noise import normal_noise, uniform_noise
from gpupreload.native.warps import ElasticTransform

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Let torch draw the same numbers each time."""
    torch.manual_seed(0)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("sigma", [0.8, [0.4, 1.0], 0.0])
def test_displacements(module: Any, sigma: Any) -> None:
    """ElasticTransform: given the same uniform noise, its displacements are torchvision's."""
    t = module.ElasticTransform(alpha=[30.0, 7.0], sigma=sigma)
    step = native(t)
    assert isinstance(step, ElasticTransform)
    noise_keys = step.draw(keys(6), (3, 12, 15))["noise_key"]
    ours = step.displacement(noise_keys, (3, 12, 15), CPU)
    for i, uniform in enumerate(uniform_noise(noise_keys, (2, 12, 15), CPU)):
        with mock.patch.object(torch, "rand", side_effect=list(uniform[:, None, None])):
            if module is v1:
                theirs = t.get_params(t.alpha, t.sigma, [12, 15])
            else:
                theirs = t.make_params([torch.zeros(3, 12, 15)])["displacement"]
        torch.testing.assert_close(ours[i : i + 1], theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("noise", "theirs"), [(uniform_noise, torch.rand), (normal_noise, torch.randn)]
)
def test_noise(noise: Callable[..., Tensor], theirs: Callable[..., Tensor]) -> None:
    """Noise of pixels has the distribution of torch's, and no value goes with another."""
    many = noise(keys(N), (4,), CPU).numpy()
    other = theirs(N, 4).numpy()
    assert_one_distribution(columns({"x": many}), columns({"x": other}))
    one = noise(keys(2), (N,), CPU).numpy()
    assert_one_distribution(columns({"x": one.T}), columns({"x": theirs(N, 2).numpy()}))
    assert likelihood(one[0, 1:] - one[0, :-1], other[1:, 0] - other[1:, 1]) > UNLIKELY


def test_noise_on_values() -> None:
    """GaussianNoise adds what torchvision's adds to floats, in distribution."""
    t = v2.GaussianNoise(mean=0.3, sigma=0.2, clip=False)
    step, images = native(t), torch.zeros(100, 1, 10, 20)
    ours = step.apply(images, step.draw(keys(100), (1, 10, 20))).flatten().numpy()
    assert likelihood(ours, t(images).flatten().numpy()) > UNLIKELY


def test_noise_is_a_function_of_each_key() -> None:
    """Noise of a sample is the same in any batch; an odd number of values cuts a pair in two."""
    cpu = torch.device("cpu")
    for noise in (uniform_noise, normal_noise):
        together = noise(keys(600), (3, 7, 31), cpu)
        assert torch.equal(noise(keys(600)[7:9], (3, 7, 31), cpu), together[7:9])
        assert torch.equal(noise(keys(600)[:2], (650,), cpu), together[:2].flatten(1)[:, :650])
        assert noise(keys(0), (3, 2), cpu).shape == (0, 3, 2)
        assert together.dtype == torch.float32


def test_noise_is_made_for_erased_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU a row that is left alone costs no noise, and the others have the same as ever."""
    asked: list[int] = []

    def counted(keys: Tensor, *args: Any) -> Tensor:
        asked.append(len(keys))
        return normal_noise(keys, *args)

    monkeypatch.setattr(erasing, "normal_noise", counted)
    images = torch.zeros(40, 3, 16, 12)
    erased = gp.per_sample(v2.RandomErasing(p=0.3, value="random"), seed=0)(images)
    is_changed = (erased != 0).flatten(1).any(1)
    assert asked == [int(is_changed.sum())]
    assert 0 < asked[0] < 40
