"""The each-batch part: every row its own draw, whoever asks, in whatever batch."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

import gpupreload as gp
from gpupreload.per_sample import PerSample
from gpupreload.rows import occurrences


def per_sample(*steps: Any) -> PerSample:
    """The module of a chain whose first step is random, so that all of it runs for each batch."""
    return PerSample(gp.split_transform(list(steps)).each_batch_steps)


@pytest.fixture
def images() -> Tensor:
    """Six different images of odd sides."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (6, 3, 9, 11), dtype=torch.uint8, generator=generator)


def add_noise(image: Image.Image) -> Image.Image:
    """A callable of a person's own, with NumPy's, Python's and torch's global generators."""
    number = np.random.randint(0, 50) + random.randint(0, 50) + int(torch.randint(0, 50, ()))
    return Image.fromarray((np.asarray(image) // 2 + number).astype(np.uint8))


CHAINS = {
    "a person's own": [add_noise],
    "JPEG": [v2.JPEG((5, 95))],
    "native": [v2.RandomAffine(20), v2.ColorJitter(0.5, 0.5, 0.5, 0.2)],
    "mixed": [add_noise, v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32)],
}


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_a_row_does_not_depend_on_its_batch(steps: list[Any], images: Tensor) -> None:
    """Rows come out the same in any order and in any batch."""
    module = per_sample(*steps)
    indices = torch.tensor([7, 3, 9, 0, 4, 100])
    whole = module(images, indices=indices, epoch=2, seed=5)
    order = torch.tensor([4, 1, 5])
    some = module(images[order], indices=indices[order], epoch=2, seed=5)
    assert torch.equal(some, whole[order])


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_seed_epoch_and_occurrence_draw_anew(steps: list[Any], images: Tensor) -> None:
    """Another seed, another epoch and a second occurrence are other draws."""
    module = per_sample(*steps)
    given = {"indices": torch.arange(6), "epoch": 0, "seed": 0}
    first = module(images, **given)
    assert torch.equal(module(images, **given), first)
    for change in ({"seed": 1}, {"epoch": 1}, {"occurrence": 1}):
        assert not torch.equal(module(images, **given | change), first)


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_global_generators_stay_where_they_are(steps: list[Any], images: Tensor) -> None:
    """Nothing moves torch's, Python's or NumPy's global generator, not even a step that draws."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    per_sample(*steps)(images)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])


def test_generators_are_put_back_after_an_error(images: Tensor) -> None:
    """An error in a person's own step names it, and leaves the global generators alone."""
    wrong: list[str] = []

    def fails(image: object) -> object:
        torch.rand(1)
        if wrong:
            raise ValueError("no")
        return image

    module = per_sample(v2.RandomHorizontalFlip(), gp.live(fails))
    before = torch.get_rng_state()
    wrong.append("from now on")
    with pytest.raises(gp.TransformError, match="fails raised ValueError: no"):
        module(images)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_without_an_epoch_each_call_draws_anew(steps: list[Any], images: Tensor) -> None:
    """Standing alone, the module counts its calls, so that nothing is frozen."""
    module = per_sample(*steps)
    assert not torch.equal(module(images), module(images))


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_the_batch_is_never_written(steps: list[Any], images: Tensor) -> None:
    """The images that are passed in stay as they are, and their memory is not returned."""
    before = images.clone()
    result = per_sample(*steps)(images)
    assert torch.equal(images, before)
    assert result.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()


@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_an_empty_batch_stays_empty(steps: list[Any]) -> None:
    """No rows in, no rows out."""
    assert len(per_sample(*steps)(torch.zeros(0, 3, 9, 11, dtype=torch.uint8))) == 0


def test_a_callable_gets_what_it_got_in_its_place(images: Tensor) -> None:
    """Before ToTensor a callable gets a PIL image, after it a tensor, after np.array an array."""
    seen: list[type] = []

    def see(value: Any) -> Any:
        seen.append(type(value))
        return value

    flip, start = v1.RandomHorizontalFlip(), len(seen)
    per_sample(flip, gp.live(see))(images[:1])
    per_sample(flip, v1.ToTensor(), gp.live(see))(images[:1])
    per_sample(flip, np.array, gp.live(see), v1.ToTensor())(images[:1])
    per_sample(flip, v2.Lambda(see))(images[:1])
    kinds = [kind for kind in seen[start:] if kind in (Image.Image, Tensor, np.ndarray)]
    assert {Image.Image, Tensor, np.ndarray} <= set(kinds)
    assert seen[-1] is Image.Image


def test_an_array_comes_back_as_totensor_reads_it(images: Tensor) -> None:
    """A callable that returns [H, W, C] gives the image that ToTensor would make of it."""

    def mirrored(image: Any) -> np.ndarray:
        return np.asarray(image)[:, ::-1]

    module = per_sample(v2.RandomHorizontalFlip(p=0), gp.live(mirrored), v1.ToTensor())
    assert torch.equal(module(images), F.horizontal_flip(images).float() / 255)


def test_an_array_made_of_a_tensor_is_not_turned(images: Tensor) -> None:
    """NumPy arrays are [H, W, C]; one that stayed [C, H, W] would be served on its side."""

    def doubled(image: Tensor) -> np.ndarray:
        return np.asarray(image) * 2

    module = per_sample(v2.RandomHorizontalFlip(), gp.live(v2.ToDtype(torch.float32)), doubled)
    with pytest.raises(gp.TransformError) as error:
        module(images[:2])
    shape = list(images.shape[1:])
    assert str(error.value) == (
        f"doubled was given a tensor [C, H, W] and returned a NumPy array {shape}. "
        "Arrays are read as [H, W, C], and this one seems to be [C, H, W]; return a tensor, such "
        "as torch.from_numpy(array), instead."
    )


def test_an_array_made_of_a_tensor_may_be_turned_by_its_maker(images: Tensor) -> None:
    """What comes as [H, W, C] is read as ToTensor reads it."""

    def turned(image: Tensor) -> np.ndarray:
        return image.permute(1, 2, 0).numpy()

    floats = v2.ToDtype(torch.float32, scale=True)
    assert torch.equal(per_sample(floats, gp.live(turned))(images), floats(images))


def test_a_batch_comes_back_as_a_tensor(images: Tensor) -> None:
    """An array is no batch."""
    with pytest.raises(gp.TransformError, match="expected a batch"):
        per_sample(gp.batched(lambda batch: batch.numpy()))(images)


def test_the_slow_steps_are_named() -> None:
    """What runs sample by sample is marked; what has a batched form, or is by value, is not."""
    module = per_sample(v2.RandomHorizontalFlip(), v2.JPEG(50), add_noise, v1.ToTensor())
    assert module.slow_steps == ("JPEG([50, 50])", "add_noise")
    assert "JPEG([50, 50]) (sample by sample: slow)\n" in repr(module)
    alone = "add_noise (sample by sample: slow; a random generator of its own is not seeded)\n"
    assert alone in repr(module)
    assert "ToTensor() (sample" not in repr(module)


def test_a_batched_callable_gets_the_whole_batch(images: Tensor) -> None:
    """gp.batched(fn) is called once with [N, C, H, W], under the rows' own draws."""
    shapes = []

    def noise(batch: Tensor) -> Tensor:
        shapes.append(tuple(batch.shape))
        return batch + torch.rand(len(batch), 1, 1, 1)

    module = PerSample(gp.split_transform([gp.batched(noise)]).each_batch_steps)
    first = module(images.float(), indices=torch.arange(6), epoch=0)
    assert torch.equal(module(images.float(), indices=torch.arange(6), epoch=0), first)
    assert shapes[-1] == (6, 3, 9, 11)


def test_sizes_that_differ_in_a_batch_are_an_error(images: Tensor) -> None:
    """A step that changes sizes by chance cannot make a batch, and the message names it."""
    module = per_sample(v2.RandomResize(8, 30))
    with pytest.raises(gp.TransformError) as caught:
        module(images, indices=torch.arange(6), epoch=0)
    assert str(caught.value).startswith(
        "the images of one batch have different sizes after RandomResize"
    )
    assert "v2.CenterCrop(112)" in str(caught.value)


@pytest.mark.parametrize(
    ("batch", "indices", "message"),
    [
        (
            torch.zeros(3, 4, 4),
            None,
            "images is a torch.float32 tensor of shape (3, 4, 4); expected a batch [N, C, H, W]. "
            "Give a single image a batch dimension with images[None].",
        ),
        (
            torch.zeros(2, 3, 4, 4),
            torch.zeros(3, dtype=torch.int64),
            "indices is a torch.int64 tensor of shape (3,); expected an int64 tensor of shape "
            "(2,), the sample number of each row of images.",
        ),
        (
            torch.zeros(2, 3, 4, 4),
            torch.zeros(2),
            "indices is a torch.float32 tensor of shape (2,); expected an int64 tensor of shape "
            "(2,), the sample number of each row of images.",
        ),
    ],
    ids=["no batch", "too many indices", "float indices"],
)
def test_bad_batches_are_named(batch: Tensor, indices: Tensor | None, message: str) -> None:
    """A batch or indices of the wrong shape are refused before anything runs."""
    with pytest.raises(gp.ArgumentError) as caught:
        per_sample(v2.RandomHorizontalFlip())(batch, indices=indices)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("indices", "expected"),
    [([], 0), ([4, 2, 9], 0), ([4, 2, 4, 4, 2], [0, 0, 1, 2, 1])],
)
def test_occurrences(indices: list[int], expected: int | list[int]) -> None:
    """A sample's second place in a batch is its occurrence 1, the third is 2."""
    found = occurrences(torch.tensor(indices, dtype=torch.int64))
    assert (found if isinstance(found, int) else found.tolist()) == expected


def test_samples_of_one_picture_differ() -> None:
    """64 copies of one image come out in many ways, not in one."""
    image = torch.arange(192, dtype=torch.uint8).reshape(1, 3, 8, 8)
    copies = image.expand(64, -1, -1, -1)
    result = per_sample(v2.RandomAffine(30), v2.ColorJitter(0.5))(copies)
    assert len({row.numpy().tobytes() for row in result}) >= 20


def test_where_deterministic_steps_run_changes_no_draw(images: Tensor) -> None:
    """Only steps that may draw are numbered, so a conversion before one does not shift its draw."""
    flip, floats = v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32)
    given = {"indices": torch.arange(6), "epoch": 0, "seed": 0}
    before = PerSample(gp.split_transform([v2.ToImage(), floats, flip]).each_batch_steps)
    after = per_sample(flip, floats)
    assert torch.equal(before(images, **given), after(images, **given))


SIZES = {
    "rotated and expanded": [v2.RandomRotation(30, expand=True), v2.CenterCrop(8)],
    "resized": [v2.RandomResize(12, 30), v2.RandomCrop(8)],
    "zoomed out": [v2.RandomZoomOut(p=1.0), v2.Resize((8, 8))],
    "later": [v2.RandomResize(12, 30), v2.ColorJitter(0.4), v2.ToImage(), v2.CenterCrop(8)],
}


@pytest.mark.parametrize("steps", SIZES.values(), ids=SIZES)
def test_sizes_may_differ_until_a_step_gives_one(steps: list[Any], images: Tensor) -> None:
    """What gives each image a size of its own runs with what gives them one again."""
    result = per_sample(*steps)(images)
    assert result.shape == (6, 3, 8, 8)


def test_a_dtype_by_type_and_a_lambda_by_type_see_an_image(images: Tensor) -> None:
    """After ToImage, steps that look at the type of a tensor find a tv_tensors.Image, as there."""
    by_type = v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)
    inverted = v2.Lambda(lambda image: 1 - image, tv_tensors.Image)
    chain = [v2.RandomHorizontalFlip(p=1.0), v2.ToImage(), by_type, inverted]
    expected = 1 - F.to_dtype(F.horizontal_flip(images), torch.float32, scale=True)
    assert torch.equal(per_sample(*chain)(images), expected)


@pytest.mark.parametrize("n", [3, 12])
def test_a_batched_callable_must_return_as_many_rows(n: int, images: Tensor) -> None:
    """A batch that loses or gains rows no longer goes with its labels, and is refused."""

    def other(batch: Tensor) -> Tensor:
        return batch.repeat(2, 1, 1, 1)[:n] if len(batch) == 6 else batch

    module = PerSample(gp.split_transform([gp.batched(other)]).each_batch_steps)
    with pytest.raises(gp.TransformError) as caught:
        module(images)
    assert str(caught.value) == f"other was given 6 images and returned {n}; expected as many."


def shown_thrice(images: Tensor) -> Tensor:
    """A batch whose three channels are one and the same memory."""
    return images[:, :1].expand(-1, 3, -1, -1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("between", [[], [v2.ToPureTensor()]], ids=["at once", "nothing between"])
@pytest.mark.parametrize(
    "gray",
    [v2.Grayscale(3), v2.RandomApply([v2.Grayscale(3)], p=1), gp.batched(shown_thrice)],
    ids=["deterministic", "in a container", "a callable"],
)
def test_what_is_erased_has_memory_of_its_own(
    images: Tensor, gray: Any, between: list[Any], dtype: torch.dtype
) -> None:
    """After a step that shows one channel as three, each channel is erased with its own value."""
    images = images if dtype == torch.uint8 else images / 255
    module = gp.per_sample([gray, *between, v2.RandomErasing(p=1, value=[1, 20, 200])], seed=0)
    box = gp.parameters_of(module, images, epoch=0)["RandomErasing"]
    value = torch.tensor([1, 20, 200], dtype=dtype).view(3, 1, 1)
    for i, row in enumerate(module(images, epoch=0)):
        sides = {name: int(box[name][i]) for name in "ijhw"}
        expected = gray(images[i : i + 1])[0]
        assert torch.equal(row, F.erase(expected, **sides, v=value) if box["applied"][i] else row)
        assert not torch.equal(row, expected)


@pytest.mark.parametrize("between", [[], [v2.ToDtype(torch.float32)]], ids=["at once", "no-op"])
def test_what_a_callable_keeps_is_not_written(images: Tensor, between: list[Any]) -> None:
    """A later step in place never writes to what a batched callable returned and still holds."""
    kept = torch.ones(6, 3, 9, 11)
    steps = [gp.batched(lambda _: kept), *between, v2.RandomErasing(p=1)]
    assert not gp.per_sample(steps, seed=0)(images).all()
    assert kept.all()


@pytest.mark.parametrize("mark", [gp.batched, gp.live])
@pytest.mark.parametrize("reuse_buffers", [False, True])
@pytest.mark.parametrize("first", [[], [v2.RandomCrop(8, padding=1)]], ids=["gathered", "cropped"])
def test_what_a_callable_was_given_stays_as_it_was(
    images: Tensor, mark: Any, reuse_buffers: bool, first: list[Any]
) -> None:
    """A callable that holds what it was given, such as the last batch, sees it unchanged."""
    seen: list[tuple[Tensor, Tensor]] = []

    def hold(given: Tensor) -> Tensor:
        seen.append((given, given.clone()))
        return given

    steps = [v2.ToImage(), *first, mark(hold), v2.ToDtype(torch.float32, scale=True)]
    data = [(image, 0) for image in images]
    ours = gp.preload(data, v2.Compose(steps), device="cpu", progress=False)
    seen.clear()
    for _ in gp.Loader(ours, 2, reuse_buffers=reuse_buffers):
        pass
    assert seen
    assert all(torch.equal(given, copy) for given, copy in seen)


def test_threads_count_their_calls_together(images: Tensor) -> None:
    """No two calls of one module draw for the same number, whichever threads they come from."""
    module = gp.per_sample(v2.RandomRotation(180), seed=0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: module(images).numpy().tobytes(), range(200)))
    assert module.n_calls == len(set(found)) == 200
