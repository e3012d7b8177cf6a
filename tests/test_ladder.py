"""The ladder: the same batches from the device, the host's memory, both, or a file."""

from __future__ import annotations

import errno
import gc
import hashlib
import pickle
import shutil
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import ahead, building, cache_writing, draws, placement

BLOCK_BYTES = "gpupreload.blocks._BLOCK_BYTES"
RUNGS = ("device", "mixed", "host", "disk")
SIZE = [v2.Resize(16), v2.CenterCrop(16)]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4] * 3, [0.3] * 3)]
TRANSFORMS = {
    "nothing random": [*SIZE, *FLOATS],
    "crop and flip": [*SIZE, v2.RandomCrop(16, padding=2), v2.RandomHorizontalFlip(), *FLOATS],
    "on the batch": [*SIZE, v2.ColorJitter(0.4, 0.4), v2.RandomErasing(0.5), *FLOATS],
    "uint8": [*SIZE, v2.RandomHorizontalFlip()],
    "sample by sample": [*SIZE, v2.JPEG((20, 80)), *FLOATS],
}


@pytest.fixture(autouse=True)
def no_store_left() -> None:
    """A caught error keeps the test's datasets alive in a cycle, and their stores are shared."""
    gc.collect()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder for files of images, not there yet."""
    return tmp_path / "kept"


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "gpupreload" / "stores"


def preload(data: Any, rung: Any, steps: Any = (*SIZE, *FLOATS), **options: Any) -> Any:
    """Preload to the CPU with seed 3 and without a bar."""
    settings = {"device": "cpu", "progress": False, "seed": 3} | options
    return gp.preload(data, v2.Compose(list(steps)), placement=rung, **settings)


def batches(loader: Any) -> list[Tensor]:
    """Copies of images and labels of two epochs, in order."""
    return [part.clone() for _ in range(2) for batch in loader for part in batch]


def all_equal(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether tensors are equal one by one, bit for bit."""
    return len(some) == len(others) and all(map(torch.equal, some, others))


def gathering_threads() -> list[str]:
    """The names of threads that gather."""
    return [t.name for t in threading.enumerate() if t.name.startswith("gpupreload-gather")]


# --- memory


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("read", ["Loader", "reused", "DataLoader", "subset", "twin", "freed"])
def test_memory_is_given_back_at_once(photo_folder: Path, rung: str, read: str) -> None:
    """What nobody holds is gone without a search for cycles, which may be long in coming."""
    gc.disable()
    try:
        data = preload(photo_folder, rung, TRANSFORMS["crop and flip"])
        shelf = weakref.ref(data.store._shelf)
        part = data.subset([3, 1]) if read == "subset" else data
        part = part.with_transform(None) if read == "twin" else part
        loader: Any = DataLoader(part, 4) if read == "DataLoader" else gp.Loader(part, 4)
        loader = gp.Loader(part, 4, reuse_buffers=True) if read == "reused" else loader
        batches(loader)
        if read == "freed":
            assert data.free() > 0
        else:
            del data, part, loader
        assert shelf() is None
    finally:
        gc.enable()


# --- the same on every rung


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_rung_gives_the_same(
    photo_folder: Path, kept: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seed gives the same batches bit for bit, however they are read."""
    monkeypatch.setattr(BLOCK_BYTES, 1)  # several blocks an epoch
    found = {}
    for rung in RUNGS:
        ours = preload(photo_folder, rung, TRANSFORMS[name], cache=kept)
        assert ours.store.rung == rung
        parts = batches(gp.Loader(ours, 5, shuffle=True))
        parts += batches(gp.Loader(ours, 4, drop_last=True, reuse_buffers=True))
        parts += batches(gp.Loader(ours, 5, seed=8, memory_format=torch.channels_last))
        ours.set_epoch(2)
        parts += [ours[i][0] for i in (0, 7, -1)] + [torch.tensor(ours[3][1])]
        parts += [part for batch in DataLoader(ours, 5, shuffle=False) for part in batch]
        found[rung] = parts
        ours.free()
    assert all(all_equal(parts, found["device"]) for parts in found.values())


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_equals_an_image_folder(photo_folder: Path, kept: Path, rung: str) -> None:
    """With no random step, image i is ImageFolder's, by itself, in batches and as plain floats."""
    folder = ImageFolder(str(photo_folder), v2.Compose([*SIZE, *FLOATS]))
    expected = torch.stack([image for image, _ in folder])
    ours = preload(photo_folder, rung, cache=kept)
    loader = gp.Loader(ours, 5)
    assert torch.equal(torch.cat([images for images, _ in loader]), expected)
    assert torch.equal(torch.stack([ours[i][0] for i in range(12)]), expected)
    assert torch.equal(ours.as_tensor_dataset().tensors[0], expected)
    assert torch.cat([labels for _, labels in loader]).tolist() == folder.targets == ours.targets


@pytest.mark.parametrize("rung", RUNGS)
def test_from_the_cache_or_not(photo_folder: Path, kept: Path, rung: str) -> None:
    """A rung that is filled from the cache holds what it would hold without."""
    first = preload(photo_folder, "device", cache=kept)
    expected = batches(gp.Loader(first, 5, shuffle=True))
    first.free()
    again = preload(photo_folder, rung, cache=kept)
    assert again.report.cache.startswith("Cache: hit.")
    assert all_equal(batches(gp.Loader(again, 5, shuffle=True)), expected)


@pytest.mark.parametrize("rung", RUNGS)
def test_what_cannot_be_read_is_left_out(
    photo_folder: Path, tmp_path: Path, kept: Path, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images, labels and paths match where files are left out; also a window of rows at a time."""
    photos = Path(shutil.copytree(photo_folder, tmp_path / "photos"))
    for name in ("cat/a.jpg", "dog/d.jpg", "owl/b.jpg"):
        path = photos / name
        path.write_bytes(path.read_bytes()[:700])
    monkeypatch.setattr(building, "WINDOW_BYTES", 2 * 3 * 16 * 16)
    ours = preload(photos, rung, cache=kept, on_error="skip")
    assert [ours.classes[label] for label in ours.targets] == ["cat"] * 3 + ["dog"] * 3 + [
        "owl"
    ] * 3
    transform = v2.Compose([*SIZE, *FLOATS])
    expected = [transform(ImageFolder(str(photos)).loader(path)) for path, _ in ours.samples]
    assert torch.equal(
        torch.cat([images for images, _ in gp.Loader(ours, 2)]), torch.stack(expected)
    )
    ours.free()
    assert preload(photos, rung, cache=kept, on_error="skip").report.cache.startswith("Cache: hit")


@pytest.mark.parametrize("rung", RUNGS)
def test_nothing_that_is_served_is_the_store(photo_folder: Path, kept: Path, rung: str) -> None:
    """Steps and callers that write in place reach neither the store nor what is served next."""
    ours = preload(photo_folder, rung, TRANSFORMS["uint8"], cache=kept)
    every = torch.arange(12)
    before = hashlib.sha256(ours.store.take(every).numpy().tobytes()).hexdigest()
    loader = gp.Loader(ours, 5)
    for images, labels in loader:
        images.fill_(0)
        labels.fill_(0)
    ours[0][0].fill_(1)
    assert hashlib.sha256(ours.store.take(every).numpy().tobytes()).hexdigest() == before
    assert {int(images.max()) for images, _ in loader} != {0}


@pytest.mark.parametrize("rung", RUNGS)
def test_a_copy_in_another_process_reads_the_same(
    photo_folder: Path, kept: Path, rung: str
) -> None:
    """A pickled dataset serves from the same rung."""
    ours = preload(photo_folder, rung, cache=kept)
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.store.rung == rung
    loaders = [gp.Loader(data, 5, shuffle=True, seed=1) for data in (ours, copied)]
    assert all_equal(*map(batches, loaders))
    with_workers = DataLoader(copied, 5, num_workers=1)
    assert all_equal(batches(with_workers), batches(gp.Loader(ours, 5)))


# --- ahead


@pytest.mark.parametrize("rung", ["mixed", "host", "disk"])
def test_epochs_that_are_left_or_interleaved(photo_folder: Path, kept: Path, rung: str) -> None:
    """An epoch that is left early leaves no thread; two at a time do not disturb each other."""
    ours = preload(photo_folder, rung, cache=kept)
    loader = gp.Loader(ours, 2, reuse_buffers=False)
    for _ in loader:
        break
    gc.collect()
    assert gathering_threads() == []
    expected = [images.clone() for images, _ in loader]
    pairs = [(a[0].clone(), b[0].clone()) for a, b in zip(loader, loader, strict=True)]
    assert all_equal([a for a, _ in pairs], expected)
    assert all_equal([b for _, b in pairs], expected)
    assert gathering_threads() == []


def test_an_error_while_gathering_reaches_the_caller(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong in the other thread is raised by the loader, and no thread is left."""

    def fail(*_: Any) -> None:
        raise OSError("the disk is gone")

    ours = preload(photo_folder, "host")
    monkeypatch.setattr(ahead, "gather", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        next(iter(gp.Loader(ours, 5)))
    gc.collect()
    assert gathering_threads() == []


@pytest.mark.parametrize("rung", RUNGS)
def test_freed_between_batches(
    photo_folder: Path, kept: Path, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset that is freed in the middle of an epoch serves no more batches."""
    monkeypatch.setattr(BLOCK_BYTES, 1)
    ours = preload(photo_folder, rung, cache=kept)
    found: Iterator[Any] = iter(gp.Loader(ours, 5))
    next(found)
    assert ours.free() == 12 * 3 * 16 * 16 + 12 * 8
    with pytest.raises(gp.FreedError):
        next(found)


# --- where the images are


def test_the_images_themselves(photo_folder: Path, kept: Path) -> None:
    """`images` is the one tensor that there is, on the CPU below the device; or a clear error."""
    device, mixed, host, disk = (preload(photo_folder, rung, cache=kept) for rung in RUNGS)
    assert torch.equal(device.images, host.images)
    assert torch.equal(device.images, disk.images)
    with pytest.raises(gp.LoadingError) as raised:
        mixed.images  # noqa: B018
    assert str(raised.value) == (
        "these images are in no one tensor: placement='mixed' keeps 6 on cpu and 6 in the host's "
        "memory. Read them with dataset[i] or a Loader, or preload with placement='host' to have "
        "all of them in one."
    )
    lines = [repr(ours).splitlines()[1] for ours in (device, mixed, host, disk)]
    assert lines == [
        "  on cpu: 9.1 KiB, kept as uint8",
        "  6 on cpu and 6 in the host's memory: 9.1 KiB, kept as uint8",
        "  in the host's memory, for cpu: 9.1 KiB, kept as uint8",
        "  mapped from a file, for cpu: 9.1 KiB, kept as uint8",
    ]


def test_writing_to_a_mapped_store_leaves_the_file(photo_folder: Path, kept: Path) -> None:
    """Who writes into `images` against the rule spoils this process's batches and no file."""
    ours = preload(photo_folder, "disk", cache=kept)
    before = ours.images.clone()
    ours.images.zero_()
    assert int(ours.images.max()) == 0
    ours.free()
    again = preload(photo_folder, "disk", cache=kept)
    assert again.report.cache.startswith("Cache: hit.")
    assert torch.equal(again.images, before)


def test_every_batch_has_its_share_of_both_sides() -> None:
    """Which images are on the device is fixed, and unrelated to the order of any epoch."""
    is_on_device = building.chosen(10_000, 4_000)
    assert int(is_on_device.sum()) == 4_000
    assert torch.equal(is_on_device, building.chosen(10_000, 4_000))
    for seed, epoch in ((0, 0), (0, 1), (7, 0)):
        order = draws.permutation(seed, epoch, 10_000)
        shares = is_on_device[order].float().view(10, 1000).mean(1)
        # 1,000 of 10,000 without replacement: a deviation of 0.0147; 4.5 of them
        assert float((shares - 0.4).abs().max()) < 0.066


def test_another_rung_is_another_store(photo_folder: Path, kept: Path) -> None:
    """The same images on the same rung are shared, "auto" shares any; what is asked for is made."""
    host = preload(photo_folder, "host")
    assert preload(photo_folder, "host").store is host.store
    assert preload(photo_folder, "auto").store is host.store
    assert preload(photo_folder, "device").store is not host.store
    found = gp.plan(photo_folder, v2.Compose([*SIZE]), device="cpu", placement="host")
    assert found.is_resident
    assert found.placement.startswith("host: 9.0 KiB in the host's memory, ")
    assert found.placement.endswith("; where they are already")
    found = gp.plan(photo_folder, v2.Compose([*SIZE]), device="cpu", placement="mixed")
    assert not found.is_resident
    assert found.placement.startswith("mixed: 6 images (4.5 KiB) on cpu, 6 (4.5 KiB) in the host's")


# --- in a file


def test_disk_without_a_cache_writes_one_and_says_so(photo_folder: Path, user_cache: Path) -> None:
    """Without cache= the file is in the user's cache, and the next load reads it."""
    first = preload(photo_folder, "disk")
    [path] = user_cache.iterdir()
    assert f"to {path}; clear_cache deletes" in first.report.cache
    first.free()
    second = preload(photo_folder, "disk")
    assert second.report.cache == f"Cache: hit. Read 9.0 KiB from {path}."
    gp.clear_cache()
    assert len(batches(gp.Loader(second, 5))) == 12


def test_data_that_nobody_finds_again(user_cache: Path) -> None:
    """Data without files, and steps of one's own, are in a file that goes with the process."""
    data = FakeData(10, (3, 8, 6), 2)
    ours = gp.preload(data, v2.ToImage(), device="cpu", progress=False, placement="disk")
    assert ours.store.rung == "disk"
    assert list(user_cache.iterdir()) == []
    assert ours.report.cache == (
        "Cache: not used, for FakeData is not made of files, whose changes would be seen. "
        "The images are in a file that no other load finds."
    )
    expected = torch.stack([v2.functional.pil_to_tensor(data[i][0]) for i in range(10)])
    assert torch.equal(ours.images, expected)
    with pytest.raises(gp.LoadingError, match="cannot be read in another process"):
        pickle.loads(pickle.dumps(ours))


def test_a_damaged_file_is_made_anew(photo_folder: Path, kept: Path) -> None:
    """A mapped file is never trusted either: every byte is verified before."""
    first = preload(photo_folder, "disk", cache=kept)
    expected = first.images.clone()
    first.free()
    [path] = kept.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = preload(photo_folder, "disk", cache=kept)
    assert "miss, for the file there is damaged" in again.report.cache
    assert torch.equal(again.images, expected)


def test_a_folder_that_cannot_be_written_still_trains(photo_folder: Path, tmp_path: Path) -> None:
    """Where no file can be made, a warning says so, and the images are in memory."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "stores"
    with pytest.warns(UserWarning, match="Not a directory") as caught:
        ours = preload(photo_folder, "disk", cache=folder)
    assert str(caught[0].message) == (
        f"The images cannot be kept in a file in {folder}: Not a directory. They are kept in the "
        "host's memory instead. cache= names another folder."
    )
    assert ours.store.rung == "host"
    assert len(batches(gp.Loader(ours, 5))) == 12


def test_a_disk_that_runs_full_still_trains(
    photo_folder: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be written to its end leaves nothing behind."""

    def full(self: Any, rows: Tensor) -> None:
        raise cache_writing.UnwritableError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_writing.Writing, "add", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        ours = preload(photo_folder, "disk", cache=kept)
    assert ours.store.rung == "host"
    assert list(kept.glob("*")) == []
    assert len(batches(gp.Loader(ours, 5))) == 12


def test_errors_of_the_data_are_no_errors_of_the_disk(kept: Path) -> None:
    """An OSError that reading the data raises is not taken for a full disk."""

    class Gone(FakeData):
        def __getitem__(self, index: int) -> Any:
            if index == 7 and threading.current_thread() is not threading.main_thread():
                raise OSError(errno.EIO, "the share is gone")
            return super().__getitem__(index)

    with pytest.raises(Exception, match="the share is gone"):
        gp.preload(
            Gone(10, (3, 8, 6), 2),
            v2.ToImage(),
            device="cpu",
            progress=False,
            placement="disk",
            cache=kept,
        )
    assert list(kept.glob("*")) == []


# --- arguments


@pytest.mark.parametrize("rung", ["gpu", None, 3])
def test_what_is_no_rung_is_refused(rung: Any) -> None:
    """A value that cannot be used is refused before the folder is looked at."""
    for call in (gp.preload, gp.GPUPreloadDataset, gp.plan):
        with pytest.raises(gp.ArgumentError) as raised:
            call("/no/such/folder", device="cpu", placement=rung)
        assert str(raised.value) == (
            f"placement is {rung!r}; expected 'auto', or where to keep the images: 'device', "
            "'mixed' (as many there as fit, the rest in the host's memory), 'host' or 'disk'."
        )


def test_the_explicit_form_takes_a_rung(photo_folder: Path) -> None:
    """`GPUPreloadDataset` has the same argument."""
    once = v2.Compose([*SIZE, v2.ToImage()])
    ours = gp.GPUPreloadDataset(photo_folder, once, device="cpu", progress=False, placement="host")
    assert ours.store.rung == "host"


# --- on a GPU


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_rung_gives_the_same_on_cuda(
    photo_folder: Path, kept: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pinned buffers and a stream of their own, the same batches arrive on a busy device."""

    def half(rung: str, sizes: placement.Sizes, room: placement.Room) -> int:
        return {"device": sizes.n_images, "mixed": sizes.n_images // 2}.get(rung, 0)

    monkeypatch.setattr(placement, "_n_on_device", half)
    found = {}
    for rung in RUNGS:
        ours = preload(photo_folder, rung, TRANSFORMS[name], cache=kept, device="cuda")
        busy = torch.randn(2048, 2048, device="cuda")
        parts = []
        for _ in range(20):
            for images, labels in gp.Loader(ours, 2, shuffle=True):
                busy = busy @ busy * 1e-3  # work that the next copies must not overtake
                parts += [images.clone(), labels.clone()]
        found[rung] = [part.cpu() for part in parts]
        ours.free()
    assert all(all_equal(parts, found["device"]) for parts in found.values())
