"""`time_loaders`: loaders of batches against each other, in turn, and what may be concluded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gpupreload.arguments import whole_number
from gpupreload.devices import resolve_device
from gpupreload.errors import ArgumentError
from gpupreload.figure import new_figure
from gpupreload.source import describe
from gpupreload.table import Table, in_units
from gpupreload.timing.machine import device_name, machine
from gpupreload.timing.turns import Spread, in_turn, ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Conclusion = Literal["", "faster", "faster, but how much is unsure", "slower", "cannot tell"]

_UNSURE_FROM = 2.0  # the greatest ratio over the least from which "how much" is left open


@dataclass(frozen=True)
class TimedLoader:
    """What one loader took, and what it gave.

    Attributes:
        name: as given.
        n_batches, n_images: in one epoch, the last one.
        n_bytes: of all tensors of that epoch's batches.
        first_epoch: seconds of the first epoch, where decoding, starting and compiling show.
        epochs: seconds of each later epoch that counts, in order.
    """

    name: str
    n_batches: int
    n_images: int
    n_bytes: int
    first_epoch: float
    epochs: tuple[float, ...]

    @property
    def rates(self) -> tuple[float, ...]:
        """Images per second in each later epoch."""
        return tuple(self.n_images / seconds for seconds in self.epochs)

    @property
    def images_per_second(self) -> Spread:
        """Images per second over the later epochs."""
        return Spread.of(self.rates)


@dataclass(frozen=True)
class LoaderTimes:
    """Loaders timed in turn; printed, a table. `times["name"]` is one of them.

    Attributes:
        loaders: one for each loader, in the order given; the first is what others are compared
            with.
        device: where batches were brought to.
        machine: on what this was measured.
    """

    loaders: tuple[TimedLoader, ...]
    device: torch.device
    machine: str

    def __getitem__(self, name: str) -> TimedLoader:
        """Return the loader of this name."""
        return next(loader for loader in self.loaders if loader.name == self._known(name))

    def ratio(self, name: str) -> Spread:
        """How many times the first loader's images/s this one gives, round by round."""
        return ratios(self[name].rates, to=self.loaders[0].rates)

    def conclusion(self, name: str) -> Conclusion:
        """What the ratio's spread allows to say, against the first loader.

        "cannot tell" where the spread contains 1; that "how much is unsure" where the greatest
        ratio is at least twice the least. The first loader has no conclusion: "".
        """
        ratio = self.ratio(name)
        if name == self.loaders[0].name:
            return ""
        if ratio.contains(1.0):
            return "cannot tell"
        if ratio.median < 1:
            return "slower"
        is_unsure = ratio.high >= _UNSURE_FROM * ratio.low
        return "faster, but how much is unsure" if is_unsure else "faster"

    def _known(self, name: str) -> str:
        names = [loader.name for loader in self.loaders]
        if name not in names:
            raise KeyError(f"no loader is named {name!r}; there are {', '.join(map(repr, names))}")
        return name

    @property
    def table(self) -> Table:
        """A row a loader: its speed with its spread, and the ratio to the first with its spread."""
        return Table(
            tuple(self._row(loader) for loader in self.loaders),
            ("", "first epoch", "images/s", "spread", "ratio", "spread", "batches", "size", ""),
            title=f"Epochs to {device_name(self.device)}, run in turn",
            note=self._note,
            right=(1, 2, 3, 4, 5, 6, 7),
        )

    def _row(self, loader: TimedLoader) -> tuple[str, ...]:
        rate, ratio = loader.images_per_second, self.ratio(loader.name)
        spread = "" if loader is self.loaders[0] else f"×{ratio.low:.2f} to ×{ratio.high:.2f}"
        return (
            loader.name,
            f"{loader.first_epoch:.3f} s",
            f"{rate.median:,.0f}",
            f"{rate.low:,.0f} to {rate.high:,.0f}",
            f"×{ratio.median:.2f}",
            spread,
            f"{loader.n_batches:,}",
            in_units(loader.n_bytes),
            self.conclusion(loader.name),
        )

    @property
    def _note(self) -> str:
        n_rounds, first = len(self.loaders[0].epochs), self.loaders[0].name
        epochs = "1 epoch" if n_rounds == 1 else f"{n_rounds} epochs"
        lines = [f"Medians, least and greatest of {epochs} after the first."]
        if len(self.loaders) > 1:
            by_chance = (
                f"by chance one of two equal loaders is ahead in each of {n_rounds} rounds, 1 time "
                f"in {2 ** (n_rounds - 1):,}"
                if n_rounds > 1
                else "with a single round, one of two equal loaders is ahead in it"
            )
            lines.append(f"A ratio is the median of those to {first!r} by round; {by_chance}.")
        unsure = [x.name for x in self.loaders if self.conclusion(x.name) == "cannot tell"]
        if unsure:
            lines.append(
                f"The spread is too wide to conclude on {', '.join(map(repr, unsure))}: ask for "
                "more epochs, on a quieter machine."
            )
        return "\n".join([*lines, f"Measured on {self.machine}."])

    def plot(self) -> Figure:
        """Draw a bar a loader, images/s of the later epochs, with the spread as a line.

        Returns:
            A `matplotlib.figure.Figure` that pyplot knows nothing of, so that none is left open.

        Raises:
            ImportError: Matplotlib is not installed.
        """
        figure = new_figure(8.0, 0.9 + 0.45 * len(self.loaders))
        axes = figure.subplots()
        for y, loader in enumerate(self.loaders):
            rate, ratio = loader.images_per_second, self.ratio(loader.name)
            axes.barh(y, rate.median, color="#9aa5b1" if y == 0 else "#1f77b4")
            axes.plot((rate.low, rate.high), (y, y), color="black", linewidth=1.5)
            label = f"  {rate.median:,.0f}" + (f" (×{ratio.median:.1f})" if y else "")
            axes.annotate(label, (rate.high, y), va="center", fontsize=9)
        axes.set_yticks(range(len(self.loaders)), [loader.name for loader in self.loaders])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.invert_yaxis()
        axes.margins(x=0.22)
        axes.set_xlim(left=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("images per second (more is better); black: least to greatest")
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings, lists and dicts, as JSON takes them."""
        return {
            "device": str(self.device),
            "machine": self.machine,
            "loaders": [self._as_dict(loader) for loader in self.loaders],
        }

    def _as_dict(self, loader: TimedLoader) -> dict[str, Any]:
        return {
            **asdict(loader),
            "epochs": list(loader.epochs),
            "images_per_second": asdict(loader.images_per_second),
            "ratio": asdict(self.ratio(loader.name)),
            "conclusion": self.conclusion(loader.name),
        }

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def time_loaders(
    loaders: Mapping[str, Iterable[Any]],
    *,
    epochs: int = 5,
    warm_up: int = 1,
    device: str | torch.device | None = None,
) -> LoaderTimes:
    """Go through loaders of batches in turn, A B A B…, and compare their images per second.

    Each epoch is timed until all of its tensors are on the device: those that are not there yet are
    copied, as a training loop would, and the device is waited for before each reading of the clock
    (CUDA, MPS). The first epoch of each loader is reported apart; `warm_up` more are not reported.

    Files: nothing is done about the operating system's page cache. What one loader has read, the
    next finds in memory, if it fits there: so a first epoch is cold for the loader that comes first
    at most, and later epochs of an `ImageFolder` decode its files without reading the disk. A
    loader that does read the disk in every epoch is slower than is told here.

    Random generators: loaders draw from them as they do in training.

    Args:
        loaders: by name; each can be gone through again and again, and gives batches: a tensor, or
            any nesting of tuples, lists and dicts that holds tensors. The first tensor's length is
            the number of images. The first loader is what the others are compared with.
        epochs: how many epochs of each count, 1 or more.
        warm_up: how many epochs of each, after the first, do not count.
        device: where batches are brought to; None means CUDA if there is one, else MPS, else the
            CPU.

    Returns:
        The times, with `.table`, `.plot()`, `.ratio(name)`, `.conclusion(name)` and `.to_dict()`.

    Raises:
        ArgumentError: an argument cannot be used, or a loader gives no batch, or one without a
            tensor.
        DeviceError: there is no such device.

    >>> batches = [torch.zeros(2, 3), torch.zeros(1, 3)]
    >>> times = time_loaders({"a list": batches, "a tuple": tuple(batches)}, device="cpu")
    >>> times["a list"].n_batches, times["a list"].n_images, times["a list"].n_bytes  # 3 * 3 * 4
    (2, 3, 36)
    """
    _check(loaders, epochs, warm_up)
    found = resolve_device(device)
    torch.zeros(1, device=found)  # a device that is used for the first time starts here
    ways = {name: _Epoch(name, loader, found) for name, loader in loaders.items()}
    seconds = in_turn(ways, 1 + warm_up + epochs, found)
    timed = (
        TimedLoader(name, *way.counts, seconds[name][0], seconds[name][1 + warm_up :])
        for name, way in ways.items()
    )
    return LoaderTimes(tuple(timed), found, machine(found))


class _Epoch:
    """Called, it goes through one epoch to batches on a device, and counts what came."""

    def __init__(self, name: str, loader: Iterable[Any], device: torch.device) -> None:
        self._name, self._loader, self._device = name, loader, device
        self.counts = (0, 0, 0)

    def __call__(self) -> None:
        n_batches = n_images = n_bytes = 0
        for batch in self._loader:
            tensors = list(_tensors(batch))
            for tensor in tensors:
                tensor.to(self._device, non_blocking=True)
                n_bytes += tensor.nbytes
            n_batches += 1
            n_images += self._length(tensors, batch)
        if not n_images:
            raise ArgumentError(
                f"loaders[{self._name!r}] gave no images; expected at least one batch an epoch."
            )
        self.counts = (n_batches, n_images, n_bytes)

    def _length(self, tensors: list[Tensor], batch: Any) -> int:
        if not tensors or not tensors[0].ndim:
            raise ArgumentError(
                f"loaders[{self._name!r}] gave {describe(batch)}; expected a batch: a tensor, or "
                "a tuple, list or dict whose first tensor has a row for each image."
            )
        return len(tensors[0])


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, tuple | list):
        for part in batch:
            yield from _tensors(part)
    elif isinstance(batch, Mapping):
        yield from _tensors(list(batch.values()))


def _check(loaders: Any, epochs: Any, warm_up: Any) -> None:
    if not isinstance(loaders, Mapping) or not loaders:
        raise ArgumentError(
            f"loaders is {describe(loaders)}; expected a dict of one or more loaders by name, "
            'such as {"from disk": data_loader, "resident": loader}.'
        )
    for name, loader in loaders.items():
        if not hasattr(loader, "__iter__") or isinstance(loader, Iterator):
            raise ArgumentError(
                f"loaders[{name!r}] is {describe(loader)}; expected what gives every epoch anew, "
                "such as a DataLoader or a Loader. Pass the loader, not iter(loader)."
            )
    if (whole_number(epochs) or 0) < 1:
        raise ArgumentError(f"epochs is {epochs!r}; expected how many of each count, 1 or more.")
    number = whole_number(warm_up)
    if number is None or number < 0:
        raise ArgumentError(
            f"warm_up is {warm_up!r}; expected how many epochs of each do not count, 0 or more."
        )
