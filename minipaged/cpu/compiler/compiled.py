"""How this project's loops for the CPU are compiled.

A function is compiled, or loaded from the cache, when it is first called. Importing a module with such
functions imports numba, so import it where its code is first used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Protocol, TypeVar, cast

import numpy as np
from numba import cfunc, from_dtype, njit, types
from numba.core import config

from minipaged.cpu.compiler.code_cache import own_cache
from minipaged.errors import ConfigError

if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
    raise ConfigError("models on a CPU need numba's compiler: unset NUMBA_DISABLE_JIT")

Function = TypeVar("Function", bound=Callable[..., object])

# Dividing by 0 gives infinity or NaN, as in C. A check that could raise would keep LLVM from using vectors.
ERROR_MODEL = "numpy"

# LLVM may reorder sums. Otherwise no sum over neighbouring numbers could use vectors. NaN and infinity keep
# their meaning.
FAST_SUMS = {"reassoc", "contract", "nsz"}


def compiled(fastmath: set[str] | bool = False) -> Callable[[Function], Function]:
    """Like `numba.njit`. It stores the compiled code on disk if it can, else it compiles in every process."""
    options = {"nogil": True, "fastmath": fastmath, "error_model": ERROR_MODEL}

    def compile_(function: Function) -> Function:
        with own_cache() as usable:
            return cast(Function, njit(cache=usable, **options)(function))

    return compile_


class SharedWork:
    """A compiled function that several threads call at once; see `threads.run_on_threads`.

    It is compiled, or loaded from the cache, when its address is first needed. So a process that computes in
    one dtype does not compile the loops for the other dtype.
    """

    def __init__(self, function: Callable[..., None], arguments: type[ctypes.Structure]) -> None:
        self._function = function
        self._signature = types.void(types.CPointer(from_dtype(np.dtype(arguments))))

    @cached_property
    def _code(self) -> MachineCode:
        options = {"nopython": True, "error_model": ERROR_MODEL}
        with own_cache() as usable:
            return cast(MachineCode, cfunc(self._signature, cache=usable, **options)(self._function))

    @property
    def address(self) -> int:
        """The address of its machine code."""
        return self._code.address

    @property
    def call(self) -> Callable[[int], None]:
        """The function in the form that Python can call, with the address of the arguments."""
        return self._code.ctypes


class MachineCode(Protocol):
    """The result of `numba.cfunc`."""

    @property
    def address(self) -> int: ...

    @property
    def ctypes(self) -> Callable[[int], None]: ...


def shared_work(arguments: type[ctypes.Structure]) -> Callable[[Callable[..., None]], SharedWork]:
    """Compile a function that several threads call at once. The code is stored as in `compiled`.

    The decorator uses `numba.cfunc`. The function works on addresses, so its caller checks shapes and dtypes.
    The function must not raise: numba would print the exception and return, and the other threads would wait
    at the next barrier for ever. (Only an allocation can fail.) It reports errors in a field of its
    arguments.

    Args:
        arguments: the structure that the function gets a pointer to. Its first field is an int64,
            `next_part`: a counter from which each thread takes the number of its next part
            (`instructions.take_part`).
    """
    return lambda function: SharedWork(function, arguments)
