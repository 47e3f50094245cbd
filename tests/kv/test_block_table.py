"""Address translation and the block table, compared with simple loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.kv.block_table import BlockTable, decode_slots, pad_block_tables, slot_mapping, translate

MAX_BLOCK_ID = 2**31 - 1
"""The largest int32. Its slots need 64 bits."""


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], int]:
    """A block table, and the block size."""
    block_ids = draw(st.lists(st.integers(0, MAX_BLOCK_ID), min_size=1, max_size=9))
    return block_ids, draw(st.integers(1, 33))


def naive_slot(block_ids: list[int], position: int, block_size: int) -> int:
    """Find the slot by counting tokens one by one up to the position."""
    block, offset = 0, 0
    for _ in range(position):
        offset += 1
        if offset == block_size:
            block, offset = block + 1, 0
    return block_ids[block] * block_size + offset


@pytest.mark.parametrize(
    ("position", "block_size", "expected"),
    [(0, 16, (0, 0)), (15, 16, (0, 15)), (16, 16, (1, 0)), (35, 16, (2, 3)), (5, 1, (5, 0))],
)
def test_translate(position: int, block_size: int, expected: tuple[int, int]) -> None:
    assert translate(position, block_size) == expected


@given(position=st.integers(0, 2**40), block_size=st.integers(1, 33))
def test_translate_can_be_undone(position: int, block_size: int) -> None:
    block, offset = translate(position, block_size)
    assert 0 <= offset < block_size
    assert block * block_size + offset == position


@settings(max_examples=60, deadline=None)
@given(table=tables(), data=st.data())
def test_slot_mapping_against_a_naive_loop(table: tuple[list[int], int], data: st.DataObject) -> None:
    block_ids, block_size = table
    capacity = len(block_ids) * block_size
    start = data.draw(st.integers(0, capacity))
    end = data.draw(st.integers(start, capacity))
    slots = slot_mapping(np.array(block_ids, dtype=np.int32), start, end, block_size)
    assert slots.dtype == np.int64
    assert slots.shape == (end - start,)
    assert slots.tolist() == [naive_slot(block_ids, p, block_size) for p in range(start, end)]


@settings(max_examples=60, deadline=None)
@given(several=st.lists(tables(), min_size=1, max_size=5), block_size=st.integers(1, 33), data=st.data())
def test_the_slots_of_a_decode_step_are_those_of_each_sequence(
    several: list[tuple[list[int], int]], block_size: int, data: st.DataObject
) -> None:
    """`slot_mapping` for all sequences at once, from their padded tables. No table names the null block."""
    each = [np.array([max(block_id, 1) for block_id in ids], dtype=np.int32) for ids, _ in several]
    positions = [data.draw(st.integers(0, len(ids) * block_size - 1)) for ids in each]
    slots = decode_slots(pad_block_tables(each), np.array(positions), block_size)
    assert slots.dtype == np.int64
    alone = [slot_mapping(ids, p, p + 1, block_size) for ids, p in zip(each, positions, strict=True)]
    assert slots.tolist() == np.concatenate(alone).tolist()


@pytest.mark.parametrize("positions", [[8, 3], [7, 4]])
def test_in_a_decode_step_a_position_past_its_table_is_an_error(positions: list[int]) -> None:
    """Past the longest table, and in the padding of a shorter one."""
    padded = pad_block_tables([np.array([7, 2], dtype=np.int32), np.array([9], dtype=np.int32)])
    assert decode_slots(padded, np.array([7, 3]), 4).tolist() == [2 * 4 + 3, 9 * 4 + 3]
    with pytest.raises(IndexError):
        decode_slots(padded, np.array(positions), 4)


@pytest.mark.parametrize("block_size", range(1, 34))
def test_every_position_of_three_blocks(block_size: int) -> None:
    block_ids = np.array([7, 1, 3], dtype=np.int32)
    expected = [b * block_size + i for b in (7, 1, 3) for i in range(block_size)]
    assert slot_mapping(block_ids, 0, 3 * block_size, block_size).tolist() == expected
    for position, slot in enumerate(expected):
        assert slot_mapping(block_ids, position, position + 1, block_size).tolist() == [slot]


def test_slots_do_not_wrap_at_32_bits() -> None:
    ids = np.array([MAX_BLOCK_ID], dtype=np.int32)
    assert slot_mapping(ids, 3, 4, 16).tolist() == [MAX_BLOCK_ID * 16 + 3]
    assert slot_mapping(ids, 3, 5, 16).tolist() == [MAX_BLOCK_ID * 16 + 3, MAX_BLOCK_ID * 16 + 4]


@pytest.mark.parametrize(("start", "end"), [(8, 9), (7, 9), (0, 12)])
def test_a_position_past_the_table_is_an_error(start: int, end: int) -> None:
    with pytest.raises(IndexError):
        slot_mapping(np.array([5, 2], dtype=np.int32), start, end, block_size=4)


@given(st.lists(st.integers(0, MAX_BLOCK_ID), max_size=70))
def test_a_table_grows_as_a_list_does(block_ids: list[int]) -> None:
    table = BlockTable()
    for i, block_id in enumerate(block_ids):
        table.append(block_id)
        assert len(table) == i + 1
        assert table[i] == table[-1] == block_id
    assert list(table) == table.ids.tolist() == block_ids
    assert table.ids.dtype == np.int32
    extended = BlockTable()
    extended.extend(iter(block_ids))
    assert list(extended) == block_ids
    assert repr(extended) == f"BlockTable({block_ids})"


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20), st.data())
def test_a_block_can_be_replaced(block_ids: list[int], data: st.DataObject) -> None:
    table = BlockTable()
    table.extend(block_ids)
    index = data.draw(st.integers(0, len(block_ids) - 1))
    table[index] = 1000
    assert list(table) == [*block_ids[:index], 1000, *block_ids[index + 1 :]]


@pytest.mark.parametrize("index", [2, 7, 8, -3])
def test_past_the_end_there_is_nothing(index: int) -> None:
    """The array behind a table is longer than the table. Its unused entries must not be readable."""
    table = BlockTable()
    table.extend([4, 5])
    with pytest.raises(IndexError):
        table[index]
    with pytest.raises(IndexError):
        table[index] = 1


def test_a_cleared_table_is_empty_and_can_be_filled_anew() -> None:
    table = BlockTable()
    table.extend(range(1, 20))
    table.clear()
    assert len(table) == 0
    assert list(table) == []
    assert table.ids.shape == (0,)
    table.append(3)
    assert list(table) == [3]


def test_ids_are_a_view() -> None:
    table = BlockTable()
    table.extend([1, 2, 3])
    table[1] = 9
    view = table.ids
    assert view.tolist() == [1, 9, 3]
    assert np.shares_memory(view, table.ids), "a step copies the table once; looking at it copies nothing"


def test_tables_are_padded_with_the_null_block() -> None:
    tables = [np.array(ids, dtype=np.int32) for ids in ([7, 9, 3], [5], [])]
    padded = pad_block_tables(tables)
    assert padded.dtype == np.int32
    assert padded.tolist() == [[7, 9, 3], [5, 0, 0], [0, 0, 0]]
