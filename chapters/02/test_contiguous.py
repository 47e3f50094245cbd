"""Chapter 2: checks of exercises 2.1 to 2.5, and their regions in the engine."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.config import EngineConfig, EngineOptions
from minipaged.course.ch02.drawing import draw_orders, draw_regions, ruler
from minipaged.course.ch02.static_batch import StaticBatch
from minipaged.course.expect import expect, expect_equal
from minipaged.course.seams import ResolvedParts
from minipaged.kv.region_allocator import Region
from minipaged.sim.lengths import RequestLengths

if TYPE_CHECKING:
    from torch import Tensor

# torch takes seconds to import, and most exercises here do without: so it is imported where it is used.

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

# 2.1


def _gaps(taken: list[bool]) -> list[Region]:
    """The longest runs of slots that are not taken."""
    starts = [i for i, mark in enumerate(taken) if not mark and (i == 0 or taken[i - 1])]
    return [Region(i, next((j for j in range(i, len(taken)) if taken[j]), len(taken)) - i) for i in starts]


def _spans(free: list[Region]) -> str:
    return ", ".join(f"{each.start} to {each.end - 1}" for each in free)


def _held(free: list[Region], num_slots: int) -> dict[str, Region]:
    """What lies between free regions, with letters."""
    marks = [any(each.start <= slot < each.end for each in free) for slot in range(num_slots)]
    return dict(zip(LETTERS, _gaps(marks), strict=False))


@pytest.mark.exercise("2.1")
@pytest.mark.parametrize(
    ("free", "num_slots", "start", "left", "rule"),
    [
        (
            [Region(0, 6), Region(8, 3)],
            3,
            0,
            [Region(3, 3), Region(8, 3)],
            "the first region that is large enough, even if a later one fits more tightly",
        ),
        (
            [Region(0, 2), Region(4, 5)],
            4,
            4,
            [Region(0, 2), Region(8, 1)],
            "a region that is too small is skipped, and stays free",
        ),
        (
            [Region(0, 2), Region(4, 3), Region(9, 3)],
            3,
            4,
            [Region(0, 2), Region(9, 3)],
            "a region of exactly the wanted size is large enough; taken whole, it leaves no empty one behind",
        ),
        ([Region(2, 8)], 8, 2, [], "all that is free may be taken"),
        (
            [Region(0, 4), Region(6, 4)],
            5,
            None,
            [Region(0, 4), Region(6, 4)],
            "8 slots are free, but no 5 of them lie together; then nothing changes",
        ),
        ([], 1, None, [], "nothing is free"),
    ],
)
def test_take_from_the_first_gap(
    code: ModuleType, free: list[Region], num_slots: int, start: int | None, left: list[Region], rule: str
) -> None:
    case = f"allocate_first_fit(free, {num_slots}) with slots {_spans(free) or 'none'} free"
    before = draw_regions(_held(free, 12), free, 12)
    got_free = list(free)
    got = code.allocate_first_fit(got_free, num_slots)
    expect_equal(got, start, case=case, rule=rule, state=before)
    taken = _held(free, 12) | ({} if start is None else {"X": Region(start, num_slots)})
    expect_equal(
        got_free,
        left,
        case=f"the free list after {case}",
        rule=rule,
        state=draw_regions(taken, got_free, 12),
    )


@pytest.mark.exercise("2.1")
@pytest.mark.parametrize(
    ("free", "region", "left", "rule"),
    [
        ([], Region(4, 4), [Region(4, 4)], "with no neighbour, the list has one region more"),
        ([Region(0, 2)], Region(4, 4), [Region(0, 2), Region(4, 4)], "slots 2 and 3 are still held"),
        ([Region(9, 2)], Region(2, 4), [Region(2, 4), Region(9, 2)], "the list stays in order"),
        ([Region(0, 4)], Region(4, 4), [Region(0, 8)], "a free region that ends where it begins: one"),
        ([Region(8, 4)], Region(4, 4), [Region(4, 8)], "a free region that begins where it ends: one"),
        (
            [Region(0, 4), Region(8, 4)],
            Region(4, 4),
            [Region(0, 12)],
            "free on both sides: three regions become one",
        ),
        (
            [Region(0, 1), Region(2, 2), Region(6, 2), Region(10, 1)],
            Region(4, 2),
            [Region(0, 1), Region(2, 6), Region(10, 1)],
            "only those that touch are merged; all others stay",
        ),
    ],
)
def test_give_back_and_merge(
    code: ModuleType, free: list[Region], region: Region, left: list[Region], rule: str
) -> None:
    got = list(free)
    code.free_first_fit(got, region)
    expect_equal(
        got,
        left,
        case=f"free_first_fit(free, {region}) with slots {_spans(free) or 'none'} free",
        rule=f"{rule}; and `free` itself is changed",
        state=draw_regions(_held([*free, region], 12), got, 12),
    )


@pytest.mark.exercise("2.1")
@given(
    num_slots=st.integers(1, 24),
    history=st.lists(st.integers(-5, 9).filter(bool), max_size=14),
)
def test_a_life_of_a_cache(code: ModuleType, num_slots: int, history: list[int]) -> None:
    """A number above 0 asks for so many slots; −1 gives the oldest region back, −2 the second, …"""
    free, held, taken = [Region(0, num_slots)], {}, [False] * num_slots
    letters = iter(LETTERS)
    for wanted in history:
        before = draw_regions(held, free, num_slots)
        if wanted > 0:
            case = f"allocate_first_fit(free, {wanted})"
            fitting = [gap.start for gap in _gaps(taken) if gap.num_slots >= wanted]
            start = code.allocate_first_fit(free, wanted)
            expect_equal(
                start,
                fitting[0] if fitting else None,
                case=case,
                rule="the first gap that is large enough",
                state=before,
            )
            if start is not None:
                held[next(letters)] = Region(start, wanted)
                taken[start : start + wanted] = [True] * wanted
        elif held:
            name = list(held)[min(-wanted, len(held)) - 1]
            region = held.pop(name)
            case = f"free_first_fit(free, {region}), which was {name}"
            code.free_first_fit(free, region)
            taken[region.start : region.end] = [False] * region.num_slots
        else:
            continue
        expect_equal(
            free,
            _gaps(taken),
            case=f"the free list after {case}",
            rule="every slot is held or free, once; free regions are in order, and never touch",
            state=f"before\n{before}\nafter\n{draw_regions(held, free, num_slots)}",
        )


# 2.2

SLOTS, KV_HEADS, HEAD_DIM = 16, 2, 3
OLD = -1.0
"""What is in a slot that nobody wrote."""


def _tokens(num_tokens: int, first: float) -> Tensor:
    """`[num_tokens, KV_HEADS, HEAD_DIM]`: different numbers everywhere."""
    import torch

    count = num_tokens * KV_HEADS * HEAD_DIM
    return first + torch.arange(count, dtype=torch.float32).view(num_tokens, KV_HEADS, HEAD_DIM) / 1000


def _draw_slots(rows: dict[str, list[str]]) -> str:
    lines = ruler("slot", SLOTS)
    return "\n".join([*lines, *(f"{name:<7}{''.join(marks)}" for name, marks in rows.items())])


def _written(layer: Tensor, key: Tensor, value: Tensor, first: int) -> dict[str, list[str]]:
    """What is in each slot: `.` old, `k` and `v` the token that belongs there, `x` something else."""
    import torch

    rows = {}
    for name, half, new in (("keys", layer[0], key), ("values", layer[1], value)):
        marks = []
        for slot in range(SLOTS):
            token = slot - first
            if 0 <= token < len(new) and torch.equal(half[slot], new[token]):
                marks.append(name[0])
            else:
                marks.append("." if bool((half[slot] == OLD).all()) else "x")
        rows[name] = marks
    return rows


@pytest.mark.exercise("2.2")
@pytest.mark.parametrize(
    ("start", "position", "num_tokens", "what"),
    [
        (0, 0, 5, "a prompt in the first region"),
        (4, 0, 5, "a prompt in a region that begins at slot 4"),
        (4, 5, 1, "the token at position 5 of that region"),
        (4, 3, 4, "a chunk of four tokens, from position 3 on"),
        (10, 5, 1, "the last slot of the cache"),
    ],
)
def test_a_token_goes_to_start_plus_position(
    code: ModuleType, start: int, position: int, num_tokens: int, what: str
) -> None:
    import torch

    layer = torch.full((2, SLOTS, KV_HEADS, HEAD_DIM), OLD)
    key, value = _tokens(num_tokens, 10), _tokens(num_tokens, 20)
    code.write_region(layer, start, position, key, value)
    first = start + position
    expected = {
        name: [name[0] if first <= slot < first + num_tokens else "." for slot in range(SLOTS)]
        for name in ("keys", "values")
    }
    got = _written(layer, key, value, first)
    case = f"{what}: write_region(slots, start={start}, position={position}, …) with Q = {num_tokens}"
    expect(
        got == expected,
        case=case,
        rule="the token at a position is in slot start + position; keys in slots[0], values in slots[1]; "
        "nothing else changes",
        state=f"expected\n{_draw_slots(expected)}\ngot (x: something else)\n{_draw_slots(got)}",
    )


@pytest.mark.exercise("2.2")
@pytest.mark.parametrize(("start", "num_tokens"), [(0, 5), (4, 1), (4, 7), (9, 7)])
def test_read_what_is_written_and_no_more(code: ModuleType, start: int, num_tokens: int) -> None:
    import torch

    layer = torch.stack([_tokens(SLOTS, 10), _tokens(SLOTS, 20)])  # [2, SLOTS, KV_HEADS, HEAD_DIM]
    case = f"read_region(slots, start={start}, num_tokens={num_tokens})"
    got = code.read_region(layer, start, num_tokens)
    expect(isinstance(got, tuple) and len(got) == 2, case=case, rule="keys and values, a pair", got=got)
    for name, half, found in (("keys", layer[0], got[0]), ("values", layer[1], got[1])):
        marks = [name[0] if start <= slot < start + num_tokens else "." for slot in range(SLOTS)]
        expect_equal(
            tuple(found.shape),
            (num_tokens, KV_HEADS, HEAD_DIM),
            case=f"shape of the {name} of {case}",
            rule="the tokens that are written, and nothing behind them",
            state=_draw_slots({"wanted": marks}),
        )
        expect(
            torch.equal(found, half[start : start + num_tokens]),
            case=f"the {name} of {case}",
            rule=f"slots {start} to {start + num_tokens - 1} of slots[{0 if name == 'keys' else 1}]",
            got=[f"slot {_slot_of(row, layer)}" for row in found],
            state=_draw_slots({"wanted": marks}),
        )
        expect(
            found.untyped_storage().data_ptr() == layer.untyped_storage().data_ptr(),
            case=f"the {name} of {case}",
            expected="a view: the cache's own memory",
            got="a copy",
            rule="each step reads all tokens of a sequence: a copy (read, write, read again) triples that",
        )


def _slot_of(row: Tensor, layer: Tensor) -> str:
    import torch

    for half, name in enumerate(("keys", "values")):
        for slot in range(SLOTS):
            if torch.equal(layer[half, slot], row):
                return f"{slot} of the {name}"
    return "?"


@pytest.mark.exercise("2.2")
@given(
    regions=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    chunk=st.integers(1, 3),
)
def test_neighbours_do_not_disturb_each_other(code: ModuleType, regions: list[int], chunk: int) -> None:
    """Regions side by side are filled in turns, some tokens at a time."""
    import torch

    layer = torch.full((2, sum(regions) + 1, KV_HEADS, HEAD_DIM), float("nan"))
    starts = [sum(regions[:i]) for i in range(len(regions))]
    tokens = [(_tokens(size, 100 * i + 10), _tokens(size, 100 * i + 50)) for i, size in enumerate(regions)]
    for position in range(0, max(regions), chunk):
        for start, (keys, values) in zip(starts, tokens, strict=True):
            key, value = keys[position : position + chunk], values[position : position + chunk]
            if len(key):
                code.write_region(layer, start, position, key, value)
    for number, (start, (keys, values)) in enumerate(zip(starts, tokens, strict=True)):
        got_keys, got_values = code.read_region(layer, start, len(keys))
        expect(
            torch.equal(got_keys, keys) and torch.equal(got_values, values),
            case=f"region {number} of {len(regions)}, which begins at slot {start} and has {len(keys)} "
            f"tokens, written {chunk} at a time",
            rule="what is read is what was written, whoever lies beside it",
            got=[("read", got_keys[:, 0, 0].tolist()), ("written", keys[:, 0, 0].tolist())],
        )


# 2.3


def _oracle(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """PyTorch's own attention, with a mask of which query sees which key."""
    import torch
    from torch.nn import functional as F

    group = query.shape[1] // keys.shape[1]
    key, value = (each.repeat_interleave(group, dim=1).transpose(0, 1) for each in (keys, values))
    seen = torch.ones(len(query), len(keys), dtype=torch.bool).tril(len(keys) - len(query))
    output = F.scaled_dot_product_attention(query.transpose(0, 1), key, value, seen, scale=scale)
    return output.transpose(0, 1)  # [Q, num_heads, head_dim]


def _draw_mask(num_queries: int, num_tokens: int) -> str:
    """Which query sees which key."""
    lines = ["query   position   sees keys"]
    for i in range(num_queries):
        own = num_tokens - num_queries + i
        lines.append(f"{i:<8}{own:<11}{'#' * (own + 1)}{'.' * (num_tokens - own - 1)}")
    return "\n".join(lines)


def _expect_attention(got: object, want: Tensor, num_tokens: int, case: str, rule: str) -> None:
    from torch import Tensor

    expect(isinstance(got, Tensor), case=case, rule="a tensor", got=got)
    assert isinstance(got, Tensor)
    state = _draw_mask(len(want), num_tokens)
    expect_equal(tuple(got.shape), tuple(want.shape), case=f"shape of {case}", rule=rule, state=state)
    wrong = ~((got - want).abs() <= 1e-5)  # also where it is NaN
    if bool(wrong.any()):
        row, head, dim = wrong.nonzero()[0].tolist()
        expect(
            False,
            case=case,
            rule=rule,
            expected=f"{want[row, head, dim]:.5f} in query row {row}, head {head}, dimension {dim}",
            got=round(got[row, head, dim].item(), 5),
            state=state,
        )


def _random(seed: int, *shape: int) -> Tensor:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.exercise("2.3")
@pytest.mark.parametrize(
    ("num_queries", "num_tokens", "heads", "kv_heads", "rule"),
    [
        (1, 1, 1, 1, "one token sees itself: its own value comes back"),
        (1, 6, 1, 1, "a decode step: the last token sees all"),
        (5, 5, 1, 1, "a prompt: each token sees itself and those before it"),
        (3, 7, 1, 1, "a chunk: its first query is at position 4, and sees keys 0 to 4"),
        (1, 6, 4, 2, "query heads 0 and 1 read KV head 0, heads 2 and 3 read KV head 1"),
        (4, 6, 6, 2, "a group of three query heads for each KV head"),
        (3, 3, 4, 1, "all query heads read the one KV head"),
    ],
)
def test_against_pytorch(
    code: ModuleType, num_queries: int, num_tokens: int, heads: int, kv_heads: int, rule: str
) -> None:
    query = _random(1, num_queries, heads, 8)
    keys, values = _random(2, num_tokens, kv_heads, 8), _random(3, num_tokens, kv_heads, 8)
    _expect_attention(
        code.attend_region(query, keys, values, 0.4),
        _oracle(query, keys, values, 0.4),
        num_tokens,
        f"attend_region of {num_queries} queries over {num_tokens} tokens, {heads} query heads, "
        f"{kv_heads} KV heads",
        rule,
    )


@pytest.mark.exercise("2.3")
@given(
    num_queries=st.integers(1, 4),
    cached=st.integers(0, 5),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_any_shape(
    code: ModuleType, num_queries: int, cached: int, kv_heads: int, group: int, head_dim: int, seed: int
) -> None:
    num_tokens = cached + num_queries
    query = _random(seed, num_queries, kv_heads * group, head_dim)
    keys, values = (_random(seed + n, num_tokens, kv_heads, head_dim) for n in (10, 20))
    scale = head_dim**-0.5
    _expect_attention(
        code.attend_region(query, keys, values, scale),
        _oracle(query, keys, values, scale),
        num_tokens,
        f"{num_queries} queries on top of {cached} cached tokens, {kv_heads} KV heads, group of {group}, "
        f"head_dim {head_dim}",
        "softmax(scale · query · key) over the keys up to the query's own position, times the values",
    )


@pytest.mark.exercise("2.3")
def test_all_at_once_or_one_by_one(code: ModuleType) -> None:
    import torch

    query, keys, values = _random(1, 6, 4, 8), _random(2, 6, 2, 8), _random(3, 6, 2, 8)
    before = [each.clone() for each in (query, keys, values)]
    whole = code.attend_region(query, keys, values, 0.3)
    for position in range(6):
        one = code.attend_region(
            query[position : position + 1], keys[: position + 1], values[: position + 1], 0.3
        )
        _expect_attention(
            one,
            whole[position : position + 1],
            position + 1,
            f"position {position} of a prompt of 6, computed alone over keys 0 to {position}",
            "with a cache, one step for each token gives the same as the whole prompt at once",
        )
    unchanged = all(torch.equal(a, b) for a, b in zip(before, (query, keys, values), strict=True))
    expect(
        unchanged,
        case="the arguments after attend_region",
        rule="keys and values are the cache itself: attention must not write into them",
    )


# 2.4


def _lengths(*pairs: tuple[int, int]) -> list[RequestLengths]:
    return [RequestLengths(prompt, output) for prompt, output in pairs]


def _draw_batch(members: list[RequestLengths]) -> str:
    """A line for each member: its rows from the first step to the last, prompts padded on the left."""
    prompt = max(each.num_prompt_tokens for each in members)
    output = max(each.num_output_tokens for each in members)
    lines = [
        "_" * (prompt - each.num_prompt_tokens)
        + "p" * each.num_prompt_tokens
        + " "
        + "d" * (each.num_output_tokens - 1)
        + "." * (output - each.num_output_tokens)
        for each in members
    ]
    return "\n".join([*lines, "_ padding   p prompt   d decoded   . idle"])


def _expect_batch(
    got: object, want: StaticBatch, members: list[RequestLengths], case: str, order: str = ""
) -> None:
    rules = {
        "num_requests": "every request is in one batch",
        "num_steps": "each step gives every member one token, so the longest output decides",
        "num_computed": "each member's prompt, and every output token but its last",
        "num_padding": "every prompt is as long as the longest of its batch",
        "num_idle": "who has ended keeps its row until the longest member has",
    }
    for name, rule in rules.items():
        expect_equal(
            getattr(got, name, None),
            getattr(want, name),
            case=f"{name} of {case}",
            rule=rule + order,
            state=_draw_batch(members),
        )


def _counted(members: list[RequestLengths]) -> StaticBatch:
    """By counting marks of the drawing."""
    drawn = _draw_batch(members).rsplit("\n", 1)[0]
    steps = max(len(line.partition(" ")[2]) for line in drawn.splitlines()) + 1
    computed = drawn.count("p") + drawn.count("d")
    return StaticBatch(len(members), steps, computed, drawn.count("_"), drawn.count("."))


@pytest.mark.exercise("2.4")
@pytest.mark.parametrize(
    "members",
    [
        _lengths((3, 2), (5, 4)),
        _lengths((4, 3)),
        _lengths((4, 3), (4, 3)),
        _lengths((1, 1), (1, 9), (6, 1)),
        _lengths((7, 1), (2, 1)),
    ],
)
def test_one_batch(code: ModuleType, members: list[RequestLengths]) -> None:
    pairs = [(each.num_prompt_tokens, each.num_output_tokens) for each in members]
    case = f"static_batch of (prompt, output) {pairs}"
    _expect_batch(code.static_batch(members), _counted(members), members, case)


@pytest.mark.exercise("2.4")
@given(
    pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9),
    batch_size=st.integers(1, 5),
)
def test_a_queue_of_batches(code: ModuleType, pairs: list[tuple[int, int]], batch_size: int) -> None:
    queue = _lengths(*pairs)
    batches = [queue[i : i + batch_size] for i in range(0, len(queue), batch_size)]
    got = code.serve_static(queue, batch_size)
    case = f"serve_static of (prompt, output) {pairs}, {batch_size} at a time"
    expect_equal(
        len(got),
        len(batches),
        case=f"number of batches of {case}",
        rule="first come, first served; the last batch may be smaller",
    )
    for number, (found, members) in enumerate(zip(got, batches, strict=True)):
        _expect_batch(
            found,
            _counted(members),
            members,
            f"batch {number} of {case}",
            order="; first come, first served: a batch is the next requests of the queue, in its order",
        )


@pytest.mark.exercise("2.4")
def test_no_requests(code: ModuleType) -> None:
    expect_equal(code.serve_static([], 4), [], case="serve_static([], 4)", rule="no queue, no batch")


# 2.5


class _Starts(set[int]):
    """A set that is shown in order."""

    def __repr__(self) -> str:
        return f"{{{', '.join(map(str, sorted(self)))}}}" if self else "set()"


def _in_order(free: list[set[int]]) -> list[set[int]]:
    return [_Starts(each) if isinstance(each, set) else each for each in free]


def _pool(num_slots: int, *blocks: tuple[int, int]) -> list[set[int]]:
    """A free list with some (start, order) in it."""
    free: list[set[int]] = [_Starts() for _ in range(num_slots.bit_length())]
    for start, order in blocks:
        free[order].add(start)
    return free


def _copy(free: list[set[int]]) -> list[set[int]]:
    return [set(each) for each in free]


@pytest.mark.exercise("2.5")
@pytest.mark.parametrize(
    ("free", "num_slots", "start", "left", "rule"),
    [
        (_pool(16, (0, 4)), 16, 0, _pool(16), "the whole cache, without a cut"),
        (_pool(16, (0, 4)), 9, 0, _pool(16), "9 slots are rounded up to 16"),
        (
            _pool(16, (0, 4)),
            8,
            0,
            _pool(16, (8, 3)),
            "one cut: the lower half goes on, the upper half becomes free",
        ),
        (
            _pool(16, (0, 4)),
            1,
            0,
            _pool(16, (1, 0), (2, 1), (4, 2), (8, 3)),
            "at each cut the lower half goes on, the upper half becomes free: of 8, of 4, of 2, of 1",
        ),
        (
            _pool(16, (4, 2), (8, 3)),
            3,
            4,
            _pool(16, (8, 3)),
            "the smallest block that is large enough; the block of 8 stays whole",
        ),
        (_pool(16, (4, 2), (12, 2)), 4, 4, _pool(16, (12, 2)), "of two equals the one with the lower start"),
        (  # `pop` takes 8 from this set
            _pool(16, (4, 2), (8, 2)),
            3,
            4,
            _pool(16, (8, 2)),
            "of two equals the one with the lower start",
        ),
        (
            _pool(16, (2, 1), (8, 3)),
            3,
            8,
            _pool(16, (2, 1), (12, 2)),
            "2 are too few; of the block of 8 the lower half goes on, the upper half becomes free",
        ),
        (
            _pool(16, (4, 2), (8, 2)),
            5,
            None,
            _pool(16, (4, 2), (8, 2)),
            "slots 4 to 11 are free, but they are two blocks of 4, and 5 slots need a block of 8",
        ),
    ],
)
def test_cut_in_halves(
    code: ModuleType,
    free: list[set[int]],
    num_slots: int,
    start: int | None,
    left: list[set[int]],
    rule: str,
) -> None:
    got_free = _copy(free)
    got = code.allocate_buddy(got_free, num_slots)
    case = f"allocate_buddy(free, {num_slots}) with free = {free}"
    state = f"before\n{draw_orders(free, 16)}\nafter\n{draw_orders(got_free, 16)}"
    expect_equal(got, start, case=case, rule=rule, state=state)
    expect_equal(
        _in_order(got_free),
        left,
        case=f"the free blocks after {case}",
        rule=rule,
        state=state,
    )


@pytest.mark.exercise("2.5")
@pytest.mark.parametrize(
    ("free", "start", "order", "left", "rule"),
    [
        (_pool(16), 4, 2, _pool(16, (4, 2)), "its buddy, at slot 0, is held: no merging"),
        (_pool(16, (4, 2)), 0, 2, _pool(16, (0, 3)), "0 and 4 are the halves of one block of 8"),
        (_pool(16, (0, 2)), 4, 2, _pool(16, (0, 3)), "the merged block begins at the lower half"),
        (
            _pool(16, (4, 2)),
            8,
            2,
            _pool(16, (4, 2), (8, 2)),
            "4 and 8 touch, but are halves of different blocks",
        ),
        (
            _pool(16, (1, 0), (2, 1), (4, 2), (8, 3)),
            0,
            0,
            _pool(16, (0, 4)),
            "a merged block has a buddy too: on and on",
        ),
        (
            _pool(16, (0, 1), (2, 0)),
            4,
            2,
            _pool(16, (0, 1), (2, 0), (4, 2)),
            "the buddy of 4 to 7 is 0 to 3, and of that slot 3 is held",
        ),
        (
            _pool(12, (0, 2)),
            8,
            2,
            _pool(12, (0, 2), (8, 2)),
            "the buddy of 8 to 11 is not in this cache of 12",
        ),
    ],
)
def test_merge_with_the_buddy_alone(
    code: ModuleType, free: list[set[int]], start: int, order: int, left: list[set[int]], rule: str
) -> None:
    got = _copy(free)
    code.free_buddy(got, start, order)
    num_slots = 12 if len(free) == 4 else 16
    expect_equal(
        _in_order(got),
        left,
        case=f"free_buddy(free, start={start}, order={order}) with free = {free}",
        rule=rule,
        state=f"before\n{draw_orders(free, num_slots)}\nafter\n{draw_orders(got, num_slots)}",
    )


def _free_blocks(taken: list[bool]) -> list[set[int]]:
    """The free aligned powers of two that lie in no larger one."""
    found = _pool(len(taken))
    covered = list(taken)
    for order in reversed(range(len(found))):
        size = 2**order
        for start in range(0, len(taken) - size + 1, size):
            if not any(covered[start : start + size]):
                found[order].add(start)
                covered[start : start + size] = [True] * size
    return found


@pytest.mark.exercise("2.5")
@given(num_slots=st.integers(1, 32), history=st.lists(st.integers(-5, 9).filter(bool), max_size=14))
def test_a_life_of_buddies(code: ModuleType, num_slots: int, history: list[int]) -> None:
    """A number above 0 asks for so many slots; −1 gives the oldest block back, −2 the second, …"""
    taken = [False] * num_slots
    free = _copy(_free_blocks(taken))
    held: list[tuple[int, int]] = []
    for wanted in history:
        before = _copy(free)
        if wanted > 0:
            case = f"allocate_buddy(free, {wanted})"
            order = (wanted - 1).bit_length()
            fitting = [min(starts) for starts in _free_blocks(taken)[order:] if starts]
            start = code.allocate_buddy(free, wanted)
            rule = f"{wanted} slots are a block of {2**order}; from the smallest block that is large enough"
            expect_equal(
                start,
                fitting[0] if fitting else None,
                case=case,
                rule=rule,
                state=draw_orders(before, num_slots),
            )
            if start is not None:
                held.append((start, order))
                taken[start : start + 2**order] = [True] * 2**order
        elif held:
            start, order = held.pop(min(-wanted, len(held)) - 1)
            case = f"free_buddy(free, start={start}, order={order})"
            code.free_buddy(free, start, order)
            taken[start : start + 2**order] = [False] * 2**order
        else:
            continue
        expect_equal(
            _in_order(free),
            _free_blocks(taken),
            case=f"the free blocks after {case}",
            rule="every slot is held or free, once; two free buddies are one block",
            state=f"before\n{draw_orders(before, num_slots)}\nafter\n{draw_orders(free, num_slots)}",
        )


# Your code in the engine


@pytest.mark.in_engine
def test_your_regions_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import run_in_engine

    # Room for one or two requests at a time, so that regions are given back and taken again.
    for options in (
        EngineOptions(reserve="oracle", region_allocator="first_fit", num_blocks=28),
        EngineOptions(reserve="pow2", region_allocator="buddy", num_blocks=32),
    ):
        options = EngineOptions(**(options | EngineOptions(block_size=4, batching="continuous")))
        used = resolved.used_by(EngineConfig.at_stage(2, **options))
        if not used.written:
            continue  # only the other allocator is written
        breakdown = run_in_engine(used, stage=2, **options).memory_breakdown()
        expect_equal(
            breakdown.free,
            breakdown.num_slots,
            case=f"slots that are free when all requests have ended, with {options.get('region_allocator')}",
            rule="what was allocated is given back",
        )
