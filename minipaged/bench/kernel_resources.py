"""The GPUs that the kernels are compiled for, and whether a compiled kernel may run on one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from minipaged.triton_kernels.gpu import Gpu, Resources


def _gpu(
    threads: int, shared_kb: int, program_kb: int, *, registers: int = 65_536, tensor_cores: bool = True
) -> Gpu:
    return Gpu(1, registers, threads, shared_kb * 1024, program_kb * 1024, tensor_cores)


TARGETS = {
    "sm_75": _gpu(1024, 64, 64, tensor_cores=False),  # T4
    "sm_80": _gpu(2048, 164, 163),  # A100
    "sm_86": _gpu(1536, 100, 99),  # RTX 3090
    "sm_89": _gpu(1536, 100, 99),  # RTX 4090
    "sm_90": _gpu(2048, 228, 227),  # H100, H200
    "sm_100": _gpu(2048, 228, 227),  # B200
    "sm_120": _gpu(1536, 100, 99),  # RTX 5090
    "gfx942": _gpu(2048, 64, 64, registers=131_072),  # MI300
}
"""The limits of one multiprocessor (CUDA C++ Programming Guide, table "Technical Specifications per Compute
Capability"; for gfx942, AMD's CDNA3 guide)."""


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel.

    Attributes:
        needs: what one program needs.
        spill_bytes: bytes of memory that each thread uses for spilled registers.
        ttir: the kernel in Triton's intermediate representation, before the optimisation for a chip.
        ttgir: the kernel after this optimisation, with pipelined loops.
    """

    needs: Resources
    spill_bytes: int
    ttir: str
    ttgir: str

    def fault_on(self, gpu: Gpu) -> str | None:
        """Why the kernel should not run on a GPU; `None` if it may."""
        if self.spill_bytes:
            return "spills"
        return "does not fit" if self.needs.shared_bytes > gpu.program_bytes else None

    @property
    def waits(self) -> list[int]:
        """For each wait inside a loop, how many loads may still be in flight after it.

        The loop over tiles issues two loads for each tile, keys and values. With 0, nothing is loaded while
        a tile is multiplied.
        """
        loops = re.finditer(r"^( *)%[^\n]* = scf\.for .*?^\1}", self.ttgir, re.MULTILINE | re.DOTALL)
        waits = [re.findall(r"ttg\.async_wait.*num = (\d+)", loop[0]) for loop in loops]
        return [int(number) for found in waits for number in found]
