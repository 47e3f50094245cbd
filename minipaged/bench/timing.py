"""How long a call takes on a device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

REPETITION_MS = 50


def seconds_per_call(function: Callable[[], object], device: torch.device) -> float:
    """The median over some calls.

    On a GPU the call is captured as a CUDA graph, so that Python's part is not in it, and the cache
    is flushed between calls, so that what is read comes from memory. Elsewhere it is one call by
    the clock: only good for a rehearsal.
    """
    function()  # compiles what it uses
    if device.type != "cuda":
        start = time.perf_counter()
        function()
        return time.perf_counter() - start
    from triton.testing import do_bench

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    milliseconds = do_bench(graph.replay, warmup=REPETITION_MS // 2, rep=REPETITION_MS, return_mode="median")
    assert isinstance(milliseconds, float)  # one number, as return_mode has it
    return milliseconds / 1e3
