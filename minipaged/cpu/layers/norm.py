"""The norm behind the last layer in one pass: PyTorch makes five, each with the overhead of a call."""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.cpu.compiler.calls import Call
from minipaged.cpu.compiler.threads import threads_for

NORMING = 3e-4
"""About how many microseconds a number takes."""


def cpu_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`leaves.Norm` for the CPU, of x `[T, size]` in float32 or bfloat16.

    Raises:
        ValueError: x and the weight do not fit, or are of other dtypes.
    """
    known = x.dtype == weight.dtype and x.dtype in (torch.float32, torch.bfloat16)
    if x.dim() != 2 or weight.shape != x.shape[1:] or not known:
        raise ValueError(f"x is {x.dtype} {list(x.shape)}, the weight {weight.dtype} {list(weight.shape)}")
    x = x.contiguous()
    result = torch.empty_like(x)  # [T, size]
    call_norm(x, weight, eps, result).run()
    return result


def call_norm(
    x: Tensor, weight: Tensor, eps: float, result: Tensor, *, num_threads: int | None = None
) -> Call:
    """`cpu_norm`, yet to be run. The call keeps no tensor alive that it is given.

    Args:
        x, weight, eps: as there, contiguous.
        result: `[T, size]`, written.
        num_threads: to use; as many as pay if not given.
    """
    # Here, so that nobody waits for numba who does not compute on a CPU.
    from minipaged.cpu.layers.norm_loops import NormArguments, norm_bfloat16, norm_float32

    num_rows, size = x.shape
    arguments = NormArguments(
        next_part=0,
        x=x.data_ptr(),
        num_rows=num_rows,
        size=size,
        weight=weight.data_ptr(),
        eps=eps,
        result=result.data_ptr(),
    )
    work = norm_float32 if x.dtype == torch.float32 else norm_bfloat16
    return Call(work, arguments, num_threads or threads_for(NORMING * x.numel()))
