"""The loop of a `CallSequence`. Importing this module imports numba."""

from __future__ import annotations

from minipaged.cpu.compiler.calls import SequenceArguments
from minipaged.cpu.compiler.compiled import shared_work
from minipaged.cpu.compiler.instructions import as_array, call, call_with, pointer_to


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
