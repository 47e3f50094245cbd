"""CallSequence: many calls of compiled code, made one after the other without returning to Python.

The threads go from one call to the next by themselves. If Python made each call, the threads would wait about
ten microseconds for Python between two calls, and would read nothing from memory in that time.
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
    """Compiled work and its arguments, ready to run.

    The arguments hold addresses, not tensors. So the tensors have to stay alive until the call has run for
    the last time.

    Attributes:
        work: the compiled function.
        arguments: the structure that the function was compiled for. Its size is a multiple of 8 bytes.
        num_threads: number of threads to run the function on. The arguments must be made for the same number.
    """

    work: Work
    arguments: ctypes.Structure
    num_threads: int

    def run(self) -> None:
        """Run the work and wait until it is done."""
        run_on_threads(self.work, self.arguments, self.num_threads)


class SequenceArguments(ctypes.Structure):
    """The addresses of `num_calls` functions and of their arguments. The first field is not used."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("next_part", "num_calls", "functions", "arguments", "barrier")
    )


@shared_work(SequenceArguments)
def run_calls(pointer):
    """Make each call. All threads return from a call before the next one begins."""
    a = as_array(pointer, 1)[0]
    functions = as_array(pointer_to(a.functions, "int64"), (a.num_calls,))
    arguments = as_array(pointer_to(a.arguments, "int64"), (a.num_calls,))
    for i in range(a.num_calls):
        call_with(functions[i], arguments[i])
        if a.barrier != 0:
            call(a.barrier)


class CallSequence:
    """A sequence of calls that can be made any number of times, each time with their original arguments.

    The memory that their arguments point to has to stay in place. Its contents may change from run to run.

    Args:
        calls: at least one call. All calls are for the same number of threads.

    Attributes:
        arguments: the arguments of each call as they are after the last run, including what the call wrote to
            them.
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
        # The counters in the arguments start at 0 in each run.
        ctypes.memmove(self._in_use, self._given, len(self._given))
        self._whole.run()
