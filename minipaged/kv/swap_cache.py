"""SwapCache: the contents of the CPU blocks that `SwapSpace` hands out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from minipaged.errors import ConfigError
from minipaged.kv.cache import KVCache
from minipaged.kv.swap import BlockSwap
from minipaged.transfer import to_device

BYTES_AT_ONCE = 64 * 2**20
"""The most bytes to collect in one buffer on the device before a copy. The next step can reuse its memory."""


class SwapCache:
    """CPU memory for blocks, and the copies between it and the KV cache.

    `data` has the shape `[num_cpu_blocks, num_layers, 2, block_size, num_kv_heads, head_dim]`. So a block is
    one contiguous piece, with all its layers. The memory is pinned, so that a GPU copies a piece by itself
    and the host only queues the copies. That is safe: the host never reads `data`, and the device does its
    copies in order.

    Args:
        cache: the KV cache to copy from and to.
        num_cpu_blocks: the number of CPU blocks.

    Raises:
        ConfigError: the memory cannot be pinned.
    """

    def __init__(self, cache: KVCache, num_cpu_blocks: int) -> None:
        self._cache = cache
        num_layers, two, _, *block = cache.data.shape
        self.data = torch.empty((num_cpu_blocks, num_layers, two, *block), dtype=cache.data.dtype)
        self._is_pinned = cache.data.device.type == "cuda" and num_cpu_blocks > 0
        if self._is_pinned:
            weakref.finalize(self, pin(self.data)).atexit = False

    def copy_out(self, swaps: Sequence[BlockSwap]) -> None:
        """Copy blocks to CPU memory, in all layers."""
        for part in self._parts(swaps):
            # [N, num_layers, 2, block_size, num_kv_heads, head_dim]
            collected = self._cache.data.movedim(2, 0).index_select(0, self._blocks(part)).contiguous()
            for there, here in _runs(part):
                self.data[there].copy_(collected[here], non_blocking=self._is_pinned)

    def copy_in(self, swaps: Sequence[BlockSwap]) -> None:
        """Copy blocks back from CPU memory, in all layers."""
        for part in self._parts(swaps):
            collected = self._cache.data.new_empty((len(part), *self.data.shape[1:]))  # as in copy_out
            for there, here in _runs(part):
                collected[here].copy_(self.data[there], non_blocking=self._is_pinned)
            self._cache.data.index_copy_(2, self._blocks(part), collected.movedim(0, 2))

    def _parts(self, swaps: Sequence[BlockSwap]) -> Iterator[list[BlockSwap]]:
        """The swaps in the order of their CPU blocks, in parts of at most `BYTES_AT_ONCE`."""
        ordered = sorted(swaps, key=attrgetter("cpu_block"))
        size = max(1, BYTES_AT_ONCE // max(1, self.data[:1].nbytes))
        for start in range(0, len(ordered), size):
            yield ordered[start : start + size]

    def _blocks(self, swaps: Sequence[BlockSwap]) -> Tensor:
        """The block ids, int64 `[N]`, on the cache's device."""
        listed = np.array([swap.block for swap in swaps], dtype=np.int64)  # [N]
        (blocks,) = to_device([listed], self._cache.data.device)
        return blocks


def _runs(swaps: Sequence[BlockSwap]) -> Iterator[tuple[slice, slice]]:
    """Group neighbouring CPU blocks. A group is a slice of `data`, and the matching slice of `swaps`."""
    start = 0
    for end in range(1, len(swaps) + 1):
        first = swaps[start].cpu_block
        if end == len(swaps) or swaps[end].cpu_block != first + end - start:
            yield slice(first, first + end - start), slice(start, end)
            start = end


def pin(memory: Tensor) -> Callable[[], object]:
    """Pin the memory of a tensor that is on the CPU and not empty.

    PyTorch rounds its own pinned memory up to a power of two, so 65 GB would take 128 GB.

    Returns:
        A function that unpins the memory. Call it before the memory is freed.

    Raises:
        ConfigError: the driver refuses.
    """
    address, runtime = memory.data_ptr(), torch.cuda.cudart()
    assert runtime is not None  # there is a CUDA device
    error = runtime.cudaHostRegister(address, memory.nbytes, 0)
    if error != runtime.cudaError.success:
        raise ConfigError(
            f"the driver does not pin {memory.nbytes:,} bytes of CPU memory for swapping ({error}): set a "
            "smaller num_cpu_blocks, or preemption_mode='recompute'"
        )
    return partial(runtime.cudaHostUnregister, address)
