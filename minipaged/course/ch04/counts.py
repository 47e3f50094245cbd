"""What holds in every exercise of chapter 4: the counts of the blocks are what the tables say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from minipaged.course.ch04.pools import held
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect_equal
from minipaged.kv.block_pool import BlockPool

BLOCK_SIZE = 4
"""Tokens per block, in the checks."""

COUNTS = "the count of a block is the number of tables that name it"


def draw_pool(tables: Mapping[str, list[int]], pool: BlockPool) -> str:
    """The tables, with the counts of their blocks and the free ones."""
    return draw_tables(tables, pool.ref_cnt, free=list(pool.free_queue))


def expect_counts(case: str, tables: Mapping[str, list[int]], pool: BlockPool) -> None:
    """The counts are what the tables say, and the free queue holds the others.

    Raises:
        Wrong: they are not, or it does not.
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
