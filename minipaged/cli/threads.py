"""How many threads torch should use: for a small model, one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

SMALL_MODEL = 10_000_000
"""Parameters. Below that, an operation is over before a second thread has begun to help; and where
other programs keep the cores busy, waiting for that thread makes a step many times slower."""


@contextmanager
def suitable_threads(decoder: nn.Module) -> Iterator[None]:
    """Within the block, torch uses one thread if the model is small, and afterwards as many as before."""
    import torch

    before = torch.get_num_threads()
    if sum(parameter.numel() for parameter in decoder.parameters()) < SMALL_MODEL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
