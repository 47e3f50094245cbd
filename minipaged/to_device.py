"""to_device: arrays from the host to the device, all by one copy that nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

IntArray = npt.NDArray[np.int32 | np.int64]

ALIGNMENT = 16
"""Bytes. Triton compiles a kernel once more for tensors that begin elsewhere."""


def to_device(arrays: Sequence[IntArray], device: torch.device) -> list[Tensor]:
    """The same numbers as tensors on `device`, in the shapes and dtypes of the arrays.

    A step's inputs are many and small, and each copy has a cost of its own, so they travel side by
    side in one. From pinned memory such a copy is only queued, and the host goes on. PyTorch hands
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
