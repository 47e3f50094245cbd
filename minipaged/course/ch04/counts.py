"""The rule of every exercise in chapter 4: a block's count is the number of tables that name it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from minipaged.course.ch04.pools import held
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect_equal
from minipaged.kv.block_pool import BlockPool

BLOCK_SIZE = 4
"""Tokens per block in the tests."""

COUNTS = "the count of a block is the number of tables that name it"


def draw_pool(tables: Mapping[str, list[int]], pool: BlockPool) -> str:
    """Draw the tables, the counts of their blocks, and the free blocks."""
    return draw_tables(tables, pool.ref_cnt, free=list(pool.free_queue))


def expect_counts(case: str, tables: Mapping[str, list[int]], pool: BlockPool) -> None:
    """Check that the counts match the tables, and that all other blocks are in the free queue.

    Raises:
        Wrong: a count or the free queue is wrong.
    """
    named = Counter(block for table in tables.values() for block in table)
    expect_equal(
        held(pool),
        dict(sorted(named.items())),
        case=f"the counts, as block: count, after {case}",
        rule=COUNTS,
        state=draw_pool(tables, pool),
    )
    nobodys = [block for block in range(1, pool.num_blocks) if block not in named]
    expect_equal(
        sorted(pool.free_queue),
        nobodys,
        case=f"the free blocks after {case}",
        rule="a block is free if, and only if, no table names it",
        state=draw_pool(tables, pool),
    )
