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


@torch.inference_mode()
def use_cpu_kernels(decoder: Decoder) -> None:
    """Give a decoder on the CPU the kernels that are fastest with as many threads as torch has now, and
    put its matrices in the order that they read.

    A short trial multiplies some of the matrices. One after the other is then packed, so that no more
    than one is in memory twice. A small model is packed without a trial, which would take longer than all
    that the model may ever lose by it; and loading it does not wait for numba.
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
        in_rows: the one for those in rows.
    """

    in_rows: Product

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return packed_linear(x, weight, bias) if is_packed(weight) else self.in_rows(x, weight, bias)


def cpu_rows(ids: Tensor, weight: Tensor) -> Tensor:
    """`Rows`, of a matrix in panels or in rows."""
    return packed_rows(ids, weight) if is_packed(weight) else F.embedding(ids, weight)


def cpu_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm`, in one loop where the numbers are float32."""
    if x.dtype != torch.float32:  # its result would have to be rounded twice, as `rms_norm` does
        return rms_norm(x, weight, eps)
    from minipaged.model.cpu_loops import NormArguments, norm_rows

    x = x.contiguous()
    result = torch.empty_like(x)  # [..., size]
    size = len(weight)
    num_rows = x.numel() // size
    arguments = NormArguments(0, num_rows, size, x.data_ptr(), weight.data_ptr(), eps, result.data_ptr())
    run_on_threads(norm_rows, arguments, threads_for(3e-4 * x.numel()))
    return result


def cpu_rotate_heads(heads: Tensor, count: int, cos: Tensor, sin: Tensor) -> Tensor:
    """`rotate_heads`, in place where the numbers are float32."""
    if heads.dtype != torch.float32 or not heads.is_contiguous():
        return rotate_heads(heads, count, cos, sin)
    from minipaged.model.cpu_loops import RotationArguments, rotate_tokens

    addresses = heads.data_ptr(), cos.data_ptr(), sin.data_ptr()
    num_tokens, num_heads, head_dim = heads.shape
    arguments = RotationArguments(0, num_tokens, num_heads, count, head_dim, *addresses)
    run_on_threads(rotate_tokens, arguments, threads_for(3e-4 * heads.numel()))
    return heads[:, :count]


def cpu_gate(gate_up: Tensor) -> Tensor:
    """`gate`, in one loop where the numbers are float32."""
    if gate_up.dtype != torch.float32 or not gate_up.is_contiguous():
        return gate(gate_up)
    from minipaged.model.cpu_loops import GateArguments, gate_rows

    num_rows, size = len(gate_up), gate_up.shape[1] // 2
    result = torch.empty(num_rows, size)
    arguments = GateArguments(0, num_rows, size, gate_up.data_ptr(), result.data_ptr())
    run_on_threads(gate_rows, arguments, threads_for(1e-3 * result.numel()))
    return result
