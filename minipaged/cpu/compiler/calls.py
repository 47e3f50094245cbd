"""CallSequence: calls of compiled code, one after the other, in one go.

The threads go from call to call by themselves. Between two calls from Python they would wait for it, some
ten microseconds in which nothing is read from memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from minipaged.cpu.compiler.compiled import shared_work
from minipaged.cpu.compiler.instructions import as_array, call, call_with, pointer_to
from minipaged.cpu.compiler.threads import Work, barrier_address, run_on_threads


class Call(NamedTuple):
    """Work, and what it is given.

    The arguments hold addresses and no tensors: what a call was made from has to stay alive until it has run
    for the last time.

    Attributes:
        work: compiled.
        arguments: the structure that it was compiled for; whole int64s in size.
        num_threads: to run it on; the arguments were made for so many.
    """

    work: Work
    arguments: ctypes.Structure
    num_threads: int

    def run(self) -> None:
        """Do it, and wait for it."""
        run_on_threads(self.work, self.arguments, self.num_threads)


class SequenceArguments(ctypes.Structure):
    """`num_calls` addresses of functions, and as many of their arguments. The first field is not used."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("next_part", "num_calls", "functions", "arguments", "barrier")
    )


@shared_work(SequenceArguments)
def run_calls(pointer):
    """Make each call; all threads have returned from it before the next begins."""
    a = as_array(pointer, 1)[0]
    functions = as_array(pointer_to(a.functions, "int64"), (a.num_calls,))
    arguments = as_array(pointer_to(a.arguments, "int64"), (a.num_calls,))
    for i in range(a.num_calls):
        call_with(functions[i], arguments[i])
        if a.barrier != 0:
            call(a.barrier)


class CallSequence:
    """Calls that are made in their order, as often as wanted, each with what it was given at first.

    What their arguments point to has to stay where it is: it may hold something else each time.

    Args:
        calls: all for the same number of threads; at least one.

    Attributes:
        arguments: for each call, what it was given when it was made last, and what it wrote there.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        given = [bytes(call.arguments) for call in calls]
        self._given = b"".join(given)
        self._in_use = (ctypes.c_int64 * (len(self._given) // 8))()
        beginning = ctypes.addressof(self._in_use)
        starts = list(accumulate(map(len, given[:-1]), initial=0))
        self.arguments = [
            type(call.arguments).from_buffer(self._in_use, start)
            for call, start in zip(calls, starts, strict=True)
        ]
        addresses = ctypes.c_int64 * len(calls)
        self._functions = addresses(*(call.work.address for call in calls))
        self._addresses = addresses(*(beginning + start for start in starts))
        num_threads = calls[0].num_threads
        arguments = SequenceArguments(
            num_calls=len(calls),
            functions=ctypes.addressof(self._functions),
            arguments=ctypes.addressof(self._addresses),
            barrier=barrier_address(num_threads),
        )
        self._whole = Call(run_calls, arguments, num_threads)

    def run(self) -> None:
        """Make all the calls."""
        # What the calls count in their arguments begins anew each time.
        ctypes.memmove(self._in_use, self._given, len(self._given))
        self._whole.run()
