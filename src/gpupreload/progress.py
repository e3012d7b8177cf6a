"""How far a loader is in an epoch, as plain data to be saved and resumed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.source import describe

_VERSION = 1
_KEYS = {"version", "seed", "epoch", "n_batches", "batch_size"}
# of a state within an epoch, what a loader must agree in, each with what to do where it does not
_MUST_AGREE = {
    "samples": "Resume over the same dataset",
    "order": "Resume with the same shuffle, weights or sampler",
    "drop_last": "Resume with the same drop_last",
    "world_size": "Resume with as many processes",
    "uneven": "Resume with the same uneven",
}


@dataclass
class Progress:
    """One epoch that is being served.

    Attributes:
        epoch: its number.
        batch_size: that it was begun with.
        n_batches: how many batches were served.
        n_total: how many it has in this process; None before the first.
        positions: of all samples of the epoch, where they are no function of seed and epoch: those
            of a sampler of the caller's own.
    """

    epoch: int
    batch_size: int
    n_batches: int = 0
    n_total: int | None = None
    positions: Tensor | None = None

    def left(self, n_samples: int, *, drop_last: bool) -> slice:
        """Which samples of this process's share of the epoch are still to be served."""
        whole = n_samples // self.batch_size
        self.n_total = whole if drop_last else -(-n_samples // self.batch_size)
        end = whole * self.batch_size if drop_last else n_samples
        return slice(min(self.n_batches * self.batch_size, end), end)


def saved(progress: Progress, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write down how far a loader is; `settings` are those that `_MUST_AGREE` names."""
    if progress.n_total is not None and progress.n_batches >= progress.n_total:
        progress = Progress(progress.epoch + 1, progress.batch_size)
    state = {
        "version": _VERSION,
        "seed": seed,
        "epoch": progress.epoch,
        "n_batches": progress.n_batches,
        "batch_size": progress.batch_size,
    }
    if not progress.n_batches:
        return state
    positions = {} if progress.positions is None else {"positions": progress.positions}
    return {**state, **settings, **positions}


def resumed(state: Any, settings: Mapping[str, Any]) -> Progress:
    """Read what `saved` wrote.

    Raises:
        ArgumentError: it is something else, or was saved within an epoch of a loader with other
            settings.
    """
    if not isinstance(state, Mapping) or not state.keys() >= _KEYS:
        raise ArgumentError(
            f"state is {describe(state)}; expected what a Loader's state_dict() gave."
        )
    if state["version"] != _VERSION:
        raise ArgumentError(
            f"state is of version {state['version']!r}; expected {_VERSION}. Resume it with the "
            "release of gpupreload that saved it."
        )
    n_batches = state["n_batches"]
    if n_batches:
        _check_agree(state, settings)
    positions = state.get("positions")
    if positions is not None:
        positions = positions.cpu()  # loaded with the device of a model, say
    return Progress(state["epoch"], state["batch_size"], n_batches, positions=positions)


def _check_agree(state: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    for name, way_on in _MUST_AGREE.items():
        if state.get(name) != settings[name]:
            raise ArgumentError(
                f"state was saved after {state['n_batches']:,} batches of epoch {state['epoch']} "
                f"with {name} {state.get(name)!r}, and this Loader has {settings[name]!r}; the "
                f"rest of that epoch would be another. {way_on}, or from a state that was saved "
                "at the end of an epoch."
            )
