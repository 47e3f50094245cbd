"""The exercises of chapter 1, made from the engine's own code."""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.baseline.contiguous_breakdown import ReservedRegion, contiguous_breakdown
from minipaged.baseline.first_fit import FirstFitAllocator
from minipaged.course.ch01.snapshot import Snapshot
from minipaged.errors import OutOfBlocksError
from minipaged.kv import size
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.size import KVShape, blocks_needed, max_concurrency, max_model_len_that_fits

__all__ = ["max_concurrency", "max_model_len_that_fits"]


def bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int) -> int:
    return KVShape(num_layers, num_kv_heads, head_dim, dtype_bytes).bytes_per_token


def num_blocks_that_fit(
    device_bytes: int, utilization: float, weights_bytes: int, activation_bytes: int, bytes_per_block: int
) -> int:
    memory = int(device_bytes * utilization) - weights_bytes - activation_bytes
    smallest = KVShape(num_layers=1, num_kv_heads=1, head_dim=1, dtype_bytes=1)  # 2 bytes per token
    return size.num_blocks_that_fit(memory, smallest, block_size=bytes_per_block // 2)


def average_concurrency(num_blocks: int, block_size: int, lengths: Sequence[int]) -> float:
    return num_blocks * len(lengths) / sum(blocks_needed(length, block_size) for length in lengths)


def account(num_slots: int, reserved: Sequence[ReservedRegion]) -> MemoryBreakdown:
    allocator = FirstFitAllocator(num_slots)
    for each in reserved:
        allocator.allocate(each.region.num_slots)
    return contiguous_breakdown(allocator, reserved, next_request=num_slots + 1)


def contiguous_snapshot(tokens_now: Sequence[int], num_slots: int, max_model_len: int) -> Snapshot:
    allocator = FirstFitAllocator(num_slots)
    inside = []
    for tokens in tokens_now:
        if allocator.allocate(max_model_len) is None:
            break
        inside.append(tokens)
    return Snapshot(len(inside), sum(inside), num_slots)


def paged_snapshot(tokens_now: Sequence[int], num_slots: int, block_size: int) -> Snapshot:
    pool = BlockPool(1 + num_slots // block_size)  # plus the null block
    inside: list[int] = []
    try:
        for tokens in tokens_now:
            for _ in range(blocks_needed(tokens, block_size)):
                pool.allocate()
            inside.append(tokens)
    except OutOfBlocksError:
        pass  # the last request did not fit
    return Snapshot(len(inside), sum(inside), num_slots)
