"""The decoder's kernels for a CPU: the fastest matrix product, and the other work in single loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from minipaged.model.kernels import DecoderKernels, rms_norm, rotate_heads
from minipaged.model.linear_products import choose_product


def cpu_kernels(weights: Sequence[Tensor]) -> DecoderKernels:
    """Those to use for a model, with as many threads as torch has now.

    Args:
        weights: the model's matrices, `[out, in]` each, on the CPU; some of them are multiplied in a
            short trial.
    """
    product = choose_product(weights)
    return DecoderKernels(product=product, norm=cpu_rms_norm, rotate_heads=cpu_rotate_heads)


def cpu_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm`, in one loop where the numbers are float32."""
    if x.dtype != torch.float32:  # its result would have to be rounded twice, as `rms_norm` does
        return rms_norm(x, weight, eps)
    from minipaged.model.cpu_loops import norm_rows

    x = x.contiguous()
    result = torch.empty_like(x)  # [..., size]
    size = x.shape[-1]
    norm_rows(x.view(-1, size).numpy(), weight.numpy(), np.float32(eps), result.view(-1, size).numpy())
    return result


def cpu_rotate_heads(heads: Tensor, count: int, cos: Tensor, sin: Tensor) -> Tensor:
    """`rotate_heads`, in place where the numbers are float32."""
    if heads.dtype != torch.float32 or not heads.is_contiguous():
        return rotate_heads(heads, count, cos, sin)
    from minipaged.model.cpu_loops import rotate_in_place

    rotate_in_place(heads.numpy(), count, cos[:, 0].numpy(), sin[:, 0].numpy())
    return heads[:, :count]
