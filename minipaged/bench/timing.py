"""Timing a call on a device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

REPETITION_MS = 50


def seconds_per_call(function: Callable[[], object], device: torch.device) -> float:
    """The median time of several calls, in seconds.

    On a GPU the call is captured as a CUDA graph, so the time does not include Python. The cache is flushed
    between calls, so reads come from memory. On other devices only one call is timed, which is good enough
    for a rehearsal but not for a measurement.
    """
    function()  # compiles the kernels
    if device.type != "cuda":
        start = time.perf_counter()
        function()
        return time.perf_counter() - start
    from triton.testing import do_bench

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    milliseconds = do_bench(graph.replay, warmup=REPETITION_MS // 2, rep=REPETITION_MS, return_mode="median")
    assert isinstance(milliseconds, float)  # one number with this return_mode
    return milliseconds / 1e3
