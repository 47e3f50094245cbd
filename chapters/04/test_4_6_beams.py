"""Checks of exercise 4.6: one step of beam search."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch04.counts import BLOCK_SIZE, draw_pool, expect_counts
from minipaged.course.ch04.pools import hand_out_next, pool_handing_out
from minipaged.course.expect import expect_equal
from minipaged.kv.block_pool import BlockPool


@pytest.mark.exercise("4.6")
@pytest.mark.parametrize(
    ("cum_logprobs", "candidates", "beam_width", "expected"),
    [
        ([-1.0], [[(2, -1.0)]], 1, [(0, 2, -2.0)]),
        ([-1.0], [[(2, -1.0)]], 4, [(0, 2, -2.0)]),
        ([0.0], [[(3, -1.0), (4, -2.0)]], 1, [(0, 3, -1.0)]),
        ([0.0], [[(3, -1.0), (4, -2.0), (5, -3.0)]], 2, [(0, 3, -1.0), (0, 4, -2.0)]),
        ([-1.0, -2.0], [[(5, -3.0), (6, -0.5)], [(7, -0.25)]], 2, [(0, 6, -1.5), (1, 7, -2.25)]),
        # The two best have the same parent, so the other beam ends.
        ([-1.0, -4.0], [[(5, -1.0), (6, -2.0)], [(7, -0.5), (8, -1.0)]], 2, [(0, 5, -2.0), (0, 6, -3.0)]),
        # The most likely token is not enough: the sum decides.
        ([-9.0, -1.0], [[(1, -0.5)], [(2, -5.0)]], 1, [(1, 2, -6.0)]),
        ([-1.0, -1.0], [[(9, -1.0)], [(2, -1.0), (1, -1.0)]], 3, [(0, 9, -2.0), (1, 1, -2.0), (1, 2, -2.0)]),
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
        rule="rank all candidates together by the sum; among equals, the earlier beam, then the lower token",
    )


@pytest.mark.exercise("4.6")
@pytest.mark.parametrize("parents", [[0], [0, 1], [1, 1], [1, 0], [0, 0, 1], []])
def test_two_beams_of_one_block(code: ModuleType, parents: list[int]) -> None:
    pool = BlockPool(5)
    tables = [[pool.allocate()], [pool.allocate()]]
    found = code.follow(tables, parents, pool)
    named = {f"new {i}": table for i, table in enumerate(found)}
    case = f"follow([[1], [2]], {parents}, pool)"
    rule = "beam i of the next step begins with the blocks of its parent, parents[i]"
    expect_equal(
        found, [[parent + 1] for parent in parents], case=case, rule=rule, state=draw_pool(named, pool)
    )
    expect_counts(case, named, pool)


def _figure_9() -> tuple[BlockPool, dict[str, list[int]]]:
    """The four candidates before the dotted line.

    Block 13 stands for the paper's block 0, which is our null block.
    """
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
        state=draw_pool(tables, pool),
    )
    expect_counts(case, tables, pool)
    hand_out_next(pool, [9, 10, 11, 12])
    for i, table in enumerate(found):
        expect_equal(code.append(table, 16, 17, BLOCK_SIZE, pool), [], case=f"the next token of new beam {i}")
    expect_equal(
        [table[-1] for table in found],
        [9, 10, 11, 12],
        case="the blocks that the next tokens go into",
        rule="the shared blocks are full, so nothing is copied",
        state=draw_pool(tables, pool),
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
        rule = "each new beam begins with its parent's blocks"
        wanted = [before[parent] for parent in parents]
        expect_equal(tables, wanted, case=case, rule=rule, state=draw_pool(named, pool))
        expect_counts(case, named, pool)
        if not tables:
            return
        for table in tables:
            code.append(table, length * BLOCK_SIZE, length * BLOCK_SIZE + 1, BLOCK_SIZE, pool)
        expect_counts(f"each new beam got a block, after {case}", named, pool)
