"""Drawing as one operator of torch's, so that `torch.compile` calls it and does not look inside.

Compiled, a draw would be some forty small kernels on the CPU, and a logarithm may come out with
another last bit, which is another box. As an operator a draw has the eager bits, costs no
compilation, and numbers of an epoch are arguments, for which nothing is compiled anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from gpupreload import draws, splitmix
from gpupreload.native.step import Params, Shape


class Draws(Protocol):
    """A step that draws: a `Native`, or one that mixes."""

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw the parameters of each sample: a function of its key and of the shape alone."""


_steps: WeakValueDictionary[int, Draws] = WeakValueDictionary()
_handles = itertools.count()
# what a draw looks like, without its rows: noted while a graph is made
_layouts: dict[tuple[int, ...], list[tuple[torch.dtype, torch.Size]]] = {}


class Drawer:
    """Draws for a step, eagerly or in a graph that is being made.

    Args:
        step: what draws.
    """

    def __init__(self, step: Draws) -> None:
        self.__setstate__({"step": step})

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a copy, or one that comes from another process, has a number of its own
        self.step: Draws = state["step"]
        self._handle = next(_handles)
        _steps[self._handle] = self.step

    def draw(
        self,
        seed: int,
        epoch: int | Tensor,
        indices: Tensor,
        occurrence: int | Tensor,
        number: int,
        shape: Shape,
    ) -> Params:
        """Draw the parameters of each row.

        Args:
            seed: of the keys, as the next four are; see `draws.keys`.
            epoch: the number of the epoch; in a graph also int64 [1] on the CPU.
            indices: int64 [N] on the CPU.
            occurrence: one int, or int64 [N].
            number: of the step.
            shape: (C, H, W) of the images.
        """
        if not torch.compiler.is_compiling():
            # a tensor is for graphs
            keys = draws.keys(seed, cast(int, epoch), indices, occurrence=occurrence, step=number)
            return self.step.draw(keys, shape)
        names = _names(self._handle, *shape)
        tensors = torch.ops.gpupreload.draw(
            self._handle,
            splitmix.signed(seed),
            _as_tensor(epoch),
            indices,
            _as_tensor(occurrence),
            number,
            shape,
        )
        return dict(zip(names, tensors, strict=True))


def _as_tensor(number: int | Tensor) -> Tensor:
    if isinstance(number, Tensor):
        return number
    return torch.full((1,), splitmix.signed(number), dtype=torch.int64, device="cpu")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _names(handle: int, channels: int, height: int, width: int) -> tuple[str, ...]:
    """The names of a step's parameters; while a graph is made, this is run and not traced."""
    shape = channels, height, width
    params = _steps[handle].draw(torch.zeros(1, dtype=torch.int64, device="cpu"), shape)
    _layouts[handle, *shape] = [(values.dtype, values.shape[1:]) for values in params.values()]
    return tuple(params)


def _draw(
    handle: int,
    seed: int,
    epoch: Tensor,
    indices: Tensor,
    occurrence: Tensor,
    number: int,
    shape: Sequence[int],
) -> list[Tensor]:
    counts: int | Tensor = occurrence.expand(len(indices)).contiguous()
    if len(occurrence) == 1:
        counts = int(occurrence)
    keys = draws.keys(seed, int(epoch), indices, occurrence=counts, step=number)
    channels, height, width = shape
    params = _steps[handle].draw(keys, (channels, height, width))
    return [values.clone() for values in params.values()]  # what an operator returns shares nothing


_operator = torch.library.custom_op(
    "gpupreload::draw",
    _draw,
    mutates_args=(),
    schema="(int handle, SymInt seed, Tensor epoch, Tensor indices, Tensor occurrence, int number,"
    " int[] shape) -> Tensor[]",
)


@_operator.register_fake
def _fake(
    handle: int,
    seed: int,
    epoch: Tensor,
    indices: Tensor,
    occurrence: Tensor,
    number: int,
    shape: Sequence[int],
) -> list[Tensor]:
    layout = _layouts[handle, *shape]
    return [indices.new_empty((len(indices), *rest), dtype=dtype) for dtype, rest in layout]
