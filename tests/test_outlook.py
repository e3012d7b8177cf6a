"""Would preloading help? With a clock that only reading and training move, the answer is exact."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch
import torchvision.transforms.v2 as v2
from stopped_clock import Clock
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder

import gpupreload as gp
from gpupreload import decode
from gpupreload.devices import Memory
from gpupreload.timing import Spread
from gpupreload.timing.disk import from_disk

FLOATS = v2.ToDtype(torch.float32, scale=True)
TRANSFORM = v2.Compose([v2.Resize((8, 6)), v2.ToImage(), FLOATS])


class Slow(Dataset[tuple[Tensor, int]]):
    """Ten images; reading one takes the seconds given."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.targets = [0] * 10

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not 0 <= index < 10:
            raise IndexError(index)
        self.clock.now += self.seconds
        return torch.zeros(3, 8, 6, dtype=torch.uint8), 0


def outlook(clock: Clock, *, reading: float, step: float, **options: Any) -> gp.Outlook:
    """Ask with given costs, in seconds: of reading one image, and of one training step."""

    def train_step(images: Tensor, labels: Tensor) -> None:
        clock.now += step

    data, chosen = Slow(clock, reading), {"device": "cpu"} | options
    return gp.will_it_help(nn.Identity(), data, FLOATS, 4, train_step=train_step, **chosen)


def test_each_part_is_found_exactly(clock: Clock) -> None:
    """Ten images in batches of 4 are 3 steps of 2 s; reading 0.5 s an image adds 5 s an epoch."""
    found = outlook(clock, reading=0.5, step=2.0, epochs=2)
    assert found.step_epochs == (6.0, 6.0)
    assert found.disk_epochs == (11.0, 11.0)
    assert found.resident_epochs == (6.0, 6.0)
    assert found.waiting_from_disk == pytest.approx(5 / 11)
    assert found.waiting_resident == 0.0
    assert found.ratio == Spread(11 / 6, 11 / 6, 11 / 6)


def test_break_even_counts_the_loading(clock: Clock) -> None:
    """Loading that takes 25 s, where an epoch saves 10 s, is won back in the third epoch."""
    found = gp.Outlook(10, 4, (1.0,), (12.0,), (2.0,), 25.0, "")
    assert found.break_even_epochs == 3
    read_once = outlook(clock, reading=0.5, step=2.0)
    assert read_once.load_seconds >= 5.0  # every image once, and a few tries
    assert read_once.break_even_epochs == -(-read_once.load_seconds // 5.0)


def test_a_slow_model_gains_nothing(clock: Clock) -> None:
    """Where steps take all the time, it says plainly that the model is the bottleneck."""
    found = outlook(clock, reading=0.25 / 64, step=16.0)
    assert found.verdict == "no gain"
    assert found.break_even_epochs is None
    assert found.advice == (
        "No gain on this machine: the model is the bottleneck; an epoch is ×1.00 (×1.00 to ×1.00) "
        "as fast."
    )


@pytest.mark.parametrize(
    ("step", "disk", "resident", "verdict", "advice"),
    [
        (
            (1.0, 1.0),
            (8.0, 8.0),
            (2.0, 1.0),
            "gain",
            "Preloading helps: an epoch is ×6.00 (×4.00 to ×8.00) as fast, and the 6.5 s of "
            "loading are won back after 1 epoch.",
        ),
        (
            (1.0, 1.0),
            (4.0, 4.0),
            (2.0, 2.0),
            "gain",
            "Preloading helps: an epoch is ×2.00 (×2.00 to ×2.00) as fast, and the 6.5 s of "
            "loading are won back after 4 epochs.",
        ),
        (
            (1.0, 1.0),
            (4.0, 1.0),
            (2.0, 1.0),
            "cannot tell",
            "Cannot tell: an epoch is ×1.50 (×1.00 to ×2.00) as fast. Ask for more epochs.",
        ),
        (
            (1.0, 1.0),
            (4.0, 4.0),
            (4.0, 4.0),
            "no gain",
            "No gain on this machine: the steps that run for each batch are the bottleneck; an "
            "epoch is ×1.00 (×1.00 to ×1.00) as fast.",
        ),
        (
            (4.0, 4.0),
            (2.0, 2.0),
            (4.0, 4.0),
            "no gain",
            "No gain on this machine: the model is the bottleneck; an epoch is ×0.50 (×0.50 to "
            "×0.50) as fast.",
        ),
    ],
)
def test_every_verdict(
    step: tuple[float, ...],
    disk: tuple[float, ...],
    resident: tuple[float, ...],
    verdict: str,
    advice: str,
) -> None:
    """A gain must show in every round; without one, what limits the epoch is named."""
    found = gp.Outlook(10, 4, step, disk, resident, 6.5, "a machine")
    assert (found.verdict, found.advice) == (verdict, advice)


def test_a_loading_that_was_not_measured() -> None:
    """Where the loading was not measured, it says so and gives no number of epochs."""
    found = gp.Outlook(10, 4, (1.0,), (4.0,), (2.0,), None, "a machine")
    assert found.break_even_epochs is None
    assert found.to_dict()["load_seconds"] is None
    assert found.advice == (
        "Preloading helps: an epoch is ×2.00 (×2.00 to ×2.00) as fast. The images were loaded "
        "already, and there is no room to load them again: how long loading takes was not "
        "measured. free() them, and ask again."
    )


def asked(photo_folder: Path) -> gp.Outlook:
    """Ask for a model that does nothing."""
    options: dict[str, Any] = {"train_step": lambda images, labels: None, "epochs": 1}
    return gp.will_it_help(nn.Identity(), photo_folder, TRANSFORM, 5, device="cpu", **options)


def test_loading_is_measured_anew(photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that are preloaded already are decoded again, once, and the first ones live on."""
    with gp.preload(photo_folder, TRANSFORM, device="cpu", progress=False) as living:
        read: list[str] = []
        once = decode.read
        monkeypatch.setattr(
            decode, "read", lambda path, **how: read.append(path) or once(path, **how)
        )
        assert asked(photo_folder).load_seconds is not None
        assert sorted(read) == [path for path, _ in living.samples or ()]
        assert len(living) == len(gp.Loader(living, 1)) == 12
        assert living.store.is_shared is False
        assert gp.preload(photo_folder, TRANSFORM, device="cpu").images is living.images


def test_without_room_for_both_loading_is_not_measured(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where images that are there have no room a second time, they are shared."""
    with gp.preload(photo_folder, TRANSFORM, device="cpu", progress=False) as living:
        full = Memory(free=0, total=1 << 30)
        # the function hides the module of its name
        module = importlib.import_module("gpupreload.plan")
        monkeypatch.setattr(module, "memory_of", lambda device: full)
        assert asked(photo_folder).load_seconds is None
        assert len(living) == 12


def test_the_table() -> None:
    """Seconds of an epoch with their spread, the share of waiting, and the advice."""
    found = gp.Outlook(1_550, 64, (1.0, 1.0), (4.0, 4.0), (2.0, 2.0), 6.5, "a machine")
    assert str(found) == repr(found)
    assert str(found).splitlines() == [
        "Training on 1,550 images in batches of 64",
        "                      an epoch            spread  waiting for data",
        "--------------------  --------  ----------------  ----------------",
        "training steps alone   1.000 s  1.000 to 1.000 s               0 %",
        "from disk              4.000 s  4.000 to 4.000 s              75 %",
        "preloaded              2.000 s  2.000 to 2.000 s              50 %",
        "Preloading helps: an epoch is ×2.00 (×2.00 to ×2.00) as fast, and the 6.5 s of loading "
        "are won back after 4 epochs.",
        "Measured on a machine.",
    ]
    assert "<td" in found._repr_html_()


def test_the_plot_stacks_steps_and_waiting() -> None:
    """Each bar is an epoch: its steps, then its waiting; no figure is left open."""
    found = gp.Outlook(10, 4, (1.0,), (4.0,), (1.5,), 6.5, "")
    [axes] = found.plot().axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 1.0, 3.0, 0.5]
    assert [bar.get_x() for bar in axes.patches] == [0.0, 0.0, 1.0, 1.0]
    assert plt.get_fignums() == []


def test_the_result_goes_into_json() -> None:
    """`to_dict` holds what was measured and what follows, and JSON takes it as it is."""
    found = gp.Outlook(10, 4, (1.0,), (4.0,), (2.0,), 6.5, "a machine")
    assert json.loads(json.dumps(found.to_dict())) == {
        "n_images": 10,
        "batch_size": 4,
        "step_epochs": [1.0],
        "disk_epochs": [4.0],
        "resident_epochs": [2.0],
        "load_seconds": 6.5,
        "machine": "a machine",
        "ratio": {"median": 2.0, "low": 2.0, "high": 2.0},
        "waiting_from_disk": 0.75,
        "waiting_resident": 0.5,
        "verdict": "gain",
        "break_even_epochs": 4,
        "advice": found.advice,
    }


def classifier(transform_size: int = 3 * 8 * 6) -> nn.Module:
    """A model with weights, a buffer that training moves, and dropout, which draws."""
    return nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(transform_size), nn.Dropout(), nn.Linear(transform_size, 3)
    )


@pytest.mark.parametrize("as_folder", [True, False])
def test_nothing_is_changed(photo_folder: Path, as_folder: bool) -> None:
    """The model, and the global random generators, are afterwards as they were."""
    model = classifier()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    data = photo_folder if as_folder else ImageFolder(str(photo_folder), TRANSFORM)
    transform = TRANSFORM if as_folder else None
    found = gp.will_it_help(model, data, transform, 5, epochs=1, device="cpu")
    assert (found.n_images, found.batch_size) == (12, 5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_with_nothing_to_train(photo_folder: Path) -> None:
    """A frozen model is timed forward only."""
    model = classifier().requires_grad_(False)
    assert gp.will_it_help(model, photo_folder, TRANSFORM, 5, epochs=1, device="cpu").n_images == 12


def test_your_settings_are_the_dataloaders(photo_folder: Path) -> None:
    """From disk, the settings given are used, and the images are what an ImageFolder gives."""
    loader = from_disk(photo_folder, TRANSFORM, 5, {"num_workers": 2, "prefetch_factor": 3})
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (5, 2, 3)
    expected = ImageFolder(str(photo_folder), TRANSFORM)
    pairs = zip((loader.dataset[i] for i in range(12)), expected, strict=True)
    assert all(torch.equal(a, b) and m == n for (a, m), (b, n) in pairs)


def test_the_last_batch_may_be_left_out(photo_folder: Path) -> None:
    """With drop_last=True an epoch has only whole batches, wherever it comes from."""
    seen: list[int] = []
    found = gp.will_it_help(
        nn.Identity(),
        photo_folder,
        TRANSFORM,
        batch_size=5,
        train_step=lambda images, labels: seen.append(len(images)),
        epochs=1,
        device="cpu",
        drop_last=True,
    )
    assert found.n_images == 10
    assert seen == [5] * 12  # 2 rounds of 3 ways of 2 batches


def test_a_list_of_steps_is_a_transform(photo_folder: Path) -> None:
    """As for `preload`, a list of steps will do."""
    steps = [v2.Resize((8, 6)), v2.ToImage(), FLOATS]
    found = gp.will_it_help(classifier(), photo_folder, steps, 5, epochs=1, device="cpu")
    assert found.n_images == 12


def refusal(call: Callable[[], object]) -> str:
    """The message of the error that a call raises."""
    with pytest.raises(gp.ArgumentError) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "resnet"},
            "model is str; expected a torch.nn.Module. For another kind pass torch.nn.Identity(), "
            "and train_step=, which is then called instead.",
        ),
        (
            {"batch_size": 0},
            "batch_size is 0; expected the number of images in a batch, 1 or more.",
        ),
        ({"epochs": 1.5}, "epochs is 1.5; expected the number of rounds that count, 1 or more."),
        (
            {"shuffle": False},
            "shuffle= is not taken here; expected settings of your DataLoader that change its "
            "speed: num_workers, pin_memory, persistent_workers, prefetch_factor, "
            "multiprocessing_context, drop_last. Leave shuffle= out.",
        ),
        (
            {"transform": v2.Resize((8, 6))},
            "transform gives PIL.Image.Image; expected a tensor, which a DataLoader can put into "
            "a batch. End the transform with ToImage() and ToDtype(torch.float32, scale=True).",
        ),
        (
            {"batch_size": 13, "drop_last": True},
            "drop_last=True leaves nothing of 12 images in batches of 13; expected a batch_size "
            "of 12 or less.",
        ),
    ],
)
def test_wrong_arguments_are_refused_first(
    photo_folder: Path, options: dict[str, Any], message: str
) -> None:
    """What cannot be used is said before anything is loaded."""
    given = {"model": nn.Identity(), "data": photo_folder, "transform": TRANSFORM, **options}
    assert refusal(lambda: gp.will_it_help(**given)) == message


def test_what_is_preloaded_already_cannot_be_timed_from_disk(photo_folder: Path) -> None:
    """A resident dataset has no epoch from disk, and the message says what to pass."""
    train = gp.preload(photo_folder, TRANSFORM, device="cpu", progress=False)
    for data in (train, torch.utils.data.Subset(train, [0, 1])):
        assert refusal(lambda data=data: gp.will_it_help(nn.Identity(), data, TRANSFORM)) == (
            "data is preloaded already, so an epoch from disk cannot be timed. Pass the files' "
            "folder, or another dataset, and the transform: both ways are measured from there."
        )
