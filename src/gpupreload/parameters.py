"""`parameters_of`: what was drawn for each sample, by torchvision's names, to see or replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor

from gpupreload.batch_checks import as_numbers, check_batch, checked_indices
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError
from gpupreload.loader import Loader
from gpupreload.native.step import Params, Shape
from gpupreload.per_sample import PerSample, draw_mix
from gpupreload.rows import Rows
from gpupreload.source import describe
from gpupreload.stages import Drawn, OnBatch, Pixelwise, SampleBySample, Stage
from gpupreload.table import Table, counted

_MOST_SHOWN = 4


@dataclass(frozen=True, eq=False, repr=False)
class StepParameters(Mapping[str, Tensor]):
    """The parameters of one step, by torchvision's names; each tensor has one row a sample.

    Attributes:
        transform: the step itself.
        name: the step in a few words.
        shape: (C, H, W) of the images that come to the step.
        tensors: each parameter, on the CPU. Empty for a step that draws nothing.
    """

    transform: Any
    name: str
    shape: Shape
    tensors: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def row(self, i: int) -> dict[str, Any]:
        """The parameters of row i, as torchvision's functions take them.

        Single numbers are Python's; what is several numbers, or an image, is a tensor.
        """
        rows = {name: values[i] for name, values in self.tensors.items()}
        return {name: value if value.ndim else value.item() for name, value in rows.items()}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}: {_shape(v)} {_dtype(v)}" for k, v in self.tensors.items())
        return f"{self.name}: {shown or 'draws nothing'}"


@dataclass(frozen=True, eq=False, repr=False)
class Parameters(Sequence[StepParameters]):
    """What was drawn for some samples, step by step; printed, a table with the first sample's.

    `parameters[0]` is the first step, `parameters["ColorJitter"]` the one of that class.

    Attributes:
        steps: every step in order of running, those that draw nothing included.
        indices: int64 [N], the sample number of each row.
        epoch: that was drawn for.
        seed: that was drawn from.
    """

    steps: tuple[StepParameters, ...]
    indices: Tensor
    epoch: int
    seed: int
    occurrence: int | Tensor = field(default=0)

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, step: int | str) -> StepParameters: ...
    @overload
    def __getitem__(self, step: slice) -> Sequence[StepParameters]: ...
    def __getitem__(self, step: Any) -> Any:
        if not isinstance(step, str):
            return self.steps[step]
        found = [s for s in self.steps if step in (type(s.transform).__name__, s.name)]
        if len(found) != 1:
            names = ", ".join(f"{i}: {s.name}" for i, s in enumerate(self.steps)) or "none"
            raise ArgumentError(
                f"{step!r} names {len(found)} of the steps; expected the class of one, or its "
                f"number. The steps are {names}."
            )
        return found[0]

    @property
    def table(self) -> Table:
        """The parameters as a table: name, shape, dtype, and the value of the first row."""
        rows = [row for number, step in enumerate(self.steps) for row in _table_rows(number, step)]
        first = f"sample {int(self.indices[0])}" if len(self.indices) else "first"
        note = f"{counted(len(self.indices), 'sample')}, epoch {self.epoch}, seed {self.seed}"
        return Table(tuple(rows), ("", "step", "parameter", "tensor", first), note=note, right=(0,))

    def __str__(self) -> str:
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def parameters_of(
    source: GPUPreloadDataset | Loader | PerSample,
    images: Tensor | None = None,
    *,
    indices: Tensor | Sequence[int] | None = None,
    epoch: int | None = None,
    seed: int | None = None,
    occurrence: int | Tensor = 0,
) -> Parameters:
    """Return the parameters that are drawn for some samples in an epoch, without drawing anew.

    They are a function of (seed, epoch, index, occurrence, step, shape of the images), so that the
    picture a model saw can be made again, with torchvision's own functions and these numbers. To
    know the shape before each step, the steps are run on the first image.

    Noise comes in full, as large as the images. What runs sample by sample, and a `gp.batched`
    callable, has one parameter, `seed`: what the global generators of torch, Python and (by its
    lowest 32 bits) NumPy are set to before it is called; for `gp.batched` it is that of a batch of
    just these samples. A container's steps have their numbers before their names: `choice`,
    `0.angle`. A policy's `op_index` counts in `gpupreload.native.policy_ops.OPERATIONS`. The
    partner of row i in MixUp and CutMix is row i - 1 of the batch.

    Args:
        source: a dataset, a loader, or a module from `per_sample`.
        images: for a module, the batch [N, C, H, W] that it is called with.
        indices: int64 [N] or a list: sample numbers in the dataset; for a module None numbers the
            rows from 0, as its call does.
        epoch: None takes the epoch that a dataset was set to, that a loader began last, or that of
            a module's last call without an epoch.
        seed: None takes that of the dataset, loader or module.
        occurrence: how often each sample came before in this epoch.

    Raises:
        ArgumentError: `source` is something else, or an argument is missing, or is not for it.

    >>> from torchvision.transforms import v2
    >>> from gpupreload.per_sample import per_sample
    >>> rotate = per_sample(v2.RandomRotation(30), seed=0)
    >>> drawn = parameters_of(rotate, torch.zeros(2, 3, 8, 8), indices=[7, 9], epoch=0)
    >>> drawn["RandomRotation"]["angle"]
    tensor([18.3077, 12.5579], dtype=torch.float64)
    """
    module = _module_of(source)
    if isinstance(source, PerSample):
        first, numbers = _from_batch(images, indices)
    else:
        first, numbers = _from_store(source, images, indices)
    epoch = _epoch_of(source) if epoch is None else epoch
    seed = source.seed if seed is None else seed
    rows = Rows(seed, epoch, _in_whole(source, numbers), occurrence)
    mix = source.mix_step if isinstance(source, Loader) else module.mix
    steps, last = _run_on_one(module, first, rows)
    if mix is not None:
        values = draw_mix(mix, rows, module.n_drawing, last)
        steps.append(StepParameters(mix.transform, mix.name, _shape_of(last), values))
    return Parameters(tuple(steps), numbers, epoch, seed, occurrence)


def _module_of(source: Any) -> PerSample:
    if isinstance(source, PerSample):
        return source
    dataset = source.dataset if isinstance(source, Loader) else source
    if not isinstance(dataset, GPUPreloadDataset):
        raise ArgumentError(
            f"source is {describe(source)}; expected a GPUPreloadDataset, a gpupreload.Loader, or "
            "a module from gpupreload.per_sample."
        )
    return dataset.each_batch


def _from_batch(
    images: Tensor | None, indices: Tensor | Sequence[int] | None
) -> tuple[Tensor, Tensor]:
    """The first image of a module's batch, as a batch of one, and the sample numbers."""
    if images is None:
        raise ArgumentError(
            "images is None; expected the batch that the module is called with, for what is drawn "
            "depends on its shape: parameters_of(module, images, indices=..., epoch=...)."
        )
    check_batch(images)
    return images[:1].clone(), checked_indices(indices, images)


def _from_store(
    source: GPUPreloadDataset | Loader,
    images: Tensor | None,
    indices: Tensor | Sequence[int] | None,
) -> tuple[Tensor, Tensor]:
    """The first image of the store that is asked for, as a batch of one, and the numbers."""
    dataset = source.dataset if isinstance(source, Loader) else source
    if images is not None or indices is None:
        raise ArgumentError(
            f"images is {'None' if images is None else describe(images)} and indices is "
            f"{'None' if indices is None else describe(indices)}; expected indices alone, the "
            "numbers of samples in the dataset, such as indices=[0, 1]."
        )
    numbers = as_numbers(indices).cpu().reshape(-1)
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise ArgumentError(
            f"indices is {describe(numbers)}; expected whole numbers of samples. Of a mask, pass "
            "mask.nonzero()."
        )
    numbers = numbers.to(torch.int64)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(dataset):
        raise ArgumentError(
            f"indices run from {int(numbers.min())} to {int(numbers.max())}; expected sample "
            f"numbers from 0 to {len(dataset) - 1}."
        )
    view = dataset.view
    return view.store.take(view.rows_of(numbers[:1])), numbers


def _in_whole(source: GPUPreloadDataset | Loader | PerSample, indices: Tensor) -> Tensor:
    """The numbers in the whole dataset of samples of a subset, by which they draw."""
    if isinstance(source, PerSample):
        return indices
    dataset = source.dataset if isinstance(source, Loader) else source
    return dataset.view.numbers_of(indices)


def _epoch_of(source: GPUPreloadDataset | Loader | PerSample) -> int:
    if isinstance(source, PerSample):
        return max(0, source.n_calls - 1)
    if source.epoch is None:
        raise ArgumentError(
            "epoch is None, and the dataset is set to none, so that every reading draws anew; "
            "expected the number of an epoch, such as epoch=0."
        )
    return source.epoch


def _run_on_one(
    module: PerSample, image: Tensor, rows: Rows
) -> tuple[list[StepParameters], Tensor]:
    """The parameters of all rows, step by step, and what the first row comes to in the end."""
    occurrence = rows.occurrence[:1] if isinstance(rows.occurrence, Tensor) else rows.occurrence
    first = Rows(rows.seed, rows.epoch, rows.indices[:1], occurrence)
    names = iter(module.steps)
    found = []
    for stage in module.stages:
        shape = _shape_of(image)
        for values in _values(stage, rows, shape):
            step = next(names)
            found.append(StepParameters(step.transform, step.name, shape, values))
        image = stage(image, first)
    return found, image


def _values(stage: Stage, rows: Rows, shape: Shape) -> Iterator[Params]:
    """The parameters of each step of a stage."""
    if isinstance(stage, Drawn):
        yield stage.native.in_full(stage.draw(rows, shape), shape)
    elif isinstance(stage, SampleBySample):
        for number, step in stage.steps:
            draws = step.randomness != "deterministic"
            yield {"seed": rows.keys(number)} if draws else {}
    elif isinstance(stage, Pixelwise):
        yield from ({} for _ in stage.steps)
    else:
        yield _of_batch(stage, rows)


def _of_batch(stage: OnBatch, rows: Rows) -> Params:
    if stage.step.randomness == "deterministic":
        return {}
    keys = rows.keys(stage.number)
    return {"seed": keys.sum().expand(len(keys))}


def _shape_of(images: Tensor) -> Shape:
    channels, height, width = images.shape[1:]
    return channels, height, width


def _table_rows(number: int, step: StepParameters) -> Iterator[tuple[str, ...]]:
    yield from (
        (
            "" if i else str(number),
            "" if i else step.name,
            name,
            f"{_shape(values)} {_dtype(values)}",
            _shown(values),
        )
        for i, (name, values) in enumerate(step.items())
    )
    if not step:
        yield str(number), step.name, "", "", ""


def _shape(values: Tensor) -> str:
    return "×".join(str(side) for side in values.shape)


def _dtype(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _shown(values: Tensor) -> str:
    """The value of the first row, where it is a few numbers."""
    if not len(values) or values[0].numel() > _MOST_SHOWN:
        return "…" if len(values) else ""
    numbers = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values[0].flatten().tolist()]
    return ", ".join(numbers)
