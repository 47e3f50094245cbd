"""Checks of exercise 1.5: a snapshot of both layouts under load."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch01.lives import Lengths, tokens_now
from minipaged.course.expect import expect, expect_equal


def _expect_snapshot(
    got: object, tokens: list[int], num_requests: int, num_tokens: int, num_slots: int, case: str, takes: str
) -> None:
    found = getattr(got, "num_requests", None)
    enters = f"{takes}; stop at the first request that does not fit"
    if isinstance(found, int) and found > len(tokens):
        enters = f"no more requests than the queue has: {len(tokens)}"
    for name, expected, rule in (
        ("num_requests", num_requests, enters),
        ("num_tokens", num_tokens, "slots that hold a token: not all slots taken, and no waiting requests"),
        ("num_slots", num_slots, "all slots of the cache, whether taken or not"),
    ):
        expect_equal(getattr(got, name, None), expected, case=f"{name} of {case}", rule=rule)


@pytest.mark.exercise("1.5")
@pytest.mark.parametrize(
    ("tokens", "num_slots", "num_requests", "num_tokens"),
    [
        ([], 20, 0, 0),
        ([5], 10, 1, 5),
        ([5], 9, 0, 0),
        ([5, 9], 19, 1, 5),
        ([5, 9, 2], 20, 2, 14),
        ([5, 9, 2], 100, 3, 16),
    ],
)
def test_contiguous(
    code: ModuleType, tokens: list[int], num_slots: int, num_requests: int, num_tokens: int
) -> None:
    got = code.contiguous_snapshot(tokens, num_slots, 10)
    case = f"contiguous_snapshot({tokens}, {num_slots}, max_model_len=10)"
    takes = "each request takes max_model_len slots, however many tokens it has"
    _expect_snapshot(got, tokens, num_requests, num_tokens, num_slots, case, takes)


@pytest.mark.exercise("1.5")
@pytest.mark.parametrize(
    ("tokens", "num_slots", "num_requests", "num_tokens"),
    [
        ([], 20, 0, 0),
        ([4], 4, 1, 4),  # a full block, which is the last one
        ([5], 4, 0, 0),
        ([1], 3, 0, 0),  # 3 slots are less than a block
        ([5], 8, 1, 5),
        ([5, 2], 11, 1, 5),  # 11 slots are two whole blocks
        ([4, 4, 4], 12, 3, 12),
        ([5, 9, 2], 20, 2, 14),  # 2 + 3 blocks are taken, and the third request needs one more
        ([5, 13, 1], 20, 1, 5),  # the second does not fit; the third would, but has to wait
    ],
)
def test_paged(
    code: ModuleType, tokens: list[int], num_slots: int, num_requests: int, num_tokens: int
) -> None:
    got = code.paged_snapshot(tokens, num_slots, 4)
    case = f"paged_snapshot({tokens}, {num_slots}, block_size=4)"
    takes = f"each request takes whole blocks, and there are {num_slots // 4} whole blocks"
    _expect_snapshot(got, tokens, num_requests, num_tokens, num_slots, case, takes)


@pytest.mark.exercise("1.5")
@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 400), st.integers(1, 20))
def test_paging_wastes_less_than_a_block_per_request(
    code: ModuleType, tokens: list[int], num_slots: int, block_size: int
) -> None:
    got = code.paged_snapshot(tokens, num_slots, block_size)
    case = f"paged_snapshot({tokens}, {num_slots}, {block_size})"
    inside = tokens[: got.num_requests]
    expect_equal(got.num_tokens, sum(inside), case=case, rule="count the tokens of the requests that fit")
    held = sum(-(-each // block_size) for each in inside)
    room = num_slots // block_size
    expect(
        held <= room,
        case=case,
        rule="a request that fits has all of its blocks",
        expected=f"at most {room} blocks held",
        got=f"{held} blocks held",
    )
    if got.num_requests < len(tokens):
        needed = -(-tokens[got.num_requests] // block_size)
        expect(
            held + needed > room,
            case=case,
            rule="the next request would have fit, too",
            expected=f"more than {got.num_requests} requests",
            got=got,
        )


@pytest.mark.exercise("1.5")
def test_the_article_s_numbers(code: ModuleType) -> None:
    tokens = tokens_now(Lengths(), 5000, random.Random(0))
    contiguous = code.contiguous_snapshot(tokens, 15_000, 2048)
    paged = code.paged_snapshot(tokens, 15_000, 16)
    expect_equal(
        contiguous.num_requests,
        7,
        case="contiguous_snapshot: 15,000 slots, 2,048 for each request",
        rule="each request takes 2,048 slots, however many tokens it has",
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
        rule="half a block per request is empty, and the last free blocks are too few for a request",
    )
    expect(
        30 <= paged.num_requests <= 52,
        case="paged_snapshot: requests that fit",
        expected="about 40",
        got=paged.num_requests,
        rule="15,000 slots over about 370 tokens",
    )
