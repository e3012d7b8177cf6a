"""`will_it_help`: how much of a training's time is waiting for data, and what preloading saves."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpupreload.arguments import whole_number
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.devices import resolve_device
from gpupreload.errors import ArgumentError, DoesNotFitError
from gpupreload.figure import new_figure
from gpupreload.loader import Loader
from gpupreload.placement import Placement
from gpupreload.preloading import preload
from gpupreload.probe import generators_kept
from gpupreload.resident import none_shared
from gpupreload.source import describe
from gpupreload.table import Table, counted
from gpupreload.timing.disk import DataLoaderOptions, check_options, from_disk
from gpupreload.timing.machine import machine
from gpupreload.timing.turns import Spread, in_turn, ratios, seconds_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TrainStep = Callable[[Tensor, Tensor], object]

_LEAST_GAIN = 1.05  # a resident epoch faster by less is no reason to change a program
_MUCH_WAITING = 0.1  # the share of a resident epoch from which the model is not what limits it


@dataclass(frozen=True)
class Outlook:
    """What an epoch of training takes from disk and from a preloaded set; printed, a table.

    Attributes:
        n_images: in one epoch.
        batch_size: number of images in a batch.
        step_epochs: seconds of an epoch's training steps alone, all on one resident batch, in each
            round: the floor that no way of loading gets below.
        disk_epochs: seconds of a training epoch from the `DataLoader`, in each round.
        resident_epochs: seconds of a training epoch from the preloaded set, in each round.
        load_seconds: seconds that preloading took, once; None where it could not be measured, for
            the images were loaded already, and there was no room to load them a second time.
        machine: on what this was measured.
    """

    n_images: int
    batch_size: int
    step_epochs: tuple[float, ...]
    disk_epochs: tuple[float, ...]
    resident_epochs: tuple[float, ...]
    load_seconds: float | None
    machine: str

    @property
    def ratio(self) -> Spread:
        """How many times as fast a resident epoch is as one from disk, round by round."""
        return ratios(self.disk_epochs, to=self.resident_epochs)

    @property
    def waiting_from_disk(self) -> float:
        """The share of an epoch from disk in which the model waits for data, from 0 to 1."""
        return self._waiting(self.disk_epochs)

    @property
    def waiting_resident(self) -> float:
        """The share of a resident epoch in which the model waits for data, from 0 to 1."""
        return self._waiting(self.resident_epochs)

    def _waiting(self, epochs: tuple[float, ...]) -> float:
        share = 1 - ratios(self.step_epochs, to=epochs).median
        return max(0.0, share)  # within the noise an epoch may take less than its steps alone

    @property
    def verdict(self) -> Literal["gain", "no gain", "cannot tell"]:
        """Whether a resident epoch is faster.

        "gain" where it was in every round, and by 5 % or more in the median; "cannot tell" where
        the median says so and some round does not; else "no gain".
        """
        if self.ratio.median < _LEAST_GAIN:
            return "no gain"
        return "gain" if self.ratio.low > 1 else "cannot tell"

    @property
    def break_even_epochs(self) -> int | None:
        """After how many epochs the time to load is won back.

        None where nothing is won, or where the loading was not measured.
        """
        if self.verdict != "gain" or self.load_seconds is None:
            return None
        # above 0: what is less in every round has a smaller median too
        saved = Spread.of(self.disk_epochs).median - Spread.of(self.resident_epochs).median
        return max(1, math.ceil(self.load_seconds / saved))

    @property
    def advice(self) -> str:
        """The verdict as a sentence, with its numbers."""
        ratio = self.ratio
        measured = f"×{ratio.median:.2f} (×{ratio.low:.2f} to ×{ratio.high:.2f})"
        if self.verdict == "gain":
            return f"Preloading helps: an epoch is {measured} as fast{self._won_back}"
        if self.verdict == "cannot tell":
            return f"Cannot tell: an epoch is {measured} as fast. Ask for more epochs."
        cause = (
            "the steps that run for each batch are the bottleneck"
            if self.waiting_resident >= _MUCH_WAITING
            else "the model is the bottleneck"
        )
        return f"No gain on this machine: {cause}; an epoch is {measured} as fast."

    @property
    def _won_back(self) -> str:
        n = self.break_even_epochs
        if n is None or self.load_seconds is None:
            return (
                ". The images were loaded already, and there is no room to load them again: how "
                "long loading takes was not measured. free() them, and ask again."
            )
        return (
            f", and the {self.load_seconds:.1f} s of loading are won back after "
            f"{counted(n, 'epoch')}."
        )

    @property
    def table(self) -> Table:
        """Seconds of an epoch, and the share of it spent waiting."""
        rows = (
            ("training steps alone", *_in_cells(self.step_epochs), "0 %"),
            ("from disk", *_in_cells(self.disk_epochs), f"{100 * self.waiting_from_disk:.0f} %"),
            ("preloaded", *_in_cells(self.resident_epochs), f"{100 * self.waiting_resident:.0f} %"),
        )
        return Table(
            rows,
            ("", "an epoch", "spread", "waiting for data"),
            title=f"Training on {self.n_images:,} images in batches of {self.batch_size:,}",
            note=f"{self.advice}\nMeasured on {self.machine}.",
            right=(1, 2, 3),
        )

    def plot(self) -> Figure:
        """Draw an epoch from disk and a preloaded one as bars: training steps, then waiting.

        Returns:
            A `matplotlib.figure.Figure` that pyplot knows nothing of, so that none is left open.

        Raises:
            ImportError: Matplotlib is not installed.
        """
        figure = new_figure(8.0, 2.0)
        axes = figure.subplots()
        epochs = {"from disk": self.disk_epochs, "preloaded": self.resident_epochs}
        seconds = [Spread.of(times).median for times in epochs.values()]
        steps = [min(Spread.of(self.step_epochs).median, total) for total in seconds]
        waiting = [total - step for total, step in zip(seconds, steps, strict=True)]
        axes.barh(list(epochs), steps, color="#1f77b4", label="training steps")
        axes.barh(list(epochs), waiting, left=steps, color="#d9a441", label="waiting for data")
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("seconds of an epoch (less is better)")
        axes.legend(loc="lower right", frameon=False)
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings, lists and dicts, as JSON takes them."""
        measured = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        return measured | {
            "ratio": asdict(self.ratio),
            "waiting_from_disk": self.waiting_from_disk,
            "waiting_resident": self.waiting_resident,
            "verdict": self.verdict,
            "break_even_epochs": self.break_even_epochs,
            "advice": self.advice,
        }

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def _in_cells(seconds: tuple[float, ...]) -> tuple[str, str]:
    spread = Spread.of(seconds)
    return f"{spread.median:.3f} s", f"{spread.low:.3f} to {spread.high:.3f} s"


def will_it_help(
    model: nn.Module,
    data: Any,
    transform: Any = None,
    batch_size: int = 64,
    *,
    loss: Callable[[Any, Tensor], Tensor] = F.cross_entropy,
    train_step: TrainStep | None = None,
    epochs: int = 3,
    device: str | torch.device | None = None,
    **dataloader: Unpack[DataLoaderOptions],
) -> Outlook:
    """Train for a few epochs from disk and from a preloaded set, in turn, and say which is faster.

    Three things are timed in each round: the training steps of an epoch alone, all on one batch
    that is on the device already; a training epoch from a shuffling `DataLoader` with your
    settings; and one from the preloaded set. One round before them does not count. What a
    training epoch takes more than its steps is waiting for data.

    The set is preloaded first, so the files are in the operating system's page cache where it has
    room for them, and epochs from disk decode them without reading the disk: a training that does
    read it waits longer than is told here. If the same images are preloaded already, they are
    loaded a second time, to measure that, and let go at the end; where the device has no room for
    both, they are shared, and it says that loading was not measured. Of a large dataset pass a
    `torch.utils.data.Subset`: ratios and shares hold for the whole, and seconds are in proportion.

    The model that is trained is a copy, by SGD with a learning rate of 0; the global random
    generators are put back as they were. A `train_step` of your own is called as it is, and changes
    what it changes.

    Args:
        model: from a batch of images, as the transform makes them, to what `loss` takes.
        data: the path of a folder of class folders, or a map-style dataset of (PIL image or uint8
            tensor, int).
        transform: a torchvision transform that ends in tensors; None takes the dataset's own.
        batch_size: number of images in a batch.
        loss: from the model's output and the labels (int64 [N], on the device) to a scalar.
        train_step: called with (images, labels) on the device instead of a forward pass, `loss`,
            a backward pass and a step of SGD.
        epochs: number of rounds that count, 1 or more.
        device: None means CUDA if there is one, else MPS, else the CPU.
        **dataloader: settings of your `DataLoader`: num_workers, pin_memory, persistent_workers,
            prefetch_factor, multiprocessing_context, drop_last.

    Returns:
        The verdict with its numbers, `.table`, `.plot()` and `.to_dict()`.

    Raises:
        ArgumentError: an argument cannot be used.
        DoesNotFitError: the device has not the memory for the images; before anything is timed.
        FolderError, DataError, SizeError, TransformError, DeviceError: as of `preload`.
    """
    _check(model, batch_size, epochs, dataloader)
    found = resolve_device(device)
    with generators_kept():
        disk = from_disk(data, transform, batch_size, dataloader)
        train, load_seconds = _loaded(data, transform, found)
        with train:
            drop_last = bool(dataloader.get("drop_last"))
            resident = Loader(train, batch_size, shuffle=True, drop_last=drop_last)
            step = train_step or _CopyTrained(model, loss, found)
            measured = _measure(disk, resident, step, epochs)
            n_images = len(resident) * batch_size if drop_last else len(train)
    return Outlook(n_images, batch_size, *measured, load_seconds, machine(found))


def _loaded(
    data: Any, transform: Any, device: torch.device
) -> tuple[GPUPreloadDataset, float | None]:
    """Preload, and measure it: anew, where the same images are there already and there is room."""
    loaded: list[GPUPreloadDataset] = []

    def load(placement: Placement = "auto") -> None:
        loaded.append(
            preload(data, transform, device=device, seed=0, progress=False, placement=placement)
        )

    seconds = seconds_of(load, device)
    if not loaded[0].store.is_shared:
        return loaded[0], seconds
    with none_shared(), contextlib.suppress(DoesNotFitError):
        seconds = seconds_of(lambda: load("device"), device)
    if len(loaded) == 1:
        return loaded[0], None
    loaded[0].free()
    return loaded[1], seconds


class _CopyTrained:
    """A training step on a copy of a model, by SGD with a learning rate of 0."""

    def __init__(
        self, model: nn.Module, loss: Callable[[Any, Tensor], Tensor], device: torch.device
    ) -> None:
        self._model, self._loss = copy.deepcopy(model).to(device).train(), loss
        trained = [p for p in self._model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(trained, lr=0.0) if trained else None

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        loss = self._loss(self._model(images), labels)
        if self._optimizer is not None:
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()


def _measure(
    disk: Iterable[Any], resident: Loader, step: TrainStep, epochs: int
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the seconds of an epoch in each round: steps alone, from disk, resident."""
    device = resident.dataset.device
    images, labels = (part.clone() for part in next(iter(resident)))

    n_images = min(len(resident.dataset), len(resident) * resident.batch_size)
    n_whole, n_last = divmod(n_images, len(labels))

    def steps() -> None:
        for _ in range(n_whole):
            step(images, labels)
        if n_last:
            step(images[:n_last], labels[:n_last])

    def train(loader: Iterable[Any]) -> None:
        for images, labels in loader:
            step(images.to(device, non_blocking=True), labels.to(device, non_blocking=True))

    ways = {"steps": steps, "disk": lambda: train(disk), "resident": lambda: train(resident)}
    seconds = in_turn(ways, 1 + epochs, device)
    floor, from_disk, from_device = (seconds[name][1:] for name in ways)
    return floor, from_disk, from_device


def _check(model: Any, batch_size: Any, epochs: Any, dataloader: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"model is {describe(model)}; expected a torch.nn.Module. For another kind pass "
            "torch.nn.Identity(), and train_step=, which is then called instead."
        )
    for name, value, what in (
        ("batch_size", batch_size, "the number of images in a batch"),
        ("epochs", epochs, "the number of rounds that count"),
    ):
        if (whole_number(value) or 0) < 1:
            raise ArgumentError(f"{name} is {value!r}; expected {what}, 1 or more.")
    check_options(dataloader)
