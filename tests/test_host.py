"""Memory of the host: what is lent again, and when."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.datasets import FakeData
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import host

SHAPE = (4, 3, 5, 6)


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool lends its own memory for the small tensors of these tests, too."""
    monkeypatch.setattr(host, "_SMALL", 0)


def lent(pool: host.Pool, n_rows: int = 4) -> Tensor:
    """A tensor from a pool."""
    return pool.empty((n_rows, *SHAPE[1:]), torch.float32)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_empty_is_like_torchs(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    """Shape, dtype, device and strides are those that `torch.empty` gives."""
    ours = host.empty(SHAPE, dtype, memory_format=memory_format)
    theirs = torch.empty(SHAPE, dtype=dtype, memory_format=memory_format)
    assert (ours.shape, ours.dtype, ours.device) == (theirs.shape, theirs.dtype, theirs.device)
    assert ours.stride() == theirs.stride()
    assert ours.data_ptr() % 64 == 0


def test_empty_holds_what_is_written() -> None:
    """Every element is a place of its own, and survives pickling."""
    values = torch.arange(360, dtype=torch.float32).view(SHAPE)
    ours = host.empty(SHAPE, torch.float32).copy_(values)
    assert torch.equal(pickle.loads(pickle.dumps(ours)), values)


def test_no_rows() -> None:
    """An empty batch is no special case."""
    assert lent(host.Pool(), 0).shape == (0, 3, 5, 6)
    assert host.empty((0, 3, 2, 2), torch.uint8).shape == (0, 3, 2, 2)


def test_a_block_is_lent_again_once_nobody_holds_it() -> None:
    """Memory comes back as soon as the last tensor in it is gone."""
    pool = host.Pool()
    first = lent(pool)
    address = first.data_ptr()
    del first
    assert lent(pool).data_ptr() == address


@pytest.mark.parametrize("hold", [lambda t: t[1:2], lambda t: t.numpy(), lambda t: t.view(-1)])
def test_a_view_keeps_the_block(hold: object) -> None:
    """A view of any kind, NumPy's too, keeps a block from being lent again."""
    assert callable(hold)
    pool = host.Pool()
    view = hold(lent(pool).fill_(7))
    for _ in range(5):
        lent(pool).fill_(0)
    assert bool((torch.as_tensor(np.asarray(view)) == 7).all())


def test_autograd_keeps_the_block() -> None:
    """What a backward pass will need is not overwritten."""
    pool = host.Pool()
    weight = torch.ones((), requires_grad=True)
    loss = (lent(pool).fill_(3) * weight).sum()
    lent(pool).fill_(0)
    loss.backward()
    assert weight.grad == 3 * 4 * 3 * 5 * 6


def test_a_smaller_tensor_fits_in_a_larger_block() -> None:
    """The last, smaller batch of an epoch takes no memory of its own."""
    pool = host.Pool()
    address = lent(pool, 4).data_ptr()
    assert lent(pool, 3).data_ptr() == address
    assert lent(pool, 4).data_ptr() == address


def test_more_may_be_held_than_the_pool_keeps() -> None:
    """Somebody who keeps every batch has them all."""
    pool = host.Pool(n_blocks=2)
    kept = [lent(pool).fill_(i) for i in range(6)]
    assert [int(tensor.mean()) for tensor in kept] == list(range(6))
    assert len({tensor.data_ptr() for tensor in kept}) == 6


def test_every_thread_has_a_pool_of_its_own() -> None:
    """Two threads never get the same block, for neither sees the other's."""
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(host.pool_of_this_thread).result()
    assert host.pool_of_this_thread() is host.pool_of_this_thread() is not theirs


@pytest.mark.parametrize("n_rows", [2, 400])
def test_batches_of_ones_own_can_be_kept(n_rows: int) -> None:
    """What `gp.per_sample` returned stays as it was, however often it is called again."""
    module = gp.per_sample([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    images = torch.arange(256, dtype=torch.uint8).view(1, 4, 8, 8).repeat(n_rows, 1, 1, 1)
    kept = [module(images) for _ in range(6)]
    copies = [batch.clone() for batch in kept]
    for _ in range(3):
        module(255 - images)
    assert all(torch.equal(batch, copy) for batch, copy in zip(kept, copies, strict=True))


CROP_AND_ERASE = [
    *(v2.RandomCrop(8, padding=2), v2.ToDtype(torch.float32, scale=True)),
    *(v2.Normalize([0.5], [0.2]), v2.RandomErasing(p=1)),
]


def test_memory_that_inference_made_is_used_after_it() -> None:
    """A module made or called in `torch.inference_mode` works the same outside."""
    images = torch.arange(256, dtype=torch.uint8).view(4, 1, 8, 8)
    with torch.inference_mode():
        module = gp.per_sample(CROP_AND_ERASE, seed=0)
        inside = module(images)
    outside = module(images)
    assert module.n_calls == 2
    assert not outside.is_inference()
    assert torch.equal(module(images, epoch=0), inside)
    assert torch.equal(module(images, epoch=1), outside)


@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_a_loader_read_in_inference_is_read_after_it(reuse_buffers: bool) -> None:
    """A dataset made in `torch.inference_mode`, and a loader first read there, train outside."""
    with torch.inference_mode():
        data = FakeData(12, (1, 8, 8), 3, transform=v2.Compose([v2.ToImage(), *CROP_AND_ERASE]))
        ours = gp.preload(data, device="cpu", seed=0, progress=False)
        loader = gp.Loader(ours, 4, reuse_buffers=reuse_buffers)
        first = [images.clone() for images, _ in loader]
    loader.set_epoch(0)
    ours.set_epoch(0)
    for (images, _), expected in zip(loader, first, strict=True):
        assert torch.equal(images, expected)
        assert not images.is_inference()
