"""A small folder of real photos to try things on, cut from the photographs in scikit-image's wheel.

Nothing is fetched and nothing is shipped: the photographs are read from the scikit-image that is
installed, and each one is divided into an area for training and an area for validation, which
share no pixel. What is cut where is a function of whole numbers alone, so the pixels are the same
on every machine.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image

from gpupreload.errors import ArgumentError, DataError
from gpupreload.tree import OWN_MARKER
from gpupreload.user_cache import user_cache

Split = Literal["train", "val"]

PIXELS_SHA256 = {
    "train": "4309eb1e1dde9ca7f77a9986dfc6bf1610d4acb1322b8b308acb4c3d177c7ba5",
    "val": "cebcb12dca74d9d3006dc2c1b4c21ec92299760f76ec9cd5aa6914348837ec15",
}
"""SHA-256 over the pixels of each split's crops, in order, before they become JPEG files.

Two of the photographs are JPEG files themselves; the sums hold for libjpeg-turbo, which Pillow's
wheels decode with (tried with Pillow 11.0, 12.0 and 13.0, scikit-image 0.25.0, 0.25.2 and 0.26.0).
"""

_SIDES = (116, 176)
_JPEG_QUALITY = 90
_FORMAT = 1
_OURS = re.compile(r"(\w+)/\1_\d{4}\.jpg")

# 2**32 / g**d for d = 1 to 4, where g is the root of g**5 = g + 1: multiples of these, modulo
# 2**32, cover a box of four dimensions evenly (M. Roberts' R sequence, 2018)
_STRIDES = (3679390609, 3152041523, 2700274806, 2313257605)


class Box(NamedTuple):
    """A rectangle of pixels as Pillow names it: right and bottom lie just outside."""

    left: int
    top: int
    right: int
    bottom: int


class Part(NamedTuple):
    """What one split has of a photograph: the area it may cut from, and how many crops."""

    area: Box
    n_crops: int


@dataclass(frozen=True)
class Photo:
    """One of scikit-image's photographs and how it is divided.

    Attributes:
        label: the class, and the name of its folder.
        file: the file's name in scikit-image's `data` folder.
        size: width and height of the whole photograph, in pixels.
        train: the part to train on.
        val: the part to validate with; the two areas share no pixel.
        factors: by how much crops are shrunk, in turn, where the area is large enough: 2 makes one
            pixel of 2 x 2. Powers of two, for which Pillow's mean is exact.
    """

    label: str
    file: str
    size: tuple[int, int]
    train: Part
    val: Part
    factors: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Crop:
    """A piece of a photograph, and the file it is written to.

    Attributes:
        photo: the photograph.
        box: the pixels that are cut out.
        factor: by how much the piece is then shrunk.
        name: the file, below the folder of the split.
    """

    photo: Photo
    box: Box
    factor: int
    name: str

    def cut(self, photograph: Image.Image) -> Image.Image:
        """Cut the piece out and shrink it: the rounded mean of factor x factor pixels."""
        return photograph.reduce(self.factor, self.box)


# The areas leave out what would make flat crops: empty sky, the black around the eye's round field.
# fmt: off
PHOTOS = (
    Photo("astronaut", "astronaut.png", (512, 512),
           Part(Box(0, 0, 512, 352), 170), Part(Box(0, 352, 440, 512), 33), (1, 2)),
    Photo("brick", "brick.png", (512, 512),
           Part(Box(0, 0, 512, 276), 150), Part(Box(0, 276, 512, 512), 29), (1, 2)),
    Photo("camera", "camera.png", (512, 512),
           Part(Box(20, 40, 440, 276), 170), Part(Box(0, 276, 420, 512), 33), (1, 2)),
    Photo("cat", "chelsea.png", (451, 300),
           Part(Box(0, 0, 270, 300), 140), Part(Box(270, 0, 415, 300), 27)),
    Photo("coffee", "coffee.png", (600, 400),
           Part(Box(0, 0, 600, 240), 170), Part(Box(0, 240, 600, 400), 33), (1, 2)),
    Photo("coins", "coins.png", (384, 303),
           Part(Box(0, 0, 246, 303), 130), Part(Box(246, 0, 378, 303), 25)),
    Photo("galaxies", "hubble_deep_field.jpg", (1000, 872),
           Part(Box(0, 0, 1000, 560), 170), Part(Box(0, 560, 1000, 872), 33), (1, 2)),
    Photo("grass", "grass.png", (512, 512),
           Part(Box(0, 0, 512, 276), 150), Part(Box(0, 276, 512, 512), 29), (1, 2)),
    Photo("gravel", "gravel.png", (512, 512),
           Part(Box(0, 0, 512, 276), 150), Part(Box(0, 276, 512, 512), 29), (1, 2)),
    Photo("retina", "retina.jpg", (1411, 1411),
           Part(Box(110, 230, 760, 1180), 150), Part(Box(760, 230, 1310, 1180), 29), (4,)),
)
# fmt: on


def crops(split: Split) -> Iterator[Crop]:
    """Yield the crops of a split, class after class: what is cut from where, without any pixels.

    >>> first = next(crops("train"))
    >>> first.name, first.box
    ('astronaut/astronaut_0000.jpg', Box(left=253, top=107, right=421, bottom=261))
    """
    return chain.from_iterable(_crops_of(photo, split) for photo in PHOTOS)


def _crops_of(photo: Photo, split: Split) -> Iterator[Crop]:
    area, n_crops = photo.train if split == "train" else photo.val
    width, height = area.right - area.left, area.bottom - area.top
    factors = [f for f in photo.factors if _SIDES[0] * f <= min(width, height)]
    for i in range(n_crops):
        factor = factors[i % len(factors)]
        points = [(i + 1) * stride % 2**32 for stride in _STRIDES]
        left, right = _interval(points[0], points[1], width, factor)
        top, bottom = _interval(points[2], points[3], height, factor)
        box = Box(area.left + left, area.top + top, area.left + right, area.top + bottom)
        yield Crop(photo, box, factor, f"{photo.label}/{photo.label}_{i:04}.jpg")


def _interval(size_point: int, place_point: int, length: int, factor: int) -> tuple[int, int]:
    """Turn two whole numbers below 2**32 into the ends of an interval within 0 to `length`."""
    shortest, longest = _SIDES[0], min(_SIDES[1], length // factor)
    size = factor * (shortest + (size_point * (longest - shortest + 1) >> 32))
    start = place_point * (length - size + 1) >> 32
    return start, start + size


def pictures(split: Split) -> Iterator[tuple[str, Image.Image]]:
    """Yield the name and the image of each crop of a split, in order, before JPEG encoding.

    Yields:
        The file's name below the folder of the split, and a PIL image, "RGB" or "L" as the
        photograph is.

    Raises:
        ModuleNotFoundError: scikit-image is not installed.
        DataError: the scikit-image that is installed has not the photographs expected.
    """
    folder = _skimage_data()
    for photo in PHOTOS:
        photograph = _open(folder / photo.file, photo)
        for crop in _crops_of(photo, split):
            yield crop.name, crop.cut(photograph)


def _skimage_data() -> Path:
    # found without importing: skimage.data's functions may fetch files, and the import takes time
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "sample_photos cuts its images from the photographs that come with scikit-image, "
            'which is not installed. Install it: pip install "gpupreload[lab]"',
            name="skimage",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _open(path: Path, photo: Photo) -> Image.Image:
    expected = "{} x {} pixels".format(*photo.size)
    try:
        with Image.open(path) as photograph:
            photograph.load()
    except OSError as error:
        found = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
    else:
        if photograph.size == photo.size:
            return photograph
        found = "has {} x {} pixels".format(*photograph.size)
    raise DataError(
        f"{path} {found}; expected the photograph of {expected} that comes in scikit-image's "
        "wheel. Install it anew: pip install --force-reinstall --no-deps scikit-image"
    )


def sample_photos(split: Split, root: str | os.PathLike[str] | None = None) -> Path:
    """Return an `ImageFolder` of small real photos, written to disk the first time it is asked for.

    Ten classes, each cut from one photograph: 1,550 JPEG files to train on, 300 to validate with.
    The sides are 116 to 176 pixels, width and height each their own; the photographs without
    colour stay so ("L" files, which `ImageFolder` reads as RGB). The two splits share no pixel of
    any photograph. Before JPEG encoding the pixels are the same on every machine.

    The classes, and where scikit-image says that its photographs come from:

    - astronaut: Eileen Collins, from NASA's Great Images. Public domain.
    - brick: a wall, CC0Textures "Bricks25". CC0.
    - camera: a photographer at work, by Lav Varshney. CC0.
    - cat: Chelsea, by Stefan van der Walt. CC0.
    - coffee: a cup at Pikolo Espresso Bar, by Rachel Michetti. CC0.
    - coins: Greek coins from Pompeii, Brooklyn Museum. No known copyright restrictions.
    - galaxies: Hubble eXtreme Deep Field, NASA. May be used freely, in the public domain.
    - grass: by linolafett, DeviantArt "Grass 01". CC0.
    - gravel: CC0Textures "Gravel04". CC0.
    - retina: a healthy left eye's, by Mikael Häggström. CC0.

    Args:
        split: "train" or "val". Only this one is written.
        root: the folder in which `train` and `val` are written. By default a folder in the user's
            cache: `$XDG_CACHE_HOME` or `~/.cache` on Linux, `~/Library/Caches` on macOS,
            `%LOCALAPPDATA%` on Windows.

    Returns:
        The path of the split, a folder of ten class folders. It is written whole or not at all,
        also when several processes ask at once, and written again when files are missing from it.

    Raises:
        ArgumentError: `split` is neither "train" nor "val"; or the folder cannot be written, or
            holds files that are not from here.
        ModuleNotFoundError: scikit-image, whose photographs they are, is not installed.
        DataError: the scikit-image that is installed has not the photographs expected.
    """
    if split not in ("train", "val"):
        raise ArgumentError(f'split is {split!r}; expected "train" or "val".')
    folder = (user_cache("photos") if root is None else Path(root).expanduser()) / split
    if not _is_whole(folder):
        try:
            _check_ours(folder)
            _write(split, folder)
        except OSError as error:
            raise ArgumentError(
                f"root: the folder {folder} cannot be written ({error.strerror or error}). "
                "Pass root= with a folder that can."
            ) from error
    return folder


def _is_whole(folder: Path) -> bool:
    try:
        return (folder / OWN_MARKER).read_text("utf-8") == _summary(folder)
    except OSError:
        return False


def _summary(folder: Path) -> str:
    """What the marker of a whole set says. A missing or cut-off file changes it."""
    sizes = [(folder / name).stat().st_size for name in _names(folder)]
    return f"gpupreload photos, format {_FORMAT}: {len(sizes)} files, {sum(sizes)} bytes\n"


def _names(folder: Path) -> set[str]:
    """The files below a folder that are named as ours, as "cat/cat_0000.jpg"."""
    names = (f"{path.parent.name}/{path.name}" for path in folder.glob("*/*.jpg"))
    return {name for name in names if _OURS.fullmatch(name)}


def _check_ours(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()) and not (folder / OWN_MARKER).exists():
        raise ArgumentError(
            f"root: the folder {folder} holds files that sample_photos did not write. "
            "Pass root= with another folder, or move them away."
        )


def _write(split: Split, folder: Path) -> None:
    """Write a split beside its place, then put it there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{split}-") as scratch:
        fresh = Path(scratch) / split
        for photo in PHOTOS:
            (fresh / photo.label).mkdir(parents=True)
        for name, image in pictures(split):
            image.save(fresh / name, quality=_JPEG_QUALITY)
        (fresh / OWN_MARKER).write_text(_summary(fresh), "utf-8")
        try:
            fresh.replace(folder)
        except OSError:
            # something is there: a set that another process has just put, or a damaged one
            if not _is_whole(folder):
                _repair(folder, fresh)


def _repair(folder: Path, fresh: Path) -> None:
    """Put each file of a fresh set into a damaged one, and take out old ones of other names.

    File by file, so that no process that repairs the same set at the same time, or has done so
    just now and reads it, ever finds a file gone.
    """
    names = _names(fresh)
    for old in _names(folder) - names:
        (folder / old).unlink(missing_ok=True)
        if not any((folder / old).parent.iterdir()):
            (folder / old).parent.rmdir()
    for name in sorted(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(folder / name)
    (fresh / OWN_MARKER).replace(folder / OWN_MARKER)
