"""Loaders timed in turn: by a clock that only the loaders move, so that every number is exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch
from stopped_clock import Clock
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import gpupreload as gp
from gpupreload.timing import Spread, in_turn, ratios, turns
from gpupreload.timing.machine import machine


class Costs:
    """A loader of two batches of 4 and 2 images that takes the seconds given, epoch by epoch.

    The last number holds for all later epochs. What is run is written down in `log`.
    """

    def __init__(self, clock: Clock, *seconds: float, name: str = "", log: Any = None) -> None:
        self.clock, self.seconds, self.name, self.log = clock, list(seconds), name, log

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        seconds = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.clock.now += seconds / 2
        yield torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
        if self.log is not None:
            self.log.append(self.name)
        self.clock.now += seconds / 2
        yield torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)


def timed(loaders: dict[str, Any], **options: Any) -> gp.LoaderTimes:
    """Time on the CPU."""
    return gp.time_loaders(loaders, device="cpu", **options)


def test_a_known_cost_is_found_exactly(clock: Clock) -> None:
    """6 images in 2 s are 3 images/s; in 0.5 s they are 12, four times as many."""
    times = timed({"slow": Costs(clock, 2.0), "fast": Costs(clock, 0.5)}, epochs=3)
    assert times["slow"].images_per_second == Spread(3.0, 3.0, 3.0)
    assert times["fast"].images_per_second == Spread(12.0, 12.0, 12.0)
    assert times.ratio("fast") == Spread(4.0, 4.0, 4.0)
    assert times.conclusion("fast") == "faster"


def test_two_copies_of_one_loader_are_equal(clock: Clock) -> None:
    """Whatever the drift, a loader's copy in the same rounds has a ratio of 1, and no verdict."""
    drift = (8.0, 4.0, 2.0, 1.0, 4.0)
    times = timed({"A": Costs(clock, *drift), "B": Costs(clock, *drift)}, epochs=3)
    assert times.ratio("B") == Spread(1.0, 1.0, 1.0)
    assert times.conclusion("B") == "cannot tell"


def test_loaders_take_turns(clock: Clock) -> None:
    """A B, A B, …: first epoch, warm-up and the epochs that count."""
    log: list[str] = []
    loaders = {name: Costs(clock, 1.0, name=name, log=log) for name in "AB"}
    timed(loaders, epochs=2, warm_up=1)
    assert log == ["A", "B"] * 4


def test_first_epoch_and_warm_up_stand_apart(clock: Clock) -> None:
    """The first epoch is told apart, warm-up is told nowhere."""
    times = timed({"A": Costs(clock, 64.0, 32.0, 16.0, 2.0, 4.0)}, warm_up=2, epochs=2)
    assert times["A"].first_epoch == 64.0
    assert times["A"].epochs == (2.0, 4.0)
    assert times["A"].rates == (3.0, 1.5)
    assert times["A"].images_per_second == Spread(2.25, 1.5, 3.0)


def test_batches_images_and_bytes_are_counted(clock: Clock) -> None:
    """Two batches, 6 images: 6 × 3 float32 and 6 int64 are 72 + 48 bytes."""
    times = timed({"A": Costs(clock, 1.0)})
    assert (times["A"].n_batches, times["A"].n_images, times["A"].n_bytes) == (2, 6, 120)


def test_ratios_are_within_a_round(clock: Clock) -> None:
    """A machine that slows down by 4 in the second round changes both speeds, and no ratio."""
    a, b = Costs(clock, 1.0, 2.0, 8.0), Costs(clock, 1.0, 1.0, 4.0)
    times = timed({"A": a, "B": b}, warm_up=0, epochs=2)
    assert times["B"].images_per_second == Spread(3.75, 1.5, 6.0)
    assert times.ratio("B") == Spread(2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("seconds", "conclusion"),
    [
        ((4.0, 4.0), "faster"),
        ((4.0, 2.1), "faster"),
        ((4.0, 2.0), "faster, but how much is unsure"),
        ((8.0, 0.5), "cannot tell"),
        ((1.0, 2.0), "cannot tell"),
        ((0.5, 0.25), "slower"),
    ],
)
def test_what_may_be_concluded(clock: Clock, seconds: tuple[float, ...], conclusion: str) -> None:
    """A spread that contains 1 allows no conclusion; one of twice the least leaves "how much"."""
    base, other = Costs(clock, 1.0, *seconds), Costs(clock, 1.0)
    times = timed({"base": base, "other": other}, warm_up=0, epochs=2)
    assert times.conclusion("other") == conclusion
    assert times.conclusion("base") == ""


def test_the_table_tells_everything(clock: Clock) -> None:
    """One row a loader, and below what the numbers are and what they do not allow to say."""
    a, b = Costs(clock, 8.0, 2.0), Costs(clock, 3.0, 0.5)
    times = timed({"A": a, "B": b, "C": Costs(clock, 2.0)}, warm_up=0, epochs=4)
    assert str(times) == repr(times)
    assert str(times).splitlines()[:-1] == [
        "Epochs to CPU, run in turn",
        "   first epoch  images/s    spread  ratio          spread  batches       size",
        "-  -----------  --------  --------  -----  --------------  -------  ---------  "
        "-----------",
        "A      8.000 s         3    3 to 3  ×1.00                        2  120 bytes",
        "B      3.000 s        12  12 to 12  ×4.00  ×4.00 to ×4.00        2  120 bytes  faster",
        "C      2.000 s         3    3 to 3  ×1.00  ×1.00 to ×1.00        2  120 bytes  "
        "cannot tell",
        "Medians, least and greatest of 4 epochs after the first.",
        "A ratio is the median of those to 'A' by round; by chance one of two equal loaders is "
        "ahead in each of 4 rounds, 1 time in 8.",
        "The spread is too wide to conclude on 'C': ask for more epochs, on a quieter machine.",
    ]
    assert str(times).splitlines()[-1] == f"Measured on {times.machine}."
    assert f"torch {torch.__version__}" in times.machine
    assert "<td" in times._repr_html_()


@pytest.mark.parametrize(
    ("names", "note"),
    [
        ("A", ["Medians, least and greatest of 1 epoch after the first."]),
        (
            "AB",
            [
                "Medians, least and greatest of 1 epoch after the first.",
                "A ratio is the median of those to 'A' by round; with a single round, one of two "
                "equal loaders is ahead in it.",
                "The spread is too wide to conclude on 'B': ask for more epochs, on a quieter "
                "machine.",
            ],
        ),
    ],
)
def test_the_note_of_few(clock: Clock, names: str, note: list[str]) -> None:
    """One loader has nothing to be compared with, and one round says next to nothing."""
    times = timed({name: Costs(clock, 1.0) for name in names}, epochs=1)
    assert str(times).splitlines()[3 + len(names) : -1] == note


def test_the_result_goes_into_json(clock: Clock) -> None:
    """`to_dict` holds what the attributes say, and JSON takes it as it is."""
    times = timed({"A": Costs(clock, 2.0), "B": Costs(clock, 8.0, 1.0)}, warm_up=0, epochs=2)
    read = json.loads(json.dumps(times.to_dict()))
    assert read["device"] == "cpu"
    assert read["machine"] == times.machine
    assert read["loaders"][1] == {
        "name": "B",
        "n_batches": 2,
        "n_images": 6,
        "n_bytes": 120,
        "first_epoch": 8.0,
        "epochs": [1.0, 1.0],
        "images_per_second": {"median": 6.0, "low": 6.0, "high": 6.0},
        "ratio": {"median": 2.0, "low": 2.0, "high": 2.0},
        "conclusion": "faster",
    }


def test_the_plot_shows_the_medians(clock: Clock) -> None:
    """A bar a loader, as long as its median; no figure is left open."""
    times = timed({"A": Costs(clock, 2.0), "B": Costs(clock, 0.5)}, epochs=1)
    figure = times.plot()
    [axes] = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [3.0, 12.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["A", "B"]
    assert plt.get_fignums() == []


def test_the_device_is_waited_for_before_each_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read when the device has done its work, before and after."""
    log: list[str] = []

    def read() -> float:
        log.append("clock")
        return float(len(log))

    monkeypatch.setattr(turns, "perf_counter", read)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append(str(device)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: log.append("mps"))
    for device in ("cuda:1", "mps", "cpu"):
        in_turn({"way": lambda: log.append("way")}, 1, torch.device(device))
    assert log == [
        *("cuda:1", "clock", "way", "cuda:1", "clock"),
        *("mps", "clock", "way", "mps", "clock"),
        *("clock", "way", "clock"),
    ]


@pytest.mark.needs_cuda
def test_batches_are_brought_to_the_device() -> None:
    """On a GPU the time of a batch from disk holds its copy: bytes arrive there."""
    batches = [torch.zeros(1 << 20)] * 2
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    gp.time_loaders({"on the host": batches}, epochs=1, device="cuda")
    assert torch.cuda.max_memory_allocated() >= before + (4 << 20)


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(5, 2),
        [torch.zeros(5, 2)],
        (torch.zeros(5, 2), ["name"] * 5),
        {"image": torch.zeros(5, 2), "label": 3},
        [("x", {"deep": [torch.zeros(5, 2)]})],
    ],
)
def test_batches_of_any_nesting(batch: Any) -> None:
    """The first tensor's rows are the images, wherever in the batch it is."""
    times = timed({"A": [batch, batch]}, epochs=1)
    assert (times["A"].n_batches, times["A"].n_images, times["A"].n_bytes) == (2, 10, 80)


def test_a_dataloader_and_ours() -> None:
    """Any loader goes: a DataLoader, a Loader, a list of batches."""
    ours = gp.preload(TensorData(), device="cpu", progress=False)
    loaders = {"DataLoader": DataLoader(TensorData(), 4), "gp.Loader": gp.Loader(ours, 4)}
    times = timed(loaders, epochs=1)
    assert [(x.n_batches, x.n_images) for x in times.loaders] == [(3, 10), (3, 10)]


class TensorData(TensorDataset):
    """Ten uint8 images of 3×8×6."""

    def __init__(self) -> None:
        super().__init__(torch.zeros(10, 3, 8, 6, dtype=torch.uint8))

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.tensors[0][index], 0


def refusal(call: Callable[[], object]) -> str:
    """The message of the error that a call raises."""
    with pytest.raises(gp.ArgumentError) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(
    ("loaders", "message"),
    [
        (
            {},
            "loaders is dict; expected a dict of one or more loaders by name, such as "
            '{"from disk": data_loader, "resident": loader}.',
        ),
        (
            [[torch.zeros(1)]],
            "loaders is list; expected a dict of one or more loaders by name, such as "
            '{"from disk": data_loader, "resident": loader}.',
        ),
        (
            {"A": iter([torch.zeros(1)])},
            "loaders['A'] is list_iterator; expected what gives every epoch anew, such as a "
            "DataLoader or a Loader. Pass the loader, not iter(loader).",
        ),
        (
            {"A": 3},
            "loaders['A'] is int; expected what gives every epoch anew, such as a DataLoader or a "
            "Loader. Pass the loader, not iter(loader).",
        ),
        ({"A": []}, "loaders['A'] gave no images; expected at least one batch an epoch."),
        (
            {"A": [("image", 3)]},
            "loaders['A'] gave tuple; expected a batch: a tensor, or a tuple, list or dict whose "
            "first tensor has a row for each image.",
        ),
        (
            {"A": [torch.tensor(3)]},
            "loaders['A'] gave a torch.int64 tensor of shape (); expected a batch: a tensor, or a "
            "tuple, list or dict whose first tensor has a row for each image.",
        ),
    ],
)
def test_loaders_that_cannot_be_timed(loaders: Any, message: str) -> None:
    """What is no loader, or gives no batches, is named with what would do."""
    assert refusal(lambda: timed(loaders)) == message


@pytest.mark.parametrize("value", [0, -1, 2.0, True, None])
def test_epochs_and_warm_up_are_counts(value: Any) -> None:
    """A number of epochs is a whole number; of those that count there is at least one."""
    loaders = {"A": [torch.zeros(1)]}
    assert refusal(lambda: timed(loaders, epochs=value)) == (
        f"epochs is {value!r}; expected how many of each count, 1 or more."
    )
    if value != 0:
        assert refusal(lambda: timed(loaders, warm_up=value)) == (
            f"warm_up is {value!r}; expected how many epochs of each do not count, 0 or more."
        )


def test_a_loader_that_is_not_there() -> None:
    """Asking for another name says which there are."""
    times = timed({"A": [torch.zeros(1)]}, epochs=1)
    with pytest.raises(KeyError, match="no loader is named 'B'; there are 'A'"):
        times.ratio("B")


def test_ratios_pair_by_pair() -> None:
    """1/1, 4/2 and 9/3 are 1, 2 and 3."""
    assert ratios([1.0, 4.0, 9.0], to=[1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0], to=[])


@pytest.mark.parametrize(("n", "said"), [(1, ", 1 CPU, 1 thread, "), (2, ", 2 CPUs, 2 threads, ")])
def test_the_machine_in_words(monkeypatch: pytest.MonkeyPatch, n: int, said: str) -> None:
    """The line on the machine counts one thread as a thread, and two as threads."""
    monkeypatch.setattr("os.cpu_count", lambda: n)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n)
    assert said in machine()
