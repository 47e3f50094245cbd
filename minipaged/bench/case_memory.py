"""CaseMemory: one large piece of a device's memory that all measured cases share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.bench.attention_case import AttentionCase, Shape, Span, cache_numbers, make_case

MOST_OF_FREE_MEMORY = 0.9


class CaseMemory:
    """Makes cases, and draws new random numbers only for a case that is larger than all earlier cases.

    Args:
        device: the cases' device.
        dtype: dtype of queries and cache.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._memory: Tensor | None = None

    def case(
        self, spans: Sequence[Span], shape: Shape, block_size: int, *, shuffled: bool = True
    ) -> AttentionCase:
        """One case. The next case uses the same memory."""
        needed = cache_numbers(spans, shape, block_size)
        if self._memory is None or self._memory.numel() < needed:
            self._memory = None  # free the old memory before the new is allocated
            self._memory = torch.empty(needed, dtype=self.dtype, device=self.device).normal_()
        return make_case(spans, shape, block_size, self._memory, shuffled=shuffled)

    def fits(self, spans: Sequence[Span], shape: Shape, block_size: int) -> bool:
        """Whether the device has enough memory for such a case."""
        needed = cache_numbers(spans, shape, block_size)
        if self.device.type != "cuda" or (self._memory is not None and needed <= self._memory.numel()):
            return True
        held = 0 if self._memory is None else self._memory.nbytes
        free = torch.cuda.mem_get_info(self.device)[0] + held
        return needed * self.dtype.itemsize < MOST_OF_FREE_MEMORY * free
