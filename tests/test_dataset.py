"""The preloaded dataset: what it looks like, what it draws, its explicit form, its copies."""

from __future__ import annotations

import copy
import importlib
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from torch.utils.data._utils.pin_memory import pin_memory
from torchvision.datasets import ImageFolder
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.fetched import Batch
from gpupreload.store import Store
from gpupreload.view import View

serving = importlib.import_module("gpupreload.serving")

ONCE = [v2.Resize(20), v2.CenterCrop(16)]
FLOATS = [v1.ToTensor()]
RANDOM = [v2.RandomResizedCrop(8), v2.RandomHorizontalFlip()]


def preload(data: Any, *steps: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    transform = v2.Compose(list(steps)) if steps else None
    return gp.preload(data, transform, **{"device": "cpu", "progress": False} | settings)


def explicit(data: Any, *arguments: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """The explicit form on the CPU, without a bar."""
    return gp.GPUPreloadDataset(data, *arguments, device="cpu", progress=False, **settings)


def negative(image: Tensor) -> Tensor:
    """A callable of a user's own."""
    return 1 - image


@pytest.fixture
def plain(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Photos without a random step."""
    return preload(photo_folder, *ONCE, *FLOATS)


@pytest.fixture
def drawn(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Photos with random steps; hardly any two draws are the same."""
    return preload(photo_folder, *ONCE, *RANDOM, *FLOATS, seed=3)


def all_of(data: Any) -> Tensor:
    """All images of a dataset, read one by one."""
    return torch.stack([image for image, _ in data])


# --- as an ImageFolder


def test_items(plain: gp.GPUPreloadDataset) -> None:
    """An item is a pair of an image on the device and an int."""
    image, label = plain[5]
    assert (image.shape, image.dtype, image.device.type) == ((3, 16, 16), torch.float32, "cpu")
    assert type(image) is Tensor
    assert type(label) is int
    assert label == 1


@pytest.mark.parametrize("index", [5, -7, np.int64(5), torch.tensor(5), np.uint8(5)])
def test_indices(plain: gp.GPUPreloadDataset, index: Any) -> None:
    """Whole numbers of any type are indices, and negative ones count from the end."""
    image, label = plain[index]
    assert torch.equal(image, all_of(plain)[5])
    assert label == 1


@pytest.mark.parametrize("index", [12, -13, 10**6])
@pytest.mark.parametrize("several", [False, True])
def test_indices_out_of_range(plain: gp.GPUPreloadDataset, index: int, several: bool) -> None:
    """An index out of range is an IndexError, not an error of the device."""
    with pytest.raises(IndexError) as raised:
        plain.__getitems__([0, index]) if several else plain[index]
    assert str(raised.value) == f"index {index} is out of range for 12 images."


@pytest.mark.parametrize(
    ("index", "what"), [(slice(0, 2), "slice"), (1.0, "float"), ("cat", "str"), ([0, 1], "list")]
)
def test_indices_of_a_wrong_type(plain: gp.GPUPreloadDataset, index: Any, what: str) -> None:
    """One item at a time: a slice or a list is refused with a way on."""
    with pytest.raises(TypeError) as raised:
        plain[index]
    assert str(raised.value) == (
        f"the index is {what}; expected an int. "
        "For several images, use torch.utils.data.Subset(dataset, indices)."
    )


def test_iteration_ends(plain: gp.GPUPreloadDataset) -> None:
    """A for loop over the dataset reads each item once, and ends."""
    assert [label for _, label in plain] == [0] * 4 + [1] * 4 + [2] * 4


def test_several_at_once(plain: gp.GPUPreloadDataset) -> None:
    """A batched fetch gives the items in the order asked for, negative indices too."""
    fetched = plain.__getitems__([3, -1, 3])
    assert torch.equal(fetched.images, all_of(plain)[[3, 11, 3]])
    assert fetched.labels.tolist() == [0, 2, 0]
    assert [label for _, label in fetched] == [0, 2, 0]
    assert fetched[-1][1] == 0
    assert torch.equal(fetched[1:].images, fetched.images[1:])
    assert len(plain.__getitems__([])) == 0


def test_composes_with_torch(plain: gp.GPUPreloadDataset) -> None:
    """Subset and ConcatDataset take it as any other dataset."""
    images = all_of(plain)
    assert torch.equal(all_of(Subset(plain, [2, 7])), images[[2, 7]])
    both = plain + Subset(plain, [4])
    assert isinstance(both, ConcatDataset)
    assert torch.equal(both[12][0], images[4])


def test_the_store_can_be_looked_at(photo_folder: Path, plain: gp.GPUPreloadDataset) -> None:
    """`images`, `labels` and `targets` are the store's, in the order of the samples."""
    before = ImageFolder(photo_folder, v2.Compose([*ONCE, v2.PILToTensor()]))
    assert torch.equal(plain.images, torch.stack([image for image, _ in before]))
    assert plain.labels.tolist() == plain.targets == before.targets
    assert plain.samples == plain.imgs == before.samples
    assert plain.images is plain.images
    assert str(plain.device) == "cpu"


def test_as_tensor_dataset(photo_folder: Path) -> None:
    """The float images of a TensorDataset are those of the steps before the first random one."""
    floats = v2.Compose([*ONCE, *FLOATS])
    expected = torch.stack([image for image, _ in ImageFolder(photo_folder, floats)])
    for ours in (
        preload(photo_folder, *ONCE),
        preload(photo_folder, floats),
        preload(photo_folder, floats, v2.RandomErasing(1), v2.Normalize([0.5], [0.5])),
    ):
        whole = ours.as_tensor_dataset()
        assert type(whole) is TensorDataset
        images, labels = whole.tensors
        assert images.dtype == torch.float32
        assert torch.equal(images, expected)
        assert torch.equal(labels, ours.labels)
        images.zero_()
        labels.zero_()
        assert ours.images.any()
        assert ours.labels.any()


def test_repr(photo_folder: Path) -> None:
    """The repr says what is there, what runs when, and what is slow."""
    ours = preload(photo_folder, *ONCE, *FLOATS, gp.live(negative))
    assert repr(ours) == (
        "GPUPreloadDataset: 12 images of 3×16×16, 3 classes\n"
        "  on cpu: 9.1 KiB, kept as uint8\n"
        "  once: Resize(20), CenterCrop(16)\n"
        "  each batch: ToTensor(), negative\n"
        "  slow, sample by sample: negative"
    )
    assert repr(preload([(torch.zeros(1, 2, 2), 0)])) == (
        "GPUPreloadDataset: 1 image of 1×2×2, 1 class\n"
        "  on cpu: 24 bytes, kept as float32\n"
        "  once: nothing\n"
        "  each batch: nothing"
    )


def test_steps_is_the_table(drawn: gp.GPUPreloadDataset) -> None:
    """`steps` says what runs once and what each batch."""
    assert [row.part for row in drawn.steps.rows] == ["once"] * 2 + ["each batch"] * 3


# --- draws


def test_reading_again_draws_anew(drawn: gp.GPUPreloadDataset) -> None:
    """Without set_epoch nothing is frozen: each reading has its own draw, in one batch too."""
    images = [drawn[3][0] for _ in range(4)]
    images += list(drawn.__getitems__([3, 3, 3, 3]).images)
    assert len({image.numpy().tobytes() for image in images}) == 8


def test_an_epoch_is_the_same_however_it_is_read(drawn: gp.GPUPreloadDataset) -> None:
    """After set_epoch a sample's draw depends on no batch size, order, subset or reader."""
    drawn.set_epoch(2)
    expected = all_of(drawn)
    assert torch.equal(all_of(drawn), expected)
    assert torch.equal(drawn.__getitems__(range(12)).images, expected)
    assert torch.equal(drawn.__getitems__(range(11, -1, -1)).images.flip(0), expected)
    assert torch.equal(all_of(Subset(drawn, [7, 2])), expected[[7, 2]])
    batches = [images for images, _ in DataLoader(drawn, 5)]
    assert torch.equal(torch.cat(batches), expected)
    loader = gp.Loader(drawn, 7)
    loader.set_epoch(2)
    assert torch.equal(torch.cat([images for images, _ in loader]), expected)


def test_epochs_and_seeds_differ(photo_folder: Path, drawn: gp.GPUPreloadDataset) -> None:
    """Another epoch or another seed is another set of draws; the same ones are the same."""
    other = preload(photo_folder, *ONCE, *RANDOM, *FLOATS, seed=4)
    same = preload(photo_folder, *ONCE, *RANDOM, *FLOATS, seed=3)
    found = []
    for data, epoch in [(drawn, 0), (drawn, 1), (other, 0), (drawn, 0), (same, 0)]:
        data.set_epoch(epoch)
        found.append(all_of(data))
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(found[0], found[3])
    assert torch.equal(found[0], found[4])


def test_fresh_draws_come_back(drawn: gp.GPUPreloadDataset) -> None:
    """set_epoch(None) goes back to a draw for each reading."""
    drawn.set_epoch(0)
    fixed = all_of(drawn)
    drawn.set_epoch(None)
    assert not torch.equal(all_of(drawn), fixed)
    assert not torch.equal(all_of(drawn), all_of(drawn))


def test_fresh_draws_are_governed_by_the_seed(photo_folder: Path) -> None:
    """Two runs that read alike draw alike."""
    one, two = (preload(photo_folder, *ONCE, *RANDOM, *FLOATS, seed=9) for _ in range(2))
    assert torch.equal(all_of(one), all_of(two))


def test_duplicates_in_a_batch_have_their_own_draws(drawn: gp.GPUPreloadDataset) -> None:
    """A sample that stands twice in a batch is drawn twice, the same in every run."""
    drawn.set_epoch(0)
    images = drawn.__getitems__([3, 4, 3, 3]).images
    assert len({image.numpy().tobytes() for image in images[[0, 2, 3]]}) == 3
    assert torch.equal(images, drawn.__getitems__([3, 4, 3, 3]).images)
    assert torch.equal(images[:2], drawn.__getitems__([3, 4]).images)


@pytest.mark.parametrize("make", [preload, lambda root, *steps: explicit(root, *steps)])
def test_the_seed_comes_from_torch(photo_folder: Path, make: Callable[..., Any]) -> None:
    """seed=None draws one number from torch's global generator, and keeps it readable."""
    torch.manual_seed(7)
    first, state = make(photo_folder, v2.Resize((8, 8))).seed, torch.get_rng_state()
    torch.manual_seed(7)
    again = make(photo_folder, v2.Resize((8, 8))).seed
    torch.manual_seed(7)
    expected = int(torch.randint(0, 2**63 - 1, ()))
    assert first == again == expected
    assert torch.equal(torch.get_rng_state(), state)


def noisy(image: Tensor) -> Tensor:
    """A callable that draws from all three global generators."""
    return image + torch.rand(()) + random.random() + np.random.rand()


def test_no_global_generator_is_moved(photo_folder: Path) -> None:
    """Loading with a seed, and reading, leave torch's, Python's and NumPy's generators alone."""

    def states() -> list[Any]:
        numpy = np.random.get_state()
        return [torch.get_rng_state().tolist(), random.getstate(), numpy[1].tolist(), numpy[2:]]

    def use(data: gp.GPUPreloadDataset) -> None:
        data[0]
        data.__getitems__([1, 2, 2])
        list(data)
        list(gp.Loader(data, 5, shuffle=True))
        data.as_tensor_dataset()
        data.set_epoch(1)
        all_of(data)

    before = states()
    use(preload(photo_folder, *ONCE, *RANDOM, *FLOATS, noisy, seed=0))
    assert states() == before
    use(explicit(photo_folder, v2.Compose(ONCE), noisy, seed=0))
    assert states() == before
    with pytest.warns(UserWarning, match="allow_frozen"):
        use(explicit(photo_folder, v2.RandomResizedCrop(8), seed=0, allow_frozen=True))
    assert states() == before


def test_callables_draw_anew_and_reproducibly(photo_folder: Path) -> None:
    """A callable that draws from global generators draws from the sample's own, as any step."""
    ours = preload(photo_folder, *ONCE, *FLOATS, noisy, seed=0)
    assert not torch.equal(ours[0][0], ours[0][0])
    ours.set_epoch(0)
    first = all_of(ours)
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    assert torch.equal(ours.__getitems__(range(12)).images, first)
    assert not torch.equal(first[0] - first[1], torch.zeros(()))


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.5, "a"])
@pytest.mark.parametrize("call", [gp.preload, gp.GPUPreloadDataset])
def test_seeds_out_of_range(call: Any, seed: Any) -> None:
    """A seed is checked before a folder is looked at."""
    with pytest.raises(gp.ArgumentError) as raised:
        call("/no/such/folder", device="cpu", seed=seed)
    assert str(raised.value) == (
        f"seed is {seed!r}; expected an int from -2**63 to 2**64 - 1. Any other number is brought "
        "into that range by int(...) % 2**64."
    )


def test_a_negative_epoch(plain: gp.GPUPreloadDataset) -> None:
    """Epochs count from 0."""
    with pytest.raises(gp.ArgumentError) as raised:
        plain.set_epoch(-1)
    assert str(raised.value) == (
        "epoch is -1; expected a whole number, 0 or more, or None for fresh draws."
    )


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), torch.tensor(3)], ids=str)
def test_an_epoch_of_any_integer_type(plain: gp.GPUPreloadDataset, number: Any) -> None:
    """NumPy's integers, as a loop over `np.arange` gives them, are epochs too, here and there."""
    plain.set_epoch(number)
    loader = gp.Loader(plain)
    loader.set_epoch(number)
    iter(loader)
    assert (plain.epoch, loader.epoch) == (3, 3)
    for wrong in (2.0, "3"):
        with pytest.raises(gp.ArgumentError, match="expected a whole number, 0 or more"):
            plain.set_epoch(wrong)  # type: ignore[arg-type]
        with pytest.raises(gp.ArgumentError, match="expected a whole number, 0 or more"):
            loader.set_epoch(wrong)  # type: ignore[arg-type]


# --- the explicit form


def test_train_aug_is_given_floats_after_pil(photo_folder: Path) -> None:
    """After PIL images, train_aug is called with one image [C, H, W] of floats in [0, 1]."""
    seen: list[Tensor] = []

    def watch(image: Tensor) -> Tensor:
        seen.append(image.clone())
        return image * 2

    ours = explicit(photo_folder, v2.Compose(ONCE), watch)
    assert seen == []  # it may want a device, so it is not tried before
    images, labels = next(iter(DataLoader(ours, 12)))
    expected = torch.stack(
        [image for image, _ in ImageFolder(photo_folder, v2.Compose(ONCE + FLOATS))]
    )
    assert len(seen) == 12
    assert [type(image) for image in seen] == [Tensor] * 12
    assert torch.equal(torch.stack(seen), expected)
    assert torch.equal(images, expected * 2)
    assert labels.tolist() == ours.targets


def test_train_aug_is_given_the_floats_that_were_made(photo_folder: Path) -> None:
    """After floats, train_aug is given just these, Normalize and all."""
    first = v2.Compose([*ONCE, *FLOATS, v2.Normalize([0.5] * 3, [0.2] * 3)])
    seen: list[Tensor] = []
    ours = explicit(photo_folder, first, lambda image: seen.append(image.clone()) or image)
    assert ours.images.dtype == torch.uint8
    expected = all_of(ImageFolder(photo_folder, first))
    assert torch.equal(all_of(ours), expected)
    assert torch.equal(torch.stack(seen), expected)


def test_train_aug_with_a_conversion_of_its_own_is_given_uint8(photo_folder: Path) -> None:
    """Where train_aug itself makes the floats, none are made before it."""
    kinds: list[torch.dtype] = []
    watch = gp.live(lambda image: kinds.append(image.dtype) or image)
    to_floats = v2.ToDtype(torch.float32, scale=True)
    first = v2.Compose([*ONCE, v2.ToImage()])
    ours = explicit(photo_folder, first, v2.Compose([watch, to_floats]))
    expected = all_of(ImageFolder(photo_folder, v2.Compose([first, to_floats])))
    assert torch.equal(all_of(ours), expected)
    assert set(kinds) == {torch.uint8}


def test_train_aug_may_change_the_size(photo_folder: Path) -> None:
    """What comes out need not have the size that is stored, so long as a batch has one."""
    ours = explicit(photo_folder, v2.Compose(ONCE), lambda image: image[:1, :5])
    assert ours[0][0].shape == (1, 5, 16)
    ragged = explicit(
        photo_folder, v2.Compose(ONCE), lambda image: image[:, : 1 + int(image.sum()) % 9]
    )
    with pytest.raises(gp.TransformError, match="the images of one batch have different sizes"):
        ragged.__getitems__(range(12))


def test_an_imagefolder_with_a_transform_of_its_own(photo_folder: Path) -> None:
    """The transform of an ImageFolder stands for deterministic_transform."""
    data = ImageFolder(photo_folder, v2.Compose([*ONCE, *FLOATS]))
    assert torch.equal(all_of(explicit(data, None, negative)), 1 - all_of(data))


def test_nothing_at_all(photo_folder: Path) -> None:
    """With neither part, uint8 pixels come out."""
    data = ImageFolder(photo_folder, v2.Compose(ONCE))
    assert explicit(data)[0][0].dtype == torch.uint8


def test_a_random_step_is_not_frozen_unasked(photo_folder: Path) -> None:
    """A random step in deterministic_transform is refused by name."""
    with pytest.raises(gp.FrozenAugmentationError) as raised:
        explicit(photo_folder, v2.Compose([*ONCE, v2.RandomHorizontalFlip()]))
    assert "step 3 of deterministic_transform, RandomHorizontalFlip(p=0.5), is random." in str(
        raised.value
    )


def test_frozen_on_purpose(photo_folder: Path) -> None:
    """allow_frozen=True lets it through, with a warning where it was called: pictures repeat."""
    with pytest.warns(UserWarning, match="allow_frozen=True") as warned:
        ours = explicit(photo_folder, v2.RandomResizedCrop(8), allow_frozen=True)
    assert str(warned[0].message) == (
        "the step of deterministic_transform, RandomResizedCrop(8), is random and runs once, "
        "because allow_frozen=True: every epoch will show the same picture."
    )
    assert warned[0].filename.endswith("test_dataset.py")
    assert torch.equal(all_of(ours), all_of(ours))


# --- another transform


def test_another_transform_over_the_same_store(photo_folder: Path) -> None:
    """Assigning a transform with the same once-part changes what runs each batch, and no pixel."""
    ours = preload(photo_folder, *ONCE, *RANDOM, *FLOATS)
    store = ours.images
    ours.transform = transform = v2.Compose([*ONCE, *FLOATS, negative])
    assert ours.transform is transform
    assert ours.images is store
    assert torch.equal(all_of(ours), 1 - all_of(preload(photo_folder, *ONCE, *FLOATS)))
    assert [row.name for row in ours.steps.rows][-1] == "negative"
    loader = gp.Loader(ours, 12)
    ours.transform = v2.Compose(ONCE)
    assert next(iter(loader))[0].dtype == torch.uint8


def test_another_once_part_needs_another_load(photo_folder: Path) -> None:
    """A transform with another once-part is refused, and nothing is changed."""
    ours = preload(photo_folder, *ONCE, *FLOATS)
    before = all_of(ours)
    with pytest.raises(gp.TransformError) as raised:
        ours.transform = v2.Compose([v2.Resize((9, 9)), *FLOATS])
    assert str(raised.value) == (
        "this transform has another once-part than the images were loaded with, so they must be "
        "loaded again: gpupreload.preload(data, transform).\n"
        "Or begin it with the steps that they were loaded with: it is the whole transform.\n"
        "loaded with: Resize(20), CenterCrop(16)\n"
        "asked for:   Resize((9, 9))"
    )
    assert torch.equal(all_of(ours), before)


def test_no_transform(photo_folder: Path) -> None:
    """Assigning None leaves the augmentation out, as with_transform(None) does."""
    ours = preload(photo_folder, *ONCE, *FLOATS, negative)
    ours.transform = v2.Compose([*ONCE, v2.RandomHorizontalFlip(1), *FLOATS])
    ours.transform = None
    assert ours.transform is None
    assert torch.equal(all_of(ours), all_of(preload(photo_folder, *ONCE, *FLOATS)))
    copied = copy.deepcopy(ours)
    copied.transform = None
    assert torch.equal(all_of(copied), all_of(ours))


def test_store_size_is_remembered(photo_folder: Path) -> None:
    """Another transform is split with the store_size that the images were loaded with."""
    ours = preload(photo_folder, v2.RandomCrop(8), *FLOATS, store_size=(16, 18))
    ours.transform = v2.Compose([v2.RandomResizedCrop(8), *FLOATS])
    assert ours[0][0].shape == (3, 8, 8)
    assert ours.images.shape == (12, 3, 16, 18)


# --- copies


@pytest.mark.parametrize(
    "copied", [lambda ds: pickle.loads(pickle.dumps(ds)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_copies_stand_alone(
    drawn: gp.GPUPreloadDataset, copied: Callable[[Any], gp.GPUPreloadDataset]
) -> None:
    """A pickled or deep copy draws alike, has its own store, and is freed by itself."""
    twin = copied(drawn)
    assert twin.images.data_ptr() != drawn.images.data_ptr()
    for data in (drawn, twin):
        data.set_epoch(1)
    expected = all_of(drawn)
    assert torch.equal(all_of(twin), expected)
    assert (twin.classes, twin.samples, twin.seed) == (drawn.classes, drawn.samples, drawn.seed)
    drawn.set_epoch(2)
    drawn.free()
    assert torch.equal(all_of(twin), expected)
    assert twin._clock._epoch.is_shared()


def test_a_shallow_copy_holds_the_store(photo_folder: Path) -> None:
    """A shallow copy shares the store, which lives until both have let go."""
    plain = preload(photo_folder, v2.Resize((7, 5)), *FLOATS)
    twin = copy.copy(plain)
    assert twin.images is plain.images
    assert plain.free() == 0
    assert len(all_of(twin)) == 12
    assert twin.free() > 0


def test_a_copys_transform_cannot_be_split(plain: gp.GPUPreloadDataset) -> None:
    """A copy has no link to the files, so its transform cannot be replaced."""
    twin = copy.deepcopy(plain)
    with pytest.raises(gp.TransformError) as raised:
        twin.transform = v2.Compose(ONCE)
    assert str(raised.value) == (
        "this dataset was copied or sent to another process, where it has no link to its files, "
        "so its transform cannot be split again. Assign it to the original."
    )


def test_a_freed_dataset_can_be_copied(plain: gp.GPUPreloadDataset) -> None:
    """A freed dataset stays freed in its copies."""
    plain.free()
    assert repr(pickle.loads(pickle.dumps(plain))) == "GPUPreloadDataset: freed"


# --- wrong settings on an accelerator, with the meta device in its place


@pytest.fixture
def on_meta(plain: gp.GPUPreloadDataset) -> gp.GPUPreloadDataset:
    """A dataset whose store is on a device that is not the CPU."""
    store = Store(plain.images.to("meta"), plain.labels)
    plain._view = View(store)
    store.hold(plain)
    return plain


def test_workers_with_images_on_an_accelerator(
    on_meta: gp.GPUPreloadDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a worker process, images on an accelerator are refused with the call that works."""
    assert on_meta.__getitems__([0, 1]).images.shape == (2, 3, 16, 16)
    worker = SimpleNamespace(id=0, seed=1)
    monkeypatch.setattr(serving, "get_worker_info", lambda: worker)
    for read in (
        lambda: on_meta[0],
        lambda: on_meta.__getitems__([0]),
        lambda: Subset(on_meta, [0])[0],
    ):
        with pytest.raises(gp.LoadingError) as raised:
            read()
        assert str(raised.value) == (
            "the images are on meta, which a DataLoader's worker processes cannot read from, and "
            "need not: use DataLoader(dataset, batch_size, num_workers=0, pin_memory=False) or "
            "gpupreload.Loader(dataset, batch_size)."
        )


def test_pinning_images_on_an_accelerator(on_meta: gp.GPUPreloadDataset) -> None:
    """pin_memory=True on images that are on a device is refused with the call that works."""
    [batch] = DataLoader(on_meta, 12)
    assert type(batch) is Batch
    with pytest.raises(gp.LoadingError) as raised:
        pin_memory(batch)
    assert str(raised.value) == (
        "pin_memory=True pins batches in the host's memory, but these are on meta already: use "
        "DataLoader(dataset, batch_size, num_workers=0, pin_memory=False) or "
        "gpupreload.Loader(dataset, batch_size)."
    )


def test_data_that_are_preloaded_already(photo_folder: Path) -> None:
    """A resident dataset is served, not preloaded again, and the message says how."""
    ours = gp.preload(photo_folder, v2.Resize((5, 5)), device="cpu", progress=False)
    for data in (ours, torch.utils.data.Subset(ours, [0, 1])):
        with pytest.raises(gp.ArgumentError) as raised:
            gp.preload(data)
        assert str(raised.value) == (
            "data is preloaded already. Serve it as it is, with a Loader or a DataLoader; for "
            "another transform, assign dataset.transform, or preload the files' folder again."
        )


def test_a_draw_for_some_images_only_is_warned_of(
    photo_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """A step that draws for images it was not tried on is noticed after loading."""

    def turns_some(image: Any) -> Any:
        if image.size == (52, 56):
            random.random()
        return image

    gp.preload(photo_folder, [turns_some, v2.Resize((5, 5))], device="cpu", progress=False)
    assert [str(warning.message) for warning in recwarn] == [
        "Python's global generator moved while loading, though every step that ran was found "
        "deterministic: a step, or the data, draws for some of the images. What it drew is frozen. "
        "Mark it gp.live(fn)."
    ]


def test_a_draw_of_a_step_that_was_marked_once_is_named(
    photo_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Where the caller marked a step gp.once, what it draws is told by its name."""
    steps = [v2.Resize((9, 9)), gp.once(v2.RandomCrop(5)), v2.ToImage()]
    gp.preload(photo_folder, steps, device="cpu", progress=False)
    assert [str(warning.message) for warning in recwarn] == [
        "torch's global generator moved while loading. RandomCrop(5), marked gp.once, ran once as "
        "you said: if it drew, every epoch has that one draw. Leave the mark out for a draw in "
        "every epoch."
    ]


def test_a_step_marked_once_that_draws_nothing_is_no_warning(
    photo_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """The mark alone is nothing to warn of."""
    steps = [v2.Resize((9, 9)), gp.once(v2.RandomCrop(9))]
    gp.preload(photo_folder, steps, device="cpu", progress=False)
    assert [str(warning.message) for warning in recwarn] == []
