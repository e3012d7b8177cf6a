"""`HeldDataset`: the images of a view of a store, their labels, and giving them back."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from gpupreload.errors import FreedError
from gpupreload.resident import Preloaded
from gpupreload.source import Source
from gpupreload.store import Store
from gpupreload.view import View


class HeldDataset(Preloaded, Dataset[tuple[Tensor, int]]):
    """What holds images that are on the device already; `ResidentDataset` serves them.

    Attributes:
        classes: the class names, in order of their numbers.
        class_to_idx: the number of each class by name.
        samples: (path, label) of each image, or None where there are no paths.
        imgs: the same, as `ImageFolder` names it too.
    """

    classes: list[str]
    class_to_idx: dict[str, int]
    samples: list[tuple[str, int]] | None
    imgs: list[tuple[str, int]] | None
    _view: View | None
    _targets: list[int] | None = None  # what was read last; they are there after free() too
    _source: Source | None

    def __len__(self) -> int:
        return len(self.view)

    @property
    def view(self) -> View:
        """Which rows of which store these are; a `FreedError` where they were given back."""
        if self._view is None:
            raise FreedError(
                "this dataset's memory was given back with free(); preload the data again."
            )
        return self._view

    @property
    def store(self) -> Store:
        """What the images are kept in, with subsets; a `FreedError` where it was given back."""
        return self.view.store

    @property
    def images(self) -> Tensor:
        """The store itself, to be read: the pixels [N, C, H, W], as and where they are kept.

        uint8, or a float type where the once-part cannot be kept in uint8. Writing here would
        change every later batch. They are on `device`; with placement="host" or "disk" in a tensor
        on the CPU; with "mixed" in no one tensor, which is a `LoadingError`. Of a subset it is a
        copy of its images, made at each access.
        """
        return self.view.images

    @property
    def labels(self) -> Tensor:
        """The labels, int64 [N] on `device`, in the order of the images.

        A write, as `dataset.labels[0] = 1`, changes what is served and counted from then on: by
        `dataset[0]`, `targets`, `split`, and every epoch that is begun after it. (It has to be one
        that torch counts: not in inference mode, nor through NumPy or `.data`.) Each preload has
        labels of its own, and so has a subset, those that its samples had when it was taken; the
        same samples with another transform share theirs. `samples` keeps what the files say.
        """
        return self.view.labels.on_device

    @property
    def indices(self) -> Tensor:
        """The number of each sample in the whole dataset, int64 [N] on the CPU; to be read.

        By this number a sample draws, so that it looks the same in a subset.
        """
        return self.view.numbers

    @property
    def targets(self) -> list[int]:
        """The labels as a list, as `ImageFolder` keeps them; to change one, write to `labels`."""
        if self._view is not None or self._targets is None:
            self._targets = self.view.labels.as_list
        return self._targets

    @property
    def device(self) -> torch.device:
        """Where the images are served."""
        return self.view.store.device

    # --- giving back

    def free(self) -> int:
        """Give the memory back; using the dataset afterwards is a `FreedError`.

        The memory is given back once no subset or split of it is used any more, nor it with another
        transform: with the last of them that is freed, or that nothing refers to any more.

        Returns:
            The bytes that this call gave back: 0 where another of them lives.
        """
        view, self._view = self._view, None
        return 0 if view is None else view.store.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.free()

    def __getstate__(self) -> dict[str, Any]:
        # a source may hold what no other process can use (locks, open files, functions)
        return {**self.__dict__, "_source": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._view is not None:
            self._view.store.hold(self)
