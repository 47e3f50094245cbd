"""Checks that the block pool and all block tables agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from minipaged.errors import InvariantError
from minipaged.kv.block_pool import NULL_BLOCK, BlockPool
from minipaged.kv.size import blocks_needed
from minipaged.request import Request


def check_blocks(pool: BlockPool, block_size: int, requests: Iterable[Request]) -> None:
    """Compare the pool with the tables of all unfinished requests.

    Raises:
        InvariantError: the pool contradicts itself, a reference count is not the number of tables that
            name the block, or a table does not cover the computed tokens.
    """
    pool.check_invariants()
    named: Counter[int] = Counter()
    for request in requests:
        for seq in request.sequences:
            named.update(list(seq.block_table))
            num_held = max(len(seq.block_table), len(seq.cpu_block_table))
            if num_held < blocks_needed(seq.num_computed_tokens, block_size):
                raise InvariantError(f"{seq} has computed tokens that its table does not cover")
            if seq.is_finished and len(seq.block_table):
                raise InvariantError(f"{seq} has finished but holds blocks")
    for block_id, count in enumerate(pool.ref_cnt):
        if block_id != NULL_BLOCK and count != named[block_id]:
            raise InvariantError(
                f"block {block_id} has ref_cnt {count}, but {named[block_id]} tables name it"
            )
    if named[NULL_BLOCK]:
        raise InvariantError("a block table names the null block")
