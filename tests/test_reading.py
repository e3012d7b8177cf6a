"""The arguments that say how files are read: mode, orientation, a loader, unreadable ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from PIL import Image, ImageOps
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional as v1f
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import gaps
from gpupreload.gaps import without_rows

SIZE = v2.Resize((10, 12))
WAY_ON = "Repair these files, move them out of the folder, or leave them out: on_error='skip'."


@pytest.fixture
def photos(photo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the shared photos, to be changed: cat, dog and owl, four files each."""
    return Path(shutil.copytree(photo_folder, tmp_path / "photos"))


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """Eight photos that lie in the eight orientations, all of one size when upright."""
    upright = zoo.picture(width=40, height=24)
    (tmp_path / "turned" / "a").mkdir(parents=True)
    for k in range(1, 9):
        lying = upright.transpose(Image.Transpose.ROTATE_90) if k > 4 else upright
        lying.save(tmp_path / "turned" / "a" / f"{k}.png", exif=zoo.exif(k))
    return tmp_path / "turned"


def preload(data: Any, transform: Any = SIZE, **options: Any) -> gp.GPUPreloadDataset:
    """Preload to the CPU without a bar."""
    return gp.preload(data, transform, **{"device": "cpu", "progress": False} | options)


def explicit(data: Any, transform: Any = SIZE, **options: Any) -> gp.GPUPreloadDataset:
    """The same through the explicit form."""
    return gp.GPUPreloadDataset(data, transform, device="cpu", progress=False, **options)


def pixels(images: list[Image.Image]) -> torch.Tensor:
    """PIL images as one uint8 tensor."""
    return torch.stack([v1f.pil_to_tensor(image) for image in images])


# --- mode and orientation


@pytest.mark.parametrize("load", [preload, explicit])
def test_one_channel_is_kept_as_one(photo_folder: Path, load: Callable[..., Any]) -> None:
    """mode="L" keeps the luma of each photo in one channel, a third of the memory."""
    ours = load(photo_folder, mode="L")
    data = ImageFolder(photo_folder)
    assert torch.equal(ours.images, pixels([SIZE(image.convert("L")) for image, _ in data]))
    assert gp.plan(photo_folder, SIZE, mode="L").shape == (1, 10, 12)


@pytest.mark.parametrize("as_folder", [True, False])
def test_photos_are_turned_upright_where_asked(turned: Path, as_folder: bool) -> None:
    """exif_orientation=True stores what Pillow's exif_transpose gives; off, what ImageFolder."""
    data = turned if as_folder else ImageFolder(turned)
    files = [Image.open(path) for path, _ in ImageFolder(turned).samples]
    upright = [ImageOps.exif_transpose(file).convert("RGB") for file in files]
    assert torch.equal(preload(data, None, exif_orientation=True).images, pixels(upright))
    as_it_lies = [SIZE(file.convert("RGB")) for file in files]
    assert torch.equal(preload(data).images, pixels(as_it_lies))


def test_the_plan_reads_sizes_as_they_will_be(turned: Path) -> None:
    """Photos that have one size only when turned are planned so."""
    assert gp.plan(turned, exif_orientation=True).shape == (3, 24, 40)
    with pytest.raises(gp.SizeError):
        gp.plan(turned)


def test_a_subset_of_an_imagefolder_is_read_as_asked(turned: Path) -> None:
    """How to read files can be said for a Subset of an ImageFolder too."""
    subset = Subset(ImageFolder(turned), [5, 0])
    images = preload(subset, None, exif_orientation=True).images
    assert torch.equal(images, preload(turned, None, exif_orientation=True).images[[5, 0]])


def test_other_readings_are_other_stores(photo_folder: Path) -> None:
    """A store is not shared with a preload that reads the same files otherwise."""
    first = preload(photo_folder)
    assert preload(photo_folder, mode="RGB").images is first.images
    assert preload(photo_folder, exif_orientation=True).images is not first.images
    assert preload(photo_folder, on_error="skip").images is not first.images


# --- a loader of the caller's own


def inverted(path: str) -> Image.Image:
    """A loader as ImageFolder takes one."""
    return ImageOps.invert(Image.open(path).convert("RGB"))


@pytest.mark.parametrize("load", [preload, explicit])
def test_a_loader_of_the_callers_own_reads(photo_folder: Path, load: Callable[..., Any]) -> None:
    """decode= a function gives what an ImageFolder with that loader gives."""
    data = ImageFolder(photo_folder, loader=inverted)
    assert torch.equal(
        load(photo_folder, decode=inverted).images, pixels([SIZE(image) for image, _ in data])
    )


def test_a_loader_that_fails_is_named_with_the_file(photos: Path) -> None:
    """What a loader raises becomes one line for each file."""
    (photos / "cat" / "c.jpg").write_bytes(b"")

    def loader(path: str) -> Image.Image:
        return Image.open(path).convert("RGB")

    with pytest.raises(gp.UnreadableError) as raised:
        preload(photos, decode=loader)
    path = photos / "cat" / "c.jpg"
    assert str(raised.value) == (
        f"{path}: the loader raised UnidentifiedImageError: cannot identify image file '{path}'"
    )


def test_files_that_a_loader_cannot_read_are_skipped(photos: Path) -> None:
    """on_error="skip" holds for a loader of the caller's own, also for the first files."""
    for name in ("cat/a.jpg", "dog/b.jpg"):
        (photos / name).write_bytes(b"")
    ours = preload(photos, decode=inverted, on_error="skip")
    assert ours.targets == [0] * 3 + [1] * 3 + [2] * 4


# --- arguments that cannot be


def named(value: object) -> str:
    """A test's name after a value, without addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "P"}, "mode is 'P'; expected 'RGB' or 'L'."),
        (
            {"exif_orientation": 1},
            "exif_orientation is 1; expected True, to turn photos upright as their EXIF block "
            "says, or False.",
        ),
        (
            {"on_error": "ignore"},
            "on_error is 'ignore'; expected 'raise', to be told of all files that cannot be read, "
            "or 'skip', to leave them out.",
        ),
        (
            {"decode": "turbo"},
            "decode is 'turbo'; expected 'exact', for ImageFolder's pixels, 'fast', for pixels a "
            "level or two beside them, 'gpu', for a CUDA device to decode JPEG files, or a "
            "function that takes a path and returns a PIL image.",
        ),
        (
            {"decode": inverted, "mode": "L"},
            "mode= says how gpupreload reads a file, but here a loader of your own reads it. Let "
            "that do it, and leave mode= out.",
        ),
    ],
    ids=named,
)
def test_wrong_values_are_refused_before_the_folder_is_looked_at(
    options: dict[str, Any], text: str
) -> None:
    """A value that cannot be used is refused by plan, preload and the explicit form."""
    for call in (gp.plan, gp.preload, gp.GPUPreloadDataset):
        with pytest.raises(gp.ArgumentError) as raised:
            call("/no/such/folder", device="cpu", **options)
        assert str(raised.value) == text


def test_two_loaders_are_one_too_many(photo_folder: Path) -> None:
    """An ImageFolder with a loader of its own takes no decode=."""
    with pytest.raises(gp.ArgumentError) as raised:
        preload(ImageFolder(photo_folder, loader=inverted), decode=inverted)
    assert str(raised.value) == (
        "decode= was given, but data is an ImageFolder with a loader of its own. Pass one: leave "
        "decode= out, or build the ImageFolder without a loader."
    )


def test_other_data_are_not_ours_to_read() -> None:
    """How to read files is refused for a dataset that reads by itself."""
    with pytest.raises(gp.ArgumentError) as raised:
        preload([(zoo.picture(), 0)], on_error="skip")
    assert str(raised.value) == (
        "on_error= says how to read the files of a folder, but data is list. Pass the folder's "
        "path, or leave on_error= out."
    )


# --- unreadable files


def damage(photos: Path) -> dict[str, str]:
    """Damage three files, one in its header; return the reasons by name."""
    cut = (photos / "cat" / "c.jpg").read_bytes()[:700]
    (photos / "cat" / "c.jpg").write_bytes(cut)
    (photos / "cat" / "d.png").write_bytes(b"")
    cut = (photos / "owl" / "d.png").read_bytes()[:900]
    (photos / "owl" / "d.png").write_bytes(cut)
    return {
        "cat/d.png": "empty (0 bytes)",
        "cat/c.jpg": "truncated: the file ends at byte 700, before its image does",
        "owl/d.png": "truncated: the file ends at byte 900, before its image does",
    }


@pytest.mark.parametrize("load", [preload, explicit])
@pytest.mark.parametrize("as_folder", [True, False])
def test_what_cannot_be_read_is_left_out(
    photos: Path, load: Callable[..., Any], as_folder: bool
) -> None:
    """on_error="skip" leaves files out; images, labels, samples and targets go on matching."""
    reasons = damage(photos)
    ours = load(photos if as_folder else ImageFolder(photos), on_error="skip")
    kept = [
        (path, label)
        for path, label in ImageFolder(photos).samples
        if str(Path(path).relative_to(photos)) not in reasons
    ]
    assert ours.samples == ours.imgs == kept
    assert ours.targets == ours.labels.tolist() == [label for _, label in kept]
    images = [SIZE(Image.open(path).convert("RGB")) for path, _ in kept]
    assert torch.equal(ours.images, pixels(images))
    assert len(ours) == 9
    assert ours.classes == ["cat", "dog", "owl"]
    batches = list(gp.Loader(ours, 4))
    assert sum(len(labels) for _, labels in batches) == 9


def test_the_default_names_them_all(photos: Path) -> None:
    """on_error="raise" goes on to the end, names all that cannot be read, and the way on."""
    damage(photos)
    (photos / "cat" / "d.png").unlink()
    with pytest.raises(gp.UnreadableError) as raised:
        preload(photos)
    assert str(raised.value) == (
        "2 of 11 files cannot be read:\n"
        f"  {photos}/cat/c.jpg: truncated: the file ends at byte 700, before its image does\n"
        f"  {photos}/owl/d.png: truncated: the file ends at byte 900, before its image does\n"
        f"{WAY_ON}"
    )


def test_the_plan_leaves_out_what_its_headers_tell(photos: Path) -> None:
    """A header that cannot be read is left out of the plan; pixels are not looked at."""
    damage(photos)
    plan = gp.plan(photos, SIZE, on_error="skip")
    assert plan.n_images == 11
    assert plan.class_counts == {"cat": 3, "dog": 4, "owl": 4}


@pytest.mark.parametrize("n_bytes", [0, 700])
def test_skipping_everything_is_an_error(photos: Path, n_bytes: int) -> None:
    """Where no file can be read there is nothing to serve, and the error says so."""
    for path in photos.rglob("*.*"):
        path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(gp.UnreadableError) as raised:
        preload(photos, on_error="skip")
    assert str(raised.value).startswith("12 of 12 files cannot be read:\n")
    assert str(raised.value).endswith("\nRepair them: there is nothing else to load.")


def test_the_same_skip_shares_its_store(photos: Path) -> None:
    """The second preload of a folder with damaged files shares the store, and its samples."""
    damage(photos)
    first, second = preload(photos, on_error="skip"), preload(photos, on_error="skip")
    assert first.images is second.images
    assert first.samples == second.samples
    second.transform = v2.Compose([SIZE, v2.RandomHorizontalFlip()])
    assert len(second) == 9


@pytest.mark.parametrize("n_bytes", [1, 100, 1 << 20])
def test_gaps_are_closed_in_place(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    """Rows after a gap move to the front in their order, in the same memory."""
    monkeypatch.setattr(gaps, "_BYTES_AT_A_TIME", n_bytes)
    rows = torch.arange(60).reshape(20, 3)
    for out in ({0}, {19}, {0, 1, 2}, {3, 4, 9, 19}, set(range(19)), set(range(1, 20))):
        tensor = rows.clone()
        closed = without_rows(tensor, out)
        assert torch.equal(closed, rows[[i for i in range(20) if i not in out]])
        assert closed.data_ptr() == tensor.data_ptr()
