"""Sending a step's inputs to the device, and reading its results, with one copy in each direction.

A step has many small inputs and results, and each copy has a fixed cost. So all inputs are sent in one copy
(`to_device`). Results stay on the device until all of them are computed (`Queued`), so that the host waits
only once in a step.
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
"""Each tensor begins at a multiple of this number of bytes. For other addresses, Triton would compile a
kernel again."""


def to_device(arrays: Sequence[IntArray], device: torch.device) -> list[Tensor]:
    """The arrays as tensors on `device`, with the same shapes and dtypes.

    A copy from pinned memory to a CUDA device is only queued, so the host need not wait. PyTorch reuses the
    pinned memory only after the copy is done. A copy to another device is made from ordinary memory, which
    may be freed as soon as this function returns. So the host waits for that copy.

    Args:
        arrays: the arrays. If `device` is a CPU, the tensors are views of them.
        device: the device of the tensors.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    pinned = device.type == "cuda"
    packed = pack(arrays, pin_memory=pinned).to(device, non_blocking=pinned)
    return unpack(packed, arrays)


def pack(arrays: Sequence[IntArray], *, pin_memory: bool) -> Tensor:
    """The bytes of all arrays, uint8 `[bytes]`. Each array begins at a multiple of `ALIGNMENT`."""
    starts = _starts(arrays)
    packed = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=pin_memory)
    target = packed.numpy()
    for start, array in zip(starts, arrays, strict=False):
        target[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return packed


def unpack(packed: Tensor, arrays: Sequence[IntArray]) -> list[Tensor]:
    """The arrays as views of `packed`, which is a result of `pack`, on any device."""
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

    It is called while the forward pass still runs. A plain copy to a CUDA device would wait until that work
    is done; a copy from pinned memory does not wait.
    """
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)  # [N]
    return torch.tensor(values, dtype=dtype).pin_memory().to(device, non_blocking=True)  # [N]


def positive_column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`column` for factors and divisors above 0, which must not become 0 or inf in a smaller `dtype`."""
    limits = torch.finfo(dtype)
    return column([min(max(value, limits.tiny), limits.max) for value in values], dtype, device)  # [N]


A = TypeVar("A")
B = TypeVar("B")

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Queued(Generic[A]):
    """A result whose numbers are still on the device. The host has not waited for them yet.

    Attributes:
        packed: int64 `[N]`, on the device: all numbers of the result.
        unpack: makes the result from these numbers, once they are on the host.
    """

    packed: Tensor
    unpack: Callable[[Int64s], A]

    def read(self) -> A:
        """Wait for the device, and return the result. If the result has no numbers, do not wait."""
        return self.unpack(self.packed.cpu().numpy() if len(self.packed) else np.empty(0, dtype=np.int64))

    def beside(self, other: Queued[B]) -> Queued[tuple[A, B]]:
        """This result and another one, combined so that one copy reads both."""
        end = len(self.packed)
        return Queued(
            torch.cat((self.packed, other.packed)),
            lambda numbers: (self.unpack(numbers[:end]), other.unpack(numbers[end:])),
        )


def queued_together(several: Sequence[Queued[A]], device: torch.device) -> Queued[list[A]]:
    """A list of results, combined so that one copy reads them all."""
    sizes = [len(each.packed) for each in several]
    ends = np.cumsum(sizes)
    return Queued(
        torch.cat([torch.empty(0, dtype=torch.int64, device=device), *(each.packed for each in several)]),
        lambda numbers: [
            each.unpack(numbers[end - size : end])
            for each, size, end in zip(several, sizes, ends, strict=True)
        ],
    )
