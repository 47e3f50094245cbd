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

Rows = Callable[[Tensor, Tensor], Tensor]
"""Rows of a matrix: (ids [T] int64, weight [V, size]) -> [T, size]."""

Norm = Callable[[Tensor, Tensor, float], Tensor]
"""(x [..., size], weight [size], eps) -> [..., size]; see `rms_norm`."""

RotateHeads = Callable[[Tensor, int, Tensor, Tensor], Tensor]
"""(heads [T, H, D], count, cos [T, 1, D / 2], sin) -> [T, count, D]: the first `count` heads, turned; see
`rope.rotate`. It may write over `heads`."""

Gate = Callable[[Tensor], Tensor]
"""(gate and up side by side [T, 2 * size]) -> silu(gate) * up [T, size]."""


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


def gate(gate_up: Tensor) -> Tensor:
    """The plain `Gate`."""
    of_gate, up = gate_up.chunk(2, dim=-1)  # [T, size] each
    return F.silu(of_gate).mul_(up)


@dataclass(frozen=True)
class DecoderKernels:
    """One function for each kind of work, attention apart.

    A product may have its weights in another order than `[out, in]`, which `rows` then reads as well:
    the word embeddings often are the last product's weights (see `packed_product.py`).
    """

    product: Product = F.linear
    rows: Rows = F.embedding
    norm: Norm = rms_norm
    rotate_heads: RotateHeads = rotate_heads
    gate: Gate = gate
