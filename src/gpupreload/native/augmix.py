"""AugMix for batches: chains of operations, mixed with the image, all of every sample's own."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload import draws
from gpupreload.functional.chunks import apply, check_batch, check_rows, column, take_rows
from gpupreload.native.policy_ops import BLENDS, NUMBER_OF, OPERATIONS
from gpupreload.native.policy_space import OperationChain, Strengths, signed
from gpupreload.native.reading import count_of, number_of, unusable
from gpupreload.native.step import Params, Shape

_STRENGTHS = Strengths(shear=0.3, translate=1 / 3, rotate=30.0, blend=0.9, bits=(4, 0))
_N_BINS = 10
_LONGEST_RANDOM_CHAIN = 3
_DRAWABLE = [name for name in OPERATIONS if name not in ("Identity", "Invert")]


class AugMixNative(OperationChain):
    """`AugMix` of v1 and v2: the image and some chains of operations on it, in a weighted mean.

    From Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and
    Uncertainty", 2019.

    Args:
        transform: torchvision's instance.

    Raises:
        NoNativeFormError: as `OperationChain`; where there is no chain, or `alpha` is not above 0,
            an `UnusableSettingError`.
    """

    def __init__(self, transform: v1.AugMix | v2.AugMix) -> None:
        super().__init__(transform, _STRENGTHS, _N_BINS)
        self.width = count_of(transform, "mixture_width", 1)
        self.depth = count_of(transform, "chain_depth")
        self.severity = count_of(transform, "severity", 1, _N_BINS)
        self.alpha = number_of(transform, "alpha")
        if not 0 < self.alpha < math.inf:
            raise unusable("alpha", transform.alpha, "a finite number above 0")
        left_out = () if transform.all_ops else BLENDS
        names = [name for name in _DRAWABLE if name not in left_out]
        self._drawable = torch.tensor([NUMBER_OF[name] for name in names])

    def draw(self, keys: Tensor, shape: Shape) -> Params:
        """Draw the chains and the weights.

        Returns:
            `m`, float64 [N, 2], the weights of the image and of all chains, which sum to 1;
            `weights`, float64 [N, width], of each chain among them, which sum to 1; and `op_index`
            and `magnitude`, [N, width, depth]. Beyond the end of a shorter chain is "Identity".
        """
        m = draws.dirichlet(draws.child(keys, 0), self.alpha, 2)
        weights = draws.dirichlet(draws.child(keys, 1), self.alpha, self.width)
        table = self.magnitudes(shape)
        chains = [self._chain(draws.child(keys, 2 + i), table) for i in range(self.width)]
        op_index, magnitude = (torch.stack(values, 1) for values in zip(*chains, strict=True))
        return {"m": m, "weights": weights, "op_index": op_index, "magnitude": magnitude}

    def _chain(self, keys: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """The operations and magnitudes of one chain, [N, depth] each."""
        longest = self.depth if self.depth > 0 else _LONGEST_RANDOM_CHAIN
        lowest = longest if self.depth > 0 else 1
        depth = draws.integers(keys, lowest, longest + 1)
        ops, sizes = [], []
        for k in range(longest):
            drawn = self._drawable[draws.integers(keys, 0, len(self._drawable), first=3 * k + 1)]
            ops.append(torch.where(k < depth, drawn, NUMBER_OF["Identity"]))
            bins = draws.integers(keys, 0, self.severity, first=3 * k + 2)
            sizes.append(signed(keys, ops[-1], table[ops[-1], bins], first=3 * k + 3))
        return torch.stack(ops, 1), torch.stack(sizes, 1)

    def apply(self, images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Mix [N, C, H, W], C of 1 or 3, with its chains; for uint8, decimals are cut off.

        The chains of all rows run as one batch of N * width images.
        """
        check_batch(images, (1, 3))
        check_rows(images, **params)
        n = len(images)
        # chain by chain: the images of the first chain, those of the second, ...
        op_index, magnitude = (
            params[name].transpose(0, 1).flatten(0, 1) for name in ("op_index", "magnitude")
        )
        repeated = take_rows(images, torch.arange(n, device=images.device).repeat(self.width))
        changed = self.run(repeated, op_index, magnitude)
        # torchvision's weights are float32 before they are multiplied
        m, weights = params["m"].float(), params["weights"].float()
        shares = [column(w, images) for w in (m[:, 0], *(weights * m[:, 1:]).unbind(1))]
        chains = changed.view(self.width, *images.shape).unbind(0)
        return apply(images, _mix, *shares, *chains)


def _mix(x: Tensor, own: Tensor, *parts: Tensor) -> Tensor:
    """Mix a float batch [n, C, H, W] with the chains: their weights [n, 1, 1, 1], their images."""
    weights, changed = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    x.mul_(own)
    for weight, images in zip(weights, changed, strict=True):
        x.add_(images.to(x.dtype).mul_(weight))
    return x
