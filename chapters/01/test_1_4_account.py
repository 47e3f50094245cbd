"""Checks of exercise 1.4: where the slots of a contiguous cache go."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.baseline.contiguous_breakdown import ReservedRegion
from minipaged.baseline.region_allocator import Region
from minipaged.course.drawing import draw_slots
from minipaged.course.expect import expect_equal
from minipaged.kv.breakdown import MemoryBreakdown


def _regions(*numbers: tuple[int, int, int]) -> list[ReservedRegion]:
    """Regions from (slots, tokens now, tokens at the end), one after the other."""
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


RULES = {
    "token_states": "slots that hold a token now",
    "reservation": "slots without a token now, which will hold one before the request ends",
    "internal_fragmentation": "slots of a region that its request never fills",
    "external_fragmentation": "slots in no region: every gap is too small for the next request",
    "free": "0: a gap that is too small for the next request is external fragmentation",
}


def _expect_accounts(
    code: ModuleType, num_slots: int, reserved: list[ReservedRegion], expected: MemoryBreakdown
) -> None:
    got = code.account(num_slots, reserved)
    regions = "1 region" if len(reserved) == 1 else f"{len(reserved)} regions"
    for name, rule in RULES.items():
        expect_equal(
            getattr(got, name, None),
            getattr(expected, name),
            case=f"{name} of {regions} in {num_slots:,} slots",
            rule=f"{rule}. The five counts add up to {num_slots:,}",
            state=_draw(num_slots, reserved),
        )


@pytest.mark.exercise("1.4")
def test_an_empty_cache_that_nobody_fits_into(code: ModuleType) -> None:
    _expect_accounts(code, 10, [], MemoryBreakdown(0, 0, 0, 10, 0))


@pytest.mark.exercise("1.4")
def test_one_region(code: ModuleType) -> None:
    _expect_accounts(code, 16, _regions((10, 3, 5)), MemoryBreakdown(3, 2, 5, 6, 0))


@pytest.mark.exercise("1.4")
def test_the_paper_s_figure_3(code: ModuleType) -> None:
    # A: 7 prompt tokens and this step's token, 2 to come, 2048 reserved. B: 3 + 1, 1 to come, 512 reserved.
    regions = _regions((2048, 8, 10), (512, 4, 5))
    _expect_accounts(code, 2600, regions, MemoryBreakdown(12, 3, 2038 + 507, 40, 0))


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
    _expect_accounts(code, num_slots, reserved, expected)
