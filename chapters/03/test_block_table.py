"""Chapter 3: checks of exercises 3.1 to 3.5, and the reader's blocks in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from minipaged.course.ch03.step import Step, make_step
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect, expect_equal, expect_error
from minipaged.course.seams import ResolvedParts
from minipaged.errors import InvariantError, OutOfBlocksError

TABLE = [7, 9, 3]

# 3.1


@pytest.mark.exercise("3.1")
@pytest.mark.parametrize(
    ("position", "block_size", "expected"),
    [(35, 16, (2, 3)), (0, 16, (0, 0)), (15, 16, (0, 15)), (16, 16, (1, 0)), (5, 1, (5, 0)), (5, 4, (1, 1))],
)
def test_block_and_offset(
    code: ModuleType, position: int, block_size: int, expected: tuple[int, int]
) -> None:
    got = code.translate(position, block_size)
    expect(
        isinstance(got, tuple) and len(got) == 2,
        case=f"translate({position}, {block_size})",
        rule="two numbers, as a tuple: logical block, offset",
        expected=repr(expected),
        got=got,
    )
    expect_equal(
        got,
        expected,
        case=f"translate({position}, {block_size})",
        rule=f"positions 0 to {block_size - 1} fill logical block 0, the next {block_size} block 1; "
        "both numbers count from 0",
    )


@pytest.mark.exercise("3.1")
@pytest.mark.parametrize(("position", "expected"), [(0, 28), (3, 31), (4, 36), (5, 37), (11, 15)])
def test_the_slot_of_one_token(code: ModuleType, position: int, expected: int) -> None:
    logical, offset = divmod(position, 4)
    expect_equal(
        code.slot_of(TABLE, position, 4),
        expected,
        case=f"slot_of({TABLE}, {position}, block_size=4)",
        rule=f"position {position} is in logical block {logical} at offset {offset}; entry {logical} of the "
        f"table is the physical block, whose first slot is 4 times its number",
        state=draw_tables({"logical": range(3), "table": TABLE}),
    )


@pytest.mark.exercise("3.1")
@given(st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True), st.integers(1, 32), st.data())
def test_a_slot_is_in_the_block_of_the_table(
    code: ModuleType, table: list[int], block_size: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(table) * block_size - 1), label="position")
    block, offset = position // block_size, position % block_size
    expect_equal(
        code.slot_of(table, position, block_size),
        table[block] * block_size + offset,
        case=f"slot_of({table}, {position}, block_size={block_size})",
        rule="physical block × block_size + offset",
    )


# 3.2


def _expect_slots(code: ModuleType, table: Sequence[int], start: int, end: int, block_size: int) -> None:
    case = f"slot_mapping(np.array({list(table)}, dtype=np.int32), {start}, {end}, block_size={block_size})"
    got = code.slot_mapping(np.array(table, dtype=np.int32), start, end, block_size)
    expect(
        isinstance(got, np.ndarray) and got.dtype == np.int64,
        case=case,
        rule="the result is a NumPy array of int64",
        got=f"{type(got).__name__} of {getattr(got, 'dtype', 'no dtype')}",
    )
    expected = [table[p // block_size] * block_size + p % block_size for p in range(start, end)]
    expect_equal(
        got.tolist(),
        expected,
        case=case,
        rule=f"one slot for each position from {start} up to and without {end}, each through the table "
        "entry of its own block",
        state=draw_tables({"position": range(start, end), "slot": expected, "yours": got.tolist()})
        if end - start <= 12
        else "",
    )


@pytest.mark.exercise("3.2")
@pytest.mark.parametrize(("start", "end"), [(2, 6), (0, 12), (4, 5), (3, 4), (8, 12), (7, 9)])
def test_the_slots_of_a_range(code: ModuleType, start: int, end: int) -> None:
    _expect_slots(code, TABLE, start, end, 4)


@pytest.mark.exercise("3.2")
def test_the_pool_may_be_large(code: ModuleType) -> None:
    block = 2**27 + 5  # times 16 it is beyond an int32
    table = np.array([1, block], dtype=np.int32)
    got = code.slot_mapping(table, 15, 18, 16)
    expect_equal(
        got.tolist(),
        [31, block * 16, block * 16 + 1],
        case=f"slot_mapping of positions 15 to 17, blocks of 16, table [1, {block:,}] as int32",
        rule="the product of an int32 array with a number is int32, and wraps at 2³¹: first widen, then "
        "multiply",
    )


@pytest.mark.exercise("3.2")
@given(st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True), st.integers(1, 20), st.data())
def test_any_range_of_any_table(
    code: ModuleType, table: list[int], block_size: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(table) * block_size - 1), label="start")
    end = data.draw(st.integers(start + 1, len(table) * block_size), label="end")
    _expect_slots(code, table, start, end, block_size)


# 3.3


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


@pytest.mark.exercise("3.3")
def test_an_empty_list_says_so(code: ModuleType) -> None:
    free_list = code.FreeList([7])
    free_list.pop()
    with expect_error(
        OutOfBlocksError,
        case="a second pop() from FreeList([7])",
        rule="an empty list raises the error that its caller waits for, OutOfBlocksError",
    ):
        free_list.pop()


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
        rule="the block that was freed last is handed out first; then those that never were",
    )


@pytest.mark.exercise("3.3")
def test_a_block_is_freed_once(code: ModuleType) -> None:
    free_list = code.FreeList([7, 1, 3])
    block_id = free_list.pop()
    free_list.push(block_id)
    with expect_error(
        InvariantError,
        case="FreeList([7, 1, 3]): block 7 is popped, pushed, and pushed again",
        rule="a block that is in the list twice is handed out twice: two sequences would write into it",
    ):
        free_list.push(block_id)
    expect_equal(len(free_list), 3, case="len() after that", rule="what is refused changes nothing")


@pytest.mark.exercise("3.3")
@given(st.permutations(range(1, 7)), st.lists(st.integers(-1, 5), max_size=30))
def test_free_and_held_are_all_blocks(code: ModuleType, block_ids: list[int], actions: list[int]) -> None:
    """-1 is a pop; i gives back the i-th of the blocks that are held."""
    free_list = code.FreeList(block_ids)
    held: list[int] = []
    for number, action in enumerate(actions):
        if action == -1 and len(held) < 6:
            held.append(free_list.pop())
        elif 0 <= action < len(held):
            free_list.push(held.pop(action))
        case = f"FreeList({block_ids}) after {number + 1} steps, with the blocks {held} handed out"
        expect_equal(len(set(held)), len(held), case=case, rule="no block is handed out twice")
        expect_equal(len(free_list), 6 - len(held), case=f"len() of {case}", rule="free + held = all")


@pytest.mark.exercise("3.3")
@pytest.mark.parametrize(
    ("table", "num_tokens", "free", "expected"),
    [
        ([], 7, [7, 1, 3], [7, 1]),
        ([], 8, [7, 1, 3], [7, 1]),
        ([7, 1], 8, [3], [7, 1]),
        ([7, 1], 9, [3], [7, 1, 3]),
        ([7], 12, [1, 3], [7, 1, 3]),
        ([7, 1], 8, [], [7, 1]),
    ],
)
def test_a_table_grows_on_demand(
    code: ModuleType, table: list[int], num_tokens: int, free: list[int], expected: list[int]
) -> None:
    case = f"grow({table}, {num_tokens}, block_size=4, FreeList({free}))"
    grown, free_list = list(table), code.FreeList(free)
    enough = code.grow(grown, num_tokens, 4, free_list)
    missing = len(expected) - len(table)
    rule = (
        f"{num_tokens} tokens need {len(expected)} blocks of 4; the table has {len(table)}, so {missing} more"
    )
    expect_equal(enough, True, case=f"what {case} returns", rule=f"{rule}, and {len(free)} are free")
    expect_equal(grown, expected, case=f"the table after {case}", rule=rule)
    expect_equal(len(free_list), len(free) - missing, case=f"free blocks after {case}", rule=rule)


@pytest.mark.exercise("3.3")
@pytest.mark.parametrize(("table", "num_tokens", "free"), [([], 9, [7, 1]), ([7], 13, [1, 3]), ([7], 5, [])])
def test_all_blocks_or_none(code: ModuleType, table: list[int], num_tokens: int, free: list[int]) -> None:
    case = f"grow({table}, {num_tokens}, block_size=4, FreeList({free}))"
    grown, free_list = list(table), code.FreeList(free)
    enough = code.grow(grown, num_tokens, 4, free_list)
    left = [free_list.pop() for _ in range(len(free_list))]
    state = draw_tables({"table": grown}, free=left, note=f"before: table {table}, free {free}")
    rule = "too few blocks: it says False, and neither the table nor the free list has changed"
    expect_equal(enough, False, case=f"what {case} returns", rule=rule, state=state)
    expect_equal(grown, table, case=f"the table after {case}", rule=rule, state=state)
    expect_equal(
        sorted(left),
        sorted(free),
        case=f"the free blocks after {case}",
        rule="free + named by tables = all: a block that is neither is lost for ever",
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
        expect_equal(enough, needed <= 20, case=case, rule=f"it needs {needed} blocks of the 20 there are")
        if not enough:
            return
        num_tokens += more
        expect_equal(len(table), needed, case=case, rule="as many blocks as the tokens need, and no more")
        expect_equal(len(set(table)), len(table), case=case, rule="no block is in a table twice")


# 3.4

BLOCK_SIZE, NUM_BLOCKS = 4, 6
NUM_SLOTS = BLOCK_SIZE * NUM_BLOCKS


def _numbered_layer() -> Tensor:
    """Slot i holds keys around i, and values around 1000 + i; all numbers are different."""
    parts = torch.arange(2.0)[:, None, None, None] * 1000  # [2, 1, 1, 1]
    slots = torch.arange(float(NUM_SLOTS))[None, :, None, None]  # [1, num_slots, 1, 1]
    inside = torch.arange(6.0).view(1, 1, 2, 3) / 10  # [1, 1, num_kv_heads, head_dim]
    return (parts + slots + inside).view(2, NUM_BLOCKS, BLOCK_SIZE, 2, 3)


def _shape(tensor: object) -> tuple[int, ...]:
    return tuple(tensor.shape) if isinstance(tensor, Tensor) else ()


@pytest.mark.exercise("3.4")
@pytest.mark.parametrize("slots", [[13, 14, 15, 4, 5], [9], [4, 23, 8]])
def test_each_token_goes_to_its_slot(code: ModuleType, slots: list[int]) -> None:
    layer = _numbered_layer()
    before = layer.clone().flatten(1, 2)
    key = -torch.arange(1.0, 6 * len(slots) + 1).view(len(slots), 2, 3)
    value = key - 500
    code.write_kv(layer, key, value, torch.tensor(slots))
    after = layer.flatten(1, 2)  # [2, num_slots, num_kv_heads, head_dim]
    for part, name, new in ((0, "keys", key), (1, "values", value)):
        for slot in range(NUM_SLOTS):
            case = f"write_kv of {len(slots)} tokens into slots {slots}: the {name} in slot {slot}"
            place = f"slot {slot} is block {slot // BLOCK_SIZE}, offset {slot % BLOCK_SIZE}"
            if slot in slots:
                token = slots.index(slot)
                rule = f"{place}, and token {token} belongs there; kv_layer[0] holds keys, kv_layer[1] values"
                if torch.equal(after[part, slot], before[part, slot]):
                    rule += ". The layer itself was not written here: a view of it shares its memory, a copy "
                    rule += "does not"
                wanted = new[token]
            else:
                rule, wanted = f"{place}: no token goes there, so it stays as it was", before[part, slot]
            expect_equal(after[part, slot].tolist(), wanted.tolist(), case=case, rule=rule)


def _expect_gathered(code: ModuleType, table: list[int], seq_len: int, padding: int) -> None:
    slots = [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(seq_len)]
    layer = _numbered_layer()
    kept = layer.clone().flatten(1, 2)[:, slots]  # [2, seq_len, num_kv_heads, head_dim]
    others = [slot for slot in range(NUM_SLOTS) if slot not in slots]
    layer.flatten(1, 2)[:, others] = float("nan")
    padded = torch.tensor(table + [0] * padding, dtype=torch.int32)
    case = f"gather(kv_layer, block_table={padded.tolist()}, seq_len={seq_len}), blocks of {BLOCK_SIZE}"
    result = code.gather(layer, padded, seq_len)
    expect(
        isinstance(result, tuple) and len(result) == 2,
        case=case,
        rule="it returns two tensors: keys, values",
        got=type(result).__name__,
    )
    for name, got, wanted in zip(("keys", "values"), result, kept, strict=True):
        expect_equal(
            _shape(got),
            tuple(wanted.shape),
            case=f"shape of the {name} of {case}",
            rule=f"[seq_len, num_kv_heads, head_dim]: {seq_len} tokens, and nothing of what lies behind them",
        )
        # All numbers of a token differ from each other's: the first one tells which slot it is.
        offset = 0 if name == "keys" else 1000
        seen = [round(number - offset) if number == number else "NaN" for number in got[:, 0, 0].tolist()]
        expect_equal(
            seen,
            slots,
            case=f"slots whose {name} came from {case}",
            rule="position p comes from block_table[p // block_size], offset p % block_size, in the order of "
            "the table; NaN is a slot that this sequence does not own",
        )
        expect(torch.equal(got, wanted), case=case, rule=f"the {name}, all heads, unchanged")


@pytest.mark.exercise("3.4")
@pytest.mark.parametrize(
    ("table", "seq_len", "padding"),
    [([4, 2, 5], 10, 0), ([4, 2], 8, 0), ([3], 1, 0), ([5, 1], 5, 2), ([4, 2, 1], 12, 1), ([2], 3, 1)],
)
def test_gathered_in_order(code: ModuleType, table: list[int], seq_len: int, padding: int) -> None:
    _expect_gathered(code, table, seq_len, padding)


@pytest.mark.exercise("3.4")
@given(st.permutations(range(1, NUM_BLOCKS)), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2))
def test_what_is_written_is_gathered(
    code: ModuleType, blocks: list[int], num_blocks: int, empty: int, padding: int
) -> None:
    table = blocks[:num_blocks]
    seq_len = num_blocks * BLOCK_SIZE - empty
    layer = torch.full((2, NUM_BLOCKS, BLOCK_SIZE, 1, 2), float("nan"))
    slots = [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(seq_len)]
    key = torch.arange(2.0 * seq_len).view(seq_len, 1, 2)
    code.write_kv(layer, key, key + 500, torch.tensor(slots))
    keys, values = code.gather(layer, torch.tensor(table + [0] * padding, dtype=torch.int32), seq_len)
    case = f"{seq_len} tokens, written to slots {slots} and gathered through the table {table}"
    for name, got, wanted in (("keys", keys, key), ("values", values, key + 500)):
        expect_equal(
            _shape(got), tuple(wanted.shape), case=f"shape of the {name}: {case}", rule="all of them"
        )
        expect(torch.equal(got, wanted), case=case, rule=f"the {name} come back, in order", got=got.tolist())


# 3.5


@pytest.mark.exercise("3.5")
@pytest.mark.parametrize("tables", [[[7, 9, 3], [5]], [[5], [7, 9, 3], [1, 2]], [[4, 6], [8, 2]], [[3]]])
def test_tables_of_a_batch(code: ModuleType, tables: list[list[int]]) -> None:
    longest = max(map(len, tables))
    case = f"pad_block_tables of the tables {tables}"
    got = code.pad_block_tables([np.array(table, dtype=np.int32) for table in tables])
    expect(
        isinstance(got, np.ndarray) and got.dtype == np.int32,
        case=case,
        rule="the result is a NumPy array of int32, as the tables are",
        got=f"{type(got).__name__} of {getattr(got, 'dtype', 'no dtype')}",
    )
    expect_equal(
        tuple(got.shape),
        (len(tables), longest),
        case=f"shape of {case}",
        rule="a row for each sequence, as wide as the longest table",
    )
    expect_equal(
        got.tolist(),
        [table + [0] * (longest - len(table)) for table in tables],
        case=case,
        rule="each row begins with its table; behind it stands the null block, 0, which may always be read",
    )


def _expect_attention(code: ModuleType, step: Step, case: str) -> None:
    got = code.paged_attention(step.query, step.kv_layer, step.metadata, step.scale)
    wanted = step.expected()
    expect_equal(
        _shape(got),
        tuple(wanted.shape),
        case=f"shape of paged_attention of {case}",
        rule="one row for each query token: [T, num_heads, head_dim]",
    )
    starts = step.metadata.query_start_list
    state = draw_tables(
        {f"seq {i}": table for i, table in enumerate(step.tables)},
        note=f"tokens of each: {step.metadata.seq_lens_list}; rows begin at {starts}",
    )
    for s, seq_len in enumerate(step.metadata.seq_lens_list):
        rows = slice(starts[s], starts[s + 1])
        where = f"sequence {s}, rows {rows.start}:{rows.stop} of the output of paged_attention; {case}"
        expect(
            not bool(got[rows].isnan().any()),
            case=where,
            rule=f"the sequence has {seq_len} tokens; all other slots of its blocks, and blocks in no table, "
            "hold NaN here. Either such a slot was read, or these rows were not all written",
            got=float("nan"),
            state=state,
        )
        error = (got[rows] - wanted[rows]).abs().max().item()
        expect(
            error <= 1e-5,
            case=where,
            rule=f"its queries attend to its own {seq_len} keys, found through row {s} of block_tables, the "
            "newest token's own included; each row of the output belongs to the same row of the query",
            expected=f"PyTorch's attention over the same {seq_len} keys, within 1e-5",
            got=f"up to {error:.2g} away",
            state=state,
        )


@pytest.mark.exercise("3.5")
@pytest.mark.parametrize(
    ("what", "seq_lens", "query_lens"),
    [
        ("one decode", [9], [1]),
        ("one prompt", [7], [7]),
        ("three decodes of different lengths", [5, 12, 2], [1, 1, 1]),
        ("a decode, a prompt and a chunk on top of 6 cached tokens", [10, 6, 11], [1, 6, 5]),
    ],
)
def test_one_step(code: ModuleType, what: str, seq_lens: list[int], query_lens: list[int]) -> None:
    _expect_attention(code, make_step(seq_lens, query_lens), what)


@pytest.mark.exercise("3.5")
def test_the_scale_counts(code: ModuleType) -> None:
    _expect_attention(code, make_step([9, 3], [1, 1], head_dim=16), "two decodes, head_dim 16")


@pytest.mark.exercise("3.5")
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 1000),
)
def test_any_step_with_any_block_size(
    code: ModuleType, sequences: list[tuple[int, int]], block_size: int, seed: int
) -> None:
    seq_lens = [seq_len for seq_len, _ in sequences]
    query_lens = [min(query_len, seq_len) for seq_len, query_len in sequences]
    step = make_step(seq_lens, query_lens, block_size=block_size, seed=seed)
    _expect_attention(
        code, step, f"{seq_lens} tokens, the last {query_lens} computed, blocks of {block_size}"
    )


# Your code in the engine


@pytest.mark.in_engine
def test_your_blocks_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import run_in_engine
    from minipaged.engine import LLMEngine

    held: list[int] = []

    def after_step(engine: LLMEngine) -> None:
        engine.check_invariants()
        stats = engine.stats()
        held.append(stats.num_blocks - 1 - stats.num_free_blocks)

    engine = run_in_engine(resolved, stage=3, block_size=4, after_step=after_step)
    case = f"blocks held after each of {len(held)} steps: {held}"
    expect(
        all(b - a <= 3 for a, b in pairwise(held)) and held[0] < max(held),
        case=case,
        rule="three sequences, which get a block only when their last one is full: growth on demand",
    )
    stats = engine.stats()
    expect_equal(
        stats.num_free_blocks,
        stats.num_blocks - 1,
        case="free blocks after the last request",
        rule="all blocks but the null block are back in the free list",
    )
