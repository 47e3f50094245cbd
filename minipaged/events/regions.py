"""Events of a contiguous cache, whose slots are reserved in regions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionReserved:
    """A request reserved slots `start` to `start + num_slots - 1` for one of its sequences.

    `num_allocated` is larger than `num_slots` if the allocator rounds up.
    """

    request_id: str
    start: int
    num_slots: int
    num_allocated: int


@dataclass(frozen=True, slots=True)
class RegionHeld:
    """A sequence uses a region that its request has reserved."""

    seq_id: int
    start: int


@dataclass(frozen=True, slots=True)
class RegionReturned:
    """A sequence no longer uses its region, but its request keeps the region.

    The sequence has no computed tokens afterwards.
    """

    seq_id: int
    start: int


@dataclass(frozen=True, slots=True)
class RegionFreed:
    """A region that no sequence uses is free again."""

    start: int
