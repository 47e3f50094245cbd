"""Checks of exercise 3.2: the slots of a range of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect, expect_equal, kind_of

TABLE = [7, 9, 3]


def _expect_slots(code: ModuleType, table: Sequence[int], start: int, end: int, block_size: int) -> None:
    case = f"slot_mapping(np.array({list(table)}, dtype=np.int32), {start}, {end}, block_size={block_size})"
    got = code.slot_mapping(np.array(table, dtype=np.int32), start, end, block_size)
    expect(
        isinstance(got, np.ndarray) and got.dtype == np.int64,
        case=case,
        rule="slots of a large pool do not fit into an int32, and a float cannot be an index",
        expected="a NumPy array of int64",
        got=kind_of(got),
    )
    expected = [table[p // block_size] * block_size + p % block_size for p in range(start, end)]
    expect_equal(
        got.tolist(),
        expected,
        case=case,
        rule=f"one slot for each position from {start} to {end - 1}, each through the table "
        "entry of its own block",
        state=draw_tables({"position": range(start, end), "slot": expected, "yours": got.tolist()})
        if end - start <= 12
        else "",
    )


@pytest.mark.exercise("3.2")
@pytest.mark.parametrize(("start", "end"), [(0, 1), (4, 5), (0, 4), (7, 9), (2, 6), (0, 12)])
def test_the_slots_of_a_range(code: ModuleType, start: int, end: int) -> None:
    _expect_slots(code, TABLE, start, end, 4)


@pytest.mark.exercise("3.2")
def test_the_pool_may_be_large(code: ModuleType) -> None:
    block = 2**27 + 5  # times 16, it does not fit into an int32
    table = np.array([1, block], dtype=np.int32)
    got = code.slot_mapping(table, 15, 18, 16)
    expect_equal(
        got.tolist(),
        [31, block * 16, block * 16 + 1],
        case=f"slot_mapping of positions 15 to 17, blocks of 16, table [1, {block:,}] as int32",
        rule="the product of an int32 array with a number is int32, and overflows at 2³¹: convert it, then "
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
