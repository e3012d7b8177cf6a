"""A whole transform as steps that run for each batch, read without any data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchvision.transforms import v2

from gpupreload.catalog import (
    is_conversion,
    is_to_pil,
    is_to_tensor,
    kind_of,
    why_no_batch,
)
from gpupreload.errors import TransformError
from gpupreload.leaves import Leaf, check, refuse, take_apart
from gpupreload.native.mixing import Mixing, is_mixing, mixing_of
from gpupreload.native.operator import Drawer
from gpupreload.parts import Step
from gpupreload.probe import Randomness
from gpupreload.settings import name_of
from gpupreload.trace import Takes


@dataclass(frozen=True)
class MixStep:
    """A step that mixes the images of a batch, and their labels likewise.

    Attributes:
        transform: the caller's own object.
        name: it in a few words.
        mixing: its form for batches, with a draw for each sample.
        drawer: of its parameters.
    """

    transform: Any
    name: str
    mixing: Mixing
    drawer: Drawer


def read_mixing(transform: Any) -> MixStep:
    """Read MixUp, CutMix or a RandomChoice between such; a `TransformError` for all else."""
    mixing = mixing_of(transform)
    return MixStep(transform, name_of(transform), mixing, Drawer(mixing))


def read_chain(transform: Any) -> tuple[list[Step], MixStep | None]:
    """Read a transform of which every step runs for each batch.

    Args:
        transform: a transform of torchvision's v1 or v2, a `Compose` or `torch.nn.Sequential`, any
            callable from one image to one image, a list of these, or None. MixUp, CutMix or a
            RandomChoice between such may stand at the end.

    Returns:
        The steps, and the one at the end that mixes, or None.

    Raises:
        TransformError: a step cannot be used.
    """
    leaves = take_apart(transform)
    mix = None
    if leaves and not leaves[-1].mark and is_mixing(leaves[-1].transform):
        mix = read_mixing(leaves.pop().transform)
    for leaf in leaves:
        check(leaf)
        refuse(leaf, why_no_batch)
        _check_mark(leaf)
    return _steps(leaves), mix


def _check_mark(leaf: Leaf) -> None:
    if leaf.mark == "once":
        raise TransformError(
            f"{leaf} is marked gp.once, but gp.per_sample runs every step for each batch. "
            "Take it out, and run it before."
        )


def _steps(leaves: Sequence[Leaf]) -> list[Step]:
    steps = []
    takes: Takes = "tensor"
    is_tv_image = False
    for leaf in leaves:
        steps.append(_step(leaf, takes, is_tv_image))
        if is_to_pil(leaf.transform):
            takes, is_tv_image = "PIL", False
        elif is_conversion(leaf.transform):
            takes = "tensor"
            is_tv_image = _keeps_tv_image(leaf.transform, is_tv_image)
    return steps


def _keeps_tv_image(conversion: Any, is_tv_image: bool) -> bool:
    """Whether a `tv_tensors.Image` comes out of a conversion."""
    if isinstance(conversion, v2.ToImage):
        return True
    return is_tv_image and isinstance(conversion, v2.ToDtype | v2.ConvertImageDtype)


def _step(leaf: Leaf, takes: Takes, is_tv_image: bool) -> Step:
    kind = None if leaf.mark else kind_of(leaf.transform)
    randomness: Randomness = kind if kind in ("deterministic", "random") else "unknown"
    # a batch is tensors already, and ToTensor does nothing to those
    does_nothing = is_to_tensor(leaf.transform) and takes == "tensor"
    return Step(
        transform=v2.Identity() if does_nothing else leaf.transform,
        name=leaf.name,
        part="each batch",
        reason="given to gp.per_sample",
        randomness=randomness,
        call="batch" if leaf.mark == "batched" else "image",
        takes=takes,
        is_tv_image=is_tv_image,
    )
