"""How much of this machine's memory and CPUs the process may use, within the limits of its control groups."""

from __future__ import annotations

import gc
import math
import os
from dataclasses import dataclass

import psutil
import torch

from minipaged.engine.control_group import group_limits


@dataclass(frozen=True)
class Memory:
    """The memory of the CPU or of a GPU, in bytes.

    Attributes:
        total: the most memory that the process may have.
        free: how much of it is still free for this process. On the CPU, files that the kernel has cached
            count as free.
    """

    total: int
    free: int


def usable_memory() -> Memory:
    """The machine's memory, or the container's share of it."""
    limits, machine = group_limits(), psutil.virtual_memory()
    total = machine.total if limits.memory_bytes is None else min(machine.total, limits.memory_bytes)
    free = machine.available if limits.free_bytes is None else min(machine.available, limits.free_bytes)
    return Memory(total, free)


def gpu_memory(device: torch.device) -> Memory:
    """The memory of a CUDA device.

    PyTorch keeps the memory of deleted tensors, such as those of a deleted engine. The driver counts this
    memory as used, so this function first gives it back to the driver.
    """
    gc.collect()  # a deleted engine may still exist, in a cycle of references
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return Memory(total, free)


def usable_cpus() -> int:
    """How many CPUs the process may use at once: those in its affinity mask, but at most its quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = group_limits().cpus
    return bound if quota is None else max(1, min(bound, math.ceil(quota)))
