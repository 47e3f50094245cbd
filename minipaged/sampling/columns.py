"""One number per row, from Python to the device, without making the device wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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
