"""The arguments of a `Loader`, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import Subset

from gpupreload.arguments import whole_number
from gpupreload.chains import MixStep, read_mixing
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError, LoadingError, TransformError
from gpupreload.fetched import IGNORED_TRANSFORM, has_ignored_transform
from gpupreload.source import describe

DATA_LOADER_ONLY = {
    "batch_sampler": None,
    "collate_fn": None,
    "generator": None,
    "in_order": True,
    "multiprocessing_context": None,
    "persistent_workers": False,
    "pin_memory_device": "",
    "prefetch_factor": None,
    "timeout": 0,
    "worker_init_fn": None,
}
"""What a `DataLoader` takes and a `Loader` does not, each with the value that asks for nothing."""

_INSTEAD = {
    "batch_sampler": "a Loader makes the batches itself. Pass a sampler of sample numbers as "
    "sampler=, and batch_size=.",
    "collate_fn": "a Loader makes batches on the device. Put what it does into the transform, "
    "where gp.batched(fn) is called on whole batches, or use torch.utils.data.DataLoader.",
    "generator": "a Loader's order and draws are a function of a seed and the epoch. Pass seed= "
    "instead, such as seed=generator.initial_seed().",
    "pin_memory_device": "there is nothing to pin: the images are on the device already. Leave it "
    "out.",
}
_NO_WORKERS = (
    "a Loader has no worker processes: the images are on the device already. Leave it out."
)
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def resident(dataset: Any) -> GPUPreloadDataset:
    """The dataset itself, or of a torch `Subset` of one the part of it, over the same memory."""
    if isinstance(dataset, GPUPreloadDataset):
        if type(dataset).__getitem__ is not GPUPreloadDataset.__getitem__:
            raise ArgumentError(
                f"dataset is {describe(dataset)}, whose class has a __getitem__ of its own, which "
                "a Loader would pass over. Put what it does into the transform, or use "
                "torch.utils.data.DataLoader."
            )
        return dataset
    held = _within(dataset)
    if not isinstance(held, GPUPreloadDataset):
        raise ArgumentError(
            f"dataset is {describe(dataset)}; expected a GPUPreloadDataset, as "
            "gpupreload.preload(data, transform) returns. torch.utils.data.DataLoader takes others."
        )
    if type(dataset).__getitem__ is not Subset.__getitem__:
        raise ArgumentError(
            f"dataset is {describe(dataset)}, a Subset with a way of reading of its own, which a "
            "Loader would pass over. Pass dataset.subset(indices).with_transform(transform), or "
            "use torch.utils.data.DataLoader."
        )
    if has_ignored_transform(dataset):
        raise TransformError(IGNORED_TRANSFORM)
    return resident(dataset.dataset).subset(dataset.indices)


def _within(dataset: Any) -> Any:
    """What a torch `Subset`, also one of another, is taken from."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def checked_batch_size(batch_size: Any) -> int:
    """Return it as an int; an `ArgumentError` where it is no number of images."""
    number = whole_number(batch_size)
    if number is None or number < 1:
        raise ArgumentError(
            f"batch_size is {batch_size!r}; expected the number of images in a batch, 1 or more."
        )
    return number


def checked_mix(mix: Any, dataset: GPUPreloadDataset) -> MixStep:
    """Read what mixes; on an accelerator a label that is no class could only give NaN later."""
    step = read_mixing(mix)
    n_classes = step.mixing.num_classes
    if n_classes is None:
        raise ArgumentError(
            f"mix is {step.name}, whose num_classes is None; expected the number of classes, for "
            f"the labels are mixed too. Pass num_classes={len(dataset.classes)} to it."
        )
    _check_labels(step, n_classes, dataset)
    return step


def _check_labels(step: MixStep, n_classes: int, dataset: GPUPreloadDataset) -> None:
    """Refuse labels that are no classes for the step, and say what to change."""
    lowest, highest = min(dataset.targets, default=0), max(dataset.targets, default=0)
    if lowest < 0:
        raise ArgumentError(
            f"mix is {step.name}, but labels hold {lowest}; expected 0 to {n_classes - 1}. Correct "
            "the labels."
        )
    if highest >= n_classes:
        n_named = len(dataset.classes)
        way = f"Pass num_classes={n_named} to it."
        if highest >= n_named:
            way = (
                f"Correct the labels, for there are {n_named} classes, or pass "
                f"num_classes={highest + 1} to it."
            )
        raise ArgumentError(
            f"mix is {step.name}, but labels run up to {highest}; expected num_classes to be "
            f"larger. {way}"
        )


def check_format(dtype: Any, memory_format: Any) -> None:
    """Raise an `ArgumentError` for a dtype or memory format that batches cannot have."""
    if dtype not in _DTYPES:
        raise ArgumentError(
            f"dtype is {dtype!r}; expected torch.float32, float16, bfloat16 or float64. For uint8, "
            "leave the steps that make floats out of the transform."
        )
    if memory_format not in (torch.contiguous_format, torch.channels_last):
        raise ArgumentError(
            f"memory_format is {memory_format!r}; expected torch.contiguous_format or "
            "torch.channels_last."
        )


def check_no_workers(num_workers: int, pin_memory: bool) -> None:
    """Raise a `LoadingError` where workers or pinned memory are asked for."""
    if num_workers:
        raise LoadingError(
            f"num_workers is {num_workers}, but a Loader has no worker processes: the images are "
            "on the device already. Leave num_workers out."
        )
    if pin_memory:
        raise LoadingError(
            "pin_memory is True, but there is nothing to pin: the images are on the device "
            "already. Leave pin_memory out."
        )


def check_no_others(others: Mapping[str, Any]) -> None:
    """Raise a `LoadingError` where something is asked for that only a `DataLoader` does."""
    for name, value in others.items():
        nothing = DATA_LOADER_ONLY.get(name, value)
        if value is not nothing and value != nothing:
            came = repr(value) if isinstance(value, bool | int | float | str) else describe(value)
            raise LoadingError(f"{name} is {came}, but {_INSTEAD.get(name, _NO_WORKERS)}")
