"""The three leaves of the decoder: word embeddings, a matrix product and a norm.

All weights are made uninitialised and without gradients: the loader fills them, nothing trains.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embedding(nn.Module):
    """A row of numbers for each token of the vocabulary."""

    def __init__(self, num_rows: int, size: int, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = empty_parameter(num_rows, size, dtype=dtype, device=device)

    def forward(self, token_ids: Tensor) -> Tensor:
        """[T] int64 -> [T, size]."""
        return F.embedding(token_ids, self.weight)


class Linear(nn.Module):
    """y = x Wᵀ + b. Every projection of the decoder goes through here."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight = weight  # [out_features, in_features]
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

    def forward(self, x: Tensor) -> Tensor:
        """[T, in_features] -> [T, out_features]."""
        return F.linear(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """Scales the last dimension to a root mean square of 1 (Zhang and Sennrich, arXiv 1910.07467).

    The result is in the dtype of the input; the mean is taken in float32.
    """

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = empty_parameter(size, dtype=dtype, device=device)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        normed = F.rms_norm(x.to(torch.float32), x.shape[-1:], eps=self.eps)  # [..., size]
        return self.weight * normed.to(x.dtype)


def empty_parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """An uninitialised parameter of this shape, without a gradient."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device=device), requires_grad=False)
