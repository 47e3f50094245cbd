"""Resources: what a compiled kernel takes of a GPU, and whether a GPU has that much."""

from __future__ import annotations

from dataclasses import dataclass

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
"""Bytes of shared memory that one program can have, by compute capability (CUDA C++ Programming Guide,
table "Technical Specifications per Compute Capability"): 80 is the A100, 90 the H100 and H200."""


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel takes.

    Attributes:
        registers: for each thread; a thread can have 255.
        spill_bytes: for each thread; its stack, where registers go that there is no room for. These
            kernels have nothing else to put there.
        shared_bytes: shared memory.
        ttir: the kernel in Triton's intermediate representation, before it was optimised for a chip.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    ttir: str

    def fault_on(self, capability: int) -> str | None:
        """Why the kernel does not do on a chip; `None` if it does."""
        if self.spill_bytes:
            return "spills"
        limit = SHARED_MEMORY[capability]
        return f"needs more than {limit:,} bytes" if self.shared_bytes > limit else None
