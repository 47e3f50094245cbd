"""What each slot is used for at one moment of a trace; the engine's own count is in `kv/breakdown.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from minipaged.baseline.reserve import slots_to_reserve
from minipaged.choices import ReserveRule
from minipaged.events import EngineStarted
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedRequest
from minipaged.trace.state import RegionState


def count_slots(replay: Replay) -> MemoryBreakdown:
    """Count the slots of the cache by what they are used for. All counts are 0 without a cache."""
    match replay.engine.kv_layout:
        case "paged":
            return _paged(replay)
        case "contiguous":
            return _contiguous(replay)
    return MemoryBreakdown(0, 0, 0, 0, 0)


def _paged(replay: Replay) -> MemoryBreakdown:
    size = replay.engine.block_size
    filled: dict[int, int] = {}  # block -> slots that hold a token
    useful: dict[int, int] = {}  # block -> slots that hold a token now or will hold one later
    for request in replay.running:
        for seq in request.sequences:
            computed, at_end = seq.num_computed_tokens, request.num_at_end
            for i, block_id in enumerate(seq.block_ids):
                now = min(size, max(0, computed - i * size))
                filled[block_id] = max(filled.get(block_id, 0), now)
                useful[block_id] = max(useful.get(block_id, 0), now, min(size, max(0, at_end - i * size)))
    token_states, total_useful = sum(filled.values()), sum(useful.values())
    return MemoryBreakdown(
        token_states=token_states,
        reservation=total_useful - token_states,
        internal_fragmentation=len(useful) * size - total_useful,
        external_fragmentation=0,
        free=replay.pool.num_free * size,
    )


def _contiguous(replay: Replay) -> MemoryBreakdown:
    regions = sorted(replay.regions.values(), key=lambda region: region.start)
    num_slots = replay.engine.num_blocks * replay.engine.block_size
    token_states = sum(
        replay.sequence(region.seq_id).num_computed_tokens for region in regions if region.seq_id is not None
    )
    requested = sum(region.num_slots for region in regions)
    at_end = sum(replay.request(region.request_id).num_at_end for region in regions)
    rounding = sum(region.num_allocated for region in regions) - requested
    wanted = wanted_slots(replay.engine, replay.waiting[0]) if replay.waiting else 1
    buddies = replay.engine.region_allocator == "buddy"
    free = list(_free_buddies(regions, num_slots) if buddies else _gaps(regions, num_slots))
    return MemoryBreakdown(
        token_states=token_states,
        reservation=at_end - token_states,
        internal_fragmentation=requested - at_end,
        external_fragmentation=rounding + sum(size for size in free if size < wanted),
        free=sum(size for size in free if size >= wanted),
    )


def wanted_slots(engine: EngineStarted, request: ReplayedRequest) -> int:
    """The number of slots that a request reserves for each of its sequences."""
    return slots_to_reserve(
        cast(ReserveRule, engine.reserve),
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=request.added.max_tokens,
        max_model_len=engine.max_model_len,
    )


def _gaps(regions: list[RegionState], num_slots: int) -> Iterable[int]:
    """The sizes of the gaps between regions in order of their starts."""
    end = 0
    for region in regions:
        if region.start > end:
            yield region.start - end
        end = region.start + region.num_allocated
    if num_slots > end:
        yield num_slots - end


def _free_buddies(regions: list[RegionState], num_slots: int) -> Iterable[int]:
    """The sizes of the free blocks of a buddy allocator.

    Its pool begins as one block for each bit of `num_slots` that is 1.
    """
    start = 0
    for order in reversed(range(num_slots.bit_length())):
        if num_slots >> order & 1:
            yield from _free_in_buddy(regions, start, 1 << order)
            start += 1 << order


def _free_in_buddy(regions: list[RegionState], start: int, size: int) -> Iterable[int]:
    inside = [region for region in regions if start <= region.start < start + size]
    if not inside:
        yield size
    elif inside[0].num_allocated < size:
        yield from _free_in_buddy(inside, start, size // 2)
        yield from _free_in_buddy(inside, start + size // 2, size // 2)
