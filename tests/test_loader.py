"""The loader: order, batches, dtypes, buffers, epochs."""

from __future__ import annotations

import hashlib
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder

import gpupreload as gp
from gpupreload import draws
from gpupreload.blocks import Blocks

ONCE = [v2.Resize(16), v2.CenterCrop(12)]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4] * 3, [0.3] * 3)]
SIZES = (1, 5, 12, 100)


class Numbered(Dataset[tuple[Tensor, int]]):
    """Images of one pixel, each of which is its own number."""

    def __init__(self, n_images: int) -> None:
        self.n_images = n_images

    def __len__(self) -> int:
        return self.n_images

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 1, 1), index, dtype=torch.uint8), index % 3


def preload(data: object, *steps: object, seed: int = 0) -> gp.GPUPreloadDataset:
    """Preload to the CPU, with these steps."""
    transform = v2.Compose(list(steps)) if steps else None
    return gp.preload(data, transform, device="cpu", seed=seed, progress=False)


@pytest.fixture
def numbered() -> gp.GPUPreloadDataset:
    """A hundred images that are their own numbers."""
    return preload(Numbered(100))


@pytest.fixture(scope="module")
def photos(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve small pictures, normalised."""
    return preload(photo_folder, *ONCE, *FLOATS)


def numbers(loader: gp.Loader) -> list[int]:
    """The order in which one epoch serves the samples."""
    return [number for images, _ in loader for number in images.flatten().tolist()]


def epoch_of(loader: gp.Loader) -> tuple[Tensor, Tensor]:
    """All images and labels of one epoch, in the order of serving."""
    images, labels = zip(*((i.clone(), x.clone()) for i, x in loader), strict=True)
    return torch.cat(images), torch.cat(labels)


def test_without_shuffle_the_order_is_the_datasets(numbered: gp.GPUPreloadDataset) -> None:
    """shuffle=False serves samples as they are numbered, with their labels."""
    images, labels = epoch_of(gp.Loader(numbered, 7))
    assert images.flatten().tolist() == list(range(100))
    assert labels.tolist() == [i % 3 for i in range(100)]


def test_shuffle_serves_each_sample_once_and_each_epoch_anew(
    numbered: gp.GPUPreloadDataset,
) -> None:
    """Every epoch is another permutation of all samples, and labels stay with their images."""
    loader = gp.Loader(numbered, 7, shuffle=True)
    (first, labels), (second, _) = epoch_of(loader), epoch_of(loader)
    assert sorted(first.flatten().tolist()) == list(range(100))
    assert sorted(second.flatten().tolist()) == list(range(100))
    assert not torch.equal(first, second)
    assert torch.equal(labels, first.flatten() % 3)


def test_order_is_a_function_of_seed_and_epoch(numbered: gp.GPUPreloadDataset) -> None:
    """The order depends on neither the batch size nor any global generator."""
    one = [numbers(gp.Loader(numbered, 7, shuffle=True, seed=3)) for _ in range(2)]
    torch.manual_seed(99)
    assert numbers(gp.Loader(numbered, 32, shuffle=True, seed=3)) == one[0] == one[1]
    assert numbers(gp.Loader(numbered, 32, shuffle=True, seed=4)) != one[0]


def test_no_global_generator_is_moved(photos: gp.GPUPreloadDataset) -> None:
    """An epoch leaves torch's global generator as it was."""
    before = torch.get_rng_state()
    for _ in gp.Loader(photos, 5, shuffle=True):
        pass
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "expected"),
    [
        (1, False, [1] * 12),
        (5, False, [5, 5, 2]),
        (5, True, [5, 5]),
        (12, True, [12]),
        (100, False, [12]),
        (100, True, []),
    ],
)
def test_batch_sizes(
    photos: gp.GPUPreloadDataset, batch_size: int, drop_last: bool, expected: list[int]
) -> None:
    """Batches are whole but for the last, which drop_last leaves out; len() agrees."""
    loader = gp.Loader(photos, batch_size, drop_last=drop_last)
    assert [len(images) for images, _ in loader] == expected
    assert len(loader) == len(expected)


@pytest.mark.parametrize("batch_size", SIZES)
@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_batches_equal_imagefolder(
    photo_folder: Path, photos: gp.GPUPreloadDataset, batch_size: int, reuse_buffers: bool
) -> None:
    """With no random step, a batch is ImageFolder's own floats, bit for bit."""
    expected = ImageFolder(photo_folder, v2.Compose([*ONCE, *FLOATS]))
    loader = gp.Loader(photos, batch_size, reuse_buffers=reuse_buffers)
    images, labels = epoch_of(loader)
    assert torch.equal(images, torch.stack([image for image, _ in expected]))
    assert labels.tolist() == expected.targets


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_dtype_and_memory_format(
    photos: gp.GPUPreloadDataset,
    dtype: torch.dtype,
    memory_format: torch.memory_format,
    reuse_buffers: bool,
) -> None:
    """Floats come in the dtype and memory format asked for: the float32 ones, rounded once."""
    settings = {"dtype": dtype, "memory_format": memory_format, "reuse_buffers": reuse_buffers}
    plain, _ = epoch_of(gp.Loader(photos, 5))
    for k, (images, _) in enumerate(gp.Loader(photos, 5, **settings)):
        assert images.dtype == dtype
        assert images.is_contiguous(memory_format=memory_format)
        assert torch.equal(images, plain[5 * k : 5 * k + 5].to(dtype))


def test_dtype_holds_after_a_step_of_the_callers_own(photo_folder: Path) -> None:
    """A chain that ends in a callable gives the dtype and memory format asked for, too."""
    ours = preload(photo_folder, *ONCE, *FLOATS, gp.live(lambda image: image + 1))
    loader = gp.Loader(ours, 5, dtype=torch.bfloat16, memory_format=torch.channels_last)
    images, _ = next(iter(loader))
    assert images.dtype == torch.bfloat16
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_uint8_comes_out_without_a_step_that_makes_floats(photo_folder: Path) -> None:
    """As with torchvision, pixels are floats only where a step makes them so."""
    images, _ = next(iter(gp.Loader(preload(photo_folder, *ONCE, v2.ToImage()), 4)))
    assert images.dtype == torch.uint8


@pytest.mark.parametrize("steps", [FLOATS, [v2.ToImage()], []], ids=["floats", "uint8", "none"])
def test_a_batch_can_be_kept(photo_folder: Path, steps: list[object]) -> None:
    """Without reuse_buffers, a batch that is kept does not change as the next ones come."""
    loader = gp.Loader(preload(photo_folder, *ONCE, *steps), 5)
    kept = list(loader)
    copies = [images.clone() for images, _ in loader]
    assert all(torch.equal(a, b) for (a, _), b in zip(kept, copies, strict=True))


def test_reused_buffers_are_one_piece_of_memory(photos: gp.GPUPreloadDataset) -> None:
    """With reuse_buffers, later blocks are written where the earlier ones were."""
    loader = gp.Loader(photos, 12, reuse_buffers=True)
    addresses = {images.data_ptr() for _ in range(3) for images, _ in loader}
    assert len(addresses) == 1


@pytest.mark.parametrize("steps", [FLOATS, [v2.ToImage()], []], ids=["floats", "uint8", "none"])
@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_writing_into_batches_never_reaches_the_store(
    photo_folder: Path, steps: list[object], reuse_buffers: bool
) -> None:
    """The store is the same after epochs in which every batch was overwritten."""
    ours = preload(photo_folder, *ONCE, *steps)
    before = hashlib.sha256(ours.images.numpy().tobytes()).hexdigest()
    labels_before = ours.labels.clone()
    for _ in range(2):
        for images, labels in gp.Loader(ours, 5, reuse_buffers=reuse_buffers):
            images.zero_()
            labels.fill_(-1)
    assert hashlib.sha256(ours.images.numpy().tobytes()).hexdigest() == before
    assert torch.equal(ours.labels, labels_before)


def test_small_images_come_in_blocks_that_change_nothing(photo_folder: Path) -> None:
    """Reading several batches at a time gives the batches that reading one at a time gives."""
    random = preload(photo_folder, *ONCE, v2.RandomHorizontalFlip(), *FLOATS)
    alone = preload(photo_folder, *ONCE, v2.RandomHorizontalFlip(), *FLOATS)
    whole = gp.Loader(random, 3, shuffle=True)
    single = gp.Loader(alone, 3, shuffle=True)
    blocks = Blocks(torch.float32, torch.contiguous_format, False)
    blocks.n_rows = lambda module, store, batch_size: batch_size  # type: ignore[method-assign]
    single._spare = [blocks]
    assert torch.equal(epoch_of(whole)[0], epoch_of(single)[0])


def test_the_picture_of_a_sample_depends_on_seed_and_epoch_alone(photo_folder: Path) -> None:
    """Batch size, order, and what was read in between do not change what a sample looks like."""
    random = preload(photo_folder, *ONCE, v2.RandomHorizontalFlip(), v2.RandomCrop(8), *FLOATS)
    plain = gp.Loader(random, 12)
    by_epoch = [epoch_of(plain)[0] for _ in range(3)]
    assert not torch.equal(by_epoch[0], by_epoch[1])
    shuffled = gp.Loader(random, 5, shuffle=True)
    for epoch, expected in enumerate(by_epoch):
        _ = random[epoch]
        order = draws.permutation(shuffled.seed, epoch, 12)
        assert torch.equal(epoch_of(shuffled)[0], expected[order])
    random.set_epoch(2)
    assert torch.equal(torch.stack([random[i][0] for i in range(12)]), by_epoch[2])


def test_epoch_counts_what_was_begun(photos: gp.GPUPreloadDataset) -> None:
    """loader.epoch is the epoch begun last, even if left early; set_epoch sets the next."""
    loader = gp.Loader(photos, 5)
    assert loader.epoch == 0
    next(iter(loader))
    assert loader.epoch == 0
    epoch_of(loader)
    assert loader.epoch == 1
    loader.set_epoch(7)
    batches = iter(loader)
    assert (loader.epoch, loader.next_epoch) == (7, 8)
    next(batches)
    assert (loader.epoch, loader.next_epoch) == (7, 8)


def test_an_iterator_that_is_thrown_away_unused_begins_nothing(
    numbered: gp.GPUPreloadDataset,
) -> None:
    """Who only checks that a loader can be gone through, as Lightning does, uses up no epoch."""
    loader = gp.Loader(numbered, 10, shuffle=True)
    by_epoch = [torch.cat([images for images, _ in loader]) for _ in range(2)]
    loader.set_epoch(0)
    for expected in by_epoch:
        iter(loader)
        iter(loader)
        assert torch.equal(torch.cat([images for images, _ in loader]), expected)
    assert (loader.epoch, loader.next_epoch) == (1, 2)

    loader.set_epoch(1)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    iter(loader)
    assert loader.next_epoch == 1
    assert loader.state_dict() == state
    assert torch.equal(torch.cat([images for images, _ in loader]), by_epoch[1][10:])


def test_an_epoch_left_early_is_not_seen_again(numbered: gp.GPUPreloadDataset) -> None:
    """A training loop that stops after a few batches gets others in the next epoch."""
    loader = gp.Loader(numbered, 10, shuffle=True)
    first, second = next(iter(loader))[0], next(iter(loader))[0]
    assert not torch.equal(first, second)


def test_seed_is_the_datasets_unless_given(numbered: gp.GPUPreloadDataset) -> None:
    """A loader without a seed of its own uses the dataset's, and says so."""
    assert gp.Loader(numbered).seed == numbered.seed == 0
    assert gp.Loader(numbered, seed=5).seed == 5


def test_a_loader_over_a_freed_dataset_says_so(photo_folder: Path) -> None:
    """Iterating over a dataset that was freed is a clear error."""
    ours = preload(photo_folder, v2.Resize((5, 5)))
    loader = gp.Loader(ours)
    ours.free()
    with pytest.raises(gp.FreedError) as caught:
        next(iter(loader))
    assert str(caught.value) == (
        "this dataset's memory was given back with free(); preload the data again."
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"batch_size": 0},
            "batch_size is 0; expected the number of images in a batch, 1 or more.",
        ),
        (
            {"batch_size": 2.5},
            "batch_size is 2.5; expected the number of images in a batch, 1 or more.",
        ),
        (
            {"dtype": torch.uint8},
            "dtype is torch.uint8; expected torch.float32, float16, bfloat16 or float64. "
            "For uint8, leave the steps that make floats out of the transform.",
        ),
        (
            {"memory_format": torch.preserve_format},
            "memory_format is torch.preserve_format; expected torch.contiguous_format or "
            "torch.channels_last.",
        ),
        (
            {"num_workers": 4},
            "num_workers is 4, but a Loader has no worker processes: the images are on the device "
            "already. Leave num_workers out.",
        ),
        (
            {"pin_memory": True},
            "pin_memory is True, but there is nothing to pin: the images are on the device "
            "already. Leave pin_memory out.",
        ),
        (
            {"collate_fn": list},
            "collate_fn is type, but a Loader makes batches on the device. Put what it does into "
            "the transform, where gp.batched(fn) is called on whole batches, or use "
            "torch.utils.data.DataLoader.",
        ),
        (
            {"generator": torch.Generator()},
            "generator is torch._C.Generator, but a Loader's order and draws are a function of a "
            "seed and the epoch. Pass seed= instead, such as seed=generator.initial_seed().",
        ),
        (
            {"batch_sampler": [[0, 1]]},
            "batch_sampler is list, but a Loader makes the batches itself. Pass a sampler of "
            "sample numbers as sampler=, and batch_size=.",
        ),
        (
            {"pin_memory_device": "cuda"},
            "pin_memory_device is 'cuda', but there is nothing to pin: the images are on the "
            "device already. Leave it out.",
        ),
        *(
            (
                {name: value},
                f"{name} is {came}, but a Loader has no worker processes: the images are on the "
                "device already. Leave it out.",
            )
            for name, value, came in (
                ("persistent_workers", True, "True"),
                ("prefetch_factor", 4, "4"),
                ("worker_init_fn", print, "builtin_function_or_method"),
                ("timeout", 1.5, "1.5"),
                ("multiprocessing_context", "spawn", "'spawn'"),
                ("in_order", False, "False"),
            )
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_be_used(
    numbered: gp.GPUPreloadDataset, settings: dict[str, object], message: str
) -> None:
    """A wrong setting is named, with what was expected and what to do."""
    with pytest.raises((gp.ArgumentError, gp.LoadingError)) as caught:
        gp.Loader(numbered, **settings)
    assert str(caught.value) == message


def test_other_datasets_are_refused(photo_folder: Path) -> None:
    """A Loader takes resident datasets only, and says what takes the others."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.Loader(ImageFolder(photo_folder))
    assert str(caught.value) == (
        "dataset is torchvision.datasets.folder.ImageFolder; expected a GPUPreloadDataset, as "
        "gpupreload.preload(data, transform) returns. torch.utils.data.DataLoader takes others."
    )


def test_num_workers_0_and_pin_memory_false_are_taken(numbered: gp.GPUPreloadDataset) -> None:
    """The settings that are right for resident data may stay when a DataLoader is replaced."""
    assert len(gp.Loader(numbered, 10, num_workers=0, pin_memory=False)) == 10
    signature = inspect.signature(DataLoader).parameters.values()
    defaults = {p.name: p.default for p in signature if p.default is not p.empty}
    for name in ("batch_size", "shuffle"):  # not the same here
        del defaults[name]
    assert len(gp.Loader(numbered, 10, **defaults)) == 10


def test_tensors_of_ours_do_not_follow_the_default_device(photos: gp.GPUPreloadDataset) -> None:
    """A torch.set_default_device for a model does not move what must be on the CPU."""
    with torch.device("meta"):
        images, labels = next(iter(gp.Loader(photos, 5, shuffle=True)))
        single = photos[3][0]
    assert images.device.type == labels.device.type == single.device.type == "cpu"


def test_the_repr_of_a_loader_over_a_freed_dataset(photo_folder: Path) -> None:
    """A loader can be shown after its dataset was freed."""
    ours = preload(photo_folder, v2.Resize((4, 5)))
    loader = gp.Loader(ours, 5, shuffle=True, seed=3)
    assert repr(loader) == "Loader: 3 batches of 5 on cpu, shuffle=True, seed=3, epoch=0"
    ours.free()
    assert repr(loader) == "Loader: its dataset was freed"


@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_a_loader_may_be_gone_through_in_several_threads(
    photo_folder: Path, reuse_buffers: bool
) -> None:
    """Each run through has memory of its own, in turn in one thread or at once in several."""
    steps = [v2.Resize((20, 20)), v2.RandomCrop(16, padding=4), v2.RandomHorizontalFlip(), *FLOATS]
    ours = gp.preload(photo_folder, v2.Compose(steps), device="cpu", seed=3, progress=False)
    loader = gp.Loader(ours, 2, shuffle=True, reuse_buffers=reuse_buffers)
    expected = [
        torch.cat([images.clone() for images, _ in epoch])
        for epoch in (iter(loader) for _ in range(6))
    ]
    loader.set_epoch(0)
    epochs = [iter(loader) for _ in range(6)]
    together: list[list[torch.Tensor]] = [[] for _ in epochs]
    for _ in range(len(loader)):
        for epoch, kept in zip(epochs, together, strict=True):
            kept.append(next(epoch)[0].clone())
    assert all(torch.equal(torch.cat(k), e) for k, e in zip(together, expected, strict=True))
    loader.set_epoch(0)
    epochs = [iter(loader) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda epoch: torch.cat([x.clone() for x, _ in epoch]), epochs)
        assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "with_indices", "reuse_buffers"])
def test_a_switch_is_true_or_false(numbered: gp.GPUPreloadDataset, name: str) -> None:
    """A text or a number for a switch is refused, for every text is true."""
    wrong: dict[str, Any] = {name: "no"}
    right: dict[str, Any] = {name: np.bool_(False)}
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(numbered, 4, **wrong)
    assert str(raised.value) == f"{name} is 'no'; expected True or False."
    assert len(gp.Loader(numbered, 4, **right)) > 0


def test_numpys_integers_are_numbers(numbered: gp.GPUPreloadDataset) -> None:
    """What NumPy or torch counted is a number of images, or of an epoch."""
    batch_size: Any = np.int64(4)
    loader = gp.Loader(numbered, batch_size)
    loader.set_epoch(batch_size)
    assert (type(loader.batch_size), loader.batch_size, loader.next_epoch) == (int, 4, 4)
    assert len(next(iter(loader))[0]) == 4
