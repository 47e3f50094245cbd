"""Chapter 1: checks of exercises 1.1 to 1.5, and their sizes in the engine."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch01.lives import Lengths, tokens_now
from minipaged.course.drawing import draw_slots
from minipaged.course.expect import expect, expect_close, expect_equal
from minipaged.course.seams import ResolvedParts
from minipaged.kv.breakdown import MemoryBreakdown, ReservedRegion
from minipaged.kv.region_allocator import Region

GIB = 2**30

# 1.1


@pytest.mark.exercise("1.1")
@pytest.mark.parametrize(
    ("model", "num_layers", "num_kv_heads", "head_dim", "dtype_bytes", "expected"),
    [
        ("OPT-13B in float16", 40, 40, 128, 2, 819_200),
        ("Qwen2.5-1.5B in bfloat16, with 2 KV heads for 12 query heads", 28, 2, 128, 2, 28_672),
        ("SmolLM2-135M in float32", 30, 3, 64, 4, 46_080),
    ],
)
def test_real_models(
    code: ModuleType,
    model: str,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    dtype_bytes: int,
    expected: int,
) -> None:
    got = code.bytes_per_token(num_layers, num_kv_heads, head_dim, dtype_bytes)
    rule = "every layer keeps a key and a value, each of num_kv_heads × head_dim numbers of dtype_bytes bytes"
    expect_equal(
        got,
        expected,
        case=f"{model}: bytes_per_token({num_layers}, {num_kv_heads}, {head_dim}, {dtype_bytes})",
        rule="bytes are counted: return an int" if isinstance(got, float) else rule,
    )


@pytest.mark.exercise("1.1")
@given(st.integers(1, 100), st.integers(1, 64), st.integers(1, 256), st.sampled_from([1, 2, 4]))
def test_each_factor_counts_once(
    code: ModuleType, num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int
) -> None:
    shape = (num_layers, num_kv_heads, head_dim, dtype_bytes)
    got = code.bytes_per_token(*shape)
    for place, name in enumerate(("num_layers", "num_kv_heads", "head_dim", "dtype_bytes")):
        doubled = [2 * number if i == place else number for i, number in enumerate(shape)]
        expect_equal(
            code.bytes_per_token(*doubled),
            2 * got,
            case=f"bytes_per_token{shape} is {got:,}; with twice the {name}",
            rule=f"twice the {name}, twice the bytes",
        )


# 1.2


@pytest.mark.exercise("1.2")
def test_the_paper_s_13b_row(code: ModuleType) -> None:
    block = 819_200 * 16
    got = code.num_blocks_that_fit(12 * GIB, 1.0, 0, 0, block)
    null_block = "the null block takes memory like any other: it counts here, and is not subtracted"
    expect_equal(
        got,
        983,
        case=f"num_blocks_that_fit(12 * 2**30, 1.0, 0, 0, {block}): blocks of 16 tokens of OPT-13B",
        rule=null_block if got == 982 else "a block that fits only in part does not fit",
    )


@pytest.mark.exercise("1.2")
def test_weights_and_activations_come_off_what_the_engine_may_take(code: ModuleType) -> None:
    expect_equal(
        code.num_blocks_that_fit(40 * GIB, 0.9, 20 * GIB, 3 * GIB, GIB),
        13,
        case="40 GiB × 0.9 − 20 GiB of weights − 3 GiB of activations, in blocks of 1 GiB",
        rule="the share counts for all that the engine takes, weights included: 36 − 20 − 3 GiB are left",
    )


@pytest.mark.exercise("1.2")
def test_nothing_left(code: ModuleType) -> None:
    expect_equal(
        code.num_blocks_that_fit(16 * GIB, 0.9, 26 * GIB, GIB, 2**20),
        0,
        case="16 GiB of device memory, 26 GiB of weights",
        rule="less than nothing is no blocks",
    )


@pytest.mark.exercise("1.2")
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 5000))
def test_as_many_as_fit_and_no_more(
    code: ModuleType, memory: int, weights: int, activations: int, half_a_block: int
) -> None:
    block = 2 * half_a_block
    num_blocks = code.num_blocks_that_fit(memory, 1.0, weights, activations, block)
    rest = memory - weights - activations - num_blocks * block
    case = f"num_blocks_that_fit({memory}, 1.0, {weights}, {activations}, {block})"
    fits = num_blocks >= 0 and (num_blocks == 0 or rest >= 0)
    expect(fits, case=case, rule="what does not fit is not handed out", got=num_blocks)
    expect(rest < block, case=case, rule=f"another block of {block} bytes would have fitted", got=num_blocks)


@pytest.mark.exercise("1.2")
@pytest.mark.parametrize(
    ("num_blocks", "block_size", "expected"), [(983, 16, 15_712), (2, 16, 16), (1, 16, 0), (0, 16, 0)]
)
def test_the_longest_request(code: ModuleType, num_blocks: int, block_size: int, expected: int) -> None:
    expect_equal(
        code.max_model_len_that_fits(num_blocks, block_size),
        expected,
        case=f"max_model_len_that_fits({num_blocks}, {block_size})",
        rule="all blocks but the null block, and a length is never negative",
    )


# 1.3


@pytest.mark.exercise("1.3")
@pytest.mark.parametrize(
    ("num_blocks", "block_size", "max_model_len", "expected"),
    [(983, 16, 2048, 983 / 128), (10, 16, 17, 5.0), (10, 16, 16, 10.0), (3, 16, 60, 0.75), (7, 1, 2, 3.5)],
)
def test_at_the_greatest_length(
    code: ModuleType, num_blocks: int, block_size: int, max_model_len: int, expected: float
) -> None:
    expect_close(
        code.max_concurrency(num_blocks, block_size, max_model_len),
        expected,
        case=f"max_concurrency({num_blocks}, {block_size}, {max_model_len})",
        rule="blocks of the pool over blocks of one request, whose last block counts whole; not rounded",
    )


@pytest.mark.exercise("1.3")
@given(st.integers(1, 2000), st.integers(1, 64), st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_at_average_length(code: ModuleType, num_blocks: int, block_size: int, lengths: list[int]) -> None:
    blocks = [-(-length // block_size) for length in lengths]
    mean_length = sum(lengths) / len(lengths)
    got = code.average_concurrency(num_blocks, block_size, lengths)
    if got == pytest.approx(num_blocks / -(-mean_length // block_size)):
        rule = "the mean of the blocks, not the blocks of the mean length"
    elif got == pytest.approx(num_blocks * block_size / mean_length):
        rule = "a request's last block counts whole: round each length up to blocks"
    else:
        rule = "blocks of the pool over the blocks that one request takes on average; not rounded"
    expect_close(
        got,
        num_blocks / (sum(blocks) / len(blocks)),
        case=f"average_concurrency({num_blocks}, {block_size}, {lengths}); they take {blocks} blocks",
        within=1e-6,
        rule=rule,
    )


@pytest.mark.exercise("1.3")
def test_equal_lengths_need_no_average(code: ModuleType) -> None:
    expect_close(
        code.average_concurrency(983, 16, [2048] * 3),
        code.max_concurrency(983, 16, 2048),
        case="three requests of 2,048 tokens each",
        rule="if all have the greatest length, both numbers are the same",
    )


# 1.4


def _regions(*numbers: tuple[int, int, int]) -> list[ReservedRegion]:
    """(slots, tokens now, tokens at the end), one behind the other."""
    regions, start = [], 0
    for num_slots, now, at_end in numbers:
        regions.append(ReservedRegion(Region(start, num_slots), now, at_end))
        start += num_slots
    return regions


def _draw(num_slots: int, reserved: list[ReservedRegion]) -> str:
    runs: list[tuple[str, int]] = []
    for each in reserved:
        runs += [
            ("tokens", each.num_tokens),
            ("reserved", each.num_tokens_at_end - each.num_tokens),
            ("internal", each.region.num_slots - each.num_tokens_at_end),
        ]
    runs.append(("external", num_slots - sum(each.region.num_slots for each in reserved)))
    return draw_slots(runs, num_slots)


def _expect_accounts(
    code: ModuleType, num_slots: int, reserved: list[ReservedRegion], expected: MemoryBreakdown, rule: str
) -> None:
    got = code.account(num_slots, reserved)
    state = _draw(num_slots, reserved)
    for name in ("token_states", "reservation", "internal_fragmentation", "external_fragmentation", "free"):
        expect_equal(
            getattr(got, name, None),
            getattr(expected, name),
            case=f"{name} of {len(reserved)} regions in {num_slots:,} slots",
            rule=rule,
            state=state,
        )


@pytest.mark.exercise("1.4")
def test_the_paper_s_figure_3(code: ModuleType) -> None:
    # A: the prompt's 7 and the one of this step, 2 to come, 2048 reserved. B: 3 + 1, 1 to come, 512.
    _expect_accounts(
        code,
        2600,
        _regions((2048, 8, 10), (512, 4, 5)),
        MemoryBreakdown(12, 3, 2038 + 507, 40, 0),
        "reserved: will be filled; internal: never will; external: nobody holds it",
    )


@pytest.mark.exercise("1.4")
def test_an_empty_cache_that_nobody_fits_into(code: ModuleType) -> None:
    _expect_accounts(
        code, 100, [], MemoryBreakdown(0, 0, 0, 100, 0), "no region: all slots are a gap that is too small"
    )


@pytest.mark.exercise("1.4")
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)).filter(any), max_size=5),
    st.integers(0, 50),
)
def test_every_slot_counts_once(code: ModuleType, runs: list[tuple[int, int, int]], gap: int) -> None:
    reserved = _regions(*((now + later + never, now, now + later) for now, later, never in runs))
    num_slots = max(1, sum(map(sum, runs)) + gap)
    expected = MemoryBreakdown(
        token_states=sum(now for now, _, _ in runs),
        reservation=sum(later for _, later, _ in runs),
        internal_fragmentation=sum(never for _, _, never in runs),
        external_fragmentation=num_slots - sum(map(sum, runs)),
        free=0,
    )
    _expect_accounts(code, num_slots, reserved, expected, f"the five counts add up to {num_slots:,} slots")


# 1.5


def _expect_snapshot(
    got: object, num_requests: int, num_tokens: int, num_slots: int, case: str, takes: str
) -> None:
    for name, expected, rule in (
        ("num_requests", num_requests, f"{takes}; the first request that does not fit ends the queue"),
        ("num_tokens", num_tokens, "what holds a token: not what is taken, and not who waits"),
        ("num_slots", num_slots, "all slots of the cache, taken or not"),
    ):
        expect_equal(getattr(got, name, None), expected, case=f"{name} of {case}", rule=rule)


@pytest.mark.exercise("1.5")
@pytest.mark.parametrize(
    ("tokens", "num_slots", "num_requests", "num_tokens"),
    [([5, 9, 2], 20, 2, 14), ([5, 9, 2], 19, 1, 5), ([5, 9, 2], 100, 3, 16), ([5], 9, 0, 0), ([], 20, 0, 0)],
)
def test_contiguous(
    code: ModuleType, tokens: list[int], num_slots: int, num_requests: int, num_tokens: int
) -> None:
    got = code.contiguous_snapshot(tokens, num_slots, 10)
    case = f"contiguous_snapshot({tokens}, {num_slots}, max_model_len=10)"
    takes = "each takes max_model_len slots, whatever it has so far"
    _expect_snapshot(got, num_requests, num_tokens, num_slots, case, takes)


@pytest.mark.exercise("1.5")
@pytest.mark.parametrize(
    ("tokens", "num_slots", "num_requests", "num_tokens"),
    [
        ([5, 9, 2], 20, 2, 14),  # 2 + 3 blocks, and the third needs one more
        ([4, 4, 4], 12, 3, 12),  # full blocks
        ([5, 13, 1], 20, 1, 5),  # the second does not fit; the third would, but waits behind it
        ([5, 2], 11, 1, 5),  # 11 slots are two whole blocks
        ([1], 3, 0, 0),
        ([], 20, 0, 0),
    ],
)
def test_paged(
    code: ModuleType, tokens: list[int], num_slots: int, num_requests: int, num_tokens: int
) -> None:
    got = code.paged_snapshot(tokens, num_slots, 4)
    case = f"paged_snapshot({tokens}, {num_slots}, block_size=4)"
    takes = "each takes whole blocks, and only whole blocks are there"
    _expect_snapshot(got, num_requests, num_tokens, num_slots, case, takes)


@pytest.mark.exercise("1.5")
@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 400), st.integers(1, 20))
def test_paging_wastes_less_than_a_block_per_request(
    code: ModuleType, tokens: list[int], num_slots: int, block_size: int
) -> None:
    got = code.paged_snapshot(tokens, num_slots, block_size)
    case = f"paged_snapshot({tokens}, {num_slots}, {block_size})"
    inside = tokens[: got.num_requests]
    expect_equal(got.num_tokens, sum(inside), case=case, rule="tokens of the requests that are inside")
    held = sum(-(-each // block_size) for each in inside)
    room = num_slots // block_size
    expect(held <= room, case=case, rule=f"{room} blocks are there", got=f"{held} blocks held")
    if got.num_requests < len(tokens):
        needed = -(-tokens[got.num_requests] // block_size)
        expect(held + needed > room, case=case, rule="the next request would have fitted", got=got)


@pytest.mark.exercise("1.5")
def test_the_article_s_numbers(code: ModuleType) -> None:
    tokens = tokens_now(Lengths(), 5000, random.Random(0))
    contiguous = code.contiguous_snapshot(tokens, 15_000, 2048)
    paged = code.paged_snapshot(tokens, 15_000, 16)
    expect_equal(
        contiguous.num_requests,
        7,
        case="contiguous_snapshot: 15,000 slots, 2,048 for each request",
        rule="each takes 2,048 slots, whatever it has so far",
    )
    expect(
        0.05 < contiguous.used < 0.35,
        case="contiguous_snapshot: the share used",
        expected="about 0.17",
        got=contiguous.used,
        rule="seven requests of about 370 tokens in 15,000 slots",
    )
    expect(
        0.94 < paged.used <= 1,
        case="paged_snapshot: the share used",
        expected="about 0.98",
        got=paged.used,
        rule="half a block lost per request, and a tail that is too short for the next one",
    )
    expect(
        30 <= paged.num_requests <= 52,
        case="paged_snapshot: requests inside",
        expected="about 40",
        got=paged.num_requests,
        rule="15,000 slots over about 370 tokens",
    )


# Your code in the engine


@pytest.mark.in_engine
def test_your_sizes_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import run_in_engine

    memory = 3 * 2**20
    engine = run_in_engine(resolved, num_blocks=None, kv_cache_memory_bytes=memory, block_size=16)
    plan = engine.memory_plan
    expect_equal(
        plan.kv_cache_bytes,
        engine.kv_cache.data.nbytes,
        case=f"{plan.num_blocks} blocks of {plan.bytes_per_block:,} bytes, against the engine's tensor",
        rule="what the plan says is what PyTorch allocates",
    )
    unused = memory - engine.kv_cache.data.nbytes
    expect(
        0 <= unused < engine.memory_plan.bytes_per_block,
        case=f"a pool in {memory:,} bytes",
        rule="the pool fits into its memory, and no further block would",
        got=f"{unused:,} bytes unused",
    )
