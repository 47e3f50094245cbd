"""Compiles the kernels of fused layers without a GPU, and prints the resources that they need as JSON.

It runs in its own process, because other tests turn Triton's interpreter on and never off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from minipaged.bench.kernel_compile import registers_and_spills
from minipaged.triton_kernels import layer_kernels

KERNELS = ("add_norm_kernel", "rotate_kernel", "silu_times_kernel")
POINTERS = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}


class Compiled:
    """Takes the place of a kernel. A launch compiles it, for the launch's arguments."""

    def __init__(self, kernel: object, capability: int) -> None:
        self._kernel, self._capability = kernel, capability
        self.resources: dict[str, int] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._compile

    def _compile(self, *arguments: object, **options: int) -> None:
        names = [parameter.name for parameter in self._kernel.params]  # pyright: ignore
        signature: dict[str, str] = {}
        for name, argument in zip(names, arguments, strict=False):
            if isinstance(argument, torch.Tensor):
                signature[name] = POINTERS[argument.dtype]
            else:
                signature[name] = "fp32" if isinstance(argument, float) else "i32"
        constants = {name: value for name, value in options.items() if name in names}
        signature |= dict.fromkeys(constants, "constexpr")
        compiled = triton.compile(
            ASTSource(self._kernel, signature, constants),  # pyright: ignore
            target=GPUTarget("cuda", self._capability, 32),
            options={name: value for name, value in options.items() if name not in names},
        )
        registers, stack_bytes = registers_and_spills(compiled.asm["cubin"])
        self.resources = {
            "registers": registers,
            "spill_bytes": stack_bytes,
            "shared": compiled.metadata.shared,
        }


def compiled(capability: int, dtype: torch.dtype, hidden: int, head_dim: int) -> list[dict[str, str | int]]:
    """A row for each kernel, as a model of this shape launches it."""
    replaced = {name: Compiled(getattr(layer_kernels, name), capability) for name in KERNELS}
    originals = {name: getattr(layer_kernels, name) for name in KERNELS}
    for name, each in replaced.items():
        setattr(layer_kernels, name, each)
    row = torch.zeros(1, hidden, dtype=dtype)
    layer_kernels.add_norm(row, row, row[0], 1e-6)
    angles = torch.zeros(1, 1, head_dim // 2, dtype=dtype)
    heads = torch.zeros(1, 8 * head_dim, dtype=dtype)
    layer_kernels.rotate_heads(heads, angles, angles, 4, 2, (row[0], row[0], 1e-6))
    layer_kernels.silu_times(torch.zeros(1, 6 * hidden, dtype=dtype))
    for name, original in originals.items():
        setattr(layer_kernels, name, original)
    return [{"kernel": name, "capability": capability, **each.resources} for name, each in replaced.items()]


def main() -> None:
    rows = [
        row
        for capability in (75, 90, 120)
        for dtype in (torch.float16, torch.float32)
        for row in compiled(capability, dtype, hidden=8192, head_dim=128)
    ]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
