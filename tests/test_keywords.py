"""Arguments that there are not."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from torchvision.datasets import FakeData
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.keywords import _ELSEWHERE


def loader(**settings: Any) -> Any:
    """A Loader of a few images."""
    data = gp.preload(FakeData(4, (3, 8, 6), 2), v2.ToImage(), device="cpu", progress=False)
    return gp.Loader(data, **settings)


def of_folder(function: Any) -> Any:
    """A function that is called with a folder that is not there, which is no matter."""
    return lambda **settings: function(Path("nowhere"), **settings)


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (
            of_folder(gp.preload),
            "devise",
            "gpupreload.preload takes no argument 'devise'. Did you mean device=?",
        ),
        (
            of_folder(gp.preload),
            "Exif_orientation",
            "gpupreload.preload takes no argument 'Exif_orientation'. Did you mean "
            "exif_orientation=?",
        ),
        (
            of_folder(gp.preload),
            "num_workers",
            "gpupreload.preload takes no argument 'num_workers'. Did you mean workers=?",
        ),
        (
            of_folder(gp.preload),
            "batch_size",
            "gpupreload.preload takes no argument 'batch_size'. gpupreload.Loader takes it.",
        ),
        (
            of_folder(gp.GPUPreloadDataset),
            "train_augment",
            "gpupreload.GPUPreloadDataset takes no argument 'train_augment'. Did you mean "
            "train_aug=?",
        ),
        (
            of_folder(gp.GPUPreloadDataset),
            "transform",
            "gpupreload.GPUPreloadDataset takes no argument 'transform'. gpupreload.preload takes "
            "it.",
        ),
        (
            of_folder(gp.plan),
            "cache",
            "gpupreload.plan takes no argument 'cache'. gpupreload.preload takes it.",
        ),
        (
            of_folder(gp.check),
            "zzz",
            "gpupreload.check takes no argument 'zzz'. It takes data, workers, progress, mode, "
            "exif_orientation, decode, on_error, classes, extensions, allow_empty, on_unknown.",
        ),
        (loader, "suffle", "gpupreload.Loader takes no argument 'suffle'. Did you mean shuffle=?"),
        (
            loader,
            "device",
            "gpupreload.Loader takes no argument 'device'. gpupreload.preload takes it.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_misspelt_argument_is_named(call: Any, given: str, message: str) -> None:
    """An argument that there is not is a TypeError, which names the function and a near one."""
    with pytest.raises(TypeError) as raised:
        call(**{given: 1})
    assert str(raised.value) == message


def test_what_is_said_to_be_elsewhere_is_there() -> None:
    """Every function that a message sends people to takes that argument."""
    for function, names in _ELSEWHERE.items():
        parameters = inspect.signature(getattr(gp, function.removeprefix("gpupreload."))).parameters
        assert set(names) <= parameters.keys()
