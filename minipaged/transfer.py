"""What a step sends to the device, and what it reads back: one copy each way.

A step's inputs are many and small, and so are its results, and each copy has a cost of its own. So the
inputs travel side by side (`to_device`), and results stay on the device until all of them are computed
(`Queued`): the host waits for it once in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

IntArray = npt.NDArray[np.int32 | np.int64]

ALIGNMENT = 16
"""Bytes. Triton compiles a kernel once more for tensors that begin elsewhere."""


def to_device(arrays: Sequence[IntArray], device: torch.device) -> list[Tensor]:
    """The same numbers as tensors on `device`, in the shapes and dtypes of the arrays.

    From pinned memory such a copy is only queued, and the host goes on. PyTorch hands
    that memory out again when the copy is done, and not before.

    Args:
        arrays: on the CPU the tensors are views of them.
        device: where the tensors are to be.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    packed = pack(arrays, pin_memory=device.type == "cuda").to(device, non_blocking=True)
    return unpack(packed, arrays)


def pack(arrays: Sequence[IntArray], *, pin_memory: bool) -> Tensor:
    """The bytes of all arrays, each from a multiple of `ALIGNMENT` on: uint8 `[bytes]`."""
    starts = _starts(arrays)
    packed = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=pin_memory)
    target = packed.numpy()
    for start, array in zip(starts, arrays, strict=False):
        target[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return packed


def unpack(packed: Tensor, arrays: Sequence[IntArray]) -> list[Tensor]:
    """Views of what `pack` made of these arrays, wherever it is by now."""
    return [
        packed[start : start + array.nbytes].view(torch.from_numpy(array).dtype).view(array.shape)
        for start, array in zip(_starts(arrays), arrays, strict=False)
    ]


def _starts(arrays: Sequence[IntArray]) -> list[int]:
    """Where each array begins, and where the last one ends."""
    sizes = (-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays)
    return list(accumulate(sizes, initial=0))


def column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values` as a tensor `[len(values)]` on `device`.

    A plain copy to a CUDA device waits for all work queued there, and this is called while the
    forward pass still runs. A copy from pinned memory does not wait.
    """
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)  # [N]
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)  # [N]


def positive_column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`column` for factors and divisors above 0, which must not become 0 or inf in a smaller `dtype`."""
    limits = torch.finfo(dtype)
    return column([min(max(value, limits.tiny), limits.max) for value in values], dtype, device)  # [N]


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
