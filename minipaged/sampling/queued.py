"""Queued: a result that the device still computes, to be read together with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

A = TypeVar("A")
B = TypeVar("B")

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Queued(Generic[A]):
    """A result that nobody has waited for yet.

    Attributes:
        packed: int64 `[N]`, on the device: all of its numbers.
        unpack: makes the result of those numbers, once they are on the host.
    """

    packed: Tensor
    unpack: Callable[[Int64s], A]

    def read(self) -> A:
        """Wait for the device, and give the result. If it has no numbers, there is nothing to wait for."""
        return self.unpack(self.packed.cpu().numpy() if len(self.packed) else np.empty(0, dtype=np.int64))

    def beside(self, other: Queued[B]) -> Queued[tuple[A, B]]:
        """Both, to be read at once."""
        end = len(self.packed)
        return Queued(
            torch.cat((self.packed, other.packed)),
            lambda numbers: (self.unpack(numbers[:end]), other.unpack(numbers[end:])),
        )


def queued_together(several: Sequence[Queued[A]], device: torch.device) -> Queued[list[A]]:
    """All of these, to be read at once; an empty list if there are none."""
    sizes = [len(each.packed) for each in several]
    ends = np.cumsum(sizes)
    return Queued(
        torch.cat([torch.empty(0, dtype=torch.int64, device=device), *(each.packed for each in several)]),
        lambda numbers: [
            each.unpack(numbers[end - size : end])
            for each, size, end in zip(several, sizes, ends, strict=True)
        ],
    )
