"""How many threads an engine computes with: as many as its work is worth, and as the process may use.

More threads make a step slower, and not by a little: they share out each layer and wait for each other
at its end, so that one which has to wait for a CPU makes all others wait.
"""

from __future__ import annotations

import torch
from torch import nn

from minipaged.cpu.compiler.thread_limit import at_most_threads
from minipaged.engine.machine import usable_cpus

SMALL_MODEL = 10_000_000
"""Parameters. Below that, a layer is over before a second thread has helped much; and where other programs
keep the CPUs busy, waiting for that thread makes a step many times slower."""


def threads_worth(decoder: nn.Module) -> int:
    """The most threads that help a model."""
    small = sum(parameter.numel() for parameter in decoder.parameters()) < SMALL_MODEL
    return 1 if small else usable_cpus()


def num_threads(decoder: nn.Module) -> int:
    """How many threads an engine with this model computes with: `threads_worth`, but what PyTorch has is not
    exceeded, and a number that the user gave is taken as it is."""
    with at_most_threads(threads_worth(decoder)):
        return torch.get_num_threads()
