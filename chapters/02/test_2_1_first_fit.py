"""Checks of exercise 2.1: first fit, with merging."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.baseline.region_allocator import Region
from minipaged.course.ch02.drawing import draw_regions
from minipaged.course.expect import expect_equal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _gaps(taken: list[bool]) -> list[Region]:
    """The longest runs of slots that are not taken."""
    starts = [i for i, mark in enumerate(taken) if not mark and (i == 0 or taken[i - 1])]
    return [Region(i, next((j for j in range(i, len(taken)) if taken[j]), len(taken)) - i) for i in starts]


def _spans(free: list[Region]) -> str:
    return ", ".join(f"{each.start} to {each.end - 1}" for each in free)


def _held(free: list[Region], num_slots: int) -> dict[str, Region]:
    """The held regions between the free ones, with a letter for each."""
    marks = [any(each.start <= slot < each.end for each in free) for slot in range(num_slots)]
    return dict(zip(LETTERS, _gaps(marks), strict=False))


@pytest.mark.exercise("2.1")
@pytest.mark.parametrize(
    ("free", "num_slots", "start", "left", "rule"),
    [
        ([], 1, None, [], "nothing is free"),
        ([Region(2, 8)], 8, 2, [], "all free slots may be taken; no empty region is left in the list"),
        ([Region(2, 8)], 3, 2, [Region(5, 5)], "taken from the front; the rest of the region stays free"),
        ([Region(2, 4)], 5, None, [Region(2, 4)], "no region is large enough, so nothing changes"),
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
            "a region of exactly the wanted size is large enough; no empty region is left in the list",
        ),
        (
            [Region(0, 4), Region(6, 4)],
            5,
            None,
            [Region(0, 4), Region(6, 4)],
            "8 slots are free, but no 5 of them are contiguous, so nothing changes",
        ),
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
        ([], Region(4, 4), [Region(4, 4)], "without a free neighbour, the list gets one more region"),
        ([Region(0, 3)], Region(4, 4), [Region(0, 3), Region(4, 4)], "slot 3 is still held between them"),
        ([Region(9, 2)], Region(4, 4), [Region(4, 4), Region(9, 2)], "slot 8 is still held between them"),
        ([Region(9, 2)], Region(2, 4), [Region(2, 4), Region(9, 2)], "the list stays in order"),
        ([Region(0, 4)], Region(4, 4), [Region(0, 8)], "merge with the region that ends where it begins"),
        ([Region(8, 4)], Region(4, 4), [Region(4, 8)], "merge with the region that begins where it ends"),
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
            "only regions that touch are merged; all others stay",
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
    """A number above 0 asks for that many slots; −1 frees the oldest region, −2 the second oldest, …"""
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
                rule="take the first gap that is large enough",
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
            rule="every slot is either held or free; free regions are in order, and never touch",
            state=f"before\n{before}\nafter\n{draw_regions(held, free, num_slots)}",
        )
