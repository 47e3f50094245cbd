"""Checks of exercise 3.1: from a position to a slot."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect, expect_equal

TABLE = [7, 9, 3]


@pytest.mark.exercise("3.1")
@pytest.mark.parametrize(
    ("position", "block_size", "expected"),
    [(0, 4, (0, 0)), (3, 4, (0, 3)), (4, 4, (1, 0)), (5, 4, (1, 1)), (5, 1, (5, 0)), (35, 16, (2, 3))],
)
def test_block_and_offset(
    code: ModuleType, position: int, block_size: int, expected: tuple[int, int]
) -> None:
    got = code.translate(position, block_size)
    expect(
        isinstance(got, tuple) and len(got) == 2,
        case=f"translate({position}, {block_size})",
        rule="return a tuple of two numbers: logical block, offset",
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
        f"table is the physical block, and its first slot is 4 times its number",
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
