"""CompiledNorm: the norm after the last layer, in one pass.

PyTorch makes five passes, each with the overhead of a call.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minipaged.cpu.compiler.calls import Call
from minipaged.cpu.compiler.threads import threads_for
from minipaged.cpu.layers.norm_loops import NormArguments, norm_bfloat16, norm_float32
from minipaged.model.layer import RMSNorm

NORMING = 3e-4
"""About how many microseconds the norm of one number takes."""


class CompiledNorm(nn.Module):
    """An `RMSNorm` for the CPU, in float32 or bfloat16.

    Args:
        norm: the norm with the weight.
    """

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight = norm.weight  # [size]
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """[T, size] -> [T, size].

        Raises:
            ValueError: x does not fit the weight, or has another dtype.
        """
        weight = self.weight
        known = x.dtype == weight.dtype and x.dtype in (torch.float32, torch.bfloat16)
        if x.dim() != 2 or weight.shape != x.shape[1:] or not known:
            raise ValueError(
                f"x is {x.dtype} {list(x.shape)}, the weight {weight.dtype} {list(weight.shape)}"
            )
        x = x.contiguous()
        result = torch.empty_like(x)  # [T, size]
        self.call(x, result).run()
        return result

    def call(self, x: Tensor, result: Tensor, *, num_threads: int | None = None) -> Call:
        """`forward` as a call that has not run yet. It does not keep its tensors alive.

        Args:
            x: as in `forward`, contiguous.
            result: `[T, size]`. It is overwritten.
            num_threads: number of threads to use. If it is not given, the amount of work decides.
        """
        num_rows, size = x.shape
        arguments = NormArguments(
            next_part=0,
            x=x.data_ptr(),
            num_rows=num_rows,
            size=size,
            weight=self.weight.data_ptr(),
            eps=self.eps,
            result=result.data_ptr(),
        )
        work = norm_float32 if x.dtype == torch.float32 else norm_bfloat16
        return Call(work, arguments, num_threads or threads_for(NORMING * x.numel()))
