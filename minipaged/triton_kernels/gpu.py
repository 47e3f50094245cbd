"""Gpu: the limits of a GPU. They decide how large a program may be, and how many programs run at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

REGISTERS_AT_ONCE = 8
"""A thread gets a multiple of this number of registers."""


@dataclass(frozen=True)
class Gpu:
    """What tiles and splits depend on. Sizes are in bytes.

    Attributes:
        num_multiprocessors: how many multiprocessors the GPU has.
        registers: registers of one multiprocessor, of 32 bits each.
        threads: threads that one multiprocessor holds at once.
        shared_bytes: shared memory of one multiprocessor.
        program_bytes: shared memory that one program can have. A multiprocessor also needs
            the difference between `shared_bytes` and this value for each program that it holds.
        tensor_cores: whether Triton multiplies 16-bit numbers on tensor cores. It does so from the A100 on.
            On a T4 it converts them to float32.
    """

    num_multiprocessors: int
    registers: int
    threads: int
    shared_bytes: int
    program_bytes: int
    tensor_cores: bool = True

    @classmethod
    def of(cls, device: torch.device) -> Gpu:
        """The limits of a device. The interpreter counts as one multiprocessor of an H100."""
        import torch  # slow: the command line reads the limits of many GPUs without it

        if device.type != "cuda":
            return cls(1, registers=65_536, threads=2048, shared_bytes=228 * 1024, program_bytes=227 * 1024)
        found = torch.cuda.get_device_properties(device)
        return cls(
            num_multiprocessors=found.multi_processor_count,
            registers=found.regs_per_multiprocessor,
            threads=found.max_threads_per_multi_processor,
            shared_bytes=found.shared_memory_per_multiprocessor,
            # An AMD GPU has one limit. An NVIDIA GPU has a second, larger limit for programs that ask for it.
            program_bytes=getattr(found, "shared_memory_per_block_optin", found.shared_memory_per_block),
            tensor_cores=torch.version.hip is not None or found.major >= 8,
        )


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel needs.

    Attributes:
        num_threads: threads of the program.
        registers: registers of each thread; a thread of an NVIDIA GPU has at most 255.
        shared_bytes: bytes of shared memory.
    """

    num_threads: int
    registers: int
    shared_bytes: int


def programs_per_multiprocessor(program: Resources, gpu: Gpu) -> int:
    """How many programs of a kernel a multiprocessor holds at once ("occupancy"); at least 1.

    While one program waits for memory, others compute. Threads, registers and shared memory each set a
    limit, and the smallest one holds.
    """
    registers = -(-program.registers // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    taken_for_each = gpu.shared_bytes - gpu.program_bytes
    by_threads = gpu.threads // program.num_threads
    by_registers = gpu.registers // (program.num_threads * registers)
    by_shared_memory = gpu.shared_bytes // max(1, program.shared_bytes + taken_for_each)
    return max(1, min(by_threads, by_registers, by_shared_memory))
