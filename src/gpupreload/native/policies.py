"""RandAugment, TrivialAugmentWide and AutoAugment with an operation of its own for every sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.native.augmix import AugMixNative
from gpupreload.native.policy_ops import NUMBER_OF, OPERATIONS
from gpupreload.native.policy_space import OperationChain, Strengths, signed
from gpupreload.native.reading import count_of
from gpupreload.native.step import Native, Params, Shape

_USUAL = Strengths(shear=0.3, translate=150.0 / 331.0, rotate=30.0, blend=0.9, bits=(8, 4))
_WIDE = Strengths(shear=0.99, translate=32.0, rotate=135.0, blend=0.99, bits=(8, 2), in_pixels=True)
_N_DRAWABLE = len(OPERATIONS) - 1  # all but Invert, which is the last


class RandAugmentNative(OperationChain):
    """`RandAugment` of v1 and v2: `num_ops` operations of 14, all with the magnitude of one bin.

    From Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search
    space", 2019.

    Args:
        transform: torchvision's instance.

    Raises:
        NoNativeFormError: as `OperationChain`; for `num_ops` and `magnitude`, the number of a
            bin, an `UnusableSettingError`.
    """

    def __init__(self, transform: v1.RandAugment | v2.RandAugment) -> None:
        super().__init__(transform, _USUAL, count_of(transform, "num_magnitude_bins", 1))
        self.num_ops = count_of(transform, "num_ops", 0)
        # as an index of torchvision's table, it may count from the end
        self.bin = count_of(transform, "magnitude", -self.n_bins, self.n_bins - 1)

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw `op_index` and `magnitude`, [N, num_ops] each."""
        op_index = torch.empty(len(keys), self.num_ops, dtype=torch.int64)
        magnitude = torch.empty(len(keys), self.num_ops, dtype=torch.float64)
        of_op = self.magnitudes(shape)[:, self.bin]
        for k in range(self.num_ops):
            op_index[:, k] = draws.integers(keys, 0, _N_DRAWABLE, first=2 * k)
            magnitude[:, k] = signed(keys, op_index[:, k], of_op[op_index[:, k]], first=2 * k + 1)
        return {"op_index": op_index, "magnitude": magnitude}


class TrivialAugmentWideNative(OperationChain):
    """`TrivialAugmentWide` of v1 and v2: one operation of 14, of any magnitude.

    From Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation",
    2021.

    Args:
        transform: torchvision's instance.

    Raises:
        NoNativeFormError: as `OperationChain`.
    """

    def __init__(self, transform: v1.TrivialAugmentWide | v2.TrivialAugmentWide) -> None:
        super().__init__(transform, _WIDE, count_of(transform, "num_magnitude_bins", 1))

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw `op_index` and `magnitude`, [N, 1] each."""
        op_index = draws.integers(keys, 0, _N_DRAWABLE)
        bins = draws.integers(keys, 0, self.n_bins, first=1)
        magnitude = signed(keys, op_index, self.magnitudes(shape)[op_index, bins], first=2)
        return {"op_index": op_index[:, None], "magnitude": magnitude[:, None]}


class AutoAugmentNative(OperationChain):
    """`AutoAugment` of v1 and v2: one of 25 pairs of operations, each made with some chance.

    From Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", 2018. The pairs
    of a policy are read from torchvision.

    Args:
        transform: torchvision's instance.

    Raises:
        NoNativeFormError: as `OperationChain`.
    """

    def __init__(self, transform: v1.AutoAugment | v2.AutoAugment) -> None:
        super().__init__(transform, _USUAL, n_bins=10)
        # v1 has them as a public attribute; v2's are the same
        pairs = v1.AutoAugment(transform.policy).policies
        self._operations = torch.tensor([[NUMBER_OF[name] for name, _, _ in p] for p in pairs])
        self._chances = torch.tensor([[p for _, p, _ in pair] for pair in pairs]).double()
        self._bins = torch.tensor([[bin or 0 for _, _, bin in pair] for pair in pairs])

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw `policy_id`, int64 [N], and `op_index` and `magnitude`, [N, 2] each.

        An operation of the pair that is not made is "Identity".
        """
        policy_id = draws.integers(keys, 0, len(self._operations))
        made = draws.uniform(keys, 2, first=1) < self._chances[policy_id]
        op_index = torch.where(made, self._operations[policy_id], NUMBER_OF["Identity"])
        sizes = self.magnitudes(shape)[op_index, self._bins[policy_id]]
        columns = zip(op_index.unbind(1), sizes.unbind(1), strict=True)
        magnitude = [signed(keys, *column, first=3 + k) for k, column in enumerate(columns)]
        return {
            "policy_id": policy_id,
            "op_index": op_index,
            "magnitude": torch.stack(magnitude, 1),
        }


POLICIES: dict[type, Callable[[Any], Native]] = {
    v1.RandAugment: RandAugmentNative,
    v2.RandAugment: RandAugmentNative,
    v1.TrivialAugmentWide: TrivialAugmentWideNative,
    v2.TrivialAugmentWide: TrivialAugmentWideNative,
    v1.AutoAugment: AutoAugmentNative,
    v2.AutoAugment: AutoAugmentNative,
    v1.AugMix: AugMixNative,
    v2.AugMix: AugMixNative,
}
"""The native form of each of torchvision's policies, by class."""
