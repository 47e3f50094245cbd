"""MemoryBreakdown: hand-made cases of both layouts, and the paper's Fig. 3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.baseline.buddy import BuddyAllocator
from minipaged.baseline.contiguous_breakdown import ReservedRegion, contiguous_breakdown
from minipaged.baseline.first_fit import FirstFitAllocator
from minipaged.baseline.region_allocator import Region, RegionAllocator
from minipaged.baseline.reserve import slots_to_reserve
from minipaged.choices import ReserveRule
from minipaged.errors import InvariantError
from minipaged.kv.breakdown import MemoryBreakdown, paged_breakdown
from tests.kv.sequences import compute, computed, forked, make_manager, make_request


def reserve(allocator: RegionAllocator, num_slots: int, now: int, at_end: int) -> ReservedRegion:
    start = allocator.allocate(num_slots)
    assert start is not None
    return ReservedRegion(Region(start, num_slots), now, at_end)


def test_figure_3() -> None:
    """The numbers of the paper's Fig. 3.

    Request A reserves 2048 slots. It has 7 prompt tokens and the token of this iteration, and 2 tokens will
    follow. So it wastes 2038 slots. Request B reserves 512 slots. It has 3 + 1 tokens, and 1 will follow. So
    it wastes 507.
    """
    allocator = FirstFitAllocator(2048 + 512 + 100)
    a = reserve(allocator, 2048, now=7 + 1, at_end=7 + 1 + 2)
    assert contiguous_breakdown(allocator, [a]) == MemoryBreakdown(8, 2, 2038, 0, 512 + 100)
    b = reserve(allocator, 512, now=3 + 1, at_end=3 + 1 + 1)
    both = contiguous_breakdown(allocator, [a, b], next_request=512)
    assert both == MemoryBreakdown(
        token_states=8 + 4,
        reservation=2 + 1,
        internal_fragmentation=2038 + 507,
        external_fragmentation=100,
        free=0,
    )
    assert both.num_slots == allocator.num_slots


def test_a_gap_is_lost_when_the_next_request_is_larger() -> None:
    allocator = FirstFitAllocator(30)
    held = [reserve(allocator, 10, 4, 10) for _ in range(3)]
    for each in (held.pop(0), held.pop(1)):
        allocator.free(each.region.start)
    # There is one region, with a gap of 10 slots on each side.
    assert contiguous_breakdown(allocator, held) == MemoryBreakdown(4, 6, 0, 0, 20)
    assert contiguous_breakdown(allocator, held, next_request=10) == MemoryBreakdown(4, 6, 0, 0, 20)
    assert contiguous_breakdown(allocator, held, next_request=11) == MemoryBreakdown(4, 6, 0, 20, 0)


def test_rounding_by_a_buddy_allocator_is_external() -> None:
    """As in the paper, whose Oracle baseline has no internal fragmentation at all."""
    allocator = BuddyAllocator(16)
    held = [reserve(allocator, 5, 2, 5)]
    assert contiguous_breakdown(allocator, held) == MemoryBreakdown(2, 3, 0, 3, 8)
    held.append(reserve(allocator, 3, 3, 3))
    assert contiguous_breakdown(allocator, held, next_request=5) == MemoryBreakdown(5, 3, 0, 3 + 1 + 4, 0)


@pytest.mark.parametrize(("now", "at_end"), [(-1, 3), (4, 3), (3, 9)])
def test_an_impossible_region_is_refused(now: int, at_end: int) -> None:
    with pytest.raises(InvariantError):
        ReservedRegion(Region(0, 8), now, at_end)


@given(
    rule=st.sampled_from(["max", "pow2", "oracle"]),
    buddy=st.booleans(),
    requests=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 60), st.floats(0, 1), st.booleans()), max_size=20
    ),
)
def test_a_contiguous_cache_adds_up(
    rule: ReserveRule, buddy: bool, requests: list[tuple[int, int, float, bool]]
) -> None:
    allocator = BuddyAllocator(777) if buddy else FirstFitAllocator(777)
    held: list[ReservedRegion] = []
    refused = 1
    for num_prompt, num_output, progress, ends in requests:
        size = slots_to_reserve(
            rule, num_prompt_tokens=num_prompt, num_output_tokens=num_output, max_model_len=100
        )
        start = allocator.allocate(size)
        if start is None:
            refused = size
        elif ends:
            allocator.free(start)
        else:
            at_end = num_prompt + num_output - 1
            held.append(ReservedRegion(Region(start, size), int(progress * at_end), at_end))
    found = contiguous_breakdown(allocator, held, next_request=refused)
    assert found.num_slots == 777
    assert found.token_states == sum(each.num_tokens for each in held)
    if rule == "oracle":
        assert found.internal_fragmentation == 0
    if refused > allocator.largest_free_region:
        assert found.free == 0


def test_the_last_block_of_a_paged_cache() -> None:
    """Blocks of 4, 6 of at most 7 tokens computed. In the last block, one free slot will be used, one not."""
    manager = make_manager(10)
    request = make_request(computed(manager, range(6)))
    request.max_tokens = 2  # the second is never computed
    found = paged_breakdown(manager.pool, 4, [request])
    assert found == MemoryBreakdown(6, 1, 1, 0, 7 * 4)
    assert found.num_slots == 9 * 4, "the null block is left out"


def test_a_shared_block_counts_once() -> None:
    manager = make_manager(10)
    first = computed(manager, range(6))
    second, third = forked(manager, first), forked(manager, first)
    request = make_request(first, second, third)
    assert paged_breakdown(manager.pool, 4, [request]) == MemoryBreakdown(6, 2, 0, 0, 7 * 4)
    second.token_ids.append(50)
    assert len(compute(manager, second)) == 1
    # The copy holds 3 tokens. The other two samples still share a block that holds 2 tokens.
    assert paged_breakdown(manager.pool, 4, [request]) == MemoryBreakdown(4 + 2 + 3, 2 + 1, 0, 0, 6 * 4)


def test_whoever_gets_furthest_in_a_shared_block_decides() -> None:
    manager = make_manager(10)
    parent = computed(manager, range(7))
    child = forked(manager, parent, 5)
    short, long = make_request(child), make_request(parent)
    short.max_tokens, long.max_tokens = 1, 99
    assert paged_breakdown(manager.pool, 4, [short]) == MemoryBreakdown(5, 0, 3, 0, 7 * 4)
    assert paged_breakdown(manager.pool, 4, [short, long]) == MemoryBreakdown(7, 1, 0, 0, 7 * 4)
    assert paged_breakdown(manager.pool, 4, [long, short]) == MemoryBreakdown(7, 1, 0, 0, 7 * 4)


def test_a_cached_block_that_nobody_holds_is_free() -> None:
    manager = make_manager(10)
    seq = computed(manager, range(8))
    manager.free(seq)
    assert len(manager.prefix_cache) == 2
    assert paged_breakdown(manager.pool, 4, []) == MemoryBreakdown(0, 0, 0, 0, 9 * 4)


def test_it_reads_as_shares_of_the_whole() -> None:
    assert str(MemoryBreakdown(500, 250, 100, 125, 1025)) == (
        "2,000 slots: token states 25.0%, reservation 12.5%, internal fragmentation 5.0%, "
        "external fragmentation 6.2%, free 51.2%"
    )
