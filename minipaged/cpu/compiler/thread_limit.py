"""Let the calling thread, and no other, compute with fewer threads for a while.

`torch.set_num_threads` cannot do this. Another thread that computes for the first time in the meantime would
adopt the number and keep it. OpenMP has a separate number for each thread. PyTorch, MKL, oneDNN and
`threads_for` read it before they divide an operation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from minipaged.cpu.compiler.threads import function_of_torch

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def at_most_threads(most: int) -> Iterator[None]:
    """Within the block, the calling thread computes with at most `most` threads.

    A number that the user chose, in the environment or by `torch.set_num_threads`, is not changed.
    """
    before = torch.get_num_threads()
    set_number = function_of_torch("omp_set_num_threads")
    if set_number is None or before <= most or user_gave_number():
        yield
        return
    try:
        set_number(most)
        yield
    finally:
        set_number(before)


def user_gave_number() -> bool:
    """Whether the number of threads is the user's, and not PyTorch's own choice."""
    if any(os.environ.get(name) for name in VARIABLES):
        return True
    # PyTorch passes the user's number on to MKL. If the user gave none, MKL reports 0.
    exchange = function_of_torch("MKL_Set_Num_Threads_Local")
    if exchange is not None:
        number = exchange(0)
        if number != 0:
            exchange(number)
        return number != 0
    num_processors = function_of_torch("omp_get_num_procs")
    return num_processors is None or torch.get_num_threads() != num_processors()
