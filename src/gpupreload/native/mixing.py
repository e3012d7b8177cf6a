"""MixUp and CutMix with a weight of its own for every sample, and a choice between them.

As in torchvision, the partner of row i is row i - 1 of the batch, and that of the first row is the
last: what comes out depends on which images come together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.errors import ArgumentError, TransformError
from gpupreload.functional.choose import choose
from gpupreload.functional.chunks import check_batch, column
from gpupreload.functional.mix import cutmix, cutmix_lam, mixup, soft_labels
from gpupreload.native.step import Params, Shape, with_prefix, without_prefix
from gpupreload.settings import name_of
from gpupreload.source import describe


class Mixing(ABC):
    """A step that mixes the images of a batch with each other, and their labels likewise.

    Args:
        num_classes: the length of the soft labels, or None where labels come as probabilities.
    """

    def __init__(self, num_classes: int | None) -> None:
        self.num_classes = num_classes

    @abstractmethod
    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw the parameters of each sample.

        Args:
            keys: int64 [N] on the CPU, as `draws.keys` gives them.
            shape: (C, H, W) of the images, in channels and pixels.

        Returns:
            Tensors on the CPU with one row a sample, by torchvision's names of the parameters.
        """

    @abstractmethod
    def mix(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Mix each image of [N, C, H, W] with its partner; a new batch."""

    @abstractmethod
    def lam(self, params: Mapping[str, Tensor]) -> Tensor:
        """The weight of each sample's own label, float64 [N] on the CPU."""

    def apply(
        self, images: Tensor, labels: Tensor, params: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Mix a batch and its labels.

        Args:
            images: [N, C, H, W], float, or uint8 for CutMix, on any device; never written to.
            labels: int64 [N], or probabilities [N, num_classes], on any device.
            params: as `draw` returned them for these rows.

        Returns:
            The images, and soft labels [N, num_classes]: float32, or the dtype of `labels` where
            these are floats. On an accelerator a label that is no class gives a row of NaN: to
            raise, it would have to be waited for.

        Raises:
            ArgumentError: `images` is no such batch, or `labels` do not go with it or with
                `num_classes`.
        """
        check_batch(images)
        _check_labels(labels, images, self.num_classes)
        weights = self.lam(params)
        soft = soft_labels(labels, partners(len(labels)), weights, self.num_classes)
        return self.mix(images, params), soft


class MixUpNative(Mixing):
    """`v2.MixUp` with a λ for every sample: the mean of two images, weighted λ and 1 - λ.

    From Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.

    Args:
        transform: torchvision's instance.
    """

    def __init__(self, transform: v2.MixUp) -> None:
        super().__init__(transform.num_classes)
        self.alpha = float(transform.alpha)

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw `lam`, float64 [N], of the distribution Beta(alpha, alpha)."""
        return {"lam": draws.beta(keys, self.alpha, self.alpha)}

    def mix(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `lam * images + (1 - lam) * partners`, for floats."""
        return mixup(images, partners(len(images)), params["lam"])

    def lam(self, params: Mapping[str, Tensor]) -> Tensor:
        """λ itself."""
        return params["lam"]


class CutMixNative(Mixing):
    """`v2.CutMix` with a box for every sample, which shows the partner.

    From Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features", 2019.

    Args:
        transform: torchvision's instance.
    """

    def __init__(self, transform: v2.CutMix) -> None:
        super().__init__(transform.num_classes)
        self.alpha = float(transform.alpha)

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw the boxes.

        A box covers 1 - λ of the image, with λ of Beta(alpha, alpha), around a middle drawn from
        all pixels; what reaches over the edge is cut off.

        Returns:
            `box`, int64 [N, 4], each (x1, y1, x2, y2) in pixels, the last two beyond the box; and
            `lam_adjusted`, float64 [N], the share of the image that the box leaves.
        """
        _, height, width = shape
        half = 0.5 * (1.0 - draws.beta(keys, self.alpha, self.alpha)).sqrt()
        sides = torch.tensor([width, height])
        reach = (half[:, None] * sides).to(torch.int64)
        middle = (draws.uniform(keys, 2, first=1) * sides).to(torch.int64)
        low, high = (middle - reach).clamp(min=0), torch.minimum(middle + reach, sides)
        box = torch.cat([low, high], 1)
        return {"box": box, "lam_adjusted": cutmix_lam(box, height, width)}

    def mix(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Show the partner inside each box, for uint8 and floats."""
        return cutmix(images, partners(len(images)), params["box"])

    def lam(self, params: Mapping[str, Tensor]) -> Tensor:
        """The share of the image that is its own."""
        return params["lam_adjusted"]


class MixChoice(Mixing):
    """`RandomChoice` between mixing steps, made for every sample.

    Args:
        transform: torchvision's instance, of v1 or v2.

    Raises:
        TransformError: it holds a step that does not mix, or its steps differ in `num_classes`.
    """

    def __init__(self, transform: v1.RandomChoice | v2.RandomChoice) -> None:
        self.steps = [mixing_of(step) for step in transform.transforms]
        numbers = {step.num_classes for step in self.steps}
        if len(numbers) > 1:
            raise TransformError(
                f"RandomChoice holds steps of {sorted(numbers, key=str)} num_classes; expected one "
                "number, for the soft labels of a batch have one length."
            )
        super().__init__(*numbers)
        chances = transform.p if transform.p is not None else [1] * len(self.steps)
        self._chances = torch.tensor(chances, dtype=torch.float64)

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw `choice`, int64 [N], and the parameters of all steps, as `0.lam`, `1.box`."""
        params = {"choice": draws.choice(keys, self._chances)}
        for number, step in enumerate(self.steps):
            drawn = step.draw(draws.child(keys, number), shape)
            params |= with_prefix(str(number), drawn)
        return params

    def mix(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Mix each image as its step does; all steps run on all images."""
        first, *others = (
            step.mix(images, without_prefix(str(number), params))
            for number, step in enumerate(self.steps)
        )
        for number, mixed in enumerate(others, start=1):
            chosen = params["choice"] == number
            first = choose(column(chosen, images, torch.bool), mixed, first)
        return first

    def lam(self, params: Mapping[str, Tensor]) -> Tensor:
        """The weight that each sample's step gives."""
        weights = [
            step.lam(without_prefix(str(number), params)) for number, step in enumerate(self.steps)
        ]
        return torch.stack(weights, 1).gather(1, params["choice"][:, None]).squeeze(1)


MIXING: dict[type, Callable[[Any], Mixing]] = {
    v2.MixUp: MixUpNative,
    v2.CutMix: CutMixNative,
    v1.RandomChoice: MixChoice,
    v2.RandomChoice: MixChoice,
}
"""The form for batches of each transform that may mix, by class."""


def is_mixing(transform: Any) -> bool:
    """Whether a transform takes images and labels: MixUp, CutMix, or a RandomChoice with one.

    >>> is_mixing(v2.CutMix(num_classes=10)), is_mixing(v2.RandomChoice([v2.Identity()]))
    (True, False)
    """
    if type(transform) in (v1.RandomChoice, v2.RandomChoice):
        return any(is_mixing(step) for step in transform.transforms)
    return type(transform) in (v2.MixUp, v2.CutMix)


def mixing_of(transform: Any) -> Mixing:
    """Return the form for batches of a transform that mixes.

    Args:
        transform: `v2.MixUp`, `v2.CutMix`, or a `RandomChoice` of v1 or v2 between such.

    Raises:
        TransformError: it is something else, or a `RandomChoice` holds something else.
    """
    make = MIXING.get(type(transform))
    if make is None:
        raise TransformError(
            f"{name_of(transform)} mixes no images and labels; expected v2.MixUp, v2.CutMix, or a "
            "RandomChoice that holds nothing else. Steps on single images belong before the mixing."
        )
    return make(transform)


def partners(n: int) -> Tensor:
    """The row that each row of a batch is mixed with, as torchvision takes it: int64 [n].

    >>> partners(4)
    tensor([3, 0, 1, 2])
    """
    return torch.arange(n).roll(1)


def _check_labels(labels: Tensor, images: Tensor, num_classes: int | None) -> None:
    """Refuse what can be seen from shapes and dtypes, on any device."""
    if not isinstance(labels, Tensor) or labels.shape[:1] != images.shape[:1]:
        raise ArgumentError(
            f"labels is {describe(labels)} for {len(images)} images; expected a tensor with one "
            "label for each."
        )
    if labels.ndim == 1 and num_classes is None:
        raise ArgumentError(
            "num_classes is None and labels are numbers of classes; expected "
            "num_classes=<number of classes> in the transform, or labels as probabilities "
            "[N, num_classes]."
        )
    if labels.ndim == 1 and (labels.is_floating_point() or labels.dtype == torch.bool):
        raise ArgumentError(
            f"labels is {describe(labels)}; expected the numbers of classes as int64, or "
            "probabilities [N, num_classes]. Convert them with labels.long()."
        )
