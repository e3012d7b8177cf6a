"""Widgets that show what augmentation does to a photo, and what a preload would take.

ipywidgets is imported on call only. What the widgets show is made by pure functions: `recipe` (the
transform as it is set), `pictures` and `mosaic` (what is drawn), `markup` (HTML).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError
from gpupreload.explore.pictures import Look
from gpupreload.show import check_preloaded, in_range

if TYPE_CHECKING:
    from gpupreload.explore.explorer import Explorer

_MOST_DRAWS = 100


def explore(
    dataset: GPUPreloadDataset,
    index: int = 0,
    *,
    epoch: int = 0,
    seed: int | None = None,
    n: int = 16,
) -> Explorer:
    """Look at what the augmentation of a preloaded dataset does, in a widget.

    It shows a photo beside n draws of it, under an epoch slider; the random steps can be left out
    and set anew, and the transform as it is then set is written down as code to copy. Draw 1 is the
    picture that a `Loader` with this seed serves in this epoch, for that transform. A second view
    puts frozen augmentation beside live, a third one draw shared by a batch beside one for each
    sample.

    Nothing that is set here changes the dataset.

    Args:
        dataset: preloaded.
        index: the photo that is shown first, as in `dataset[index]`.
        epoch: number of the epoch that is shown first.
        seed: of the draws; None takes the dataset's.
        n: number of draws, 1 to 100.

    Returns:
        The explorer: as the last value of a cell it is shown. Its `transform` is the transform as
        it is set, and its `code` the same as Python.

    Raises:
        ArgumentError: `dataset` is not preloaded, or a number is out of range.
        IndexError: there is no such photo.
        ImportError: ipywidgets is not installed.
    """
    check_preloaded(dataset, "gpupreload.explore(dataset)")
    if not 1 <= n <= _MOST_DRAWS:
        raise ArgumentError(f"n is {n}; expected a number of draws from 1 to {_MOST_DRAWS}.")
    if not isinstance(epoch, int) or epoch < 0:
        raise ArgumentError(f"epoch is {epoch!r}; expected a whole number, 0 or more.")
    _check_installed("gpupreload.explore")
    from gpupreload.explore.explorer import Explorer

    seed = dataset.seed if seed is None else seed
    look = Look(index=in_range(index, len(dataset)), epoch=epoch, seed=seed, n=n)
    return Explorer(dataset, look)


def _check_installed(what: str) -> None:
    try:
        import ipywidgets  # noqa: F401 - only whether it is there
    except ImportError:
        raise ImportError(
            f"{what} needs ipywidgets, which is not installed: pip install 'gpupreload[lab]'"
        ) from None
