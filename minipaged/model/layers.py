"""The two leaves of the decoder: a matrix product and a norm.

All weights are made uninitialised and without gradients: the loader fills them, nothing trains.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minipaged.model.kernels import DecoderKernels


class Linear(nn.Module):
    """y = x Wᵀ + b. Every projection of the decoder goes through here."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight = weight  # [out_features, in_features], or packed
        self.bias = bias  # [out_features]
        self.out_features = len(weight)

    @classmethod
    def empty(
        cls, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> Linear:
        """One with uninitialised weights of its own."""
        return cls(
            empty_parameter(out_features, in_features, dtype=dtype, device=device),
            empty_parameter(out_features, dtype=dtype, device=device) if bias else None,
        )

    def forward(self, x: Tensor, kernels: DecoderKernels) -> Tensor:
        """[T, in_features] -> [T, out_features]."""
        return kernels.product(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """Scales the last dimension; see `kernels.rms_norm`."""

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = empty_parameter(size, dtype=dtype, device=device)
        self.eps = eps

    def forward(self, x: Tensor, kernels: DecoderKernels) -> Tensor:
        """[..., size] -> [..., size]."""
        return kernels.norm(x, self.weight, self.eps)


def empty_parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """An uninitialised parameter of this shape, without a gradient."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device=device), requires_grad=False)
