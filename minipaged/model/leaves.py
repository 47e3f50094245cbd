"""The two leaves of the decoder: a matrix product and a norm.

All weights are made uninitialised and without gradients: the loader fills them, nothing trains.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x Wᵀ + b: (x [T, in], weight [out, in], bias [out] or None) -> [T, out]. One for a CPU may have its
weights in another order; see `packed_product.py`."""


Norm = Callable[[Tensor, Tensor, float], Tensor]
"""(x [..., size], weight [size], eps) -> x scaled to a root mean square of 1, times weight; in x's dtype."""


class Linear(nn.Module):
    """y = x Wᵀ + b. Every projection of the decoder goes through here.

    Attributes:
        product: what computes it. `F.linear`, until something sets another.
    """

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight = weight  # [out_features, in_features], or packed
        self.bias = bias  # [out_features]
        self.out_features = len(weight)
        self.product: Product = F.linear

    @classmethod
    def empty(
        cls, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> Linear:
        """One with uninitialised weights of its own."""
        return cls(
            empty_parameter(out_features, in_features, dtype=dtype, device=device),
            empty_parameter(out_features, dtype=dtype, device=device) if bias else None,
        )

    def forward(self, x: Tensor) -> Tensor:
        """[T, in_features] -> [T, out_features]."""
        return self.product(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """Scales the last dimension to a root mean square of 1 (Zhang and Sennrich, arXiv 1910.07467).

    The result is in the dtype of the input; the mean is taken in float32.

    Attributes:
        norm: what computes it. `rms_norm`, until something sets another.
    """

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = empty_parameter(size, dtype=dtype, device=device)
        self.eps = eps
        self.norm: Norm = rms_norm

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        return self.norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`Norm`, in PyTorch's terms."""
    normed = F.rms_norm(x.to(torch.float32), x.shape[-1:], eps=eps)  # [..., size]
    return weight * normed.to(x.dtype)


def empty_parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """An uninitialised parameter of this shape, without a gradient."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device=device), requires_grad=False)
