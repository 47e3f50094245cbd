"""Compiled loops on the threads that PyTorch has already.

PyTorch keeps its threads waiting in busy loops for a while after each product, so that the next one need
not wake them. Threads of another pool would compete with those for the cores: two threads of our own made
a step slower, not faster. So loops run on PyTorch's own, by the function that PyTorch calls itself: GNU
OpenMP's entry point, which other OpenMP libraries on Linux have as well. Where it is missing, the calling
thread does all the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol, cast

import torch

WORTH_THREADS = 5.0
"""Microseconds of work that are worth more than one thread. With less, starting the others takes longer."""

RunParallel = Callable[[int, int, int, int], None]
"""(function's address, arguments' address, number of threads, flags)."""


def threads_for(microseconds: float) -> int:
    """How many threads to use for work that takes one of them so long: one, or as many as torch has now.

    Nothing between: GNU OpenMP ends threads and starts others when their number changes.
    """
    return torch.get_num_threads() if microseconds > WORTH_THREADS else 1


class Work(Protocol):
    """What several threads call at once: see `compiled.SharedWork`."""

    @property
    def address(self) -> int:
        """Of its machine code."""
        ...

    @property
    def call(self) -> Callable[[int], None]:
        """What Python calls, with the address of the arguments."""
        ...


def run_on_threads(work: Work, arguments: ctypes.Structure, num_threads: int) -> None:
    """Calls `work` on several threads at once, all with the same arguments, and waits for them.

    How many threads there are in the end is OpenMP's decision. So `work` takes the numbers of its parts
    from a common counter (`instructions.take_part`) until none is left.

    Args:
        work: made by `shared_work`.
        arguments: the structure that it was compiled for; its counters are 0.
        num_threads: at least 1, the calling thread included.
    """
    address = ctypes.addressof(arguments)
    run_parallel = torchs_threads() if num_threads > 1 else None
    if run_parallel is None:
        work.call(address)
    else:
        run_parallel(work.address, address, num_threads, 0)


def barrier_address(num_threads: int) -> int:
    """Of the function at which all threads of `run_on_threads` wait for each other; 0 if there is but one."""
    return _barrier() if num_threads > 1 and torchs_threads() is not None else 0


@cache
def _barrier() -> int:
    function = function_of_torch("GOMP_barrier")
    address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
    return address or 0


@cache
def torchs_threads() -> RunParallel | None:
    """OpenMP's `GOMP_parallel`, of the library that PyTorch is linked with; `None` if it has none."""
    function = function_of_torch("GOMP_parallel")
    if function is None or function_of_torch("GOMP_barrier") is None:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return cast(RunParallel, function)


@cache
def function_of_torch(name: str) -> ctypes._NamedFuncPointer | None:
    """A C function of PyTorch's library, or of the OpenMP library that it is linked with; `None` if there is
    no such function."""
    for file in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / file))
            return getattr(library, name)  # a library's symbols are those of its dependencies, too
        except (OSError, AttributeError):
            continue
    return None
