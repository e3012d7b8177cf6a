"""`decode="gpu"`: what a device decodes and what it refuses, with a CPU in the device's place."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import zoo
from PIL import Image
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode, v2

import gpupreload as gp
from gpupreload import arguments, decode, gpu_decoding, jpeg

SIZE = v2.Compose([v2.Resize(32), v2.CenterCrop(32)])
CPU = {"device": "cpu", "progress": False}


class Device:
    """Stands for a CUDA device: it decodes as Pillow does, many files at a time.

    Attributes:
        sizes: (width, height) of the images of each call.
        refused: sizes of which it decodes no image.
    """

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, int]]] = []
        self.refused: set[tuple[int, int]] = set()

    def __call__(self, files: list[Tensor], device: torch.device) -> list[Tensor]:
        """Decode all of them, or none."""
        assert device.type == "cpu"
        images = [Image.open(io.BytesIO(file.numpy().tobytes())) for file in files]
        self.calls.append([image.size for image in images])
        if self.refused.intersection(self.calls[-1]):
            raise RuntimeError("nvJPEG has no words for this")
        return [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images]

    @property
    def decoded(self) -> list[tuple[int, int]]:
        """The sizes of the images that came out, in order."""
        return [s for call in self.calls if not self.refused.intersection(call) for s in call]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The CPU takes decode="gpu", and notes what it was asked to decode."""
    stand_in = Device()
    monkeypatch.setattr(arguments, "_DECODES", "cpu")
    monkeypatch.setattr(gpu_decoding, "decode_jpegs", stand_in)
    return stand_in


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 40 sizes in plain JPEG, and a few in other formats and kinds of JPEG."""
    root = tmp_path_factory.mktemp("photos")
    (root / "a").mkdir()
    (root / "b").mkdir()
    for k in range(40):
        zoo.picture(width=90 + 3 * k, height=160 - 2 * k).save(root / "a" / f"{k:02}.jpg")
    rgb = zoo.picture(width=70, height=50)
    rgb.save(root / "b" / "a.png")
    rgb.save(root / "b" / "progressive.jpg", progressive=True)
    rgb.save(root / "b" / "turned.jpg", exif=zoo.exif(6))
    rgb.convert("L").save(root / "b" / "grey.jpg")
    return root


def difference(data: Any, transform: Any, **options: Any) -> Tensor:
    """By how many levels pixels differ from those of decode="fast"."""
    fast = gp.preload(data, transform, decode="fast", **CPU, **options)
    ours = gp.preload(data, transform, decode="gpu", **CPU, **options)
    assert ours.images is not fast.images
    assert ours.targets == fast.targets
    assert ours.samples == fast.samples
    return (ours.images.int() - fast.images.int()).abs()


@pytest.mark.parametrize("as_folder", [True, False])
@pytest.mark.parametrize("workers", [1, 4])
def test_plain_files_are_decoded_together(
    photos: Path, device: Device, workers: int, as_folder: bool
) -> None:
    """Every plain JPEG goes to the device, in one call; the pixels are those of fast reading."""
    data = photos if as_folder else ImageFolder(photos)
    assert difference(data, SIZE, workers=workers).max() == 0
    assert device.calls == [[(90 + 3 * k, 160 - 2 * k) for k in range(40)]]


@pytest.mark.parametrize(
    "transform",
    [
        v2.Compose([v1.Resize(30), v1.CenterCrop(40), v1.ToTensor()]),
        v2.Compose([v2.RGB(), v2.ToImage(), v2.Resize((20, 31), antialias=False)]),
        v2.Compose(
            [v2.CenterCrop((30, 20)), v2.Resize((12, 13), interpolation=InterpolationMode.BICUBIC)]
        ),
        v2.CenterCrop(500),
    ],
    ids=["v1", "on a tensor", "cropped first", "padded"],
)
def test_the_once_part_runs_on_tensors(photos: Path, device: Device, transform: Any) -> None:
    """Resizes and crops of both versions, in any order, give what they give in fast reading."""
    assert difference(photos, transform).max() <= 2
    assert len(device.decoded) == 40


def test_a_random_crop_of_several_sizes(photos: Path, device: Device) -> None:
    """The step that store_size inserts runs there too."""
    assert difference(photos, v2.RandomCrop(20), store_size=(30, 24)).max() == 0
    assert len(device.decoded) == 40


def test_groups_are_small(photos: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is decoded at a time than its memory is counted for; one large image goes alone."""
    monkeypatch.setattr(gpu_decoding, "_GROUP_BYTES", limit := 6 * 100_000)
    zoo.picture(width=400, height=300).save(photos / "b" / "large.jpg")
    try:
        assert difference(photos, SIZE).max() == 0
    finally:
        (photos / "b" / "large.jpg").unlink()
    assert len(device.decoded) == 41
    assert [(400, 300)] in device.calls
    for call in device.calls:
        assert len(call) == 1 or sum(6 * width * height for width, height in call) <= limit


def test_a_refused_file_is_read_by_the_cpu(photos: Path, device: Device) -> None:
    """The device says nothing about which file it refuses; all others are decoded by it still."""
    device.refused = {(90 + 3 * k, 160 - 2 * k) for k in (0, 17, 39)}
    assert difference(photos, SIZE).max() == 0
    assert len(device.decoded) == 37
    assert not device.refused.intersection(device.decoded)


def test_a_device_that_decodes_nothing_is_left_alone(photos: Path, device: Device) -> None:
    """Where nothing comes out, as where torchvision was built without nvJPEG, a warning says so."""
    device.refused = {(90 + 3 * k, 160 - 2 * k) for k in range(40)}
    with pytest.warns(UserWarning, match="decoded none") as caught:
        assert difference(photos, SIZE).max() == 0
    assert [str(warning.message) for warning in caught] == [
        "cpu decoded none of the first 8 JPEG files (nvJPEG has no words for this). This and all "
        "others are read by the CPU, as with decode='fast'."
    ]
    assert len(device.calls) < 25


@pytest.mark.parametrize(
    ("options", "transform", "said"),
    [
        ({"mode": "L"}, SIZE, []),
        (
            {},
            v2.Compose([v2.Resize((20, 20)), v2.Grayscale(3)]),
            [
                "decode='gpu' decodes for Resize and CenterCrop, and the once-part is "
                "Resize((20, 20)), Grayscale(num_output_channels=3): the files are read as "
                "with decode='fast'."
            ],
        ),
    ],
    ids=["grey", "a step"],
)
def test_what_it_cannot_do_is_fast_reading(
    photos: Path, device: Device, options: Any, transform: Any, said: list[str]
) -> None:
    """One channel, and steps that give other pixels on tensors, are left to fast reading."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert difference(photos, transform, **options).max() == 0
    assert [str(warning.message) for warning in caught] == said
    assert device.calls == []


def test_damaged_files_are_named_as_ever(device: Device, tmp_path: Path) -> None:
    """Files that Pillow refuses are the same error, or skipped alike, whatever a device says."""
    (tmp_path / "a").mkdir()
    for kind, files in zoo.damaged().items():
        for name, data in files.items() if kind != "contents" else ():
            (tmp_path / "a" / name).write_bytes(data)
    zoo.picture().save(tmp_path / "a" / "whole.jpg")
    options = {"on_error": "skip"} | CPU
    steps = v2.Resize((8, 8))
    fast = gp.preload(tmp_path, steps, decode="fast", **options)
    ours = gp.preload(tmp_path, steps, decode="gpu", **options)
    assert ours.samples == fast.samples
    assert len(ours.report.unreadable) == len(fast.report.unreadable) > 50
    assert torch.equal(ours.images, fast.images)
    with pytest.raises(gp.UnreadableError) as raised:
        gp.preload(tmp_path, steps, decode="gpu", **CPU)
    with pytest.raises(gp.UnreadableError) as expected:
        gp.preload(tmp_path, steps, decode="fast", **CPU)
    assert str(raised.value) == str(expected.value)


def is_sent(data: bytes) -> bool:
    """Whether a file is given to a device."""
    header = jpeg.plain_header(data[: jpeg.N_START])
    return header is not None and jpeg.is_one_scan(bytearray(data), header)


def test_what_is_cut_short_never_reaches_the_device() -> None:
    """Only a baseline JPEG of one scan that ends where the file ends is given to a device."""
    whole = zoo.encoded(zoo.picture(width=100, height=100), "JPEG")
    assert is_sent(whole)
    assert is_sent(zoo.encoded(zoo.picture(), "JPEG", restart_marker_blocks=2))
    # the end, without what comes before it, and with what comes after it
    assert not any(is_sent(whole[:-k]) for k in (1, 2, 3, 50))
    assert not is_sent(whole + b"\0")
    assert not is_sent(whole + whole)
    assert not is_sent(zoo.encoded(zoo.picture(), "JPEG", progressive=True))
    middle = len(whole) - 50
    assert not is_sent(whole[:middle] + b"\xff\xd0" + whole[middle:])
    assert not is_sent(whole[:middle] + b"\xff\xda" + whole[middle:])


def test_what_pillow_refuses_never_reaches_the_device(tmp_path: Path) -> None:
    """Whichever byte of the header is damaged: what is given to a device, Pillow reads too."""
    whole = zoo.encoded(zoo.picture(width=40, height=30), "JPEG")
    start = whole.index(b"\xff\xda") + 14
    n_sent, path = 0, tmp_path / "a.jpg"
    for place in range(start):
        for bit in (0, 5):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            if is_sent(damaged):
                n_sent += 1
                path.write_bytes(damaged)
                assert decode.read(path).mode == "RGB"
    assert n_sent > 200


def test_a_size_that_comes_out_unlike_the_header_is_refused(
    photos: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a device gives is looked at: an image of another size is read by the CPU."""

    def turned(files: list[Tensor], device_: torch.device) -> list[Tensor]:
        return [image.transpose(1, 2) for image in device(files, device_)]

    monkeypatch.setattr(gpu_decoding, "decode_jpegs", turned)
    with pytest.warns(UserWarning, match="decoded none"):
        assert difference(photos, SIZE).max() == 0


def test_images_that_come_out_unlike_are_an_error_as_ever(photos: Path, device: Device) -> None:
    """Sizes that differ after the once-part are refused with the same words."""
    said = []
    for how in ("fast", "gpu"):
        with pytest.raises(gp.SizeError) as raised:
            gp.preload(photos, v2.Resize(32), decode=how, **CPU)
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_torchvisions_own_decoder_is_called(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is heard of torchvision's deprecation, and the caller's filters stay."""
    monkeypatch.setattr(arguments, "_DECODES", "cpu")
    before = list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine = list(warnings.filters)
        assert difference(photos, SIZE).max() <= 2
        assert warnings.filters == mine
    assert warnings.filters == before


def test_the_cache_tells_them_apart(photos: Path, device: Device, tmp_path: Path) -> None:
    """Pixels that a device decoded are kept, and are not taken for those of fast reading."""
    said = []
    for how in ("gpu", "gpu", "fast"):
        with gp.preload(photos, SIZE, decode=how, cache=tmp_path, **CPU) as loaded:
            said.append(loaded.report.cache[:12])
    assert said == ["Cache: miss,", "Cache: hit. ", "Cache: miss,"]


@pytest.mark.parametrize("call", [gp.plan, gp.preload, gp.GPUPreloadDataset])
def test_elsewhere_it_is_refused_before_any_work(call: Any) -> None:
    """Only a CUDA device decodes; for any other the choices are named, and no folder is read."""
    with pytest.raises(gp.ArgumentError) as raised:
        call("/no/such/folder", device="cpu", decode="gpu")
    assert str(raised.value) == (
        "decode is 'gpu', but the images go to device='cpu'; expected a CUDA device, for only "
        "those decode JPEG files. Leave decode= out, for ImageFolder's pixels, or pass "
        "decode='fast', for pixels a level or two beside them."
    )


@pytest.mark.needs_cuda
def test_a_gpu_decodes(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU decodes the plain files; smooth pictures come out within a few levels of Pillow's."""
    n_files = 0
    decode_jpegs = gpu_decoding.decode_jpegs

    def counted(files: list[Tensor], device: torch.device) -> list[Tensor]:
        nonlocal n_files
        images = decode_jpegs(files, device)
        n_files += len(files)
        return images

    monkeypatch.setattr(gpu_decoding, "decode_jpegs", counted)
    settings = {"device": "cuda", "progress": False}
    exact = gp.preload(photos, SIZE, **settings)
    ours = gp.preload(photos, SIZE, decode="gpu", **settings)
    assert n_files == 40
    assert ours.targets == exact.targets
    assert (ours.images.float() - exact.images.float()).abs().mean() < 2
