"""How this project's loops for the CPU are compiled.

A function is compiled, or loaded from the cache, when it is first called. Import such a module where its code
is first used: that imports numba.
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

# Sums may be reordered, or no loop over neighbouring numbers could use vectors. NaN and infinity stay
# what they are.
FAST_SUMS = {"reassoc", "contract", "nsz"}


def compiled(fastmath: set[str] | bool = False) -> Callable[[Function], Function]:
    """`numba.njit`, which keeps the compiled code where it can, and else compiles in every process."""
    options = {"nogil": True, "fastmath": fastmath, "error_model": ERROR_MODEL}

    def compile_(function: Function) -> Function:
        with own_cache() as usable:
            return cast(Function, njit(cache=usable, **options)(function))

    return compile_


class SharedWork:
    """A compiled function that several threads call at once; see `threads.run_on_threads`.

    It is compiled, or loaded from the cache, when its address is first asked for: a process computes in one
    dtype, and need not wait for the other's loops.
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
        """Of its machine code."""
        return self._code.address

    @property
    def call(self) -> Callable[[int], None]:
        """What Python calls, with the address of the arguments."""
        return self._code.ctypes


class MachineCode(Protocol):
    """What `numba.cfunc` gives."""

    @property
    def address(self) -> int: ...

    @property
    def ctypes(self) -> Callable[[int], None]: ...


def shared_work(arguments: type[ctypes.Structure]) -> Callable[[Callable[..., None]], SharedWork]:
    """Compiles a function that several threads call at once, by `numba.cfunc`; kept as `compiled` keeps its.

    It works on addresses, so its caller checks shapes and dtypes. It must not raise: numba would print the
    exception and return, and the other threads would wait at the next barrier for ever. (Nothing but an
    allocation can fail.) What it finds wrong it writes into a field of its arguments.

    Args:
        arguments: what the function is given a pointer to. Its first field is an int64, `next_part`, from
            which the threads take the numbers of the parts that they do (`instructions.take_part`).
    """
    return lambda function: SharedWork(function, arguments)
