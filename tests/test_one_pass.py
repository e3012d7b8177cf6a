"""Stages that run together give what they give one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.one_pass import Head, start_of_tail
from gpupreload.per_sample import per_sample
from gpupreload.rows import Rows

FLOATS = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.1])]
CROP, FLIP, OVER = v2.RandomCrop(8, padding=3), v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()
ERASE = v2.RandomErasing(p=0.7, value=[0.1, 0.2, 0.3])

CHAINS = {
    "crop, flips, floats, erase": [CROP, FLIP, OVER, *FLOATS, ERASE],
    "ToImage first": [v2.ToImage(), CROP, FLIP, *FLOATS, ERASE],
    "ToImage between": [CROP, v2.ToImage(), FLIP, *FLOATS],
    "flip before crop": [FLIP, CROP, *FLOATS, ERASE],
    "inner crop": [v2.RandomCrop((5, 9)), *FLOATS],
    "filled crop": [v2.RandomCrop(10, padding=(1, 2), fill=9), *FLOATS, ERASE],
    "crop padded where needed": [v2.RandomCrop(12, pad_if_needed=True), FLIP, *FLOATS],
    "mirrored crop": [v2.RandomCrop(8, padding=2, padding_mode="reflect"), FLIP, *FLOATS],
    "colourful border": [v2.RandomCrop(8, padding=2, fill=(1, 2, 3)), *FLOATS],
    "colour between": [CROP, v2.ColorJitter(0.4), FLIP, *FLOATS, ERASE],
    "noise erased": [FLIP, *FLOATS, v2.RandomErasing(value="random")],
    "erased before floats": [CROP, ERASE, *FLOATS],
    "uint8 comes out": [CROP, FLIP, v2.ToImage(), v2.RandomErasing(p=1)],
    "nothing but moves": [CROP, FLIP],
    "v1 and a callable": [FLIP, gp.live(lambda image: image // 2), *FLOATS, ERASE],
}


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """Twenty random images of 9 x 10."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (20, 3, 9, 10)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], index


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize(
    "settings", [{}, {"reuse_buffers": True}, {"dtype": torch.float16}], ids=str
)
def test_a_loader_gives_what_the_steps_give_one_by_one(
    chain: list[Any], settings: dict[str, Any]
) -> None:
    """What runs together changes no bit: a loader serves what one step after the other gives."""
    data = Photos()
    ours = gp.preload(data, v2.Compose(chain), seed=5, device="cpu", progress=False)
    for epoch in range(2):
        loader = gp.Loader(ours, 7, shuffle=True, **settings)
        loader.set_epoch(epoch)
        for images, labels in loader:
            rows = Rows(5, epoch, labels)
            expected = data.images[labels]
            for stage in ours.each_batch.stages:
                expected = stage(expected.clone(), rows)
            is_float = expected.is_floating_point()
            assert torch.equal(
                images, expected.to(loader_dtype(settings)) if is_float else expected
            )


def loader_dtype(settings: dict[str, Any]) -> torch.dtype:
    """The dtype of floats that a loader with these settings gives."""
    return settings.get("dtype", torch.float32)


@pytest.mark.parametrize(
    ("chain", "n_together", "tail"),
    [
        ("crop, flips, floats, erase", 3, 3),
        ("ToImage first", 3, 3),
        ("ToImage between", 3, 3),
        ("flip before crop", 1, 2),
        ("mirrored crop", 0, 2),
        ("colour between", 1, 3),
        ("noise erased", 1, 1),
        ("nothing but moves", 2, None),
    ],
)
def test_what_runs_together(chain: str, n_together: int, tail: int | None) -> None:
    """The gathering takes a crop and flips with it; the floats take erasing with them."""
    stages = per_sample(CHAINS[chain], seed=0).stages
    assert start_of_tail(stages) == tail
    assert Head.of(stages[:tail]).n_stages == n_together


def test_parameters_are_drawn_for_many_blocks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a window of drawing ends makes no difference."""
    ours = gp.preload(
        Photos(), v2.Compose([CROP, FLIP, *FLOATS, ERASE]), seed=5, device="cpu", progress=False
    )

    def epoch() -> torch.Tensor:
        return torch.cat([images.clone() for images, _ in gp.Loader(ours, 3, shuffle=True)])

    expected = epoch()
    monkeypatch.setattr("gpupreload.blocks._BLOCK_BYTES", 1)
    for n_rows in (1, 3, 7):
        monkeypatch.setattr("gpupreload.blocks._ROWS_DRAWN", n_rows)
        assert torch.equal(epoch(), expected)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_module_gives_what_the_steps_give_one_by_one(
    chain: list[Any], memory_format: torch.memory_format
) -> None:
    """A batch of one's own comes out as step after step makes it, and is not written to."""
    module = per_sample(chain, seed=5)
    images = Photos().images.to(memory_format=memory_format)
    before = images.clone()
    expected = before.clone()
    for stage in module.stages:
        expected = stage(expected.clone(), Rows(5, 3, torch.arange(20)))
    assert torch.equal(module(images, epoch=3), expected)
    assert torch.equal(images, before)
