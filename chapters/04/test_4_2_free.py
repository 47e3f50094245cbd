"""Checks of exercise 4.2: freeing a table's blocks."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch04.counts import COUNTS
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect_equal, expect_error
from minipaged.errors import InvariantError


@pytest.mark.exercise("4.2")
def test_a_shared_block_stays_with_the_others(code: ModuleType) -> None:
    ref_cnt, table = [1, 2, 0, 1], [1, 3]
    freed = code.free(table, ref_cnt)
    case = "free([1, 3], [1, 2, 0, 1]): another table names block 1 too"
    state = draw_tables({"freed": table, "other": [1]}, ref_cnt)
    expect_equal(ref_cnt, [1, 1, 0, 0], case=f"ref_cnt after {case}", rule=COUNTS, state=state)
    expect_equal(freed, [3], case=case, rule="only the last holder gives a block back", state=state)


@pytest.mark.exercise("4.2")
def test_a_table_that_was_freed_is_empty(code: ModuleType) -> None:
    ref_cnt, table = [1, 2, 1], [2, 1]
    code.free(table, ref_cnt)
    expect_equal(table, [], case="the table after free([2, 1], [1, 2, 1])", rule="it names no blocks now")
    expect_equal(code.free(table, ref_cnt), [], case="freeing it once more")
    expect_equal(
        ref_cnt,
        [1, 1, 0],
        case="ref_cnt after freeing the same table twice",
        rule="the second time, the table is empty: no count is lowered twice",
        state=draw_tables({"freed": table, "other": [1]}, ref_cnt),
    )


@pytest.mark.exercise("4.2")
def test_the_tail_comes_first(code: ModuleType) -> None:
    expect_equal(
        code.free([4, 2, 3], [1, 0, 1, 1, 1]),
        [3, 2, 4],
        case="free([4, 2, 3]) of a table that has its blocks to itself",
        rule="the blocks of the table's end come first",
    )


@pytest.mark.exercise("4.2")
def test_a_count_never_goes_below_zero(code: ModuleType) -> None:
    for blocks, before, bad in (
        ([2], [1, 1, 0], 2),
        ([1, 2], [1, 3, 0], 2),
        ([1, 2], [1, 0, 3], 1),
        ([1, 2, 3], [1, 3, 0, 2], 2),
    ):
        ref_cnt, table = list(before), list(blocks)
        case = f"free({blocks}, {before}): the count of block {bad} is 0 already"
        with expect_error(InvariantError, case=case, rule="a bug elsewhere: raise, do not make it worse"):
            code.free(table, ref_cnt)
        rule = "nothing changes: check all counts before you lower the first one"
        expect_equal(ref_cnt, before, case=f"ref_cnt after {case}", rule=rule)
        expect_equal(table, blocks, case=f"the table after {case}", rule=rule)


@pytest.mark.exercise("4.2")
@given(st.lists(st.sets(st.integers(1, 6)), min_size=1, max_size=5), st.data())
def test_in_the_end_all_is_free(code: ModuleType, contents: list[set[int]], data: st.DataObject) -> None:
    tables = {f"table {i}": list(blocks) for i, blocks in enumerate(contents)}
    named = Counter(block for table in tables.values() for block in table)
    ref_cnt = [1, *(named[block] for block in range(1, 7))]
    freed: list[int] = []
    for name in data.draw(st.permutations(list(tables)), label="freed in this order"):
        freed += code.free(tables[name], ref_cnt)
        still = Counter(block for table in tables.values() for block in table)
        expect_equal(
            ref_cnt[1:],
            [still[block] for block in range(1, 7)],
            case=f"the counts of blocks 1 to 6 after {name} was freed",
            rule=COUNTS,
            state=draw_tables(tables, ref_cnt),
        )
    expect_equal(
        sorted(freed),
        sorted(named),
        case="all blocks that `free` returned, after all tables were freed",
        rule="each block is returned once, by its last holder",
    )
