"""The cache: the second load reads a file that is verified, and rebuilt whenever in doubt."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageFile
from safetensors.torch import load_file, save_file
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import cache_file, cache_key, cache_writing, decode, staging

SIZE = v2.Resize((10, 12))
NOTHING = "nothing is kept of these files as they are now, read this way"


@pytest.fixture
def photos(photo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the shared photos, to be changed: cat, dog and owl, four files each."""
    return Path(shutil.copytree(photo_folder, tmp_path / "photos"))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder for the cache, not there yet."""
    return tmp_path / "kept"


def preload(data: Any, kept: Any, transform: Any = SIZE, **options: Any) -> gp.GPUPreloadDataset:
    """Preload to the CPU without a bar; nothing stays in memory for the next load."""
    settings = {"device": "cpu", "progress": False, "cache": kept} | options
    ours = gp.preload(data, transform, **settings)
    pixels, report = ours.images.clone(), ours.report
    samples, targets = ours.samples, ours.targets
    ours.free()
    ours = gp.GPUPreloadDataset.__new__(gp.GPUPreloadDataset)
    ours.__dict__.update(report=report, samples=samples, _targets=targets, pixels=pixels)
    ours._view = None
    return ours


def outcome(loaded: gp.GPUPreloadDataset) -> str:
    """Hit, miss, or what else became of the cache."""
    return loaded.report.cache.split(": ")[1].split(",")[0].split(".")[0]


def why_miss(loaded: gp.GPUPreloadDataset) -> str:
    """The reason of a miss."""
    return loaded.report.cache.split("miss, for ")[1].split(". Written")[0]


def only_file(kept: Path) -> Path:
    """The one file of a cache."""
    [path] = kept.iterdir()
    return path


def forbidden(*_: object, **__: object) -> None:
    """Stand for what must not be called."""
    pytest.fail("called")


# --- the second load


@pytest.mark.parametrize("as_folder", [True, False])
def test_the_second_load_decodes_nothing(
    photos: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, as_folder: bool
) -> None:
    """A hit gives the same pixels, labels and samples; no header and no pixel is read."""
    data = photos if as_folder else ImageFolder(photos)
    first = preload(data, kept)
    monkeypatch.setattr(decode, "look", forbidden)
    monkeypatch.setattr(decode, "read", forbidden)
    second = preload(data, kept)
    assert (outcome(first), outcome(second)) == ("miss", "hit")
    assert torch.equal(first.pixels, second.pixels)
    assert (first.samples, first.targets) == (second.samples, second.targets)


def test_the_report_says_what_became_of_it(photos: Path, kept: Path) -> None:
    """Hit or miss, why, where, and how much the folder holds."""
    first = preload(photos, kept).report.cache
    path = only_file(kept)
    size = f"{path.stat().st_size / 1024:.1f} KiB"
    assert first == (
        f"Cache: miss, for {NOTHING}. Written: {size} to {path}; clear_cache deletes {size} there."
    )
    second = preload(photos, kept)
    assert second.report.cache == f"Cache: hit. Read 4.2 KiB from {path}."
    assert "Cache: hit. Read" in str(second.report)
    with gp.preload(photos, SIZE, device="cpu", progress=False, cache=kept) as living:
        again = gp.preload(photos, SIZE, device="cpu", progress=False, cache=kept)
        assert again.images is living.images
        assert again.report.cache == "Cache: not needed, for these images were in memory already."
    assert preload(photos, False).report.cache == ""


def test_the_explicit_form_keeps_too(photos: Path, kept: Path) -> None:
    """The explicit form and preload read each other's files where the once-part is the same."""
    preload(photos, kept, v2.Compose([SIZE, v2.RandomHorizontalFlip()]))
    settings = {"device": "cpu", "progress": False, "cache": kept}
    ours = gp.GPUPreloadDataset(photos, SIZE, v2.RandomVerticalFlip(), **settings)
    assert ours.report.cache.startswith("Cache: hit. ")


def test_by_default_it_is_in_the_users_cache(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cache=True keeps the file in the user's cache folder; clear_cache deletes it."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    preload(photos, True)
    path = only_file(tmp_path / "xdg" / "gpupreload" / "stores")
    n_bytes = path.stat().st_size
    assert outcome(preload(photos, True)) == "hit"
    assert gp.clear_cache() == n_bytes
    assert gp.clear_cache() == 0
    assert outcome(preload(photos, True)) == "miss"


def test_clearing_leaves_other_files(photos: Path, kept: Path) -> None:
    """clear_cache deletes what this library wrote, half-written files included, and no more."""
    preload(photos, kept)
    half = kept / f".{only_file(kept).stem}-abc.part"
    half.write_bytes(b"12345")
    (kept / "weights.safetensors").write_bytes(b"mine")
    assert gp.clear_cache(kept) > 5
    assert [path.name for path in kept.iterdir()] == ["weights.safetensors"]


def test_safetensors_reads_the_file(photos: Path, kept: Path) -> None:
    """The file is an ordinary safetensors file of images and labels."""
    first = preload(photos, kept)
    tensors = load_file(only_file(kept))
    assert torch.equal(tensors["images"], first.pixels)
    assert tensors["labels"].tolist() == first.targets


# --- what the key holds

CHANGES: dict[str, Callable[[Path], Any]] = {
    "a file's time": lambda photos: os.utime(photos / "cat" / "a.jpg", ns=(1, 1)),
    "a file's size": lambda photos: (photos / "cat" / "a.jpg").open("ab").write(b"0"),
    "a file more": lambda photos: shutil.copy(photos / "cat" / "a.jpg", photos / "cat" / "e.jpg"),
    "a file less": lambda photos: (photos / "cat" / "a.jpg").unlink(),
    "a file's name": lambda photos: (photos / "cat" / "a.jpg").rename(photos / "cat" / "0.jpg"),
    "a class's name": lambda photos: (photos / "cat").rename(photos / "bat"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_are_loaded_anew(photos: Path, kept: Path, change: str) -> None:
    """Another list of files, another size or time of one, is another key."""
    preload(photos, kept)
    CHANGES[change](photos)
    changed = preload(photos, kept)
    assert (outcome(changed), why_miss(changed)) == ("miss", NOTHING)
    assert torch.equal(changed.pixels, preload(photos, False).pixels)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "L"},
        {"exif_orientation": True},
        {"on_error": "skip"},
        {"classes": ["owl", "dog", "cat"]},
        {"cache_key": "a"},
    ],
    ids=str,
)
def test_other_options_are_another_key(photos: Path, kept: Path, options: dict[str, Any]) -> None:
    """What is done to read and number the files belongs to the key."""
    preload(photos, kept)
    other = preload(photos, kept, **options)
    assert (outcome(other), why_miss(other)) == ("miss", NOTHING)
    assert outcome(preload(photos, kept, **options)) == "hit"
    assert outcome(preload(photos, kept)) == "hit"


def test_another_once_part_is_another_file(photos: Path, kept: Path) -> None:
    """The steps that run once, and their settings, belong to the key; the others do not."""
    preload(photos, kept)
    other = preload(photos, kept, v2.Resize((12, 10)))
    expected = "of these files something is kept, but after another once-part"
    assert (outcome(other), why_miss(other)) == ("miss", expected)
    with_more = v2.Compose([SIZE, v2.RandomHorizontalFlip(), v2.ToImage()])
    assert outcome(preload(photos, kept, with_more)) == "hit"


@pytest.mark.parametrize("module", ["PIL", "torch", "torchvision"])
def test_other_versions_are_another_key(
    photos: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """What decodes and resizes belongs to the key by its version."""
    preload(photos, kept)
    monkeypatch.setattr(getattr(cache_key, module), "__version__", "0.0.1")
    assert outcome(preload(photos, kept)) == "miss"


def test_pillows_leniency_is_another_key(
    photos: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Pillow is told to forgive truncated files, other pixels may come."""
    preload(photos, kept)
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert outcome(preload(photos, kept)) == "miss"


def test_a_folder_that_moved_is_the_same(photos: Path, kept: Path, tmp_path: Path) -> None:
    """Paths count from the folder on."""
    preload(photos, kept)
    photos.rename(tmp_path / "elsewhere")
    moved = preload(tmp_path / "elsewhere", kept)
    assert outcome(moved) == "hit"
    assert moved.samples[0][0] == str(tmp_path / "elsewhere" / "cat" / "a.jpg")


def test_equal_sizes_and_times_do_not_deceive(tmp_path: Path, kept: Path) -> None:
    """Two folders whose files agree in name, size and time, as from an archive, are told apart."""
    for folder, colour in (("one", "red"), ("two", "blue")):
        (tmp_path / folder / "a").mkdir(parents=True)
        for k in range(20):
            path = tmp_path / folder / "a" / f"{k}.bmp"
            Image.new("RGB", (8, 8), colour).save(path)
            os.utime(path, ns=(0, 0))
    assert outcome(preload(tmp_path / "one", kept)) == "miss"
    assert outcome(preload(tmp_path / "two", kept)) == "miss"


def test_another_process_finds_it(photos: Path, kept: Path) -> None:
    """The key is the same in every process, whatever its hash seed."""
    transform = "v2.Compose([v2.Resize((10, 12)), v2.Pad(2, fill={Image.Image: 3, 'others': 1})])"
    script = (
        "import sys, gpupreload as gp; from PIL import Image; "
        "from torchvision.transforms import v2\n"
        f"ds = gp.preload(sys.argv[1], {transform}, device='cpu', progress=False, "
        "cache=sys.argv[2])\n"
        "print(ds.report.cache)"
    )
    said = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", script, str(photos), str(kept)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        said.append(run.stdout.split(",")[0].split(".")[0])
    assert said == ["Cache: miss", "Cache: hit"]


# --- what cannot be told


def darker(image: Image.Image) -> Image.Image:
    """A step of the caller's own."""
    return image.point(lambda value: value // 2)


WAY_ON = "cache_key= a text of your own, which you change whenever that changes, lets it be kept."


def test_a_step_of_ones_own_is_not_kept(photos: Path, kept: Path) -> None:
    """A function means nothing outside its process; cache_key= says what it does."""
    transform = v2.Compose([SIZE, darker])
    assert preload(photos, kept, transform).report.cache == (
        f"Cache: not used, for nobody but you can tell what darker does; {WAY_ON}"
    )
    assert not kept.exists()
    first = preload(photos, kept, transform, cache_key="half")
    assert outcome(preload(photos, kept, transform, cache_key="half")) == "hit"
    assert torch.equal(first.pixels, preload(photos, False, transform).pixels)
    assert outcome(preload(photos, kept, transform, cache_key="a third")) == "miss"


def inverted(path: str) -> Image.Image:
    """A loader of the caller's own."""
    return Image.open(path).convert("RGB").point(lambda value: 255 - value)


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_loader_of_ones_own_is_not_kept(photos: Path, kept: Path, as_folder: bool) -> None:
    """The same for a loader."""
    data = photos if as_folder else ImageFolder(photos, loader=inverted)
    options = {"decode": inverted} if as_folder else {}
    assert preload(data, kept, **options).report.cache == (
        "Cache: not used, for a loader of your own reads the files, and nobody else can tell what "
        f"it does; {WAY_ON}"
    )
    first = preload(data, kept, cache_key="inverted", **options)
    second = preload(data, kept, cache_key="inverted", **options)
    assert outcome(second) == "hit"
    assert torch.equal(first.pixels, second.pixels)


def test_frozen_draws_are_not_kept(photos: Path, kept: Path) -> None:
    """What a random step drew once is not made to last."""
    with pytest.warns(UserWarning, match="is random and runs once"):
        ours = gp.GPUPreloadDataset(
            photos,
            v2.Compose([SIZE, v2.RandomHorizontalFlip()]),
            device="cpu",
            progress=False,
            allow_frozen=True,
            cache=kept,
            cache_key="mine",
        )
    assert ours.report.cache == (
        "Cache: not used, for RandomHorizontalFlip(p=0.5) is random, and every load would show the "
        "same draws."
    )


def test_other_data_are_not_kept(kept: Path) -> None:
    """Only files tell when they change."""
    data = [(Image.new("RGB", (5, 4)), 0)] * 3
    assert preload(data, kept, None).report.cache == (
        "Cache: not used, for list is not made of files, whose changes would be seen."
    )


# --- never trusted


def damage_at(path: Path, place: float) -> None:
    """Flip a bit at a place given as a share of the file."""
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("place", [k / 40 for k in range(41)])
def test_a_flipped_bit_is_noticed(photos: Path, kept: Path, place: float) -> None:
    """Whatever bit of the file is flipped, the images are decoded again, and kept again."""
    first = preload(photos, kept)
    damage_at(only_file(kept), place)
    second = preload(photos, kept)
    assert outcome(second) == "miss"
    assert torch.equal(first.pixels, second.pixels)
    assert first.targets == second.targets
    assert outcome(preload(photos, kept)) == "hit"


@pytest.mark.parametrize("place", [0, 0.01, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_noticed(photos: Path, kept: Path, place: float) -> None:
    """A file that ends too early is rebuilt."""
    preload(photos, kept)
    data = only_file(kept).read_bytes()
    only_file(kept).write_bytes(data[: int(place * len(data))])
    assert "the file there is damaged (" in why_miss(preload(photos, kept))
    assert outcome(preload(photos, kept)) == "hit"


def older(path: Path) -> None:
    """Write what an older version might have written."""
    tensors = load_file(path)
    save_file(tensors, path, {"format": "gpupreload store 0", "key": path.stem})


def foreign(path: Path) -> None:
    """Write another program's tensors."""
    save_file({"weights": torch.zeros(3)}, path)


def of_others(path: Path) -> None:
    """Put another store's file in the place."""
    data = path.read_bytes()
    path.write_bytes(data.replace(path.stem.encode(), b"0" * len(path.stem)))


def a_pickle(path: Path) -> None:
    """Put a pickle in the place, which does harm when it is loaded."""
    path.write_bytes(pickle.dumps(_Harm()))


class _Harm:
    def __reduce__(self) -> Any:
        return forbidden, ()


def a_folder(path: Path) -> None:
    """Put a folder in the place."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (older, "the file there is of another kind or version"),
        (foreign, "the file there is of another kind or version"),
        (of_others, "the file there was written for others"),
        (a_pickle, "the file there is damaged ("),
    ],
)
def test_what_is_no_file_of_ours_is_rebuilt(
    photos: Path, kept: Path, change: Callable[[Path], None], why: str
) -> None:
    """An older file, a foreign one and a pickle are replaced, and never unpickled."""
    first = preload(photos, kept)
    change(only_file(kept))
    second = preload(photos, kept)
    assert why_miss(second).startswith(why)
    assert torch.equal(first.pixels, second.pixels)
    assert outcome(preload(photos, kept)) == "hit"


def test_images_of_another_size_are_not_taken(photos: Path, kept: Path) -> None:
    """A file under the right name whose images do not fit the plan is rebuilt."""
    preload(photos, kept)
    path = only_file(kept)
    contents = cache_file.look(path)
    cache_writing.write(path, torch.zeros(12, 3, 5, 5), contents.labels, contents.facts)
    again = preload(photos, kept)
    assert why_miss(again) == "the file there holds images of another size"


@pytest.mark.parametrize("dtype", cache_file.DTYPES)
@pytest.mark.parametrize("on_host", [True, False])
def test_every_dtype_and_device_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, on_host: bool
) -> None:
    """Bytes and floats come back bit for bit, in place or by way of a buffer, in any blocks."""
    for module in (cache_file, staging):
        monkeypatch.setattr(module, "is_on_host", lambda images: on_host)
    images = torch.randint(0, 256, (70, 3, 5, 4), generator=torch.Generator().manual_seed(0))
    images, labels = images.to(dtype), torch.arange(70)
    monkeypatch.setattr(cache_file, "BLOCKS_AT_A_TIME", 3)
    monkeypatch.setattr(cache_writing, "BLOCKS_AT_A_TIME", 3)
    for n_bytes in (1, 500, 1 << 20):
        monkeypatch.setattr(cache_file, "_BLOCK_BYTES", n_bytes)
        path = tmp_path / f"{n_bytes}.safetensors"
        cache_writing.write(path, images, labels, '{"é": 1}')
        contents = cache_file.look(path)
        assert (contents.facts, contents.labels.tolist()) == ('{"é": 1}', labels.tolist())
        filled = torch.zeros_like(images)
        cache_file.read(contents, filled, workers=3)
        assert torch.equal(filled, images)
        assert torch.equal(load_file(path)["images"], images)


def test_where_there_is_no_preadv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems without reads at a place read the same."""
    images = torch.arange(3600).to(torch.uint8).reshape(100, 3, 3, 4)
    path = tmp_path / "a.safetensors"
    cache_writing.write(path, images, torch.arange(100), "")
    monkeypatch.delattr(os, "preadv", raising=False)
    filled = torch.zeros_like(images)
    cache_file.read(cache_file.look(path), filled, workers=2)
    assert torch.equal(filled, images)


def test_a_file_that_shrinks_meanwhile_is_noticed(tmp_path: Path) -> None:
    """A file that was whole when it was looked at, and is not any more, is no hit."""
    images = torch.zeros(100, 3, 3, 4)
    path = tmp_path / "a.safetensors"
    cache_writing.write(path, images, torch.arange(100), "")
    contents = cache_file.look(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(cache_file.UnusableError):
        cache_file.read(contents, images, workers=2)


# --- what cannot be written


def full_disk(*_: object) -> None:
    """What a full disk raises."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_in_a_loaded_dataset(
    photos: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that cannot be written is a warning, and leaves no half file."""
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.warns(UserWarning, match="cannot be written") as caught:
        ours = preload(photos, kept)
    text = f"The cache in {kept} cannot be written: No space left on device."
    assert str(caught[0].message) == f"{text} The images are loaded all the same."
    assert ours.report.cache == f"Cache: miss, for {NOTHING}. {text}"
    assert list(kept.iterdir()) == []
    assert torch.equal(ours.pixels, preload(photos, False).pixels)


def test_a_place_that_cannot_be_is_a_warning(photos: Path, tmp_path: Path) -> None:
    """A folder that cannot be made is a warning too."""
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be written: Not a directory"):
        preload(photos, tmp_path / "file" / "kept")


def test_a_folder_in_the_place_is_a_warning(photos: Path, kept: Path) -> None:
    """Something that cannot be replaced stays, and the images are loaded."""
    preload(photos, kept)
    a_folder(only_file(kept))
    with pytest.warns(UserWarning, match="cannot be written"):
        assert len(preload(photos, kept).targets) == 12
    assert only_file(kept).is_dir()


def test_an_interrupt_leaves_no_half_file(
    photos: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the file is written leaves none."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        preload(photos, kept)
    assert list(kept.iterdir()) == []


def load_in_process(photos: str, kept: str, results: Any) -> None:
    """Preload in a process of its own."""
    torch.set_num_threads(1)
    ours = preload(photos, kept, workers=2)
    results.put((ours.targets, int(ours.pixels.long().sum())))


def test_two_processes_at_once(photos: Path, kept: Path) -> None:
    """Processes that build the same file at the same time both end right, and so does the file."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=load_in_process, args=(str(photos), str(kept), results))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    ours = preload(photos, kept)
    assert outcome(ours) == "hit"
    assert found == [(ours.targets, int(ours.pixels.long().sum()))] * 3
    assert len(list(kept.iterdir())) == 1


# --- with unreadable files


def test_what_was_skipped_is_skipped_again(photos: Path, kept: Path) -> None:
    """A hit serves the same samples and gives the same report as the load that wrote the file."""
    (photos / "cat" / "b.png").write_bytes(b"")
    cut = (photos / "dog" / "b.jpg").read_bytes()[:700]
    (photos / "dog" / "b.jpg").write_bytes(cut)
    first = preload(photos, kept, on_error="skip")
    second = preload(photos, kept, on_error="skip")
    assert outcome(second) == "hit"
    assert torch.equal(first.pixels, second.pixels)
    assert (first.samples, first.targets) == (second.samples, second.targets)
    assert first.report.unreadable == second.report.unreadable
    assert len(second.targets) == 10
    other = preload(photos, kept, v2.Resize((5, 5)), on_error="skip")
    assert other.samples == first.samples


def test_what_can_be_read_by_now_is_read(photos: Path, kept: Path) -> None:
    """A file that was unreadable, and is not any more, though nothing in its name shows it."""
    path = photos / "cat" / "b.png"
    good, facts = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(good)))
    os.utime(path, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    assert len(preload(photos, kept, on_error="skip").targets) == 11
    path.write_bytes(good)
    os.utime(path, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    assert len(preload(photos, kept, on_error="skip").targets) == 12


def test_a_load_that_fails_keeps_no_store(photos: Path, kept: Path) -> None:
    """Where a file cannot be read, the error comes, and the next load finds no whole store."""
    cut = (photos / "dog" / "b.jpg").read_bytes()[:700]
    (photos / "dog" / "b.jpg").write_bytes(cut)
    for _ in range(2):
        with pytest.raises(gp.UnreadableError):
            preload(photos, kept)
    assert preload(photos, kept, on_error="skip").report.cache.startswith("Cache: miss")


def test_remarks_are_kept(photos: Path, kept: Path) -> None:
    """What headers told is told again by a hit."""
    (photos / "cat" / "a.jpg").rename(photos / "cat" / "a.png")
    first, second = preload(photos, kept), preload(photos, kept)
    assert outcome(second) == "hit"
    assert second.report.remarks == first.report.remarks == {
        "suffix": (str(photos / "cat" / "a.png"),)
    }  # fmt: skip


def test_photos_of_several_sizes_are_refused_as_ever(photos: Path, kept: Path) -> None:
    """What is kept of other once-parts changes nothing about a transform that cannot be divided."""
    preload(photos, kept)
    refused = []
    for cache in (kept, False):
        with pytest.raises(gp.SizeError) as raised:
            preload(photos, cache, v2.RandomCrop(8))
        refused.append(str(raised.value))
    assert refused[0] == refused[1]


# --- arguments


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"cache": 3},
            "cache is 3; expected True, for a folder in the user's cache, the path of another "
            "folder, or False.",
        ),
        (
            {"cache": True, "cache_key": 3},
            "cache_key is 3; expected a text, which you change whenever your own steps or loader "
            "change.",
        ),
        (
            {"cache_key": "v1"},
            "cache_key is 'v1', but nothing is kept without cache=. Pass cache=True too, or leave "
            "cache_key= out.",
        ),
        (
            {"cache": __file__},
            f"cache is {__file__!r}, which is a file; expected a folder. Files in it are named "
            "after what they hold.",
        ),
    ],
    ids=["cache", "key", "key alone", "file"],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], text: str) -> None:
    """A value that cannot be used is refused before the folder is looked at."""
    for call in (gp.preload, gp.GPUPreloadDataset):
        with pytest.raises(gp.ArgumentError) as raised:
            call("/no/such/folder", device="cpu", **options)
        assert str(raised.value) == text


def test_facts_are_plain_text(photos: Path, kept: Path) -> None:
    """What is kept beside the tensors is JSON."""
    preload(photos, kept)
    facts = json.loads(cache_file.look(only_file(kept)).facts)
    assert sorted(facts) == ["remarks", "skipped", "specs"]


def test_memory_is_not_mapped(photos: Path, kept: Path) -> None:
    """After a hit nothing holds the file: it can be deleted, and the images stay."""
    preload(photos, kept)
    ours = gp.preload(photos, SIZE, device="cpu", progress=False, cache=kept)
    before: Tensor = ours.images.clone()
    only_file(kept).write_bytes(b"")
    gp.clear_cache(kept)
    assert torch.equal(ours.images, before)
