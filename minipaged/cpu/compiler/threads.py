"""Run compiled loops on PyTorch's own threads.

After each product, PyTorch keeps its threads in busy loops for a while, so that it does not have to wake them
for the next product. A second pool of threads would compete with these for the cores: a step with two threads
of our own was slower, not faster. So the loops run on PyTorch's threads, through the function that PyTorch
itself calls. This is GNU OpenMP's entry point, which other OpenMP libraries have as well. On Windows it is
Microsoft's. Where both are missing, the calling thread does all the work.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol, cast

import torch

logger = logging.getLogger(__name__)

WORTH_THREADS = 5.0
"""Several threads are worthwhile for more than this many microseconds of work. With less work, starting the
threads takes longer than they save."""

RunParallel = Callable[[int, int, int, int], None]
"""(address of a function, address of its arguments, number of threads, flags): runs the function on
threads."""


def threads_for(microseconds: float) -> int:
    """How many threads to use for work that takes one thread `microseconds`: one, or all of torch's.

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
        """The function in the form that Python can call, with the address of the arguments."""
        ...


def run_on_threads(work: Work, arguments: ctypes.Structure, num_threads: int) -> None:
    """Call `work` on several threads at once, all with the same arguments, and wait for them.

    OpenMP may start fewer threads than that. So each thread takes the number of its next part from a common
    counter (`instructions.take_part`) until no part is left.

    Args:
        work: made by `shared_work`.
        arguments: the structure that the work was compiled for. Its counters must be 0.
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
    names = ("GOMP_barrier", "_vcomp_barrier")
    function = next(filter(None, map(function_of_torch, names)), None)
    address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
    return address or 0


@cache
def torchs_threads() -> RunParallel | None:
    """The function in PyTorch's OpenMP library that runs a given function on several threads.

    If there is none, the result is `None`. This logs a warning if PyTorch uses several threads.
    """
    found = _gnus() or _microsofts()
    if found is None and torch.get_num_threads() > 1:
        logger.warning(
            "the CPU's compiled loops run on one thread: PyTorch's OpenMP library is not one of %s in %s",
            ", ".join(_LIBRARIES.get(sys.platform, _LIBRARIES["linux"])),
            _FOLDER,
        )
    return found


def _gnus() -> RunParallel | None:
    """`GOMP_parallel`. LLVM's and Intel's libraries have it as well, but not on Windows."""
    function = function_of_torch("GOMP_parallel")
    if function is None or function_of_torch("GOMP_barrier") is None:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return cast(RunParallel, function)


def _microsofts() -> RunParallel | None:
    """`_vcomp_fork`, which PyTorch calls on Windows. It comes from Intel's library there."""
    fork, barrier = function_of_torch("_vcomp_fork"), function_of_torch("_vcomp_barrier")
    set_number = function_of_torch("_vcomp_set_num_threads")
    if fork is None or barrier is None or set_number is None:
        return None
    set_number.argtypes = [ctypes.c_int]
    fork.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    set_number.restype = fork.restype = None

    def run(function: int, arguments: int, num_threads: int, flags: int) -> None:
        set_number(num_threads)  # for the next call only
        fork(1, 1, function, arguments)  # 1: run in parallel; 1: number of arguments

    return run


_FOLDER = Path(torch.__file__).parent / "lib"

_LIBRARIES = {
    "linux": ("libtorch_cpu.so",),
    "darwin": ("libtorch_cpu.dylib",),
    "win32": ("libiomp5md.dll",),
}
"""The libraries in which to look for OpenMP's functions. On Linux and macOS, a search for a symbol in a
library includes the library's dependencies. On Windows it does not."""


@cache
def function_of_torch(name: str) -> ctypes._NamedFuncPointer | None:
    """A C function of PyTorch's library, or of the OpenMP library that it is linked with, or `None`."""
    for file in _LIBRARIES.get(sys.platform, _LIBRARIES["linux"]):
        for path in (str(_FOLDER / file), file):  # a library that is already loaded is found by its name
            try:
                return getattr(ctypes.CDLL(path), name)
            except (OSError, AttributeError):
                continue
    return None
