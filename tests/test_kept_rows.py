"""What a load that failed had decoded: the next load takes it, whatever else has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import decode
from gpupreload.errors import UnreadableError
from gpupreload.gaps import spread

STEPS = v2.Compose([v2.Resize(16), v2.CenterCrop(16)])
N_PHOTOS = 9

Counted = list[str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Nine different photos in two classes; numbers 2 and 6 are cut short."""
    folder = tmp_path / "photos"
    for k in range(N_PHOTOS):
        photo(folder, k)
    for k in (2, 6):
        cut_short(path_of(folder, k))
    return folder


def path_of(folder: Path, k: int) -> Path:
    """The path of a photo."""
    return folder / ("a" if k < 5 else "b") / f"{k}.png"


def photo(folder: Path, k: int) -> None:
    """Write a photo, another for each number."""
    path_of(folder, k).parent.mkdir(parents=True, exist_ok=True)
    zoo.picture("RGB", 30 + k, 24).rotate(11 * k).save(path_of(folder, k))


def cut_short(path: Path) -> None:
    """Take the end of a file away."""
    path.write_bytes(path.read_bytes()[:-300])


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The names of the files that are decoded, as they are."""
    names: Counted = []
    read: Callable[..., Image.Image] = decode.read

    def counting(path: str, **options: Any) -> Image.Image:
        names.append(Path(path).stem)
        return read(path, **options)

    monkeypatch.setattr(decode, "read", counting)
    return names


def load(root: Path, cache: Path, **options: Any) -> gp.GPUPreloadDataset:
    """Preload with a cache."""
    return gp.preload(root, STEPS, device="cpu", progress=False, cache=cache, **options)


def fail(root: Path, cache: Path) -> str:
    """Preload what cannot be read; the error's text."""
    with pytest.raises(UnreadableError) as caught:
        load(root, cache)
    return str(caught.value)


def check_equal(dataset: gp.GPUPreloadDataset) -> None:
    """Compare with ImageFolder, file by file."""
    loader = ImageFolder(dataset.report.name, v2.Compose([STEPS, v2.PILToTensor()]))
    expected = {path: loader[i] for i, (path, _) in enumerate(loader.samples) if is_whole(path)}
    assert [path for path, _ in dataset.samples] == list(expected)
    assert torch.stack([image for image, _ in expected.values()]).equal(dataset.images)
    assert dataset.targets == [label for _, label in expected.values()]


def is_whole(path: str) -> bool:
    """Whether a file can be read."""
    try:
        Image.open(path).load()
    except OSError:
        return False
    return True


def test_only_mended_files_are_decoded(root: Path, tmp_path: Path, decoded: Counted) -> None:
    """After an error, files that are mended are decoded, and no others."""
    text = fail(root, tmp_path / "cache")
    assert text == (
        "2 of 9 files cannot be read:\n"
        f"  {path_of(root, 2)}: {truncated(root, 2)}\n"
        f"  {path_of(root, 6)}: {truncated(root, 6)}\n"
        "Repair these files, move them out of the folder, or leave them out: on_error='skip'.\n"
        "The others are kept in the cache: with it, the next preload decodes only these."
    )
    for k in (2, 6):
        photo(root, k)
    decoded.clear()
    with load(root, tmp_path / "cache") as dataset:
        assert sorted(decoded) == ["2", "6"]
        assert " 7 of 9 images came from an earlier load that failed." in dataset.report.cache
        check_equal(dataset)


def truncated(root: Path, k: int) -> str:
    """Why a photo cannot be read."""
    n_bytes = path_of(root, k).stat().st_size
    return f"truncated: the file ends at byte {n_bytes:,}, before its image does"


def test_after_success_the_whole_store_is_kept(
    root: Path, tmp_path: Path, decoded: Counted
) -> None:
    """The next load is a hit like any other, and the rows that were kept are gone."""
    cache = tmp_path / "cache"
    fail(root, cache)
    assert len(list(cache.glob("*.safetensors"))) == 1
    load(root, cache, on_error="skip").free()
    assert len(list(cache.glob("*.safetensors"))) == 1
    with load(root, cache, on_error="skip") as dataset:
        assert dataset.report.cache.startswith("Cache: hit.")
        check_equal(dataset)


def test_skipping_decodes_only_what_is_damaged(
    root: Path, tmp_path: Path, decoded: Counted
) -> None:
    """Files that are to be left out are tried again; those that were read are not."""
    fail(root, tmp_path / "cache")
    decoded.clear()
    with load(root, tmp_path / "cache", on_error="skip") as dataset:
        assert set(decoded) == {"2", "6"}
        check_equal(dataset)


def test_files_that_went_or_came_do_not_matter(
    root: Path, tmp_path: Path, decoded: Counted
) -> None:
    """Deleted files leave no rows, and new and changed ones are decoded, wherever they stand."""
    fail(root, tmp_path / "cache")
    for k in (0, 2, 6):
        path_of(root, k).unlink()
    photo(root, 9)
    shutil.copy(path_of(root, 8), path_of(root, 3))
    decoded.clear()
    with load(root, tmp_path / "cache") as dataset:
        assert sorted(decoded) == ["3", "9"]
        assert " 5 of 7 images came from an earlier load" in dataset.report.cache
        check_equal(dataset)


def test_a_second_failure_keeps_what_both_decoded(
    root: Path, tmp_path: Path, decoded: Counted
) -> None:
    """Files are mended one after the other, and each is decoded once it is whole."""
    fail(root, tmp_path / "cache")
    photo(root, 2)
    decoded.clear()
    assert "1 of 9 files cannot be read" in fail(root, tmp_path / "cache")
    assert sorted(decoded) == ["2", "6"]
    photo(root, 6)
    decoded.clear()
    with load(root, tmp_path / "cache") as dataset:
        assert decoded == ["6"]
        check_equal(dataset)


@pytest.mark.parametrize("change", ["steps", "damage", "cut", "another folder"])
def test_rows_of_no_use_are_decoded_again(
    root: Path, tmp_path: Path, decoded: Counted, change: str
) -> None:
    """Rows after other steps, of another folder, or in a damaged file are never served."""
    cache = tmp_path / "cache"
    fail(root, cache)
    (kept,) = cache.glob("*.safetensors")
    steps, data = STEPS, bytearray(kept.read_bytes())
    if change == "steps":
        steps = v2.Compose([v2.Resize(17), v2.CenterCrop(16)])
    elif change == "damage":
        data[len(data) // 2] ^= 1
        kept.write_bytes(data)
    elif change == "cut":
        kept.write_bytes(data[:-1])
    else:
        root = Path(shutil.copytree(root, tmp_path / "others"))
    decoded.clear()
    with gp.preload(
        root, steps, device="cpu", progress=False, cache=cache, on_error="skip"
    ) as dataset:
        assert len(decoded) == N_PHOTOS
        assert "earlier load" not in dataset.report.cache


def test_without_a_cache_nothing_is_kept(root: Path, decoded: Counted) -> None:
    """The error does not speak of a cache that nobody asked for."""
    with pytest.raises(UnreadableError) as caught:
        gp.preload(root, STEPS, device="cpu", progress=False)
    assert str(caught.value).endswith("or leave them out: on_error='skip'.")


def test_a_cache_that_cannot_be_written_says_so(root: Path, tmp_path: Path) -> None:
    """The error names the files all the same."""
    (tmp_path / "file").write_text("in the way")
    text = fail(root, tmp_path / "file" / "cache")
    assert text.splitlines()[0] == "2 of 9 files cannot be read:"
    assert text.splitlines()[-1] == "The others cannot be kept in the cache: Not a directory."


def test_clear_cache_deletes_what_was_kept(root: Path, tmp_path: Path) -> None:
    """Rows of a load that failed are the cache's, as whole stores are."""
    fail(root, tmp_path / "cache")
    assert gp.clear_cache(tmp_path / "cache") > 7 * 3 * 16 * 16
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "places", [[0, 1, 2], [3, 4, 7], [None, None, 0, 1, 5, 6], [None, 0, 2, 3, 7], [None, None]]
)
@pytest.mark.parametrize("n_at_a_time", [1, 2, 100])
def test_rows_reach_their_places(
    places: list[int | None], n_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go back, stay and go on within one tensor, and none overwrites another."""
    monkeypatch.setattr("gpupreload.gaps._BYTES_AT_A_TIME", 8 * n_at_a_time)
    rows = torch.arange(8)
    spread(rows, places)
    assert {p: int(rows[p]) for p in places if p is not None} == {
        p: k for k, p in enumerate(places) if p is not None
    }
