"""Pools that allocate the same blocks as in the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.kv.block_pool import BlockPool


def pool_handing_out(num_blocks: int, block_ids: Sequence[int]) -> BlockPool:
    """A pool that allocates these blocks next, in this order."""
    pool = BlockPool(num_blocks)
    hand_out_next(pool, block_ids)
    return pool


def hand_out_next(pool: BlockPool, block_ids: Sequence[int]) -> None:
    """Make the pool allocate these free blocks next, in this order.

    The paper's figures use blocks in any order, but a pool takes blocks from the front of its free queue.
    """
    for block_id in reversed(block_ids):
        pool.free_queue.remove(block_id)
        pool.free_queue.push_front(block_id)


def held(pool: BlockPool) -> dict[int, int]:
    """The reference counts of the blocks in use, without the null block."""
    return {block: count for block, count in enumerate(pool.ref_cnt) if block and count}
