"""Sets the number of torch's threads: one for a small model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

SMALL_MODEL = 10_000_000
"""Parameters of a small model are fewer than that. Its operations end before a second thread could start to
help. If other programs keep the cores busy, waiting for that thread makes a step many times slower."""


@contextmanager
def suitable_threads(decoder: nn.Module) -> Iterator[None]:
    """Within the `with` block, torch uses one thread if the model is small.

    The previous number of threads is restored afterwards.
    """
    import torch

    before = torch.get_num_threads()
    if sum(parameter.numel() for parameter in decoder.parameters()) < SMALL_MODEL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
