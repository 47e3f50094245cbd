"""The decoder's kernels for a CPU: the fastest matrix product, and the other work in single loops."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged.cpu.threads import run_on_threads, threads_for
from minipaged.model.decoder import Decoder
from minipaged.model.kernels import DecoderKernels, Product, gate, rms_norm, rotate_heads
from minipaged.model.linear_products import TRIAL_BYTES, ProductChoice, choose_product, packing_pays
from minipaged.model.packed_product import can_pack, is_packed, packed, packed_linear, packed_rows

NORMING, ROTATING, GATING = 3e-4, 3e-4, 1e-3
"""About how many microseconds each takes for one number."""


@torch.inference_mode()
def use_cpu_kernels(decoder: Decoder) -> None:
    """Give a decoder on the CPU its kernels, and put its matrices in the order that they read.

    A short trial multiplies some of the matrices, with as many threads as torch has now. One after the
    other is then packed, so that no more than one is in memory twice. A small model is packed without a
    trial, which would take longer than all that the model may ever lose by it; and loading it does not wait
    for numba.
    """
    weights = decoder.matrices()
    small = sum(weight.nbytes for weight in weights) < TRIAL_BYTES
    product = ProductChoice() if small else choose_product(weights)
    if small or packing_pays(weights, product):
        for weight in weights:
            if can_pack(weight):
                weight.data = packed(weight.data)
    decoder.kernels = DecoderKernels(
        product=CpuProduct(product),
        rows=cpu_rows,
        norm=cpu_rms_norm,
        rotate_heads=cpu_rotate_heads,
        gate=cpu_gate,
    )


@dataclass(frozen=True)
class CpuProduct:
    """A `Product` for matrices in panels and in rows.

    Attributes:
        of_rows: the one for those in rows.
    """

    of_rows: Product

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return packed_linear(x, weight, bias) if is_packed(weight) else self.of_rows(x, weight, bias)


def cpu_rows(ids: Tensor, weight: Tensor) -> Tensor:
    """`Rows`, of a matrix in panels or in rows."""
    return packed_rows(ids, weight) if is_packed(weight) else F.embedding(ids, weight)


def cpu_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm`, in one loop where the numbers are float32."""
    if not x.dtype == weight.dtype == torch.float32 or weight.shape != x.shape[-1:]:
        return rms_norm(x, weight, eps)  # bfloat16 has to be rounded twice
    from minipaged.model.cpu_loops import NormArguments, norm_rows

    x, weight = x.contiguous(), weight.contiguous()
    result = torch.empty_like(x)  # [..., size]
    size = len(weight)
    arguments = NormArguments(
        next_part=0,
        num_rows=x.numel() // size,
        size=size,
        x=x.data_ptr(),
        weight=weight.data_ptr(),
        eps=eps,
        result=result.data_ptr(),
    )
    run_on_threads(norm_rows, arguments, threads_for(NORMING * x.numel()))
    return result


def cpu_rotate_heads(heads: Tensor, count: int, cos: Tensor, sin: Tensor) -> Tensor:
    """`rotate_heads`, in place where the numbers are float32 and lie one behind the other."""
    num_tokens, num_heads, head_dim = heads.shape
    whole = all(each.is_contiguous() and each.dtype == torch.float32 for each in (heads, cos, sin))
    if not whole or not cos.shape == sin.shape == (num_tokens, 1, head_dim // 2):
        return rotate_heads(heads, count, cos, sin)
    from minipaged.model.cpu_loops import RotationArguments, rotate_tokens

    arguments = RotationArguments(
        next_part=0,
        num_tokens=num_tokens,
        num_heads=num_heads,
        num_rotated=min(count, num_heads),
        head_dim=head_dim,
        heads=heads.data_ptr(),
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
    )
    run_on_threads(rotate_tokens, arguments, threads_for(ROTATING * heads.numel()))
    return heads[:, :count]


def cpu_gate(gate_up: Tensor) -> Tensor:
    """`gate`, in one loop where the numbers are float32."""
    if gate_up.dtype != torch.float32 or not gate_up.is_contiguous():
        return gate(gate_up)
    from minipaged.model.cpu_loops import GateArguments, gate_rows

    num_rows, size = len(gate_up), gate_up.shape[1] // 2
    result = gate_up.new_empty(num_rows, size)
    arguments = GateArguments(
        next_part=0,
        num_rows=num_rows,
        size=size,
        gate_up=gate_up.data_ptr(),
        result=result.data_ptr(),
    )
    run_on_threads(gate_rows, arguments, threads_for(GATING * result.numel()))
    return result
