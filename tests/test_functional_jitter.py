"""Colour changes in an order of their own for each row, beyond the law of the rows."""

from __future__ import annotations

import itertools

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional.jitter import color_jitter, photometric_distort

ORDERS = torch.tensor(list(itertools.permutations(range(4))))
FACTORS = torch.tensor([[1.4, 0.6, 1.8, 0.21]], dtype=torch.float64).expand(len(ORDERS), 4)
CHANGES = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


@pytest.fixture(params=["in groups", "in slots"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through a batch: the CPU's, and that of accelerators and compiled graphs."""
    if request.param == "in slots":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def same_photo(channels: int = 3) -> Tensor:
    """One image of noise for each order."""
    torch.manual_seed(0)
    image = torch.randint(0, 256, (1, channels, 10, 11), dtype=torch.uint8)
    return image.expand(len(ORDERS), -1, -1, -1)


def alone(image: Tensor, order: Tensor, enabled: Tensor) -> Tensor:
    """What torchvision makes of one image, with the factors above."""
    for change in order.tolist():
        if enabled[change]:
            image = CHANGES[change](image, FACTORS[0, change].item())
    return image


@pytest.mark.parametrize("enabled", list(itertools.product([True, False], repeat=4)))
def test_every_order_of_any_of_the_changes_is_torchvisions(enabled: tuple[bool, ...]) -> None:
    """All 24 orders of each of the 16 sets of changes: at most 1 value in 1,000 differs."""
    images, made = same_photo(), torch.tensor(enabled)
    found = color_jitter(images, ORDERS, FACTORS, made)
    expected = torch.stack([alone(x, order, made) for x, order in zip(images, ORDERS, strict=True)])
    apart = (found.int() - expected.int()).abs()
    assert apart.max() <= 2
    assert (apart > 0).float().mean() <= 1e-3


def test_the_order_of_changes_matters() -> None:
    """One photo with one set of factors comes out in many ways."""
    assert len(color_jitter(same_photo(), ORDERS, FACTORS).flatten(1).unique(dim=0)) >= 20


def test_gray_images_have_no_saturation_and_no_hue() -> None:
    """Of one channel, brightness and contrast change, in their order."""
    images = same_photo(channels=1)
    found = color_jitter(images, ORDERS, FACTORS)
    expected = [alone(x, order, torch.ones(4)) for x, order in zip(images, ORDERS, strict=True)]
    assert torch.equal(found, torch.stack(expected))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_rows_without_a_change_come_out_as_they_were(dtype: torch.dtype) -> None:
    """Disabled changes leave floats outside 0 to 1 alone too, as a step that isn't called does."""
    images = same_photo().to(dtype) * (1 if dtype == torch.uint8 else 1.5 / 255)
    enabled = torch.zeros(len(ORDERS), 4, dtype=torch.bool)
    enabled[::2] = True
    found = color_jitter(images, ORDERS, FACTORS, enabled)
    assert torch.equal(found[1::2], images[1::2])
    assert not torch.equal(found[::2], images[::2])


def test_distortion_can_put_contrast_last() -> None:
    """Contrast comes before saturation and hue, or after them, as its flag says for each row."""
    images, first = same_photo()[:2], torch.tensor([True, False])
    enabled, order = torch.ones(2, 4, dtype=torch.bool), torch.tensor([[0, 1, 2], [2, 1, 0]])
    found = photometric_distort(images, FACTORS[:2], enabled, first, order)
    expected = [
        alone(images[0], torch.tensor([0, 1, 2, 3]), enabled[0]),
        alone(images[1], torch.tensor([0, 2, 3, 1]), enabled[1])[[2, 1, 0]],
    ]
    assert (found.int() - torch.stack(expected).int()).abs().max() <= 2


@pytest.mark.parametrize("name", ["order", "factors", "enabled"])
def test_each_parameter_has_four_numbers_an_image(name: str) -> None:
    """An order, a factor or a flag too few is an error that names the parameter."""
    params = {"order": ORDERS[:2], "factors": FACTORS[:2], "enabled": torch.ones(2, 4).bool()}
    params[name] = params[name][:, :3]
    with pytest.raises(ArgumentError) as caught:
        color_jitter(same_photo()[:2], **params)
    assert str(caught.value) == (
        f"{name} must be [N, 4], here [2, 4], got shape (2, 3). Give each image four numbers: "
        "for brightness, contrast, saturation and hue."
    )
