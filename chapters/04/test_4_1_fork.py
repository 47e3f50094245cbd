"""Checks of exercise 4.1: a second table of the same blocks."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch04.counts import COUNTS
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect_equal


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
        rule="the two tables will differ sooner or later, so each is a list of its own",
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
