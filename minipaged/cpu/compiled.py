"""How this project's loops for the CPU are compiled.

Importing this module imports numba, so import it where compiled code is first used. The compiled code
is kept beside its source (or in the user's cache folder), and only the very first use waits for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import numpy as np
from numba import cfunc, from_dtype, njit, types

Function = TypeVar("Function", bound=Callable[..., object])

# Dividing by 0 gives infinity or NaN, as in C. A check that could raise would keep LLVM from using vectors.
ERROR_MODEL = "numpy"

# Sums may be reordered, or no loop over neighbouring numbers could use vectors. NaN and infinity stay
# what they are.
FAST_SUMS = {"reassoc", "contract", "nsz"}


def compiled(fastmath: set[str] | bool = False) -> Callable[[Function], Function]:
    """`numba.njit`, which keeps the compiled code where it can, and else compiles in every process."""

    options = {"nogil": True, "fastmath": fastmath, "error_model": ERROR_MODEL}

    def compile_(function: Function) -> Function:
        try:
            return cast(Function, njit(cache=True, **options)(function))
        except RuntimeError:  # neither this folder nor the user's cache folder can be written
            return cast(Function, njit(**options)(function))

    return compile_


class SharedWork(Protocol):
    """A compiled function that several threads call at once; see `threads.run_on_threads`."""

    @property
    def address(self) -> int:
        """Of its machine code."""
        ...

    @property
    def ctypes(self) -> Callable[[int], None]:
        """What Python calls, with the address of the arguments."""
        ...


def shared_work(arguments: type[ctypes.Structure]) -> Callable[[Callable[..., None]], SharedWork]:
    """Compiles a function for many threads: `numba.cfunc`, kept as `compiled` does.

    Args:
        arguments: what the function is given a pointer to. Its first field is an int64, `next_part`, from
            which the threads take the numbers of the parts that they do (`instructions.take_part`).
    """
    options = {"nopython": True, "error_model": ERROR_MODEL}
    signature = types.void(types.CPointer(from_dtype(np.dtype(arguments))))

    def compile_(function: Callable[..., None]) -> SharedWork:
        try:
            return cast(SharedWork, cfunc(signature, cache=True, **options)(function))
        except RuntimeError:
            return cast(SharedWork, cfunc(signature, **options)(function))

    return compile_
