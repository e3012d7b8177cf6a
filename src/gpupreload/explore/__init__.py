"""Widgets that show what augmentation does to a photo, and what a preload would take.

ipywidgets is imported on call only. What the widgets show is made by pure functions: `recipe` (the
transform as it is set), `pictures` and `mosaic` (what is drawn), `planning` and `markup` (HTML).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import torch

from gpupreload.clock import check_epoch
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError
from gpupreload.explore.pictures import VIEWS, Look, View
from gpupreload.explore.planning import check_no_transform, sizing
from gpupreload.plan import WAY_TO_PLAN, plan
from gpupreload.resident import check_not_preloaded
from gpupreload.show import check_preloaded, in_range
from gpupreload.source import FolderOptions, open_source

if TYPE_CHECKING:
    from gpupreload.explore.explorer import Explorer
    from gpupreload.explore.planner import PlanExplorer

_FIRST_SIZE = 112  # pixels
_MOST_DRAWS = 100


def explore(
    dataset: GPUPreloadDataset,
    index: int = 0,
    *,
    view: View = "draws",
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
        view: "draws", "frozen and live" or "shared and per sample": the view that is shown first.
        epoch: number of the epoch that is shown first.
        seed: of the draws; None takes the dataset's.
        n: number of draws, 1 to 100.

    Returns:
        The explorer: as the last value of a cell it is shown. Its `transform` is the transform as
        it is set, `code` the same as Python, and `says` what is shown in words.

    Raises:
        ArgumentError: `dataset` is not preloaded, or a number is out of range.
        IndexError: there is no such photo.
        TypeError: `index` is no int.
        ImportError: ipywidgets is not installed.
    """
    check_preloaded(dataset, "gpupreload.explore(dataset)")
    if not 1 <= n <= _MOST_DRAWS:
        raise ArgumentError(f"n is {n}; expected a number of draws from 1 to {_MOST_DRAWS}.")
    epoch = check_epoch(epoch)
    if view not in VIEWS:
        names = ", ".join(repr(name) for name in VIEWS)
        raise ArgumentError(f"view is {view!r}; expected one of {names}.")
    _check_installed("gpupreload.explore")
    from gpupreload.explore.explorer import Explorer

    seed = dataset.seed if seed is None else seed
    look = Look(view, in_range(index, len(dataset)), epoch, seed, n)
    return Explorer(dataset, look)


def explore_plan(
    data: Any, *, device: str | torch.device | None = None, **folder: Unpack[FolderOptions]
) -> PlanExplorer:
    """Look at what a preload would take of the device's memory, in a widget; nothing is loaded.

    Sliders set the size of the images and the margin that is to be left for the model. It shows
    the bytes on a bar of the device's memory, a photo of each of the first classes at that size,
    the number of photos of each class, and the call of `preload` to copy.

    Args:
        data: a folder of class folders, an `ImageFolder` without a transform, or any map-style
            dataset of (PIL image or uint8 tensor, int).
        device: None means CUDA if there is one, else MPS, else the CPU.
        **folder: for the path of a folder: `classes`, `extensions`, `allow_empty`, `on_unknown`;
            see `gpupreload.source.FolderOptions`.

    Returns:
        The explorer: as the last value of a cell it is shown. Its `need` is what is shown, as
        numbers, and its `code` the call.

    Raises:
        ArgumentError: the data has a transform of its own, or is preloaded already.
        FolderError, UnreadableError, DataError, DeviceError: the data or the device cannot be used.
        ImportError: ipywidgets is not installed.
    """
    _check_installed("gpupreload.explore_plan")
    from gpupreload.explore.planner import PlanExplorer

    check_not_preloaded(data, WAY_TO_PLAN)
    source = open_source(data, **folder)
    check_no_transform(source)
    found = plan(source, sizing(_FIRST_SIZE), device=device)
    options: dict[str, Any] = {} if device is None else {"device": str(device)}
    options |= folder
    if "classes" in folder:  # which may be a whole dataset that has such classes
        options["classes"] = source.classes
    return PlanExplorer(source, data, found, options)


def _check_installed(what: str) -> None:
    try:
        import ipywidgets  # noqa: F401 - only whether it is there
    except ImportError:
        raise ImportError(
            f"{what} needs ipywidgets, which is not installed: pip install 'gpupreload[lab]'"
        ) from None
