"""How this project's loops for the CPU are compiled.

Importing this module imports numba, so import it where compiled code is first used. The compiled code
is kept beside its source (or in the user's cache folder), and only the very first use waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])

# Sums may be reordered, or no loop over neighbouring numbers could use vectors. NaN and infinity stay
# what they are.
FAST_SUMS = {"reassoc", "contract", "nsz"}


def compiled(fastmath: set[str] | bool = False) -> Callable[[Function], Function]:
    """`numba.njit`, which keeps the compiled code where it can, and else compiles in every process."""

    def compile_(function: Function) -> Function:
        try:
            return cast(Function, njit(nogil=True, cache=True, fastmath=fastmath)(function))
        except RuntimeError:  # neither this folder nor the user's cache folder can be written
            return cast(Function, njit(nogil=True, fastmath=fastmath)(function))

    return compile_
