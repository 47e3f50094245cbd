"""Tick: the state of a contiguous cache at one moment of chapter 2's simulation."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.baseline.region_allocator import Region


@dataclass(frozen=True)
class Tick:
    """The held and the free regions after a tick, in which each running request got a token.

    Attributes:
        wanted: slots that the next request in the queue needs.
        held: the regions of the running requests.
        free: the free regions, in order.
    """

    wanted: int
    held: tuple[Region, ...]
    free: tuple[Region, ...]

    @property
    def num_free(self) -> int:
        """The number of free slots, wherever they are."""
        return sum(region.num_slots for region in self.free)

    @property
    def largest(self) -> int:
        """The number of slots in the largest free region."""
        return max((region.num_slots for region in self.free), default=0)
