"""Fewer threads for a while, for what the calling thread computes and for nobody else.

`torch.set_num_threads` is not made for that: a thread that first computes in the meantime takes the number
over, and keeps it. OpenMP itself has a number for each thread that computes. PyTorch reads it before it
shares an operation out, and so do MKL, oneDNN and `threads_for`.
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
    """Within the block, the calling thread computes with at most so many threads.

    A number that the user gave, in the environment or by `torch.set_num_threads`, is left as it is.
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
    # PyTorch passes the user's number on to MKL, which without it has none of its own: 0.
    exchange = function_of_torch("MKL_Set_Num_Threads_Local")
    if exchange is not None:
        number = exchange(0)
        if number != 0:
            exchange(number)
        return number != 0
    num_processors = function_of_torch("omp_get_num_procs")
    return num_processors is None or torch.get_num_threads() != num_processors()
