"""What each slot of a contiguous KV cache is used for at one moment; see `kv/breakdown.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minipaged.baseline.region_allocator import Region, RegionAllocator
from minipaged.errors import InvariantError
from minipaged.kv.breakdown import MemoryBreakdown


@dataclass(frozen=True)
class ReservedRegion:
    """The region of one sequence in a contiguous cache.

    Attributes:
        region: the slots that were asked for. An allocator that rounds up may have taken more.
        num_tokens: slots that hold a token now.
        num_tokens_at_end: slots that will hold a token when the sequence ends.
    """

    region: Region
    num_tokens: int
    num_tokens_at_end: int

    def __post_init__(self) -> None:
        if not 0 <= self.num_tokens <= self.num_tokens_at_end <= self.region.num_slots:
            raise InvariantError(
                f"{self.region} cannot hold {self.num_tokens} tokens now and {self.num_tokens_at_end} later"
            )


def contiguous_breakdown(
    allocator: RegionAllocator, reserved: Iterable[ReservedRegion], next_request: int = 1
) -> MemoryBreakdown:
    """Count the slots of a contiguous cache by what they are used for.

    Args:
        allocator: the allocator that divides the cache into regions.
        reserved: all allocated regions.
        next_request: slots that the next request will reserve. A free region smaller than that counts as
            external fragmentation; a larger one counts entirely as free. If no request waits, pass 1. In that
            case every unallocated slot counts as free.
    """
    token_states = at_end = requested = 0
    for each in reserved:
        token_states += each.num_tokens
        at_end += each.num_tokens_at_end
        requested += each.region.num_slots
    rounding = allocator.num_slots - allocator.num_free_slots - requested
    sizes = [region.num_slots for region in allocator.free_regions()]
    return MemoryBreakdown(
        token_states=token_states,
        reservation=at_end - token_states,
        internal_fragmentation=requested - at_end,
        external_fragmentation=rounding + sum(size for size in sizes if size < next_request),
        free=sum(size for size in sizes if size >= next_request),
    )
