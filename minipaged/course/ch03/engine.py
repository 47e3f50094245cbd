"""The exercises of chapter 3, made from the engine's own code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from minipaged.attention.reference import gather
from minipaged.attention.reference import reference_attention as paged_attention
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.block_table import pad_block_tables, slot_mapping, translate
from minipaged.kv.cache import write_kv
from minipaged.request import Sequence as TokenSequence

__all__ = ["gather", "pad_block_tables", "paged_attention", "slot_mapping", "translate", "write_kv"]


def slot_of(block_table: Sequence[int], position: int, block_size: int) -> int:
    table = np.array(block_table, dtype=np.int32)
    return int(slot_mapping(table, position, position + 1, block_size)[0])


MOST_BLOCKS = 64
"""The exercise's tables may name blocks that were never in its free list. In the pool, these are blocks in
use."""


class FreeList:
    """The engine's pool as a free list. A block with `ref_cnt` 0 is free; the block freed last is next."""

    def __init__(self, block_ids: Iterable[int]) -> None:
        wanted = list(block_ids)
        self.pool = BlockPool(1 + max([MOST_BLOCKS, *wanted]))
        while self.pool.num_free:
            self.pool.allocate()
        for block_id in reversed(wanted):
            self.pool.release(block_id)

    def pop(self) -> int:
        return self.pool.allocate()

    def push(self, block_id: int) -> None:
        self.pool.release(block_id)

    def __len__(self) -> int:
        return self.pool.num_free


def grow(block_table: list[int], num_tokens: int, block_size: int, free_list: FreeList) -> bool:
    manager = BlockManager(free_list.pool.num_blocks, block_size, hasher=None)
    manager.pool = free_list.pool
    seq = TokenSequence([])
    seq.block_table.extend(block_table)
    if manager.append(seq, num_tokens) is None:
        return False
    block_table[:] = seq.block_table
    return True
