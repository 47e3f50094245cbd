"""How much of this machine the process may use: what there is, and what its control groups leave of it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import psutil

from minipaged.engine.control_group import group_limits


@dataclass(frozen=True)
class Memory:
    """The CPU's memory, in bytes.

    Attributes:
        total: what the process may have.
        free: what is left of it for this process, files that the kernel has cached included.
    """

    total: int
    free: int


def usable_memory() -> Memory:
    """The machine's memory, or what a container may have of it."""
    limits, machine = group_limits(), psutil.virtual_memory()
    total = machine.total if limits.memory_bytes is None else min(machine.total, limits.memory_bytes)
    free = machine.available if limits.free_bytes is None else min(machine.available, limits.free_bytes)
    return Memory(total, free)


def usable_cpus() -> int:
    """CPUs that the process may use at once: of those that it is bound to, as many as its quota pays for."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = group_limits().cpus
    return bound if quota is None else max(1, min(bound, math.ceil(quota)))
