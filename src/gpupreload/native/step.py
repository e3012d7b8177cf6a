"""A torchvision step in two parts: draw a parameter for each sample, and apply them to a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from gpupreload.functional.chunks import column, put_rows, take_rows

Shape = tuple[int, int, int]
Params = dict[str, Tensor]


class Native(ABC):
    """One random step of torchvision's, for whole batches.

    Drawing is apart from applying, as in torchvision's `make_params` and `transform`, so that
    parameters can be looked at, tested and replayed.
    """

    @abstractmethod
    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw the parameters of each sample: a function of its key and of the shape alone.

        Args:
            keys: int64 [N] on the CPU, as `draws.keys` gives them.
            shape: (C, H, W) of the images, in channels and pixels.

        Returns:
            Tensors on the CPU with one row a sample, by torchvision's names of the parameters.
            `applied`, bool [N], says which samples are changed, where torchvision has no name for
            that. Noise is drawn as a key, int64 [N], from which `apply` makes it where the images
            are.
        """

    @abstractmethod
    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Apply drawn parameters to a batch.

        Args:
            images: [N, C, H, W], uint8 or float, on any device; never written to.
            params: as `draw` returned them for these rows.

        Returns:
            A tensor [N, C', H', W'] of the same dtype on the same device that shares no memory with
            `images`.
        """

    @property
    def writes_in_place(self) -> bool:
        """Whether there is a `write`, which costs less than `apply`."""
        return False

    def write(self, images: Tensor, params: Mapping[str, Tensor]) -> None:
        """Do what `apply` does, in the images themselves."""
        images.copy_(self.apply(images, params))

    @property
    def keeps_shape(self) -> bool:
        """Whether images come out in the shape they came in, whatever that is."""
        return True

    def output_shape(self, shape: Shape) -> Shape:
        """The shape (C, H, W) of an image after this step; as before, unless a class says more.

        A `TransformError` says that it is not the same for all samples.
        """
        return shape

    def in_full(self, params: Mapping[str, Tensor], shape: Shape) -> Params:
        """The parameters with noise in place of its keys, as torchvision's functions take it.

        Args:
            params: as `draw` returned them.
            shape: (C, H, W) of the images.
        """
        return dict(params)


def rows_of(params: Mapping[str, Tensor], rows: Tensor) -> Params:
    """Take some samples' parameters: `rows` is int64 [K] on the CPU."""
    return {name: values.index_select(0, rows) for name, values in params.items()}


def with_prefix(prefix: str, params: Mapping[str, Tensor]) -> Params:
    """Name the parameters of a step inside another.

    >>> list(with_prefix("1", {"angle": torch.zeros(2)}))
    ['1.angle']
    """
    return {f"{prefix}.{name}": values for name, values in params.items()}


def without_prefix(prefix: str, params: Mapping[str, Tensor]) -> Params:
    """The parameters of the step that `with_prefix` named, under their own names."""
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in params.items() if k.startswith(start)}


def write_where(
    step: Native, images: Tensor, params: Mapping[str, Tensor], chosen: Tensor, into: Tensor
) -> Tensor:
    """Apply a step to the chosen rows of a batch, and leave the other rows of `into` as they are.

    Args:
        step: what to apply; it is given the chosen rows alone, except in `torch.compile`.
        images: [N, C, H, W]; not written to, unless it is `into`.
        params: of all N samples.
        chosen: bool [N] on the CPU.
        into: [N, C', H', W'], of the shape and dtype that the step's result has; written to.

    Returns:
        `into`, or a new tensor in its place.
    """
    if torch.compiler.is_compiling():
        return torch.where(column(chosen, images, torch.bool), step.apply(images, params), into)
    # the parameter is on the CPU, so that looking at it waits for no accelerator
    rows = chosen.nonzero().squeeze(1)
    if len(rows) == len(images):
        return step.apply(images, params)
    if not len(rows):
        return into
    on_device = rows.to(images.device, non_blocking=True)
    changed = step.apply(take_rows(images, on_device), rows_of(params, rows))
    if into.device.type != "cpu":
        return into.index_copy_(0, on_device, changed)
    put_rows(into, rows, changed)
    return into
