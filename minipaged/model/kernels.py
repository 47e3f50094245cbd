"""DecoderKernels: the functions that do the decoder's arithmetic, so that they can be exchanged.

The plain ones say in PyTorch's terms what is computed, on any device and in any dtype, and are what
the others are tested against. On a CPU, the loader puts faster ones in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged.model.rope import rotate

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x Wᵀ + b: (x [T, in], weight [out, in], bias [out] or None) -> [T, out]."""

Norm = Callable[[Tensor, Tensor, float], Tensor]
"""(x [..., size], weight [size], eps) -> [..., size]; see `rms_norm`."""

RotateHeads = Callable[[Tensor, int, Tensor, Tensor], Tensor]
"""(heads [T, H, D], count, cos [T, 1, D / 2], sin) -> [T, count, D]: the first `count` heads, turned; see
`rope.rotate`. It may write over `heads`."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scales the last dimension to a root mean square of 1 (Zhang and Sennrich, arXiv 1910.07467).

    Args:
        x: [..., size].
        weight: [size].
        eps: added to the mean square.

    Returns:
        [..., size], in the dtype of x; the mean is taken in float32.
    """
    normed = F.rms_norm(x.to(torch.float32), x.shape[-1:], eps=eps)  # [..., size]
    return weight * normed.to(x.dtype)


def rotate_heads(heads: Tensor, count: int, cos: Tensor, sin: Tensor) -> Tensor:
    """The plain `RotateHeads`."""
    return rotate(heads[:, :count], cos, sin)


@dataclass(frozen=True)
class DecoderKernels:
    """One function for each kind of work, attention apart."""

    product: Product = F.linear
    norm: Norm = rms_norm
    rotate_heads: RotateHeads = rotate_heads
