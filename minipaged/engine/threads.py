"""How many threads an engine computes with: as many as help its model, within the limits of the process.

Too many threads make a step much slower. The threads divide each layer and wait for each other at its end, so
a thread that has to wait for a CPU makes all others wait.
"""

from __future__ import annotations

import torch
from torch import nn

from minipaged.cpu.compiler.thread_limit import at_most_threads
from minipaged.engine.machine import usable_cpus

SMALL_MODEL = 10_000_000
"""A model with fewer parameters uses one thread. Each layer of such a model ends before a second thread has
helped much. And if other programs keep the CPUs busy, waiting for the second thread makes a step many times
slower."""


def threads_worth(decoder: nn.Module) -> int:
    """The most threads that help a model."""
    small = sum(parameter.numel() for parameter in decoder.parameters()) < SMALL_MODEL
    return 1 if small else usable_cpus()


def num_threads(decoder: nn.Module) -> int:
    """How many threads an engine with this model computes with.

    It is `threads_worth`, but at most PyTorch's number of threads. If the user has set PyTorch's number, the
    engine uses that number.
    """
    with at_most_threads(threads_worth(decoder)):
        return torch.get_num_threads()
