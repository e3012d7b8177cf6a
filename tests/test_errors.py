"""The errors: one class to catch them all, and the built-in ones that others would catch."""

from __future__ import annotations

import pytest

import gpupreload as gp
from gpupreload import errors

CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_one_of_ours_and_a_built_in_one(cls: type[BaseException]) -> None:
    """Each error is public, and derives from GPUPreloadError and from what Python would raise."""
    assert getattr(gp, cls.__name__) is cls
    assert issubclass(cls, gp.GPUPreloadError)
    if cls is not gp.GPUPreloadError:
        assert issubclass(cls, ValueError | RuntimeError | MemoryError)


def test_a_missing_folder_is_what_imagefolder_raises() -> None:
    """A FolderError is the FileNotFoundError that torchvision raises for a missing folder."""
    with pytest.raises(FileNotFoundError) as raised:
        gp.preload("no such folder", device="cpu")
    assert isinstance(raised.value, gp.FolderError)
