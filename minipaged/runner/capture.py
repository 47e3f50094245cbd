"""Capture: records what a function launches, to be launched again. The one place that needs CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

Replay = Callable[[], None]
"""Does again what was captured: the same kernels, on the same addresses, whatever is there by now."""


class Capture(Protocol):
    """The seam of `CudaGraphCapture`."""

    def __call__(self, run: Callable[[], None]) -> Replay:
        """Call `run`, and return what does the same again.

        Args:
            run: reads and writes tensors that stay where they are; its launches depend on nothing but
                their shapes.
        """
        ...


def rerun(run: Callable[[], None]) -> Replay:
    """A `Capture` for machines without CUDA: to replay is to call the function again. It shows all that
    a graph would show, but for the time."""
    run()
    return run


class CudaGraphCapture:
    """Captures CUDA graphs that share one memory pool, since only one of them runs at a time.

    The largest should come first, so that the others find its memory and take no more.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Replay:
        with torch.cuda.device(self._device):
            # Once outside: kernels are compiled and workspaces allocated at their first use, which a
            # capture does not allow. On another stream, as CUDA wants it.
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                run()
            current.wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                run()
        return graph.replay
