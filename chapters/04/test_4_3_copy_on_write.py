"""Checks of exercise 4.3: room for tokens, with copies on write."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch04.counts import BLOCK_SIZE, draw_pool, expect_counts
from minipaged.course.ch04.pools import pool_handing_out
from minipaged.course.expect import Wrong, expect_equal
from minipaged.errors import OutOfBlocksError
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.copy_on_write import BlockCopy


def _append(
    code: ModuleType, table: list[int], start: int, end: int, pool: BlockPool, *, case: str, rule: str
) -> list[BlockCopy] | None:
    """What `append` returns. If the pool runs out of blocks, it should have returned None."""
    try:
        return code.append(table, start, end, BLOCK_SIZE, pool)
    except OutOfBlocksError as error:
        raise Wrong(case=case, expected="None", got="an OutOfBlocksError", rule=rule) from error


@pytest.mark.exercise("4.3")
@pytest.mark.parametrize(
    ("table", "start", "end", "after", "rule"),
    [
        ([], 0, 1, [1], "the first token needs a block"),
        ([], 0, 4, [1], "four tokens fill one block of 4 exactly"),
        ([], 0, 5, [1, 2], "five tokens need two blocks of 4"),
        ([1], 1, 2, [1], "the block has room, and only this table names it: nothing to do"),
        ([1], 4, 5, [1, 2], "the block is full: the next token begins a new one"),
    ],
)
def test_a_table_that_shares_nothing_grows(
    code: ModuleType, table: list[int], start: int, end: int, after: list[int], rule: str
) -> None:
    pool = BlockPool(6)
    tables = {"A": [pool.allocate() for _ in table]}
    found = code.append(tables["A"], start, end, BLOCK_SIZE, pool)
    case = f"append({table}, {start}, {end}, 4, pool): no block is shared"
    state = draw_pool(tables, pool)
    alone = "a block that only this table names is written in place, without a copy"
    expect_equal(found, [], case=case, rule=alone, state=state)
    expect_equal(tables["A"], after, case=f"the table after {case}", rule=rule, state=state)
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
@pytest.mark.parametrize(("end", "after"), [(4, [2]), (5, [2, 3])])
def test_one_block_that_two_tables_name(code: ModuleType, end: int, after: list[int]) -> None:
    pool = BlockPool(6)
    tables = {"A": [pool.allocate()]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    found = code.append(tables["A"], 3, end, BLOCK_SIZE, pool)
    case = f"append([1], 3, {end}, 4, pool) of A: B names block 1 too"
    expect_equal(
        found,
        [BlockCopy(1, 2)],
        case=case,
        rule="token 3 goes into block 1, which B reads: so A gets a new block, and a copy of the old one",
        state=draw_pool(tables, pool),
    )
    rule = "the new block takes the old one's place; then the table grows"
    expect_equal(tables["A"], after, case=f"A's table after {case}", rule=rule, state=draw_pool(tables, pool))
    expect_equal(tables["B"], [1], case=f"B's table after {case}", rule="B has not written anything")
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
@pytest.mark.parametrize(
    ("start", "end", "num_free", "why"),
    [
        (4, 5, 0, "one more block is needed, none is free"),
        (3, 4, 0, "one copy is needed, no block is free"),
        (4, 9, 1, "two more blocks are needed, one is free"),
        (3, 9, 2, "a copy and two more blocks are needed, two are free"),
    ],
)
def test_without_room_nothing_changes(
    code: ModuleType, start: int, end: int, num_free: int, why: str
) -> None:
    pool = BlockPool(2 + num_free)
    tables = {"A": [pool.allocate()]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    case = f"append([1], {start}, {end}, 4, pool) of B, A names block 1 too: {why}"
    rule = "first count the blocks that are needed, and return None before you take any"
    if start == 3:
        rule += ". A copy takes a free block as well"
    found = _append(code, tables["B"], start, end, pool, case=case, rule=rule)
    expect_equal(found, None, case=case, rule=rule, state=draw_pool(tables, pool))
    expect_equal(tables["B"], [1], case=f"the table after {case}", rule="nothing has changed")
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
@pytest.mark.parametrize(
    ("end", "why"),
    [(5, "one more block is needed, and one is free"), (10, "two are needed, and two are free")],
)
def test_the_last_block_can_be_had(code: ModuleType, end: int, why: str) -> None:
    pool = BlockPool(1 + -(-end // BLOCK_SIZE))
    tables = {"A": [pool.allocate()]}
    case = f"append([1], 4, {end}, 4, pool): {why}"
    found = code.append(tables["A"], 4, end, BLOCK_SIZE, pool)
    expect_equal(
        found, [], case=case, rule="there are just enough free blocks", state=draw_pool(tables, pool)
    )
    expect_counts(case, tables, pool)


def _figure_8() -> tuple[BlockPool, dict[str, list[int]]]:
    """Two samples of a prompt of 7 tokens, in blocks 7 and 1 of four."""
    pool = pool_handing_out(9, [7, 1, 3])
    a1 = [pool.allocate(), pool.allocate()]
    return pool, {"A1": a1}


@pytest.mark.exercise("4.3")
def test_the_paper_s_figure_8(code: ModuleType) -> None:
    pool, tables = _figure_8()
    tables["A2"] = code.fork(tables["A1"], pool.ref_cnt)
    found = code.append(tables["A1"], 7, 8, BLOCK_SIZE, pool)
    case = "A1 writes token 7 of its sequence into a block that A2 holds too"
    expect_equal(
        found,
        [BlockCopy(1, 3)],
        case=f"append([7, 1], 7, 8, 4, pool): {case}",
        rule="token 7 goes into block 1, which A2 reads: A1 gets a new block, and only block 1 is copied",
        state=draw_pool(tables, pool),
    )
    expect_equal(
        tables["A1"],
        [7, 3],
        case=f"A1's table after {case}",
        rule="the new block takes the old one's place; block 7 is only read",
        state=draw_pool(tables, pool),
    )
    expect_counts(case, tables, pool)
    found = code.append(tables["A2"], 7, 8, BLOCK_SIZE, pool)
    case = "then A2 writes its own token 7: it is the only holder now"
    expect_equal(
        found,
        [],
        case=f"append([7, 1], 7, 8, 4, pool): {case}",
        rule="the last holder writes in place",
        state=draw_pool(tables, pool),
    )
    expect_equal(
        tables["A2"],
        [7, 1],
        case=f"A2's table after {case}",
        rule="the last holder keeps its block",
        state=draw_pool(tables, pool),
    )
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_a_full_block_is_never_copied(code: ModuleType) -> None:
    pool = pool_handing_out(9, [7, 1, 3])
    tables = {"A1": [pool.allocate(), pool.allocate()]}
    tables["A2"] = code.fork(tables["A1"], pool.ref_cnt)
    found = code.append(tables["A1"], 8, 9, BLOCK_SIZE, pool)
    case = "append([7, 1], 8, 9, 4, pool): both blocks are full and shared"
    rule = "token 8 goes into a third block; the first two are only read"
    expect_equal(found, [], case=case, rule=rule, state=draw_pool(tables, pool))
    expect_equal(tables["A1"], [7, 1, 3], case=f"the table after {case}", rule=rule)
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_many_tokens_at_once(code: ModuleType) -> None:
    """As after a fork in the middle of a table, for example when beams go back to an earlier token."""
    pool = BlockPool(12)
    tables = {"A": [pool.allocate() for _ in range(3)]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    found = code.append(tables["B"], 6, 18, BLOCK_SIZE, pool)
    case = "append([1, 2, 3], 6, 18, 4, pool), all three blocks shared"
    expect_equal(
        found,
        [BlockCopy(2, 4), BlockCopy(3, 5)],
        case=case,
        rule="every shared block of these positions is replaced, not only one; block 1 is only read",
        state=draw_pool(tables, pool),
    )
    expect_equal(
        tables["B"],
        [1, 4, 5, 6, 7],
        case=f"the table after {case}",
        rule="18 tokens in blocks of 4: five blocks",
        state=draw_pool(tables, pool),
    )
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_blocks_that_are_not_written_stay_shared(code: ModuleType) -> None:
    """A table may be longer than the written tokens need."""
    pool = BlockPool(8)
    tables = {"A": [pool.allocate() for _ in range(3)]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    found = code.append(tables["B"], 5, 7, BLOCK_SIZE, pool)
    case = "append([1, 2, 3], 5, 7, 4, pool), all three blocks shared"
    rule = "tokens 5 and 6 are both in the second block: the other blocks do not change"
    expect_equal(found, [BlockCopy(2, 4)], case=case, rule=rule, state=draw_pool(tables, pool))
    expect_equal(tables["B"], [1, 4, 3], case=f"the table after {case}", rule=rule)
    expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_a_long_table_makes_no_room(code: ModuleType) -> None:
    pool = BlockPool(3)
    tables = {"A": [pool.allocate(), pool.allocate()]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    case = "append([1, 2], 2, 3, 4, pool): one copy is needed, no block is free"
    rule = "a block of the table after `end` cannot be used for the copy"
    found = _append(code, tables["B"], 2, 3, pool, case=case, rule=rule)
    expect_equal(found, None, case=case, rule=rule, state=draw_pool(tables, pool))
    expect_equal(tables["B"], [1, 2], case=f"the table after {case}", rule="nothing has changed")
    expect_counts(case, tables, pool)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "fork", "free"]), st.integers(0, 3), st.integers(1, 6)),
    max_size=14,
)


class _Texts:
    """Sequences without a model: each slot holds the number of the token that was written there."""

    def __init__(self, code: ModuleType, num_blocks: int) -> None:
        self.code = code
        self.pool = BlockPool(num_blocks)
        self.tables: dict[str, list[int]] = {"s0": []}
        self.texts: dict[str, list[int]] = {"s0": []}
        self.slots: dict[tuple[int, int], int] = {}
        self._num_tokens = 0

    def do(self, step: str, which: int, amount: int) -> None:
        names = list(self.tables)
        if not names:
            return
        name = names[which % len(names)]
        if step == "fork":
            child = f"s{1 + max(int(each[1:]) for each in names)}"
            self.tables[child] = self.code.fork(self.tables[name], self.pool.ref_cnt)
            self.texts[child] = list(self.texts[name])
        elif step == "free":
            for block in self.code.free(self.tables.pop(name), self.pool.ref_cnt):
                self.pool.put_back(block)
            del self.texts[name]
        else:
            self._append(name, amount)
        expect_counts(f"{step} {name}", self.tables, self.pool)
        self._expect_everybody_reads_their_own(f"{step} {name}")

    def _append(self, name: str, amount: int) -> None:
        table, text = self.tables[name], self.texts[name]
        start, end = len(text), len(text) + amount
        before, free = list(table), self.pool.num_free
        copies = self.code.append(table, start, end, BLOCK_SIZE, self.pool)
        case = f"append({before}, {start}, {end}, 4, pool) of {name}, {free} blocks free"
        if copies is None:
            expect_equal(table, before, case=f"the table after {case} was refused")
            return
        read = {copy: [self.slots.get((copy.source, i), -1) for i in range(BLOCK_SIZE)] for copy in copies}
        for copy, tokens in read.items():
            self.slots |= {(copy.target, i): token for i, token in enumerate(tokens)}
        expect_equal(
            len(table),
            -(-end // BLOCK_SIZE),
            case=f"the length of the table after {case}",
            rule=f"{end} tokens in blocks of 4",
            state=draw_pool(self.tables, self.pool),
        )
        for position in range(start, end):
            self.slots[table[position // BLOCK_SIZE], position % BLOCK_SIZE] = self._num_tokens
            text.append(self._num_tokens)
            self._num_tokens += 1

    def _expect_everybody_reads_their_own(self, case: str) -> None:
        for name, text in self.texts.items():
            table = self.tables[name]
            read = [self.slots.get((table[i // BLOCK_SIZE], i % BLOCK_SIZE)) for i in range(len(text))]
            expect_equal(
                read,
                text,
                case=f"the tokens that {name} reads through its table, after {case}",
                rule="a table never writes into a block that another table reads",
                state=draw_pool(self.tables, self.pool),
            )


@pytest.mark.exercise("4.3")
@given(_STEPS, st.sampled_from([4, 7, 30]))
def test_everybody_reads_their_own_tokens(
    code: ModuleType, steps: list[tuple[str, int, int]], num_blocks: int
) -> None:
    texts = _Texts(code, num_blocks)
    for step in [("append", 0, 6), *steps]:
        texts.do(*step)
