"""What the explorer shows, without its widgets: settings, the transform and its code, pictures."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2
from transform_examples import Make, examples

import gpupreload as gp
from gpupreload.catalog import RANDOM
from gpupreload.explore.knobs import knobs_of
from gpupreload.explore.markup import Segment, alert, histogram, picture, stacked_bar, status
from gpupreload.explore.mosaic import BETWEEN_PANELS, GAP, beside, encoded, side_by_side
from gpupreload.explore.pictures import VIEWS, Look, Rendered, View, render
from gpupreload.explore.recipe import Recipe
from gpupreload.settings import fingerprint, remade
from gpupreload.show import to_pictures

RANDOM_STEPS = examples(RANDOM)
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
NORMALIZE = v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4])


def preloaded(folder: Path, *random: Any, **options: Any) -> gp.GPUPreloadDataset:
    """Twelve photos of 12×10 (width × height), with these random steps."""
    transform = v2.Compose([v2.Resize((10, 12)), *random, *FLOATS, NORMALIZE])
    return gp.preload(folder, transform, device="cpu", seed=0, progress=False, **options)


@pytest.fixture(scope="module")
def flips(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Photos that are mirrored or not, then turned upside down or not."""
    return preloaded(photo_folder, v2.RandomHorizontalFlip(), v2.RandomVerticalFlip())


# --- what can be turned


@pytest.mark.parametrize("make", RANDOM_STEPS.values(), ids=RANDOM_STEPS)
def test_what_can_be_turned_is_an_argument(make: Make) -> None:
    """Each knob is an argument of torchvision's constructor, and its value is what is set."""
    transform = make()
    for knob in knobs_of(transform):
        same = remade(transform, **{knob.name: knob.value})
        if getattr(transform, knob.name) is not None:
            assert fingerprint(same) == fingerprint(transform)
        assert knob.kind == "choice" or knob.low <= np.min(knob.value) <= knob.high


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (v2.RandomHorizontalFlip(0.2), {"p": 0.2}),
        (v2.RandomResizedCrop(32), {"size": 32, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}),
        (v2.RandomResizedCrop((32, 24)), {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}),
        (
            v1.RandomRotation(30, expand=True),
            {"degrees": (-30.0, 30.0), "interpolation": "nearest"},
        ),
        (
            v2.ColorJitter(brightness=0.4),
            {"brightness": (0.6, 1.4), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0)},
        ),
        (v2.GaussianBlur(5), {"kernel_size": 5, "sigma": (0.1, 2.0)}),
        (v2.GaussianBlur((5, 3)), {"sigma": (0.1, 2.0)}),
        (v2.RandomCrop(20), {"size": 20, "padding": 0, "padding_mode": "constant"}),
        (v2.RandomSolarize(128), {"threshold": 128, "p": 0.5}),
        (v2.RandomChannelPermutation(), {}),
        (v2.Resize(20), {}),
        (abs, {}),
    ],
)
def test_what_can_be_turned(transform: Any, expected: dict[str, Any]) -> None:
    """Numbers, ranges and choices, by torchvision's names; pairs of different sides stay."""
    found = {knob.name: getattr(knob.value, "value", knob.value) for knob in knobs_of(transform)}
    assert found == expected


def test_every_random_class_with_numbers_has_knobs() -> None:
    """No random step of torchvision's is forgotten, but those that have nothing to turn."""
    without = {
        label.split("-")[0][3:] for label, make in RANDOM_STEPS.items() if not knobs_of(make())
    }
    assert without == {
        *("RandomChannelPermutation", "RandomChoice", "RandomOrder"),
        *("RandomResize", "RandomShortestSize"),
    }


# --- the transform as it is set


def test_the_code_makes_the_transform(photo_folder: Path) -> None:
    """Run, the code gives the transform as it is set: the same steps with the same settings."""
    dataset = preloaded(photo_folder, v2.RandomHorizontalFlip(), v2.RandomErasing(value="random"))
    recipe = Recipe.of(dataset).changed(1, on=False, changes={})
    recipe = recipe.changed(2, on=True, changes={"p": 0.9, "scale": (0.1, 0.2)})
    assert recipe.code == (
        "import torch\n"
        "from torchvision.transforms import v2\n"
        "transform = v2.Compose([\n"
        "    v2.Resize((10, 12)),\n"
        "    v2.RandomErasing(p=0.9, scale=(0.1, 0.2), value='random'),\n"
        "    v2.ToImage(),\n"
        "    v2.ToDtype(torch.float32, scale=True),\n"
        "    v2.Normalize(mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.4]),\n"
        "])"
    )
    names: dict[str, Any] = {}
    exec(recipe.code, names)
    steps = zip(names["transform"].transforms, recipe.transform.transforms, strict=True)
    assert all(fingerprint(a) == fingerprint(b) for a, b in steps)


def brighter(image: torch.Tensor) -> torch.Tensor:
    """A function of a caller's own."""
    return image + 1


def test_marks_stay_in_the_code(photo_folder: Path) -> None:
    """A step that was marked is marked in the transform and in its code, or it would move."""
    recipe = Recipe.of(preloaded(photo_folder, gp.batched(brighter)))
    assert "    gp.batched(brighter),\n" in recipe.code
    assert recipe.code.startswith("import torch\nimport gpupreload as gp\n")
    steps = gp.split_transform(recipe.transform)
    assert [step.call for step in steps.rows if step.name == "brighter"] == ["batch"]


def test_the_store_size_is_no_step_of_the_transform(photo_folder: Path) -> None:
    """What store_size= inserted is not in the transform: it is passed to preload again."""
    crop = v2.RandomCrop(8)
    dataset = gp.preload(photo_folder, crop, device="cpu", progress=False, store_size=(10, 12))
    assert Recipe.of(dataset).code.splitlines()[1:] == [
        "transform = v2.Compose([",
        "    v2.RandomCrop(8),",
        "])",
    ]


def test_nothing_left_is_the_identity(photo_folder: Path) -> None:
    """With its only step left out, a transform does nothing, and is one all the same."""
    dataset = gp.preload(
        photo_folder, v2.RandomCrop(8), device="cpu", progress=False, store_size=(10, 12)
    )
    position = len(dataset.steps.rows) - 1
    recipe = Recipe.of(dataset).changed(position, on=False, changes={})
    assert recipe.code.splitlines()[-2:] == ["    v2.Identity(),", "])"]
    assert recipe.transform(3) == 3


# --- pictures


def tiles(rendered: Rendered, height: int, width: int) -> list[np.ndarray]:
    """The tiles of the first view, in order, but for the large original."""
    rows, columns = (len(rendered.pixels) + GAP) // (height + GAP), 5
    return [
        rendered.pixels[r * (height + GAP) :, c * (width + GAP) :][:height, :width]
        for r in range(rows)
        for c in range(columns)
        if r > 1 or c > 1
    ]


def test_draws_are_what_a_loader_serves(flips: gp.GPUPreloadDataset) -> None:
    """The first draw is the picture that a Loader serves in this epoch, for any settings."""
    recipe = Recipe.of(flips).changed(1, on=True, changes={"p": 0.7})
    rendered = render(flips, recipe, Look(index=7, epoch=5, seed=3))
    same = v2.Compose(
        [v2.Resize((10, 12)), v2.RandomHorizontalFlip(0.7), *flips.transform.transforms[2:]]
    )
    before, flips.transform = flips.transform, same
    loader = gp.Loader(flips, 12, seed=3)
    loader.set_epoch(5)
    served = to_pictures(next(iter(loader))[0], flips)[7].numpy()
    flips.transform = before
    assert np.array_equal(tiles(rendered, 10, 12)[0], served)


def test_each_draw_is_a_possible_one(flips: gp.GPUPreloadDataset) -> None:
    """Each of 16 tiles is the stored photo in one of four positions, un-normalised; all occur."""
    rendered = render(flips, Recipe.of(flips), Look(index=2))
    photo = flips.images[2].permute(1, 2, 0).numpy()
    possible = [photo[::a, ::b].tobytes() for a in (1, -1) for b in (1, -1)]
    shown = [tile.tobytes() for tile in tiles(rendered, 10, 12)]
    assert len(shown) == 16
    assert set(shown) == set(possible)
    assert rendered.says == "4 different pictures among 16 draws"
    assert (rendered.left, rendered.right) == ("original", "16 draws")


def test_the_original_is_the_large_picture(flips: gp.GPUPreloadDataset) -> None:
    """The stored photo stands at the left, on the room of four tiles, enlarged to pixels."""
    rendered = render(flips, Recipe.of(flips), Look(index=2))
    photo = flips.images[2].permute(1, 2, 0).numpy()
    assert np.array_equal(rendered.pixels[2:22:2, 2:26:2], photo)
    assert np.array_equal(rendered.pixels[3:22:2, 3:26:2], photo)
    assert rendered.left_share == 2 / 5


def panels(rendered: Rendered) -> tuple[np.ndarray, np.ndarray]:
    """The left and the right panel."""
    width = (rendered.pixels.shape[1] - BETWEEN_PANELS) // 2
    return rendered.pixels[:, :width], rendered.pixels[:, -width:]


def test_frozen_stays_and_live_changes(flips: gp.GPUPreloadDataset) -> None:
    """Frozen is the draw of epoch 0 in every epoch; live is that of the epoch shown."""
    recipe, view = Recipe.of(flips), VIEWS[1]
    first, later = (render(flips, recipe, Look(view, 2, epoch)) for epoch in (0, 3))
    (frozen_0, live_0), (frozen_3, live_3) = panels(first), panels(later)
    assert np.array_equal(frozen_0, live_0)
    assert np.array_equal(frozen_0, frozen_3)
    assert not np.array_equal(live_0, live_3)
    assert first.says == "8 photos; as in epoch 0: frozen 8, live 8"
    assert (later.left, later.right) == (
        "frozen: drawn once, at preload",
        "live: drawn for epoch 3",
    )


def test_a_batch_shares_one_draw(flips: gp.GPUPreloadDataset) -> None:
    """Called on a batch, torchvision draws once for all of it; per sample, each has its own."""
    rendered = render(flips, Recipe.of(flips), Look(VIEWS[2], 2, 3))
    shared, ours = (
        {
            panel[r * (10 + GAP) :, c * (12 + GAP) :][:10, :12].tobytes()
            for r in range(4)
            for c in range(2)
        }
        for panel in panels(rendered)
    )
    assert (len(shared), len(ours) > 1) == (1, True)
    assert rendered.says == (f"8 copies; different: shared 1, per sample {len(ours)}")


@pytest.mark.parametrize("view", VIEWS)
def test_looking_changes_nothing(flips: gp.GPUPreloadDataset, view: View) -> None:
    """No view moves a global generator or the store, and the same look is the same picture."""
    state, stored = torch.get_rng_state(), flips.images.clone()
    a, b = (render(flips, Recipe.of(flips), Look(view, 3, 2, 9)) for _ in range(2))
    assert np.array_equal(a.pixels, b.pixels)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(flips.images, stored)


# --- tiles and files


def grey(level: int, n: int, height: int, width: int) -> torch.Tensor:
    """Pictures of one level."""
    return torch.full((n, height, width, 3), level, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("n", "shape"), [(1, (12, 20)), (5, (20, 20)), (16, (28, 36)), (21, (36, 36))]
)
def test_tiles_stand_around_the_original(n: int, shape: tuple[int, int]) -> None:
    """All tiles of 4×4 are there, once each, beside or below one on the room of four, 12×12."""
    pixels = beside(grey(10, 1, 4, 4)[0], grey(20, n, 4, 4))
    assert pixels.shape[:2] == shape
    assert (pixels == 20).all(2).sum() == n * 16
    assert (pixels[:12, :12] == 10).all()
    assert (pixels == 10).all(2).sum() == 12 * 12


@pytest.mark.parametrize("size", [(3, 5), (30, 20), (100, 70), (500, 300)])
def test_an_original_of_another_size_fits(size: tuple[int, int]) -> None:
    """A small or large original is brought to the room of four tiles, its aspect kept."""
    pixels = beside(grey(10, 1, *size)[0], grey(20, 16, 40, 40))
    rows, columns = np.nonzero((pixels == 10).all(2))
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert max(height, width) in range(60, 85)  # small ones are enlarged by whole numbers
    assert height / width == pytest.approx(size[0] / size[1], rel=0.05)


def test_panels_stand_side_by_side() -> None:
    """Two panels of 3 tiles each, two in a row, with a gap between them."""
    pixels = side_by_side(grey(10, 3, 4, 4), grey(20, 3, 2, 2))
    assert pixels.shape == (12, 2 * 12 + BETWEEN_PANELS, 3)
    assert (pixels == 10).all(2).sum() == 3 * 16
    assert (pixels == 20).all(2).sum() == 3 * 4
    assert not (pixels[:, : 12 + BETWEEN_PANELS] == 20).any()


@pytest.mark.parametrize(
    ("side", "mime", "start"),
    [(100, "image/png", b"\x89PNG"), (400, "image/jpeg", b"\xff\xd8")],
)
def test_small_pictures_are_png(side: int, mime: str, start: bytes) -> None:
    """A small picture is kept to the pixel; a large one is a JPEG, which is quicker."""
    found, data = encoded(np.zeros((side, side, 3), np.uint8))
    assert (found, data[: len(start)]) == (mime, start)


def test_very_wide_pictures_are_made_smaller() -> None:
    """Photos of 600 pixels are not sent whole at each step of a slider."""
    _, data = encoded(np.zeros((2400, 3600, 3), np.uint8))
    assert Image.open(io.BytesIO(data)).size == (1200, 800)


def test_small_draws_are_shown_as_large_as_the_photo(photo_folder: Path) -> None:
    """A step that makes images small leaves the photo beside them as it is kept."""
    steps = [v2.Resize((24, 32)), v2.RandomResizedCrop((6, 8)), v2.ToImage()]
    dataset = gp.preload(photo_folder, v2.Compose(steps), device="cpu", seed=0, progress=False)
    small = render(dataset, Recipe.of(dataset), Look(n=5))
    assert small.pixels.shape == (3 * 24 + 2 * GAP, 3 * 32 + 2 * GAP, 3)
    tile = small.pixels[:24, 2 * (32 + GAP) :]
    assert np.array_equal(tile, tile[::4, ::4].repeat(4, 0).repeat(4, 1))


# --- HTML


def test_a_picture_has_its_text_and_headings() -> None:
    """The text goes into `alt`, escaped; a picture of few pixels is enlarged without blur."""
    html = picture(np.zeros((3, 100, 3), np.uint8), 'a "cat" <1>', [("left & right", 0.25)])
    assert 'alt="a &quot;cat&quot; &lt;1&gt;"' in html
    assert '<div style="width: 25.00%; overflow: hidden; ' in html
    assert ">left &amp; right</div>" in html
    assert "minmax(0, 400px)" in html
    assert "width: 100%; image-rendering: pixelated" in html
    assert "pixelated" not in picture(np.zeros((3, 600, 3), np.uint8), "")


def test_lines_that_are_read_aloud() -> None:
    """Status and alerts have their roles and are escaped; without an error there is no alert."""
    assert 'role="status"' in status("a < b")
    assert "a &lt; b" in status("a < b")
    assert 'role="alert"' in alert("a < b")
    assert "a &lt; b" in alert("a < b")
    assert alert("") == ""


def test_a_bar_is_cut_at_its_end() -> None:
    """Segments follow each other; what exceeds the bar is cut off; the legend names them all."""
    html = stacked_bar(
        [Segment("used <1>", 0.75, "red"), Segment("new", 0.5, "blue")], "3 & 2", ("margin", 0.9)
    )
    assert "left: 0.00%; width: 75.00%" in html
    assert "left: 75.00%; width: 25.00%" in html
    assert "left: 90.00%" in html
    assert 'aria-label="3 &amp; 2"' in html
    assert "used &lt;1&gt;" in html


def test_a_histogram_of_many_classes_is_cut() -> None:
    """The first twelve classes have a bar each, relative to the largest; the rest is counted."""
    html = histogram({f"<{k}>": 100 - k for k in range(20)})
    assert html.count("display: flex") == 12
    assert "&lt;0&gt;" in html
    assert "width: 89.00%" in html
    assert "and 8 more classes" in html
    assert "more classes" not in histogram({"a": 1})
