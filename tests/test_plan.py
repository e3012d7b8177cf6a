"""The plan: its numbers, what it is found from, and what it refuses before any long work."""

from __future__ import annotations

import dataclasses
import gc
import html
import importlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from PIL import Image, ImageFile
from torch import Tensor
from torch.utils.data import Dataset, Subset
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload import decode
from gpupreload.devices import Memory

# the function hides the module of its name
plan_module = importlib.import_module("gpupreload.plan")
MIB, GIB = 1 << 20, 1 << 30
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
ONE_SIZE = v2.Resize((32, 32))


class Counted(Dataset[Any]):
    """Items that count how often they are read."""

    def __init__(self, n_images: int, transform: Any = None) -> None:
        self.n_images, self.transform = n_images, transform
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.n_images

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        image = Image.new("RGB", (8, 6), (index, 0, 0))
        return (self.transform(image) if self.transform else image), index % 3


def plan(data: Any, *steps: Any, **settings: Any) -> gp.Plan:
    """Plan for the CPU."""
    return gp.plan(data, v2.Compose(list(steps)) if steps else None, device="cpu", **settings)


def preload(data: Any, *steps: Any, **settings: Any) -> gp.GPUPreloadDataset:
    """Preload on the CPU, without a bar."""
    transform = v2.Compose(list(steps)) if steps else None
    return gp.preload(data, transform, device="cpu", progress=False, **settings)


@pytest.fixture
def has_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that sets how much memory the device has, free and in all."""

    def set_memory(free: int, total: int) -> None:
        monkeypatch.setattr(plan_module, "memory_of", lambda device: Memory(free, total))

    return set_memory


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were decoded, by whatever way."""
    files: list[str] = []
    read, load = decode.read, ImageFile.ImageFile.load

    def counted_read(path: str, **settings: Any) -> Image.Image:
        files.append(str(path))
        return read(path, **settings)

    def counted_load(image: Any) -> Any:
        files.append(str(image.filename))
        return load(image)

    monkeypatch.setattr(decode, "read", counted_read)
    monkeypatch.setattr(ImageFile.ImageFile, "load", counted_load)
    return files


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,550 images of 112×112 in 10 classes."""
    root, file = tmp_path_factory.mktemp("many"), io.BytesIO()
    Image.new("RGB", (112, 112), "teal").save(file, "PNG")
    for i in range(1550):
        path = root / f"class {i % 10}" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.getvalue())
    return root


def test_the_numbers(many: Path) -> None:
    """1,550 images of 3×112×112 are 222.5 MiB as float32 and a quarter of that as uint8."""
    found = plan(many, *FLOATS)
    assert (found.n_images, found.shape, found.dtype) == (1550, (3, 112, 112), torch.uint8)
    assert found.float32_bytes == 233_318_400
    assert found.uint8_bytes == 58_329_600
    assert found.label_bytes == 12_400
    assert found.store_bytes == 58_329_600 + 12_400
    assert found.decoding_bytes == 128 * MIB
    assert found.peak_bytes == 58_329_600 + 12_400 + 128 * MIB
    assert dict(found.class_counts) == {f"class {i}": 155 for i in range(10)}


TEXT = """\
Plan for {root}
images      1,550 of 3×112×112
classes     10, of 155 to 155 images each
as uint8    58,329,600 bytes (55.6 MiB)
as float32  233,318,400 bytes (222.5 MiB)
labels      12,400 bytes (12.1 KiB)
kept as     uint8
device      cpu: 6.0 GiB free of 8.0 GiB
placement   device: 55.6 MiB on cpu; all of them fit
peak        183.6 MiB while loading
found from  file headers; no image was decoded
verdict     fits, and leaves 5.8 GiB for the model

   step                                runs        why
-  ----------------------------------  ----------  ---------------------------------------
1  CenterCrop(112)                     once        deterministic, still uint8 and one size
2  RandomHorizontalFlip(p=0.5)         each batch  random: drawn anew for each sample
3  ToImage()                           each batch  after a random step
4  ToDtype(torch.float32, scale=True)  each batch  after a random step
Stored: 3×112×112 uint8, 37,632 bytes an image."""


def test_the_text(many: Path, has_memory: Callable[[int, int], None]) -> None:
    """`print` gives a short table, which is also what a prompt shows."""
    has_memory(6 * GIB, 8 * GIB)
    found = plan(many, v2.CenterCrop(112), v2.RandomHorizontalFlip(), *FLOATS)
    assert str(found) == repr(found) == TEXT.format(root=many)


def test_the_html(tmp_path: Path) -> None:
    """In a notebook the plan is an HTML table, in which names of folders are text."""
    root = tmp_path / "<b>cats & dogs</b>"
    (root / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 6)).save(root / "cat" / "a.png")
    shown = plan(root)._repr_html_()
    assert f"Plan for {html.escape(str(root))}</strong>" in shown
    assert shown.count("<table>") == shown.count("</table>") == 2
    assert "<b>" not in shown


@pytest.mark.parametrize(
    "steps",
    [
        [ONE_SIZE],
        [v2.Resize(40), v2.CenterCrop(32), v2.RandomErasing(), *FLOATS],
        [v2.ToImage(), ONE_SIZE, v2.Grayscale(), v2.ColorJitter(0.4)],
    ],
)
def test_a_folder_is_planned_from_headers(
    photo_folder: Path, decoded: list[str], steps: list[Any]
) -> None:
    """For files and torchvision's steps no pixel is decoded."""
    assert plan(photo_folder, *steps).n_decoded == 0
    assert plan(Subset(ImageFolder(photo_folder), [1, 2]), *steps).n_decoded == 0
    assert decoded == []


def test_counting_sees_decoding(photo_folder: Path, decoded: list[str]) -> None:
    """The tests above can fail: what preload decodes is counted."""
    ours = preload(photo_folder, ONE_SIZE)
    assert set(decoded) >= {path for path, _ in ours.samples or ()}


def dark(image: Image.Image) -> Image.Image:
    """A deterministic callable that no table knows."""
    return image.point(lambda value: value // 2)


def test_callables_are_tried_on_a_few_images(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a callable a few files are decoded, and the plan says how many."""
    files: list[str] = []
    read = decode.read
    monkeypatch.setattr(decode, "read", lambda path, **how: files.append(path) or read(path, **how))
    found = plan(photo_folder, dark, v2.Resize((30, 30)))
    assert found.n_decoded == len(files) > 0
    assert f"found from  decoding a few images, {len(files)} times in all; loading" in str(found)


@pytest.mark.parametrize("n_images", [1, 3, 8, 100])
@pytest.mark.parametrize("transform", [None, v2.Resize(4), dark])
def test_items_of_a_dataset_are_counted(n_images: int, transform: Any) -> None:
    """For a dataset a few items are read, and the plan says how many times."""
    data = Counted(n_images)
    assert gp.plan(data, transform, device="cpu").n_decoded == len(data.read) <= 28
    own = Counted(n_images, transform)
    assert gp.plan(own, device="cpu").n_decoded == len(own.read) <= 28


def test_a_subset_of_a_dataset_reads_its_own_items_only() -> None:
    """Items outside a Subset are not read."""
    data = Counted(100)
    assert gp.plan(Subset(data, [5, 7]), device="cpu").n_decoded == len(data.read)
    assert set(data.read) == {5, 7}


def test_a_loader_is_run_on_a_few_files(photo_folder: Path) -> None:
    """What an ImageFolder's own loader gives is found by running it, and counted."""
    files: list[str] = []

    def grey(path: str) -> Image.Image:
        files.append(path)
        return Image.open(path).convert("L")

    found = gp.plan(ImageFolder(photo_folder, ONE_SIZE, loader=grey), device="cpu")
    assert found.shape == (1, 32, 32)
    assert found.n_decoded == len(files) > 0


def test_the_size_is_found_by_running_the_once_part(photo_folder: Path) -> None:
    """The shape is what comes out of the deterministic steps, whatever they do."""
    steps = [v2.Resize(40), v2.CenterCrop((20, 30)), v2.Pad((1, 2)), v2.Grayscale()]
    assert plan(photo_folder, *steps, v2.RandomCrop(8)).shape == (1, 24, 32)


def test_store_size_is_what_is_stored(photo_folder: Path) -> None:
    """With store_size, that is the size after the once-part."""
    found = plan(photo_folder, v2.RandomCrop(16), store_size=(20, 25))
    assert found.shape == (3, 20, 25)


def test_floats_are_stored_where_uint8_cannot_be(photo_folder: Path) -> None:
    """The plan says that floats are kept, and why, and counts their bytes."""
    found = plan(photo_folder, *FLOATS, ONE_SIZE)
    assert found.dtype == torch.float32
    assert found.store_bytes == 12 * 3 * 32 * 32 * 4 + 12 * 8
    line = "kept as     float32: the once-part gives floats that uint8 cannot hold (see the steps)"
    assert line in str(found)


def test_a_plan_is_frozen(many: Path) -> None:
    """A plan's numbers cannot be changed, nor its counts."""
    found = plan(many)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.n_images = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.class_counts["cat"] = 3  # type: ignore[index]


def reachable(start: object) -> list[object]:
    """All objects that are kept alive by one, classes, modules and functions left out."""
    found, todo = {id(start): start}, [start]
    while todo:
        for other in gc.get_referents(todo.pop()):
            is_code = isinstance(other, type | ModuleType | FunctionType)
            if not is_code and id(other) not in found:
                found[id(other)] = other
                todo.append(other)
    return list(found.values())


@pytest.mark.parametrize("kind", ["folder", "dataset"])
def test_a_plan_keeps_no_pixels_alive(photo_folder: Path, kind: str) -> None:
    """Nothing that a plan holds is a tensor, an image or the data."""
    data: Any = photo_folder if kind == "folder" else Counted(9)
    found = plan(data, dark, ONE_SIZE, v2.RandomHorizontalFlip(), *FLOATS)
    kept = reachable(found)
    assert found.steps in kept
    assert [x for x in kept if isinstance(x, Tensor | Image.Image | Dataset)] == []


def test_class_counts_keep_the_classes_order(tmp_path: Path) -> None:
    """Images are counted for each class, in the order of the classes."""
    for i, name in enumerate(["owl", "cat", "dog"]):
        (tmp_path / name).mkdir()
        for k in range(i + 1):
            Image.new("RGB", (8, 6)).save(tmp_path / name / f"{k}.png")
    found = plan(tmp_path)
    assert list(found.class_counts.items()) == [("cat", 2), ("dog", 3), ("owl", 1)]
    assert "classes     3, of 1 to 3 images each" in str(found)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda label: 2 - label, {"cat": 4, "dog": 4, "owl": 4}),
        (lambda label: min(label, 1), {"cat": 4, "dog": 8, "owl": 0}),
        (lambda label: 100 * label, {"0": 4, "100": 4, "200": 4}),
    ],
)
def test_class_counts_after_a_target_transform(
    photo_folder: Path, change: Callable[[int], int], expected: dict[str, int]
) -> None:
    """Labels that have no class name are counted by their number."""
    data = ImageFolder(photo_folder, ONE_SIZE, target_transform=change)
    assert dict(gp.plan(data, device="cpu").class_counts) == expected


def test_one_file_passed_over(tmp_path: Path) -> None:
    """One file is a file, not files."""
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (8, 6)).save(tmp_path / "cat" / "1.png")
    (tmp_path / ".DS_Store").touch()
    assert "\npassed over  1 file: 1 hidden\n" in str(plan(tmp_path))


def test_folders_of_splits_are_told(photo_folder: Path, tmp_path: Path) -> None:
    """A folder whose classes are named as the parts of a dataset is told before it is loaded."""
    for name in ("train", "val"):
        shutil.copytree(photo_folder, tmp_path / name)
    found = plan(tmp_path, ONE_SIZE)
    assert found.notices == (
        "The classes are named train, val, as the parts of a dataset are. "
        f"Did you mean {tmp_path / 'train'}?",
    )
    assert f"\n{found.notices[0]}\n" in str(found)


def test_class_counts_may_be_unknown() -> None:
    """Where only reading all items would tell, the plan says so."""
    found = plan(FakeData(5, (3, 8, 6)))
    assert dict(found.class_counts) == {}
    assert "classes     not known before loading" in str(found)


# --- does it fit


@pytest.mark.parametrize(
    ("free", "verdict"),
    [
        (2 * GIB, "fits, and leaves 1.8 GiB for the model"),
        (
            250 * MIB,
            "fits, but leaves only 66.4 MiB for the model (less than 204.8 MiB, a tenth of the "
            "device)",
        ),
        (150 * MIB, "does not fit: 33.6 MiB too much"),
    ],
)
def test_the_verdict(
    many: Path, has_memory: Callable[[int, int], None], free: int, verdict: str
) -> None:
    """A set fits where the store and decoding have room; a tenth of the device is for the model."""
    has_memory(free, 2 * GIB)
    found = plan(many, placement="device")
    assert found.verdict == verdict
    assert found.fits is not verdict.startswith("does not")


def test_decoding_takes_no_memory_of_a_gpu(many: Path) -> None:
    """On an accelerator only the store counts; on the CPU, the decoded images too."""
    on_gpu = dataclasses.replace(plan(many), device=torch.device("cuda:0"), free_bytes=60 * MIB)
    assert on_gpu.needed_on_device == 58_342_000
    assert on_gpu.fits
    assert not dataclasses.replace(on_gpu, device=torch.device("cpu")).fits


def test_one_large_image_counts_while_decoding(tmp_path: Path) -> None:
    """An image larger than the decoding budget is decoded alone, and counted."""
    (tmp_path / "cat").mkdir()
    Image.new("1", (9000, 8000)).save(tmp_path / "cat" / "a.png")
    assert plan(tmp_path, v2.Resize((8, 8))).decoding_bytes == 2 * 3 * 9000 * 8000


def test_too_large_a_set_is_refused_before_decoding(
    many: Path, has_memory: Callable[[int, int], None], decoded: list[str]
) -> None:
    """Both sizes and the choices are said before a single image is decoded."""
    has_memory(100 * MIB, 8 * GIB)
    with pytest.raises(gp.DoesNotFitError) as raised:
        preload(many, *FLOATS)
    assert str(raised.value) == (
        "1,550 images of 3×112×112 need 183.6 MiB, and cpu has 100.0 MiB free of 8.0 GiB.\n"
        "Make the images smaller with a Resize, or load fewer with "
        "torch.utils.data.Subset(ImageFolder(...), indices)."
    )
    assert isinstance(raised.value, MemoryError)
    with pytest.raises(gp.DoesNotFitError):
        gp.GPUPreloadDataset(many, device="cpu")
    assert decoded == []


def test_on_a_gpu_the_cpu_is_a_choice(many: Path) -> None:
    """The refusal names the device, and the CPU as a way on."""
    on_gpu = dataclasses.replace(
        plan(many), device=torch.device("cuda:0"), free_bytes=50 * MIB, total_bytes=16 * GIB
    )
    with pytest.raises(gp.DoesNotFitError) as raised:
        on_gpu.check_fits()
    assert str(raised.value) == (
        "1,550 images of 3×112×112 need 55.6 MiB, and cuda:0 has 50.0 MiB free of 16.0 GiB.\n"
        "Make the images smaller with a Resize, or load fewer with "
        "torch.utils.data.Subset(ImageFolder(...), indices), or keep them on the CPU with "
        "device='cpu'."
    )


# --- what is loaded already


def test_stores_that_are_alive_are_counted(
    many: Path, photo_folder: Path, has_memory: Callable[[int, int], None]
) -> None:
    """A plan for something else says what is loaded, and the refusal how to free it."""
    with preload(many) as loaded:
        found = plan(photo_folder, ONE_SIZE)
        assert found.resident_bytes == 58_342_000
        line = "stores alive  55.6 MiB on cpu; free() gives them back"
        assert line in str(found)
        has_memory(MIB, 8 * GIB)
        with pytest.raises(gp.DoesNotFitError) as raised:
            preload(photo_folder, ONE_SIZE)
        assert str(raised.value) == (
            "12 images of 3×32×32 need 128.0 MiB, and cpu has 1.0 MiB free of 8.0 GiB.\n"
            "Stores that are alive take 55.6 MiB of it: give one back with its dataset's free().\n"
            "Make the images smaller with a Resize, or load fewer with "
            "torch.utils.data.Subset(ImageFolder(...), indices)."
        )
        assert loaded.free() == 58_342_000
    assert plan(photo_folder, ONE_SIZE).resident_bytes == 0


def test_a_store_that_nobody_holds_is_not_counted(photo_folder: Path) -> None:
    """A dataset that is gone has given its memory back."""
    before = plan(photo_folder, ONE_SIZE).resident_bytes
    ours = preload(photo_folder, ONE_SIZE)
    assert plan(photo_folder, ONE_SIZE).resident_bytes == before + 12 * 3 * 32 * 32 + 12 * 8
    del ours
    gc.collect()
    assert plan(photo_folder, ONE_SIZE).resident_bytes == before


def test_loading_the_same_again_needs_nothing(
    many: Path, has_memory: Callable[[int, int], None]
) -> None:
    """What is loaded already is not counted twice, and always fits."""
    with preload(many, *FLOATS):
        has_memory(MIB, 8 * GIB)
        found = plan(many, v2.RandomHorizontalFlip(), *FLOATS)
        assert (found.is_resident, found.fits, found.peak_bytes) == (True, True, 0)
        assert found.verdict == "is loaded already: preloading it again shares what is there"
        assert preload(many, v2.RandomHorizontalFlip(), *FLOATS).images.shape[0] == 1550
    assert not plan(many, *FLOATS).is_resident


# --- sizes that differ

DIFFER = (
    "images must have one size to be stored, but {}{}/cat/a.jpg is {} and {}/cat/b.png is {}.\n"
)


@pytest.mark.parametrize(
    ("steps", "after", "sizes", "advice"),
    [
        (
            [],
            "",
            ("40×50 RGB", "42×57 RGB"),
            "Add steps that make one size, such as v2.Resize(128), v2.CenterCrop(112).",
        ),
        (
            [v2.Resize(24)],
            "after Resize(24) ",
            ("24×30 RGB", "24×32 RGB"),
            "Resize(24) keeps each photo's aspect: add v2.CenterCrop(24) after it.",
        ),
    ],
    ids=["no steps", "Resize"],
)
@pytest.mark.parametrize("call", [plan, preload])
def test_images_of_different_sizes(
    photo_folder: Path,
    decoded: list[str],
    call: Callable[..., Any],
    steps: list[Any],
    after: str,
    sizes: tuple[str, str],
    advice: str,
) -> None:
    """Two files with their sizes are named, and the transform to add, before decoding."""
    with pytest.raises(gp.SizeError) as raised:
        call(photo_folder, *steps)
    first = DIFFER.format(after, photo_folder, sizes[0], photo_folder, sizes[1])
    assert str(raised.value) == first + advice
    assert decoded == []


@pytest.mark.parametrize("plans", [plan, lambda data: gp.plan(data, ONE_SIZE), gp.explore_plan])
def test_there_is_nothing_to_plan_where_images_are_loaded(
    photo_folder: Path, plans: Callable[[Any], Any]
) -> None:
    """A preloaded dataset, or a Subset of a Subset of it, is told as such."""
    train = preload(photo_folder, ONE_SIZE)
    for data in (train, Subset(Subset(train, [0, 1]), [0])):
        with pytest.raises(gp.ArgumentError) as raised:
            plans(data)
        assert str(raised.value) == (
            "data is preloaded already, so there is nothing to plan: print(dataset) says what it "
            "takes. For another transform or size, plan the files' folder again."
        )
