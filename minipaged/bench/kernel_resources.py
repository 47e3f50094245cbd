"""Resources: the GPU resources that a compiled kernel needs, and whether a GPU has enough of them."""

from __future__ import annotations

from dataclasses import dataclass

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
"""Bytes of shared memory that one program can have, by compute capability (CUDA C++ Programming Guide,
table "Technical Specifications per Compute Capability"): 80 is the A100, 90 the H100 and H200."""


@dataclass(frozen=True)
class Resources:
    """The resources that one program of a compiled kernel needs.

    Attributes:
        registers: registers of each thread; a thread has at most 255.
        spill_bytes: bytes of each thread's stack. These kernels use the stack only for spilled registers.
        shared_bytes: bytes of shared memory.
        ttir: the kernel in Triton's intermediate representation, before the optimisation for a chip.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    ttir: str

    def fault_on(self, capability: int) -> str | None:
        """Why the kernel should not run on a chip; `None` if it may."""
        if self.spill_bytes:
            return "spills"
        limit = SHARED_MEMORY[capability]
        return f"needs more than {limit:,} bytes" if self.shared_bytes > limit else None
