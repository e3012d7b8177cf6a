"""The store: filled by threads, shared by those who want the same, freed by the last of them."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional as v1f
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import building, filling, host
from gpupreload.pool import ByteBudget

SIZE = v2.Resize((10, 12))
FREED = "this dataset's memory was given back with free(); preload the data again."


def preload(data: Any, *steps: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    transform = v2.Compose(list(steps)) if steps else None
    return gp.preload(data, transform, **{"device": "cpu", "progress": False} | settings)


def decoding_threads() -> list[str]:
    """The names of threads that decode."""
    return [t.name for t in threading.enumerate() if t.name.startswith("gpupreload")]


@pytest.fixture
def photos(photo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the shared photos, to be changed."""
    return Path(shutil.copytree(photo_folder, tmp_path / "photos"))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 images of 4×3, each of the colour of its number."""
    root = tmp_path_factory.mktemp("numbered")
    for i in range(600):
        path = root / f"{i % 3}" / f"{i:04}.bmp"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 3), (i % 256, i // 256, 7)).save(path)
    return root


def expected(root: Path) -> tuple[Tensor, list[int]]:
    """The pixels and labels of a folder, read with Pillow one by one."""
    data = ImageFolder(str(root))
    pixels = [v1f.pil_to_tensor(Image.open(path).convert("RGB")) for path, _ in data.samples]
    return torch.stack(pixels), data.targets


# --- filling


@pytest.mark.parametrize("workers", [1, 2, 7, None])
def test_rows_and_labels_stay_together(numbered: Path, workers: int | None) -> None:
    """However many threads decode, image i and label i are those of sample i."""
    pixels, labels = expected(numbered)
    with preload(numbered, workers=workers) as ours:
        assert torch.equal(ours.images, pixels)
        assert ours.labels.tolist() == labels
        assert ours.labels.dtype == torch.int64
        assert ours.images.is_contiguous()


@pytest.mark.parametrize("n_bytes", [1, 36 * 7, 36 * 600, 36 * 10_000])
def test_a_staged_store_equals_one_filled_in_place(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, n_bytes: int
) -> None:
    """Through two staging buffers of any size the same rows arrive, as for an accelerator."""
    monkeypatch.setattr(filling, "_InPlace", filling._Staged)
    monkeypatch.setattr(filling, "STAGING_BYTES", n_bytes)
    pixels, labels = expected(numbered)
    with preload(numbered) as ours:
        assert torch.equal(ours.images, pixels)
        assert ours.labels.tolist() == labels


def test_as_many_threads_as_asked_for(photo_folder: Path) -> None:
    """`workers` threads decode, and none is left afterwards."""
    names: set[str] = set()

    def loader(path: str) -> Image.Image:
        names.add(threading.current_thread().name)
        return Image.open(path).convert("RGB")

    preload(ImageFolder(photo_folder, SIZE, loader=loader), workers=2)
    names.discard(threading.main_thread().name)  # the plan's
    assert 1 <= len(names) <= 2
    assert decoding_threads() == []


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_must_be_a_number(workers: Any) -> None:
    """The number of threads is checked before a folder is looked at."""
    for call in (gp.preload, gp.GPUPreloadDataset):
        with pytest.raises(gp.ArgumentError) as raised:
            call("/no/such/folder", device="cpu", workers=workers)
        assert str(raised.value) == (
            f"workers is {workers!r}; expected the number of decoding threads, 1 or more, "
            "or None for one a CPU."
        )


def test_images_in_flight_are_budgeted(photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more decoded images are held at a time than the budget has room for."""
    monkeypatch.setattr(filling, "DECODE_BUDGET", 2 * 2 * 3 * 30 * 30)
    now, most, lock = 0, 0, threading.Lock()

    def loader(path: str) -> Image.Image:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        image = Image.open(path).convert("RGB").resize((600, 600)).resize((30, 30))
        with lock:
            now -= 1
        return image

    preload(ImageFolder(photo_folder, SIZE, loader=loader), workers=8)
    assert 1 <= most <= 2


def test_a_budget_lets_at_most_its_bytes() -> None:
    """Threads together hold at most the budget, and one larger request goes alone."""
    budget, now, seen = ByteBudget(10), 0, []
    lock = threading.Lock()

    def work(n_bytes: int) -> None:
        nonlocal now
        for _ in range(50):
            with budget.hold(n_bytes):
                with lock:
                    now += n_bytes
                    seen.append(now)
                with lock:
                    now -= n_bytes

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 4, 7, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 250
    assert {held for held in seen if held > 10} == {25}


def test_a_budget_is_given_back_after_an_error() -> None:
    """What was held when an error came can be held again."""
    budget = ByteBudget(10)
    for _ in range(3):
        with pytest.raises(KeyError), budget.hold(10):
            raise KeyError
    with budget.hold(10):
        pass


def test_the_bar_shows_images_and_bytes(numbered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bar says how many images of how many, and how many MiB; it can be switched off."""
    preload(numbered, SIZE, progress=True).free()
    shown = capsys.readouterr().err.split("\r")[-1]
    assert "preload: 100%" in shown
    assert "600/600" in shown
    assert "0.2 MiB" in shown  # 600 * 3 * 10 * 12 bytes of pixels and 600 * 8 of labels
    preload(numbered, SIZE, progress=False).free()
    assert capsys.readouterr() == ("", "")


# --- what can go wrong while loading


def only_late(change: Callable[[Image.Image], Any]) -> Callable[[Image.Image], Any]:
    """A step that does something to the 500th image only, which no trial call sees."""

    def step(image: Image.Image) -> Any:
        return change(image) if image.getpixel((0, 0)) == (500 % 256, 1, 7) else image

    return step


def boom(image: Image.Image) -> Image.Image:
    """Raise an error."""
    raise ValueError("no such colour")


PATH = "{}/2/0500.bmp"


def test_a_step_that_raises_is_named_with_the_file(numbered: Path) -> None:
    """An error in the once-part names the file, the step, and what was raised."""
    with pytest.raises(gp.TransformError) as raised:
        preload(numbered, v2.Resize((3, 4)), only_late(boom), v2.Lambda(lambda image: image))
    assert str(raised.value) == (f"{PATH.format(numbered)}: step raised ValueError: no such colour")
    assert isinstance(raised.value.__cause__, ValueError)
    assert decoding_threads() == []


def test_a_step_that_returns_no_image(numbered: Path) -> None:
    """A step that returns None for some image names the file."""
    with pytest.raises(gp.TransformError) as raised:
        preload(numbered, only_late(lambda image: None))
    assert str(raised.value) == (
        f"{PATH.format(numbered)}: the once-part of the transform: it returned NoneType; "
        "expected one image."
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda image: image.resize((5, 3)), "uint8 of shape (3, 3, 5)"),
        (lambda image: image.convert("L"), "uint8 of shape (1, 3, 4)"),
        (v1f.to_tensor, "float32 of shape (3, 3, 4)"),
    ],
)
def test_an_image_unlike_the_others(
    numbered: Path, change: Callable[[Image.Image], Any], what: str
) -> None:
    """An image that comes out in another size or dtype is named, with what the others were."""
    with pytest.raises(gp.SizeError) as raised:
        preload(numbered, only_late(change))
    assert str(raised.value) == (
        f"{PATH.format(numbered)} comes out of the once-part as {what}; the images looked at "
        "before gave uint8 of shape (3, 3, 4). Every image must come out alike: add "
        "v2.RGB() and v2.Resize((3, 4)) to the deterministic steps."
    )


def interrupt_here(image: Image.Image) -> Image.Image:
    """Raise in the decoding thread what Ctrl-C raises."""
    raise KeyboardInterrupt


def interrupt_main(image: Image.Image) -> Image.Image:
    """Send what Ctrl-C sends."""
    os.kill(os.getpid(), signal.SIGINT)
    return image


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also in what was started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("interrupt", [interrupt_here, interrupt_main])
def test_an_interrupt_leaves_nothing_behind(
    numbered: Path, interrupt: Callable[[Image.Image], Image.Image]
) -> None:
    """After Ctrl-C no thread goes on, no memory is kept, and the next load works."""
    before = gp.plan(numbered, device="cpu").resident_bytes
    with pytest.raises(KeyboardInterrupt):
        preload(numbered, only_late(interrupt))
    assert decoding_threads() == []
    assert gp.plan(numbered, device="cpu").resident_bytes == before
    with preload(numbered) as ours:
        assert torch.equal(ours.images, expected(numbered)[0])


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate"), RuntimeError("CUDA out of memory")], ids=repr
)
def test_a_refusal_by_the_allocator(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Memory that is free but cannot be had is a DoesNotFitError that says why."""

    def refuse(*_: Any) -> Tensor:
        raise error

    monkeypatch.setattr(host, "empty", refuse)
    with pytest.raises(gp.DoesNotFitError) as raised:
        preload(numbered)
    first, _, rest = str(raised.value).partition(" in one piece, though ")
    assert first == "cpu refused 25.8 KiB"
    assert rest.endswith(
        "were free: its memory is in fragments, or another program took it. Free memory there, "
        "or make the images smaller with a Resize."
    )


BUSY = threading.Lock()


def careless(image: Image.Image) -> Image.Image:
    """Turn an image by an angle that looks random; the same each time, for it seeds before."""
    assert BUSY.acquire(blocking=False), "two threads at a time"
    torch.manual_seed(int(np.asarray(image).sum()))
    image.resize((300, 300))  # gives other threads a chance
    angle = int(torch.randint(0, 4, ()))
    BUSY.release()
    return image.rotate(90 * angle)


def test_callables_are_run_by_one_thread_at_a_time(numbered: Path) -> None:
    """A callable that seeds a global generator draws the same in any number of threads."""
    torch.manual_seed(5)
    state = torch.get_rng_state()
    ours = preload(numbered, v2.Resize((4, 4)), gp.once(careless), workers=8, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    files = [Image.open(path).convert("RGB").resize((4, 4)) for path, _ in ours.samples or ()]
    alone = torch.stack([v1f.pil_to_tensor(careless(file)) for file in files])
    assert torch.equal(ours.images, alone)


# --- sharing


def test_the_same_again_shares_the_store(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that is run twice decodes once, whatever runs each batch; the seeds are their own."""
    first = preload(photo_folder, SIZE, v2.RandomHorizontalFlip(), seed=1)
    monkeypatch.setattr(building, "fill", None)
    again = preload(str(photo_folder), SIZE, v2.ToImage(), v2.RandomErasing(), seed=2)
    explicit = gp.GPUPreloadDataset(
        ImageFolder(photo_folder), v2.Resize([10, 12]), v2.RandomVerticalFlip(), device="cpu"
    )
    assert first.images is again.images is explicit.images
    assert (first.seed, again.seed) == (1, 2)
    assert "RandomErasing" in repr(again)


def test_what_was_written_to_is_not_shared(photo_folder: Path) -> None:
    """A cell that is run again gives the data as the files have them, whatever was tried since."""
    first = preload(photo_folder, SIZE)
    images = first.images.clone()
    first.images[:3] = 1
    again = preload(photo_folder, SIZE)
    assert torch.equal(again.images, images)
    assert again.images is not first.images
    assert preload(photo_folder, SIZE).images is again.images


def test_labels_are_each_preloads_own(photo_folder: Path) -> None:
    """Two preloads of the same files share the pixels, and what is written to labels is not."""
    clean, noisy = preload(photo_folder, SIZE), preload(photo_folder, SIZE)
    labels = clean.labels.tolist()
    noisy.labels[:] = 2
    noisy.labels.numpy()[0] = 1  # which torch does not count
    assert clean.labels.tolist() == clean.targets == labels
    again = preload(photo_folder, SIZE)
    assert again.labels.tolist() == again.targets == labels
    assert again.images is clean.images is noisy.images


@pytest.mark.parametrize("change", ["file", "step", "labels", "subset", "loader"])
def test_anything_else_is_loaded_anew(photos: Path, change: str) -> None:
    """A changed file, another once-part, other labels or other files are another store."""
    first = preload(photos, SIZE)
    data: Any = photos
    step: Any = SIZE
    if change == "file":
        Image.new("RGB", (40, 50), "red").save(photos / "cat" / "a.jpg")
    elif change == "step":
        step = v2.Resize((12, 10))
    elif change == "labels":
        data = ImageFolder(photos, target_transform=lambda label: 2 - label)
    elif change == "subset":
        data = torch.utils.data.Subset(ImageFolder(photos), range(11, -1, -1))
    else:
        data = ImageFolder(photos, loader=lambda path: Image.open(path).convert("RGB"))
    second = preload(data, step)
    assert second.images is not first.images
    assert torch.equal(second.images, preload(data, step).images)


def test_a_failed_load_is_shared_with_nobody(photos: Path) -> None:
    """After an error the same preload reads the files again."""
    good = (photos / "cat" / "c.jpg").read_bytes()
    (photos / "cat" / "c.jpg").write_bytes(good[:600])
    with pytest.raises(gp.UnreadableError):
        preload(photos, SIZE)
    (photos / "cat" / "c.jpg").write_bytes(good)
    assert len(preload(photos, SIZE)) == 12


def load_and_write(root: str, output: str) -> None:
    """Preload in a process of its own, and write the pixels' checksum to a file."""
    torch.set_num_threads(1)
    pixels = preload(root, SIZE, workers=2).images
    Path(output).write_text(hashlib.sha256(pixels.numpy().tobytes()).hexdigest())


def test_two_processes_at_once(numbered: Path, tmp_path: Path) -> None:
    """Two processes that preload the same folder at the same time do not disturb each other."""
    context = multiprocessing.get_context("fork")
    files = [tmp_path / "one", tmp_path / "two"]
    processes = [context.Process(target=load_and_write, args=(numbered, f)) for f in files]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    ours = preload(numbered, SIZE)
    sha256 = hashlib.sha256(ours.images.numpy().tobytes()).hexdigest()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [file.read_text() for file in files] == [sha256, sha256]


def test_two_threads_at_once(numbered: Path, photo_folder: Path) -> None:
    """Preloads in several threads of one process do not disturb each other."""
    errors: list[BaseException] = []

    def work(data: Path) -> None:
        try:
            for _ in range(2):
                preload(data, SIZE, workers=2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(d,)) for d in (numbered, photo_folder) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# --- giving back

USES: dict[str, Callable[[gp.GPUPreloadDataset], Any]] = {
    "len": len,
    "item": lambda ds: ds[0],
    "several": lambda ds: ds.__getitems__([0, 1]),
    "images": lambda ds: ds.images,
    "labels": lambda ds: ds.labels,
    "device": lambda ds: ds.device,
    "iteration": list,
    "a tensor dataset": lambda ds: ds.as_tensor_dataset(),
    "DataLoader": lambda ds: next(iter(DataLoader(ds, 2, sampler=[0, 1]))),
    "Loader": lambda ds: next(iter(gp.Loader(ds, 2))),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_use_after_free(photos: Path, use: Callable[[gp.GPUPreloadDataset], Any]) -> None:
    """A freed dataset says so, whatever is asked of it."""
    ours = preload(photos, SIZE)
    assert ours.free() == 12 * 3 * 10 * 12 + 12 * 8
    with pytest.raises(gp.FreedError) as raised:
        use(ours)
    assert str(raised.value) == FREED
    assert repr(ours) == "GPUPreloadDataset: freed"
    assert ours.free() == 0


def test_a_loader_of_a_freed_dataset_says_so(photos: Path) -> None:
    """A loader that was made before is no way around."""
    ours = preload(photos, SIZE)
    batches = iter(loader := gp.Loader(ours, 4))
    next(batches)
    ours.free()
    with pytest.raises(gp.FreedError):
        list(loader)


def test_the_last_of_two_holders_frees(photos: Path) -> None:
    """One that gives back is freed at once; the memory goes with the last that shares it."""
    first, second = preload(photos, SIZE), preload(photos, SIZE)
    expected = second.images.clone()
    assert first.free() == 0
    with pytest.raises(gp.FreedError):
        first.images  # noqa: B018 the reading is the test
    assert torch.equal(second.images, expected)
    assert first.free() == 0
    assert torch.equal(second.images, expected)
    assert second.free() == 12 * 3 * 10 * 12 + 12 * 8
    with pytest.raises(gp.FreedError):
        second.images  # noqa: B018


def test_a_holder_that_is_gone_holds_no_more(photos: Path) -> None:
    """Of two names for one store, one that was reassigned or deleted keeps nothing alive."""
    first, second = preload(photos, SIZE), preload(photos, SIZE)
    del second
    gc.collect()
    assert first.free() > 0


def test_with_gives_back_also_after_an_error(photos: Path) -> None:
    """`with` frees at its end, and lets errors through."""
    with pytest.raises(KeyError), preload(photos, SIZE) as ours:
        raise KeyError
    with pytest.raises(gp.FreedError):
        len(ours)


def test_freed_is_loaded_anew(photos: Path) -> None:
    """A store that was freed is not shared."""
    first = preload(photos, SIZE)
    pixels = first.images.clone()
    first.free()
    assert torch.equal(preload(photos, SIZE).images, pixels)
