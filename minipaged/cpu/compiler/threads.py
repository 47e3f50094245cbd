"""Run compiled loops on PyTorch's own threads.

After each product, PyTorch keeps its threads in busy loops for a while, so that it does not have to wake them
for the next product. A second pool of threads would compete with these for the cores: a step with two threads
of our own was slower, not faster. So the loops run on PyTorch's threads, through the function that PyTorch
itself calls: GNU OpenMP's entry point, which other OpenMP libraries on Linux have as well. Where it is
missing, the calling thread does all the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol, cast

import torch

WORTH_THREADS = 5.0
"""Microseconds of work from which several threads pay. With less work, starting the threads takes longer."""

RunParallel = Callable[[int, int, int, int], None]
"""(function's address, arguments' address, number of threads, flags)."""


def threads_for(microseconds: float) -> int:
    """How many threads to use for work that takes one thread so long: one, or all that torch has.

    A number in between would be slow: GNU OpenMP ends threads and starts new ones when their number changes.
    """
    return torch.get_num_threads() if microseconds > WORTH_THREADS else 1


class Work(Protocol):
    """Compiled code that several threads call at once: see `compiled.SharedWork`."""

    @property
    def address(self) -> int:
        """The address of its machine code."""
        ...

    @property
    def call(self) -> Callable[[int], None]:
        """The function as Python calls it, with the address of the arguments."""
        ...


def run_on_threads(work: Work, arguments: ctypes.Structure, num_threads: int) -> None:
    """Call `work` on several threads at once, all with the same arguments, and wait for them.

    OpenMP may start fewer threads. So each thread takes the number of its next part from a common counter
    (`instructions.take_part`) until no part is left.

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
    """Address of the function in which the threads of a call wait for each other; 0 for one thread."""
    return _barrier() if num_threads > 1 and torchs_threads() is not None else 0


@cache
def _barrier() -> int:
    function = function_of_torch("GOMP_barrier")
    address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
    return address or 0


@cache
def torchs_threads() -> RunParallel | None:
    """`GOMP_parallel` of the OpenMP library that PyTorch is linked with, or `None`."""
    function = function_of_torch("GOMP_parallel")
    if function is None or function_of_torch("GOMP_barrier") is None:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return cast(RunParallel, function)


@cache
def function_of_torch(name: str) -> ctypes._NamedFuncPointer | None:
    """A C function of PyTorch's library, or of the OpenMP library that it is linked with, or `None`."""
    for file in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / file))
            return getattr(library, name)  # this also finds symbols of the library's dependencies
        except (OSError, AttributeError):
            continue
    return None
