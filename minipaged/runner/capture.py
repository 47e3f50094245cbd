"""Capture: records the kernels that a function launches, to replay them later. Only this file needs CUDA."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

Replay = Callable[[], None]
"""Launches the captured kernels again, on the same addresses. They read the values that are there now."""


class Capture(Protocol):
    """The seam of `CudaGraphCapture`: the interface by which another function can replace it."""

    def __call__(self, run: Callable[[], None]) -> Replay:
        """Call `run`, and return a function that repeats it.

        Args:
            run: reads and writes tensors whose addresses stay the same. The kernels that it launches
                depend only on the shapes of these tensors.
        """
        ...


def rerun(run: Callable[[], None]) -> Replay:
    """A `Capture` for machines without CUDA. A replay calls the function again.

    The results are those of a graph, but nothing becomes faster.
    """
    run()
    return run


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Within the `with` block, a CUDA device is the current device. Triton launches its kernels there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def on_side_stream(device: torch.device) -> AbstractContextManager[object]:
    """Within the `with` block, PyTorch's work is on another stream of a CUDA device, as in a capture."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


class CudaGraphCapture:
    """Captures CUDA graphs. They share one memory pool, since only one of them runs at a time.

    Capture the largest graph first. The smaller graphs then reuse its memory and allocate no more. All are
    captured on one stream: cuBLAS allocates a workspace of up to 32 MiB for each stream that it is used on.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with on_device(device):
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()

    def __call__(self, run: Callable[[], None]) -> Replay:
        with on_device(self._device):
            # Run once before the capture: at their first use, kernels are compiled and workspaces
            # allocated, which a capture does not allow. This run must be on a side stream, too.
            current, side = torch.cuda.current_stream(), self._stream
            side.wait_stream(current)
            with torch.cuda.stream(side):
                run()
            current.wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # Without `stream`, PyTorch would use a stream of the device on which the first capture was made.
            with torch.cuda.graph(graph, pool=self._pool, stream=side):
                run()
        return graph.replay
