"""Chapter 4: checks of exercises 4.1 to 4.6, and their blocks in the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch04.pools import hand_out_next, held, pool_handing_out
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import Wrong, expect, expect_close, expect_equal, expect_error
from minipaged.course.seams import ResolvedParts
from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.copy_on_write import BlockCopy

if TYPE_CHECKING:
    from torch import Tensor

COUNTS = "the count of a block is the number of tables that name it"
BLOCK = 4
"""Tokens per block."""


def _draw(tables: dict[str, list[int]], pool: BlockPool) -> str:
    return draw_tables(tables, pool.ref_cnt, free=list(pool.free_queue))


def _expect_counts(case: str, tables: dict[str, list[int]], pool: BlockPool) -> None:
    """The counts are what the tables say, and the free queue holds the others."""
    named = Counter(block for table in tables.values() for block in table)
    expect_equal(
        held(pool),
        dict(sorted(named.items())),
        case=f"the counts, as block: count, after {case}",
        rule=COUNTS,
        state=_draw(tables, pool),
    )
    nobodys = [block for block in range(1, pool.num_blocks) if block not in named]
    expect_equal(
        sorted(pool.free_queue),
        nobodys,
        case=f"the free blocks after {case}",
        rule="a block is free if, and only if, no table names it",
        state=_draw(tables, pool),
    )


# 4.1


@pytest.mark.exercise("4.1")
def test_both_tables_name_the_blocks(code: ModuleType) -> None:
    ref_cnt, parent = [1, 1, 0, 1], [3, 1]
    child = code.fork(parent, ref_cnt)
    state = draw_tables({"parent": parent, "child": child}, ref_cnt)
    case = "fork([3, 1], ref_cnt) of a table that has both blocks to itself"
    expect_equal(child, [3, 1], case=case, rule="the child begins with the parent's blocks", state=state)
    expect_equal(ref_cnt, [1, 2, 0, 2], case=f"ref_cnt after {case}", rule=COUNTS, state=state)


@pytest.mark.exercise("4.1")
def test_the_child_has_a_table_of_its_own(code: ModuleType) -> None:
    ref_cnt, parent = [1, 1, 0, 1], [3, 1]
    child = code.fork(parent, ref_cnt)
    child.append(2)
    expect_equal(
        parent,
        [3, 1],
        case="the parent's table, after child = fork(parent, ref_cnt) and child.append(2)",
        rule="two sequences part sooner or later, so each has a list of its own",
        state=draw_tables({"parent": parent, "child": child}),
    )


@pytest.mark.exercise("4.1")
@given(st.integers(1, 6), st.integers(0, 5))
def test_every_fork_counts(code: ModuleType, num_blocks: int, num_forks: int) -> None:
    ref_cnt = [1] * (num_blocks + 1)
    tables = {"parent": list(range(num_blocks, 0, -1))}
    for number in range(num_forks):
        tables[f"child {number}"] = code.fork(tables["parent"], ref_cnt)
    expect_equal(
        ref_cnt[1:],
        [1 + num_forks] * num_blocks,
        case=f"the counts of the parent's blocks after {num_forks} forks",
        rule=COUNTS,
        state=draw_tables(tables, ref_cnt),
    )


# 4.2


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
    expect_equal(table, [], case="the table after free([2, 1], [1, 2, 1])", rule="it holds nothing more")
    expect_equal(code.free(table, ref_cnt), [], case="freeing it once more")
    expect_equal(
        ref_cnt,
        [1, 1, 0],
        case="ref_cnt after freeing the same table twice",
        rule="the second time there is nothing to give up: no count is lowered twice",
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
        case = f"free({blocks}, {before}): nobody holds block {bad}"
        with expect_error(InvariantError, case=case, rule="a bug elsewhere; say so, do not make it worse"):
            code.free(table, ref_cnt)
        rule = "nothing has changed: look at all counts before you lower the first"
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
        case="all blocks that were given back, when all tables are freed",
        rule="each block once, by its last holder",
    )


# 4.3


def _figure_8() -> tuple[BlockPool, dict[str, list[int]]]:
    """Two samples of a prompt of 7 tokens, in blocks 7 and 1 of four."""
    pool = pool_handing_out(9, [7, 1, 3])
    a1 = [pool.allocate(), pool.allocate()]
    return pool, {"A1": a1}


@pytest.mark.exercise("4.3")
def test_the_paper_s_figure_8(code: ModuleType) -> None:
    pool, tables = _figure_8()
    tables["A2"] = code.fork(tables["A1"], pool.ref_cnt)
    found = code.append(tables["A1"], 7, 8, BLOCK, pool)
    case = "A1 writes token 7 of its sequence into a block that A2 holds too"
    expect_equal(
        found,
        [BlockCopy(1, 3)],
        case=f"append([7, 1], 7, 8, 4, pool): {case}",
        rule="whoever writes first gets a new block, and its contents are copied there",
        state=_draw(tables, pool),
    )
    expect_equal(tables["A1"], [7, 3], case=f"A1's table after {case}", state=_draw(tables, pool))
    _expect_counts(case, tables, pool)
    found = code.append(tables["A2"], 7, 8, BLOCK, pool)
    case = "then A2 writes its own token 7: it is the only holder by now"
    expect_equal(
        found,
        [],
        case=f"append([7, 1], 7, 8, 4, pool): {case}",
        rule="the last holder writes in place",
        state=_draw(tables, pool),
    )
    expect_equal(tables["A2"], [7, 1], case=f"A2's table after {case}", state=_draw(tables, pool))
    _expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_a_full_block_is_never_copied(code: ModuleType) -> None:
    pool = pool_handing_out(9, [7, 1, 3])
    tables = {"A1": [pool.allocate(), pool.allocate()]}
    tables["A2"] = code.fork(tables["A1"], pool.ref_cnt)
    found = code.append(tables["A1"], 8, 9, BLOCK, pool)
    case = "append([7, 1], 8, 9, 4, pool): both blocks are full and shared"
    rule = "token 8 goes into a third block; the first two are only read"
    expect_equal(found, [], case=case, rule=rule, state=_draw(tables, pool))
    expect_equal(tables["A1"], [7, 1, 3], case=f"the table after {case}", rule=rule)
    _expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_many_tokens_at_once(code: ModuleType) -> None:
    """As after a fork in the middle of a table: beams go back to an earlier token, say."""
    pool = BlockPool(12)
    tables = {"A": [pool.allocate() for _ in range(3)]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    found = code.append(tables["B"], 6, 18, BLOCK, pool)
    case = "append([1, 2, 3], 6, 18, 4, pool), all three blocks shared"
    expect_equal(
        found,
        [BlockCopy(2, 4), BlockCopy(3, 5)],
        case=case,
        rule="every shared block that these positions fall into is replaced, not only one; block 1 is read",
        state=_draw(tables, pool),
    )
    expect_equal(
        tables["B"],
        [1, 4, 5, 6, 7],
        case=f"the table after {case}",
        rule="18 tokens in blocks of 4: five blocks",
        state=_draw(tables, pool),
    )
    _expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_blocks_that_are_not_written_stay_shared(code: ModuleType) -> None:
    """A table may be longer than the written tokens need."""
    pool = BlockPool(8)
    tables = {"A": [pool.allocate() for _ in range(3)]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    found = code.append(tables["B"], 5, 7, BLOCK, pool)
    case = "append([1, 2, 3], 5, 7, 4, pool), all three blocks shared"
    rule = "tokens 5 and 6 fall into the second block alone: the others stay as they are"
    expect_equal(found, [BlockCopy(2, 4)], case=case, rule=rule, state=_draw(tables, pool))
    expect_equal(tables["B"], [1, 4, 3], case=f"the table after {case}", rule=rule)
    _expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_a_long_table_makes_no_room(code: ModuleType) -> None:
    pool = BlockPool(3)
    tables = {"A": [pool.allocate(), pool.allocate()]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    case = "append([1, 2], 2, 3, 4, pool): one copy is wanted, no block is free"
    rule = "a block that the table has beyond `end` is no room for a copy"
    try:
        found = code.append(tables["B"], 2, 3, BLOCK, pool)
    except OutOfBlocksError as error:
        raise Wrong(case=case, expected="None", got="an OutOfBlocksError", rule=rule) from error
    expect_equal(found, None, case=case, rule=rule, state=_draw(tables, pool))
    expect_equal(tables["B"], [1, 2], case=f"the table after {case}", rule="nothing has changed")
    _expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
@pytest.mark.parametrize(
    ("start", "end", "num_free", "why"),
    [
        (3, 4, 0, "one copy is wanted, no block is free"),
        (4, 9, 1, "two more blocks are wanted, one is free"),
        (3, 9, 2, "a copy and two more blocks are wanted, two are free"),
    ],
)
def test_without_room_nothing_changes(
    code: ModuleType, start: int, end: int, num_free: int, why: str
) -> None:
    pool = BlockPool(2 + num_free)
    tables = {"A": [pool.allocate()]}
    tables["B"] = code.fork(tables["A"], pool.ref_cnt)
    case = f"append([1], {start}, {end}, 4, pool): {why}"
    expect_equal(
        code.append(tables["B"], start, end, BLOCK, pool),
        None,
        case=case,
        rule="count first what is wanted; say None before anything is taken",
        state=_draw(tables, pool),
    )
    expect_equal(tables["B"], [1], case=f"the table after {case}", rule="nothing has changed")
    _expect_counts(case, tables, pool)


@pytest.mark.exercise("4.3")
def test_the_last_block_can_be_had(code: ModuleType) -> None:
    pool = BlockPool(4)
    tables = {"A": [pool.allocate()]}
    case = "append([1], 3, 10, 4, pool): two more blocks are wanted, and two are free"
    found = code.append(tables["A"], 3, 10, BLOCK, pool)
    expect_equal(found, [], case=case, rule="enough is enough", state=_draw(tables, pool))
    _expect_counts(case, tables, pool)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "fork", "free"]), st.integers(0, 3), st.integers(1, 6)),
    max_size=14,
)


class _Texts:
    """Sequences without a model: a slot holds the number of the token that was written there."""

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
        _expect_counts(f"{step} {name}", self.tables, self.pool)
        self._expect_everybody_reads_their_own(f"{step} {name}")

    def _append(self, name: str, amount: int) -> None:
        table, text = self.tables[name], self.texts[name]
        start, end = len(text), len(text) + amount
        before, free = list(table), self.pool.num_free
        copies = self.code.append(table, start, end, BLOCK, self.pool)
        case = f"append({before}, {start}, {end}, 4, pool) of {name}, {free} blocks free"
        if copies is None:
            expect_equal(table, before, case=f"the table after {case} was refused")
            return
        read = {copy: [self.slots.get((copy.source, i), -1) for i in range(BLOCK)] for copy in copies}
        for copy, tokens in read.items():
            self.slots |= {(copy.target, i): token for i, token in enumerate(tokens)}
        expect_equal(
            len(table),
            -(-end // BLOCK),
            case=f"the length of the table after {case}",
            rule=f"{end} tokens in blocks of 4",
            state=_draw(self.tables, self.pool),
        )
        for position in range(start, end):
            self.slots[table[position // BLOCK], position % BLOCK] = self._num_tokens
            text.append(self._num_tokens)
            self._num_tokens += 1

    def _expect_everybody_reads_their_own(self, case: str) -> None:
        for name, text in self.texts.items():
            table = self.tables[name]
            read = [self.slots.get((table[i // BLOCK], i % BLOCK)) for i in range(len(text))]
            expect_equal(
                read,
                text,
                case=f"the tokens that {name} reads through its table, after {case}",
                rule="nobody writes into a block that others read",
                state=_draw(self.tables, self.pool),
            )


@pytest.mark.exercise("4.3")
@given(_STEPS, st.sampled_from([4, 7, 30]))
def test_everybody_reads_their_own_tokens(
    code: ModuleType, steps: list[tuple[str, int, int]], num_blocks: int
) -> None:
    texts = _Texts(code, num_blocks)
    for step in [("append", 0, 6), *steps]:
        texts.do(*step)


# 4.4


def _numbered_cache(num_layers: int = 3, num_blocks: int = 6) -> Tensor:
    """A different number everywhere."""
    import torch

    shape = (num_layers, 2, num_blocks, BLOCK, 2, 3)
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def _origin(cache: Tensor, before: Tensor) -> list[str]:
    """For each block what it holds: whose contents, or where it is a mixture."""
    found = []
    for block in range(cache.shape[2]):
        whose = [
            other
            for other in range(cache.shape[2])
            if bool((cache[:, :, block] == before[:, :, other]).all())
        ]
        found.append(str(whose[0]) if whose else "?")
    return found


def _expect_copied(code: ModuleType, copies: list[BlockCopy]) -> None:
    cache = _numbered_cache()
    before = cache.clone()
    code.copy_blocks(cache, copies)
    holds = list(range(cache.shape[2]))
    for copy in copies:
        holds[copy.target] = copy.source
    got = _origin(cache, before)
    pairs = ", ".join(f"{copy.source} → {copy.target}" for copy in copies)
    for layer in range(cache.shape[0]):
        for half, name in enumerate(("keys", "values")):
            wrong = [
                block
                for block, source in enumerate(holds)
                if not bool((cache[layer, half, block] == before[layer, half, source]).all())
            ]
            if wrong:
                raise Wrong(
                    case=f"copy_blocks(cache, copies) with {pairs or 'no copies'}",
                    expected=f"blocks 0 to 5 hold what was in {holds}",
                    got=f"what was in [{', '.join(got)}] (? is none of them)",
                    rule="in all layers, keys and values, and all copies at once: each target gets what "
                    f"its source held before. Wrong: the {name} of layer {layer}, in blocks {wrong}",
                )


@pytest.mark.exercise("4.4")
@pytest.mark.parametrize(
    "pairs", [[(1, 3)], [(1, 3), (4, 5)], [(1, 2), (1, 3), (1, 4)], [], [(1, 2), (2, 3)], [(1, 2), (2, 1)]]
)
def test_every_layer_is_copied_at_once(code: ModuleType, pairs: list[tuple[int, int]]) -> None:
    _expect_copied(code, [BlockCopy(*pair) for pair in pairs])


@pytest.mark.exercise("4.4")
@given(st.lists(st.integers(1, 5), max_size=5, unique=True), st.data())
def test_the_order_does_not_matter(code: ModuleType, targets: list[int], data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(1, 5), min_size=len(targets), max_size=len(targets)))
    _expect_copied(code, [BlockCopy(*pair) for pair in zip(sources, targets, strict=True)])


# 4.5


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize("num_samples", [1, 2, 5])
def test_samples_begin_with_one_set_of_blocks(code: ModuleType, num_samples: int) -> None:
    pool = pool_handing_out(9, [7, 1])
    prompt = [pool.allocate(), pool.allocate()]
    found = code.start_samples(prompt, num_samples, pool.ref_cnt)
    tables = {f"A{i}": table for i, table in enumerate(found, 1)}
    case = f"start_samples([7, 1], {num_samples}, ref_cnt)"
    rule = "the first sample has the prompt's table, and each other one a fork of it"
    expect_equal(found, [[7, 1]] * num_samples, case=case, rule=rule, state=_draw(tables, pool))
    _expect_counts(case, tables, pool)
    found[-1].append(2)
    expect_equal(
        [len(table) for table in found],
        [2] * (num_samples - 1) + [3],
        case=f"the lengths of the tables, one block added to the last, after {case}",
        rule="each sample has a list of its own",
    )


def _cache_and_words(num_blocks: int, num_samples: int, steps: int) -> tuple[Tensor, Tensor]:
    """A cache of which nothing was written, and each token's keys and values: a number of its own."""
    import torch

    cache = torch.full((2, 2, num_blocks, BLOCK, 1, 2), -1.0)
    words = 100.0 + torch.arange(float(steps * num_samples)).view(steps, num_samples, 1, 1, 1, 1)
    return cache, words.expand(steps, num_samples, 2, 2, 1, 2)


def _read(cache: Tensor, table: Sequence[int], num_tokens: int) -> list[list[int]]:
    """Of each layer's keys, and of its values: the numbers of a sequence's tokens."""
    return [
        [int(half[table[i // BLOCK], i % BLOCK, 0, 0]) for i in range(num_tokens)]
        for layer in cache
        for half in layer
    ]


def _expect_samples_decode(
    code: ModuleType, num_prompt_tokens: int, num_samples: int, num_steps: int
) -> tuple[list[list[int]], BlockPool, int]:
    """Returns the samples' tables, the pool, and how many blocks were copied."""
    pool = BlockPool(2 + num_samples * (-(-(num_prompt_tokens + num_steps) // BLOCK)))
    prompt = [pool.allocate() for _ in range(-(-num_prompt_tokens // BLOCK))]
    cache, words = _cache_and_words(pool.num_blocks, num_samples, num_steps)
    for position in range(num_prompt_tokens):
        cache[:, :, prompt[position // BLOCK], position % BLOCK] = float(position)
    tables = code.start_samples(prompt, num_samples, pool.ref_cnt)
    named = {f"A{i}": table for i, table in enumerate(tables, 1)}
    num_copies = 0
    for step in range(num_steps):
        position = num_prompt_tokens + step
        num_copies += len(code.decode_step(cache, tables, position, words[step], pool))
        case = f"{num_samples} samples of a prompt of {num_prompt_tokens} tokens, after {step + 1} steps"
        _expect_counts(case, named, pool)
        for i, (name, table) in enumerate(named.items()):
            own = [100 + each * num_samples + i for each in range(step + 1)]
            text = [*range(num_prompt_tokens), *own]
            for half, got in enumerate(_read(cache, table, position + 1)):
                expect_equal(
                    got,
                    text,
                    case=f"what {name} reads in layer {half // 2}, {'keys' if half % 2 == 0 else 'values'}: "
                    f"{case}. Prompt tokens are 0, 1, …; those of {name} 100 + {i}, and so on",
                    rule="each sample reads its own tokens, in every layer; check the order of the copies, "
                    "and the axes of new_kv",
                    state=_draw(named, pool),
                )
    return tables, pool, num_copies


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize(
    ("num_prompt_tokens", "num_samples", "num_copies"), [(7, 2, 1), (8, 3, 0), (5, 4, 3), (6, 1, 0)]
)
def test_samples_decode_side_by_side(
    code: ModuleType, num_prompt_tokens: int, num_samples: int, num_copies: int
) -> None:
    _, _, copied = _expect_samples_decode(code, num_prompt_tokens, num_samples, 6)
    expect_equal(
        copied,
        num_copies,
        case=f"copies that decode_step returned for {num_samples} samples of {num_prompt_tokens} tokens",
        rule="a prompt's last block is copied once for each sample but one, if it is not full",
    )


@pytest.mark.exercise("4.5")
def test_a_step_without_room_is_refused(code: ModuleType) -> None:
    pool = BlockPool(2)
    cache, words = _cache_and_words(2, 2, 1)
    tables = code.start_samples([pool.allocate()], 2, pool.ref_cnt)
    with expect_error(OutOfBlocksError, case="two samples want to write into one block; no other is free"):
        code.decode_step(cache, tables, 3, words[0], pool)


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize(
    ("tables", "saving"),
    [
        ([[7, 1], [7, 3]], 0.25),
        ([[1, 2, 3], [1, 2, 4], [1, 5]], 3 / 8),
        ([[1, 2], [3, 4]], 0.0),
        ([[5]], 0.0),
        ([], 0.0),
        ([[1], [1], [1], [1]], 0.75),
    ],
)
def test_saved_over_unshared(code: ModuleType, tables: list[list[int]], saving: float) -> None:
    expect_close(
        code.sharing_saving(tables),
        saving,
        case=f"sharing_saving({tables})",
        rule="entries of tables that need no block of their own, over all entries",
    )


@pytest.mark.exercise("4.5")
@pytest.mark.parametrize(("num_samples", "saving"), [(2, 0.36), (4, 0.54), (6, 0.60)])
def test_the_article_s_table(code: ModuleType, num_samples: int, saving: float) -> None:
    """A prompt of 300 tokens and 100 new ones, in blocks of 16."""
    import torch

    pool = BlockPool(200)
    cache = torch.zeros(1, 2, 200, 16, 1, 1)
    tables = code.start_samples([pool.allocate() for _ in range(19)], num_samples, pool.ref_cnt)
    for position in range(300, 400):
        code.decode_step(cache, tables, position, torch.zeros(num_samples, 1, 2, 1, 1), pool)
    expect_close(
        code.sharing_saving(tables),
        saving,
        case=f"{num_samples} samples, 300 tokens of prompt, 100 new ones each, blocks of 16",
        rule="18 full blocks are shared; the nineteenth is copied, and each sample ends with 25",
    )


# 4.6


@pytest.mark.exercise("4.6")
@pytest.mark.parametrize(
    ("cum_logprobs", "candidates", "beam_width", "expected"),
    [
        ([0.0], [[(3, -1.0), (4, -2.0), (5, -3.0)]], 2, [(0, 3, -1.0), (0, 4, -2.0)]),
        ([-1.0, -2.0], [[(5, -3.0), (6, -0.5)], [(7, -0.25)]], 2, [(0, 6, -1.5), (1, 7, -2.25)]),
        # Both of the best have the same parent, and the other beam ends.
        ([-1.0, -4.0], [[(5, -1.0), (6, -2.0)], [(7, -0.5), (8, -1.0)]], 2, [(0, 5, -2.0), (0, 6, -3.0)]),
        # The likelier token is not enough: what counts is the sum.
        ([-9.0, -1.0], [[(1, -0.5)], [(2, -5.0)]], 1, [(1, 2, -6.0)]),
        ([-1.0, -1.0], [[(9, -1.0)], [(2, -1.0), (1, -1.0)]], 3, [(0, 9, -2.0), (1, 1, -2.0), (1, 2, -2.0)]),
        ([-1.0], [[(2, -1.0)]], 4, [(0, 2, -2.0)]),
    ],
)
def test_the_best_of_all_beams(
    code: ModuleType,
    cum_logprobs: list[float],
    candidates: list[list[tuple[int, float]]],
    beam_width: int,
    expected: list[tuple[int, int, float]],
) -> None:
    got = code.best_extensions(cum_logprobs, candidates, beam_width)
    expect_equal(
        [tuple(each) for each in got],
        expected,
        case=f"best_extensions({cum_logprobs}, {candidates}, {beam_width}), as (parent, token, sum)",
        rule="one ranking over all beams by the sum; of equals the earlier beam, then the lower token",
    )


def _figure_9() -> tuple[BlockPool, dict[str, list[int]]]:
    """The four candidates before the dotted line. Block 13 stands for the paper's block 0, which is
    our null block."""
    pool = pool_handing_out(14, [13, 1, 3, 5, 6, 7, 2, 4, 8])
    blocks = {name: pool.allocate() for name in (13, 1, 3, 5, 6, 7, 2, 4, 8)}
    for shared, count in ((13, 4), (1, 3), (3, 3)):
        pool.ref_cnt[blocks[shared]] = count
    return pool, {"0": [13, 1, 3, 5], "1": [13, 1, 3, 6], "2": [13, 1, 3, 7], "3": [13, 2, 4, 8]}


@pytest.mark.exercise("4.6")
def test_the_paper_s_figure_9(code: ModuleType) -> None:
    pool, before = _figure_9()
    found = code.follow(list(before.values()), [1, 1, 2, 2], pool)
    tables = {f"new {i}": table for i, table in enumerate(found)}
    case = "follow(tables, [1, 1, 2, 2], pool): the next four descend from candidates 1 and 2"
    expect_equal(
        found,
        [[13, 1, 3, 6], [13, 1, 3, 6], [13, 1, 3, 7], [13, 1, 3, 7]],
        case=case,
        rule="each new beam begins with its parent's blocks",
        state=_draw(tables, pool),
    )
    _expect_counts(case, tables, pool)
    hand_out_next(pool, [9, 10, 11, 12])
    for i, table in enumerate(found):
        expect_equal(code.append(table, 16, 17, BLOCK, pool), [], case=f"the next token of new beam {i}")
    expect_equal(
        [table[-1] for table in found],
        [9, 10, 11, 12],
        case="the blocks that the next tokens go into",
        rule="the shared blocks are full, so nothing is copied",
        state=_draw(tables, pool),
    )


@pytest.mark.exercise("4.6")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.lists(st.lists(st.integers(0, 3)), max_size=3))
def test_following_keeps_the_counts(code: ModuleType, first: list[int], further: list[list[int]]) -> None:
    pool = BlockPool(60)
    shared = pool.allocate()
    pool.ref_cnt[shared] = 4
    tables = [[shared, pool.allocate()] for _ in range(4)]
    for length, chosen in enumerate([first, *(each[:4] for each in further)], 2):
        before, parents = [list(table) for table in tables], [each % len(tables) for each in chosen]
        case = f"follow({before}, {parents}, pool)"
        tables = code.follow(tables, parents, pool)
        named = {f"new {i}": table for i, table in enumerate(tables)}
        expect_equal(tables, [before[parent] for parent in parents], case=case, state=_draw(named, pool))
        _expect_counts(case, named, pool)
        if not tables:
            return
        for table in tables:
            code.append(table, length * BLOCK, length * BLOCK + 1, BLOCK, pool)
        _expect_counts(f"each new beam got a block, after {case}", named, pool)


# Your code in the engine


@pytest.mark.in_engine
def test_your_blocks_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged import BeamSearchParams, SamplingParams
    from minipaged.course.ch04.beams import expect_beams
    from minipaged.course.in_engine import run_in_engine

    # The likeliest token alone, so that samples are greedy and can be held against the oracle.
    samples = SamplingParams(n=3, top_k=1, max_tokens=12, ignore_eos=True)
    engine = run_in_engine(resolved, stage=4, block_size=4, num_blocks=160, params=samples)
    stats = engine.stats()
    expect(
        stats.num_copied_blocks > 0 and stats.sharing_saving > 0,
        case="three prompts with three samples each, in blocks of 4",
        rule="samples share their prompt's blocks, and copy the last one",
        got=f"{stats.num_copied_blocks} blocks copied, {stats.sharing_saving:.0%} saved",
    )
    # Beams differ in their tokens, so that one which reads another's would be found out.
    expect_beams(resolved, BeamSearchParams(beam_width=4, max_tokens=14, ignore_eos=True))
