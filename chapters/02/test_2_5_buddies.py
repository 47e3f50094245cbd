"""Checks of exercise 2.5: the buddy allocator, for Pow2."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch02.drawing import draw_orders
from minipaged.course.expect import expect_equal


class _Starts(set[int]):
    """A set that prints its numbers in order."""

    def __repr__(self) -> str:
        return f"{{{', '.join(map(str, sorted(self)))}}}" if self else "set()"


def _in_order(free: list[set[int]]) -> list[set[int]]:
    return [_Starts(each) if isinstance(each, set) else each for each in free]


def _pool(num_slots: int, *blocks: tuple[int, int]) -> list[set[int]]:
    """A free list with blocks given as (start, order)."""
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
        (_pool(16, (0, 4)), 16, 0, _pool(16), "the whole cache is one block: no cut"),
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
            "take the smallest block that is large enough; the block of 8 stays whole",
        ),
        (
            _pool(16, (4, 2), (12, 2)),
            4,
            4,
            _pool(16, (12, 2)),
            "of two free regions of the same size, the one with the lower start",
        ),
        (  # `pop` takes 8 from this set
            _pool(16, (4, 2), (8, 2)),
            3,
            4,
            _pool(16, (8, 2)),
            "of two free regions of the same size, the one with the lower start",
        ),
        (
            _pool(16, (2, 1), (8, 3)),
            3,
            8,
            _pool(16, (2, 1), (12, 2)),
            "a block of 2 is too small; cut the block of 8: take the lower half, and free the upper half",
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
        (
            _pool(16, (0, 2)),
            4,
            2,
            _pool(16, (0, 3)),
            "0 and 4 are the halves of one block of 8, which begins at 0",
        ),
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
            "a merged block has a buddy, too, so merging goes on",
        ),
        (
            _pool(16, (0, 1), (2, 0)),
            4,
            2,
            _pool(16, (0, 1), (2, 0), (4, 2)),
            "the buddy of slots 4 to 7 is slots 0 to 3, and slot 3 is held",
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
    """The free aligned blocks that are not inside a larger free block."""
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
    """A number above 0 asks for that many slots; −1 frees the oldest block, −2 the second oldest, …"""
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
            rule = f"{wanted} slots need a block of {2**order}, from the smallest block that is large enough"
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
            rule="every slot is either held or free; two free buddies are merged into one block",
            state=f"before\n{draw_orders(before, num_slots)}\nafter\n{draw_orders(free, num_slots)}",
        )
