"""`find_frozen`: live, frozen or impossible to tell, for datasets of any making."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photo_list import Photos
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import gpupreload as gp

FLIP = v2.RandomHorizontalFlip(0.5)
TO_FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
LIVE = v2.Compose([v2.Resize((24, 20)), FLIP, *TO_FLOATS])
PLAIN = v2.Compose([v2.Resize((24, 20)), *TO_FLOATS])


class Read(Dataset[Any]):
    """A dataset made of a function of the sample number."""

    def __init__(self, read: Callable[[int], Any], n: int = 40) -> None:
        self.read, self.n = read, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


class Cached(Dataset[Any]):
    """The mistake itself: transformed once, and kept. `aug` is not what it calls its transform."""

    def __init__(self, data: Any, aug: Any) -> None:
        self.items = [(aug(image), label) for image, label in data]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Epochs(Read):
    """A dataset whose draws are a function of the epoch and the sample."""

    def __init__(self) -> None:
        super().__init__(lambda i: (torch.tensor([self.epoch * 100 + i]), 0))
        self.epoch, self.told = 7, []

    def set_epoch(self, epoch: int) -> None:
        """Remember the epoch."""
        self.epoch = epoch
        self.told.append(epoch)


@pytest.fixture(scope="module")
def folder(photo_folder: Path) -> ImageFolder:
    """Twelve pictures of different sizes, without a transform."""
    return ImageFolder(str(photo_folder))


@pytest.fixture
def frozen_ours(photo_folder: Path) -> gp.GPUPreloadDataset:
    """The explicit form with a flip that is let through."""
    with pytest.warns(UserWarning, match="allow_frozen=True"):
        return gp.GPUPreloadDataset(
            photo_folder, LIVE, device="cpu", progress=False, allow_frozen=True
        )


@pytest.fixture
def live_ours(photo_folder: Path) -> gp.GPUPreloadDataset:
    """A preload, whose flip is live."""
    return gp.preload(photo_folder, LIVE, device="cpu", progress=False, seed=3)


def in_memory(n: int = 100) -> TensorDataset:
    """A hundred pictures as tensors, which never change."""
    pictures = torch.rand(n, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    return TensorDataset(pictures, torch.zeros(n))


# --- verdicts


def test_a_tensor_dataset_is_frozen_where_a_flip_is_named() -> None:
    """Three readings of 32 samples are all the same with a chance of 0.25 ** 32 if live."""
    report = gp.find_frozen(in_memory(), FLIP)
    assert report.verdict == "frozen"
    assert (report.n_samples, report.n_images, report.epochs, report.n_changed) == (32, 100, 3, 0)
    assert report.random_steps == ("RandomHorizontalFlip(p=0.5)",)
    assert report.false_alarm == 0.25**32


@pytest.mark.parametrize(
    ("p", "epochs", "n", "chance"),
    [
        (0.5, 2, 5, 0.5**5),
        (0.1, 4, 100, (0.1**4 + 0.9**4) ** 100),
        (0.01, 3, 32, (0.01**3 + 0.99**3) ** 32),
        (0.5, 3, 9, 0.25**9),
        (0.5, 3, 10, 0.25**10),
    ],
)
def test_the_chance_is_worked_out_by_hand(p: float, epochs: int, n: int, chance: float) -> None:
    """Of a flip it is (p ** E + (1 - p) ** E) ** n; 1 in a million is the limit for "frozen"."""
    report = gp.find_frozen(in_memory(), v2.RandomHorizontalFlip(p), epochs=epochs, n=n)
    assert report.false_alarm == pytest.approx(chance, rel=1e-9)
    assert report.verdict == ("frozen" if chance <= 1e-6 else "cannot tell")


def test_a_live_set_looks_frozen_as_often_as_is_said() -> None:
    """Live flips with p = 0.3 come out the same, for two samples and two epochs, as computed."""
    torch.manual_seed(0)
    picture = torch.tensor([[[0.0, 1.0]]])
    flip = v2.RandomHorizontalFlip(0.3)
    live = Read(lambda i: (flip(picture), 0), n=2)
    reports = []
    for _ in range(400):
        reports.append(gp.find_frozen(live, flip, epochs=2, n=2))
        torch.rand(7)  # find_frozen has put the generator back
    share = sum(report.n_changed == 0 for report in reports) / len(reports)
    expected = (0.3**2 + 0.7**2) ** 2
    assert reports[0].false_alarm == pytest.approx(expected)
    assert abs(share - expected) < 4 * (expected * (1 - expected) / 400) ** 0.5


@pytest.mark.parametrize("seed", range(5))
def test_an_image_folder_with_its_transform_is_live(photo_folder: Path, seed: int) -> None:
    """What torchvision reads is live: three of four samples change, and one is enough."""
    torch.manual_seed(seed)
    report = gp.find_frozen(ImageFolder(str(photo_folder), LIVE))
    assert report.verdict == "live"
    assert report.random_steps == ("RandomHorizontalFlip(p=0.5)",)
    assert 3 <= report.n_changed <= 12


def test_a_class_that_caches_is_frozen(folder: ImageFolder) -> None:
    """A hand-written class that transformed once is found out, its transform being named."""
    cached = Cached(folder, LIVE)
    assert gp.find_frozen(cached, LIVE).verdict == "frozen"
    cached.transform = LIVE
    assert gp.find_frozen(cached).verdict == "frozen"
    assert gp.find_frozen(Cached(folder, PLAIN), PLAIN).verdict == "cannot tell"


def test_a_class_that_caches_when_first_read_is_frozen(folder: ImageFolder) -> None:
    """A cache that is filled at the first reading is frozen from then on."""
    cache: dict[int, Any] = {}

    def read(index: int) -> Any:
        if index not in cache:
            cache[index] = LIVE(folder[index][0])
        return cache[index], 0

    assert gp.find_frozen(Read(read, 12), LIVE).verdict == "frozen"


def test_a_class_that_seeds_itself_is_frozen(folder: ImageFolder) -> None:
    """Drawing the same numbers at every reading is as good as drawing once."""

    def read(index: int) -> Any:
        torch.manual_seed(index)
        return LIVE(folder[index][0]), 0

    assert gp.find_frozen(Read(read, 12), LIVE).verdict == "frozen"


def test_ours_frozen_on_purpose_is_found(frozen_ours: gp.GPUPreloadDataset) -> None:
    """`allow_frozen=True` does what it says; the way out is the other argument."""
    report = gp.find_frozen(frozen_ours)
    assert report.verdict == "frozen"
    assert report.next_step == (
        "The random steps ran once, and every epoch sees that one draw.\n"
        "Move them from deterministic_transform to train_aug."
    )


def test_a_preload_is_live(live_ours: gp.GPUPreloadDataset) -> None:
    """What this library divides is live."""
    report = gp.find_frozen(live_ours)
    assert report.verdict == "live"
    assert report.random_steps == ("RandomHorizontalFlip(p=0.5)",)


@pytest.mark.parametrize("epoch", [None, 5])
def test_parts_of_ours_are_live(live_ours: gp.GPUPreloadDataset, epoch: int | None) -> None:
    """A subset, and several sets joined, have the epochs of the set they read from."""
    live_ours.set_epoch(epoch)
    half = Subset(live_ours, range(0, 12, 2))
    assert gp.find_frozen(half).verdict == "live"
    assert gp.find_frozen(half).random_steps == ("RandomHorizontalFlip(p=0.5)",)
    assert gp.find_frozen(ConcatDataset([half, live_ours]), LIVE).verdict == "live"


def test_nothing_is_concluded_where_nothing_is_named(folder: ImageFolder) -> None:
    """A set that never changes is no mistake where no random step was named."""
    report = gp.find_frozen(in_memory())
    assert (report.verdict, report.random_steps, report.false_alarm) == ("cannot tell", (), None)
    assert report.next_step == (
        "Nothing changed, as in any dataset without augmentation.\n"
        "If this one is meant to have some, name it: find_frozen(dataset, transform)."
    )
    report = gp.find_frozen(in_memory(), PLAIN)
    assert (report.verdict, report.random_steps, report.false_alarm) == ("cannot tell", (), None)
    assert report.next_step == (
        "The transform has no random step, and nothing changed: so it should be.\n"
        "If it is augmented elsewhere, name those steps: find_frozen(dataset, transform)."
    )


def test_transforms_of_joined_sets_are_not_mixed_up(folder: ImageFolder) -> None:
    """Of sets with different transforms joined, none stands for all of them."""
    flipped, plain = Cached(folder, LIVE), Cached(folder, PLAIN)
    flipped.transform = LIVE
    assert gp.find_frozen(ConcatDataset([flipped, plain])).verdict == "cannot tell"


def test_what_is_called_transform_and_is_none_is_passed_over() -> None:
    """Some datasets have a flag or a name by that name."""
    data = in_memory()
    data.transform = "train"
    assert gp.find_frozen(data).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("p", "n", "advice"),
    [
        (0.1, 100, "n=44"),  # 0.73 ** 43 > 1e-6 > 0.73 ** 44
        (0.1, 40, "epochs=6, n=22"),  # 0.531442 ** 21 > 1e-6 > 0.531442 ** 22
        (0.01, 1000, "n=459"),  # 0.9703 ** 458 > 1e-6 > 0.9703 ** 459
    ],
)
def test_how_much_to_read_is_said(p: float, n: int, advice: str) -> None:
    """Where too little was read for so small a p, the numbers that would do are given."""
    flip, data = v2.RandomHorizontalFlip(p), in_memory(n)
    report = gp.find_frozen(data, flip)
    assert report.verdict == "cannot tell"
    assert report.next_step == (
        "A live dataset may come out the same, for few samples were read or the steps seldom act.\n"
        f"Read more: find_frozen(dataset, transform, {advice})."
    )
    assert eval(f"gp.find_frozen(data, flip, {advice})").verdict == "frozen"


def test_what_hardly_ever_acts_cannot_be_found() -> None:
    """Where no number of readings within reason would do, that is said."""
    report = gp.find_frozen(in_memory(), v2.RandomHorizontalFlip(1e-6))
    assert report.verdict == "cannot tell"
    assert report.next_step == (
        "A live dataset may come out the same, for these steps seldom act.\n"
        "Try the dataset with a step that acts more often, such as RandomHorizontalFlip(0.5)."
    )


@pytest.mark.parametrize("step", [v2.RandomHorizontalFlip(1.0), v2.RandomGrayscale(0.5)])
def test_what_may_show_nothing_proves_nothing(step: Any) -> None:
    """A flip that always acts, or a grey scale that leaves grey pictures alone, is no proof."""
    report = gp.find_frozen(in_memory(), step)
    assert (report.verdict, report.false_alarm) == ("cannot tell", 1.0)
    assert report.next_step == (
        "These steps, as they are set, may give the same picture at every reading.\n"
        "Try the dataset with a step that shows, such as RandomHorizontalFlip(0.5)."
    )


def test_a_callable_may_be_named() -> None:
    """Noise by a function of one's own counts as a random step."""

    def noise(image: Tensor) -> Tensor:
        return image + torch.randn_like(image)

    report = gp.find_frozen(in_memory(), noise)
    assert (report.verdict, report.random_steps) == ("frozen", ("noise",))


# --- reading


def test_samples_are_spread_evenly() -> None:
    """Classes often follow one another, so samples are taken from all over the set."""
    read: list[int] = []
    data = Read(lambda i: (read.append(i), (torch.zeros(1), 0))[1], n=1000)
    gp.find_frozen(data, epochs=2, n=4)
    assert read == [0, 250, 500, 750] * 2
    read.clear()
    data.n = 3
    assert gp.find_frozen(data, epochs=2).n_samples == 3
    assert read == [0, 1, 2] * 2


@pytest.mark.parametrize("make", [int, str, lambda i: object(), torch.zeros])
def test_only_images_are_compared(make: Callable[[int], Any]) -> None:
    """Labels that change make no picture live."""
    labels = iter(range(1000))
    report = gp.find_frozen(Read(lambda i: (torch.zeros(3), make(next(labels)))))
    assert report.n_changed == 0


def noise() -> np.ndarray:
    """A new picture each time."""
    return np.random.randint(0, 256, (4, 5, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "read",
    [
        lambda i: (noise(), 0),
        lambda i: [torch.from_numpy(noise()), 0, "more"],
        lambda i: (v2.functional.to_pil_image(noise()), 0),
        lambda i: torch.from_numpy(noise()),
        lambda i: (torch.from_numpy(noise() / 255).requires_grad_(), 0),
    ],
    ids=["array", "tensor", "PIL", "no label", "gradient"],
)
def test_images_of_any_kind_are_compared(read: Callable[[int], Any]) -> None:
    """PIL images, tensors and arrays, with labels and without, are live where they change."""
    report = gp.find_frozen(Read(read))
    assert (report.verdict, report.n_changed) == ("live", 32)
    assert report.next_step == (
        "Something is drawn anew at each reading, as augmentation should be: nothing to do."
    )


def test_the_generators_are_put_back_and_not_reseeded(folder: ImageFolder) -> None:
    """Reading draws from the caller's generators; afterwards they are as they were."""
    states = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]
    first = gp.find_frozen(Read(lambda i: (torch.rand(1), 0)))
    gp.find_frozen(Read(lambda i: (noise() * random.random(), 0)))
    assert (first.verdict, first.n_changed) == ("live", 32)
    assert states == [
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    ]


def test_epochs_are_counted_and_put_back() -> None:
    """`set_epoch` is called with 0, 1, 2, and then with what was set before."""
    data = Epochs()
    report = gp.find_frozen(data)
    assert (report.verdict, report.n_changed, data.told) == ("live", 32, [0, 1, 2, 7])
    wrapped = Subset(data, [3, 5])
    assert gp.find_frozen(wrapped, epochs=2).n_changed == 2
    assert data.told[4:] == [0, 1, 7]


def test_epochs_are_put_back_after_an_error() -> None:
    """Also where reading fails, which comes through."""
    data = Epochs()
    data.read = lambda i: 1 / 0
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        gp.find_frozen(data)
    assert data.epoch == 7
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("epoch", [None, 5])
def test_ours_reads_on_as_if_nothing_had_been(photo_folder: Path, epoch: int | None) -> None:
    """A dataset of this library gives the same pictures after an examination as without one."""

    def read(*, examine: bool) -> list[Tensor]:
        data = gp.preload(photo_folder, LIVE, device="cpu", progress=False, seed=3)
        data.set_epoch(epoch)
        if examine:
            gp.find_frozen(data)
        return [data[i][0] for i in range(len(data))]

    for a, b in zip(read(examine=True), read(examine=False), strict=True):
        assert torch.equal(a, b)


# --- the report


def test_a_report_is_a_short_table() -> None:
    """Printed, and as a cell's last value, it is a table with the next step below."""
    report = gp.find_frozen(in_memory(), FLIP)
    assert str(report) == (
        "Verdict: frozen\n"
        "samples read                  32 of 100, 3 times each\n"
        "changed                       0 of 32\n"
        "random steps                  RandomHorizontalFlip(p=0.5)\n"
        "chance of this if it is live  5.4e-20\n"
        "The random steps ran once, and every epoch sees that one draw.\n"
        "Keep the pictures from before the first random step, and run the rest in __getitem__;\n"
        "or leave that to gpupreload.preload(data, transform)."
    )
    assert repr(report) == str(report)
    html = report._repr_html_()
    assert html.startswith("<p><strong>Verdict: frozen</strong></p><table>")
    assert "5.4e-20" in html


def test_a_live_report_says_what_is_to_be_expected() -> None:
    """Samples that came out the same are explained: of 32 live flips, 8 are in three epochs."""
    torch.manual_seed(0)
    pictures = torch.rand(40, 3, 4, 4)
    report = gp.find_frozen(Read(lambda i: (FLIP(pictures[i]), 0)), FLIP)
    same = 32 - report.n_changed
    assert 0 < same < 20
    assert str(report) == (
        "Verdict: live\n"
        "samples read  32 of 40, 3 times each\n"
        f"changed       {report.n_changed} of 32\n"
        "random steps  RandomHorizontalFlip(p=0.5)\n"
        "Something is drawn anew at each reading, as augmentation should be: nothing to do.\n"
        f"{same} came out the same every time; with these steps up to 8.0 are to be expected."
    )


# --- errors


class Stream(IterableDataset[Any]):
    """Samples one after the other."""

    def __iter__(self) -> Iterator[Any]:
        yield from ()


NO_MAP = (
    "dataset is {}; expected a map-style dataset, with len(dataset) and dataset[i], for the same "
    "sample must be read again. Of a DataLoader pass its .dataset, for a folder torchvision's "
    "ImageFolder(folder, transform)."
)


@pytest.mark.parametrize(
    ("dataset", "what"),
    [
        (Stream(), f"{__name__}.Stream"),
        (DataLoader(Photos([(4, 4)])), "torch.utils.data.dataloader.DataLoader"),
        ("photos/train", "str"),
        (Path("photos"), f"{Path.__module__}.{type(Path()).__name__}"),
        (None, "NoneType"),
        (iter([]), "list_iterator"),
    ],
)
def test_only_map_style_datasets_can_be_examined(dataset: Any, what: str) -> None:
    """The same sample must be there to be read again."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.find_frozen(dataset)
    assert str(caught.value) == NO_MAP.format(what)


@pytest.mark.parametrize("epochs", [1, 0, -3, 2.0, True, None])
def test_one_reading_is_not_enough(epochs: Any) -> None:
    """Each sample is read twice at least."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.find_frozen(in_memory(), epochs=epochs)
    assert str(caught.value) == (
        f"epochs is {epochs!r}; expected how often to read each sample, 2 or more, for one "
        "reading has nothing to be compared with."
    )


@pytest.mark.parametrize("n", [0, -1, 3.0, True, None])
def test_one_sample_at_least(n: Any) -> None:
    """At least one sample is read."""
    with pytest.raises(gp.ArgumentError) as caught:
        gp.find_frozen(in_memory(), n=n)
    assert str(caught.value) == f"n is {n!r}; expected how many samples to read, 1 or more."


def test_an_empty_dataset_is_refused() -> None:
    """There must be a sample."""
    with pytest.raises(gp.DataError) as caught:
        gp.find_frozen(in_memory(0))
    assert str(caught.value) == (
        "dataset is an empty TensorDataset, so there is no sample to read. "
        "Pass one that holds images."
    )


@pytest.mark.parametrize(
    ("item", "what"), [(({"pixels": 1}, 0), "tuple"), ({"image": 1}, "dict"), ((), "tuple")]
)
def test_items_without_an_image_are_refused(item: Any, what: str) -> None:
    """What holds no image is named, with its number."""
    with pytest.raises(gp.DataError) as caught:
        gp.find_frozen(Read(lambda i: item))
    assert str(caught.value) == (
        f"item 0 of Read is {what}; expected an image or (image, label), the image a PIL image, "
        "a tensor or an array."
    )


def test_a_step_that_is_none_is_refused() -> None:
    """A transform that cannot be read is refused, as everywhere."""
    with pytest.raises(gp.TransformError) as caught:
        gp.find_frozen(in_memory(), v2.RandomHorizontalFlip)
    assert str(caught.value) == (
        "the step is the class RandomHorizontalFlip; expected a transform made from it. "
        "Write RandomHorizontalFlip(...) with its settings."
    )
