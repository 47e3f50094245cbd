"""Checks of exercise 3.3: a free list, and tables that grow on demand."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect_equal, expect_error
from minipaged.errors import InvariantError, OutOfBlocksError


@pytest.mark.exercise("3.3")
def test_blocks_come_in_the_order_given(code: ModuleType) -> None:
    free_list = code.FreeList([7, 1, 3])
    expect_equal(len(free_list), 3, case="len(FreeList([7, 1, 3]))", rule="three blocks are free")
    got = [free_list.pop() for _ in range(3)]
    expect_equal(
        got,
        [7, 1, 3],
        case="three times pop() from FreeList([7, 1, 3])",
        rule="at first, blocks are handed out in the order in which they were given",
    )
    expect_equal(len(free_list), 0, case="len() after that", rule="all three are in use")


@pytest.mark.exercise("3.3", "FreeList.pop")
def test_an_empty_list_says_so(code: ModuleType) -> None:
    free_list = code.FreeList([7])
    free_list.pop()
    with expect_error(
        OutOfBlocksError,
        case="a second pop() from FreeList([7])",
        rule="an empty list raises OutOfBlocksError, which its caller expects",
    ):
        free_list.pop()


@pytest.mark.exercise("3.3")
def test_a_block_comes_back(code: ModuleType) -> None:
    free_list = code.FreeList([7])
    free_list.push(free_list.pop())
    case = "FreeList([7]): pop() gives 7; push(7)"
    expect_equal(len(free_list), 1, case=f"len() after {case}", rule="block 7 is free again")
    expect_equal(free_list.pop(), 7, case=f"pop() after {case}", rule="block 7 is free again")


@pytest.mark.exercise("3.3")
def test_the_block_freed_last_comes_first(code: ModuleType) -> None:
    free_list = code.FreeList([7, 1, 3, 5])
    taken = [free_list.pop(), free_list.pop()]
    for block_id in taken:
        free_list.push(block_id)
    expect_equal(
        [free_list.pop() for _ in range(4)],
        [1, 7, 3, 5],
        case="FreeList([7, 1, 3, 5]): pop 7 and 1, push 7, push 1, then four times pop()",
        rule="the block that was freed last is handed out first; blocks that were never taken come last",
    )


@pytest.mark.exercise("3.3", "FreeList.push")
def test_a_block_is_freed_once(code: ModuleType) -> None:
    free_list = code.FreeList([7, 1, 3])
    block_id = free_list.pop()
    free_list.push(block_id)
    with expect_error(
        InvariantError,
        case="FreeList([7, 1, 3]): pop() gives 7; push(7), and push(7) again",
        rule="a block that is in the list twice is handed out twice: two sequences would write into it",
    ):
        free_list.push(block_id)
    expect_equal(len(free_list), 3, case="len() after that", rule="a refused push changes nothing")


@pytest.mark.exercise("3.3")
@given(st.permutations(range(1, 7)), st.lists(st.integers(-1, 5), max_size=30))
def test_free_and_held_are_all_blocks(code: ModuleType, block_ids: list[int], actions: list[int]) -> None:
    """−1 is a pop; i pushes the i-th of the held blocks."""
    free_list = code.FreeList(block_ids)
    held: list[int] = []
    for number, action in enumerate(actions):
        if action == -1 and len(held) < 6:
            held.append(free_list.pop())
        elif 0 <= action < len(held):
            free_list.push(held.pop(action))
        case = f"FreeList({block_ids}) after {number + 1} steps, with the blocks {held} handed out"
        expect_equal(len(set(held)), len(held), case=case, rule="no block is handed out twice")
        expect_equal(
            len(free_list), 6 - len(held), case=f"len() of {case}", rule="each block is free or held"
        )


@pytest.mark.exercise("3.3")
@pytest.mark.parametrize(
    ("table", "num_tokens", "free", "expected"),
    [
        ([], 1, [7], [7]),
        ([], 4, [7, 1], [7]),
        ([], 5, [7, 1, 3], [7, 1]),
        ([7], 3, [1], [7]),
        ([7], 4, [], [7]),
        ([7], 5, [1], [7, 1]),
        ([7], 12, [1, 3, 5], [7, 1, 3]),
    ],
)
def test_a_table_grows_on_demand(
    code: ModuleType, table: list[int], num_tokens: int, free: list[int], expected: list[int]
) -> None:
    case = f"grow({table}, {num_tokens}, block_size=4, FreeList({free}))"
    grown, free_list = list(table), code.FreeList(free)
    enough = code.grow(grown, num_tokens, 4, free_list)
    missing = len(expected) - len(table)
    blocks = "1 block" if len(expected) == 1 else f"{len(expected)} blocks"
    tokens = "1 token needs" if num_tokens == 1 else f"{num_tokens} tokens need"
    rule = f"{tokens} {blocks} of 4; the table has {len(table)}, so {missing} more"
    returns = f"it returns True, since there are enough blocks: {rule}, and {len(free)} are free"
    expect_equal(enough, True, case=f"what {case} returns", rule=returns)
    expect_equal(grown, expected, case=f"the table after {case}", rule=rule)
    expect_equal(len(free_list), len(free) - missing, case=f"free blocks after {case}", rule=rule)


@pytest.mark.exercise("3.3")
@pytest.mark.parametrize(("table", "num_tokens", "free"), [([7], 5, []), ([], 5, [7]), ([7], 13, [1, 3])])
def test_all_blocks_or_none(code: ModuleType, table: list[int], num_tokens: int, free: list[int]) -> None:
    case = f"grow({table}, {num_tokens}, block_size=4, FreeList({free}))"
    grown, free_list = list(table), code.FreeList(free)
    enough = code.grow(grown, num_tokens, 4, free_list)
    left = [free_list.pop() for _ in range(len(free_list))]
    state = draw_tables({"table": grown}, free=left, note=f"before: table {table}, free {free}")
    rule = "with too few blocks it returns False, and changes neither the table nor the free list"
    expect_equal(enough, False, case=f"what {case} returns", rule=rule, state=state)
    expect_equal(grown, table, case=f"the table after {case}", rule=rule, state=state)
    expect_equal(
        sorted(left),
        sorted(free),
        case=f"the free blocks after {case}",
        rule="every block is free or in a table: a block that is neither is lost for ever",
        state=state,
    )


@pytest.mark.exercise("3.3")
@given(st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_never_a_block_too_many(code: ModuleType, block_size: int, increments: list[int]) -> None:
    table: list[int] = []
    free_list = code.FreeList(range(1, 21))
    num_tokens = 0
    for more in increments:
        case = f"a table of {len(table)} blocks of {block_size}: grow(table, {num_tokens + more}, …)"
        needed = -(-(num_tokens + more) // block_size)
        enough = code.grow(table, num_tokens + more, block_size, free_list)
        rule = f"it returns whether there are enough blocks: it needs {needed} of the 20"
        expect_equal(enough, needed <= 20, case=f"what it returns; {case}", rule=rule)
        if not enough:
            return
        num_tokens += more
        expect_equal(len(table), needed, case=case, rule="as many blocks as the tokens need, and no more")
        expect_equal(len(set(table)), len(table), case=case, rule="no block is in a table twice")
