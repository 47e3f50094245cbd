"""RegionAllocator: the interface of the allocator that divides the slots of a contiguous KV cache.

Without block tables, attention finds a token in slot `region start + position`. So a sequence's slots must be
contiguous, and when its request is admitted, it takes all slots that it may ever need (paper, section 3).
There are two allocators: `first_fit.FirstFitAllocator`, and the paper's baseline `buddy.BuddyAllocator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minipaged.errors import ConfigError, InvariantError


@dataclass(frozen=True, order=True)
class Region:
    """The slots from `start` to `end - 1`."""

    start: int
    num_slots: int

    @property
    def end(self) -> int:
        return self.start + self.num_slots


class RegionAllocator(Protocol):
    """Divides slots 0 to `num_slots - 1` into regions that never overlap."""

    @property
    def num_slots(self) -> int:
        """The number of all slots, free or not."""
        ...

    @property
    def num_free_slots(self) -> int:
        """The number of slots outside all allocated regions.

        If they are scattered over several gaps, `allocate` may fail even for a smaller number of slots.
        """
        ...

    @property
    def largest_free_region(self) -> int:
        """The size of the largest region that `allocate` could return now, in slots. 0 if no slot is free."""
        ...

    def free_regions(self) -> list[Region]:
        """The free regions from which `allocate` chooses, in order of their starts."""
        ...

    def allocated_regions(self) -> list[Region]:
        """The allocated regions, in order of their starts.

        If the allocator rounds up, a region may be larger than was asked for.
        """
        ...

    def max_regions(self, num_slots: int) -> int:
        """How many regions of `num_slots` slots fit into an empty pool."""
        ...

    def allocate(self, num_slots: int) -> int | None:
        """Take a region of at least `num_slots` slots.

        Returns:
            The region's first slot. `None` if no free region is that large; in that case nothing has changed.

        Raises:
            ConfigError: `num_slots` is less than 1.
        """
        ...

    def free(self, start: int) -> None:
        """Free the region that begins at `start`, and merge it with its free neighbours.

        Raises:
            InvariantError: no allocated region begins at `start`.
        """
        ...

    def check_invariants(self) -> None:
        """Check that the free and the allocated regions together cover all slots exactly once.

        Raises:
            InvariantError: regions overlap or leave a gap, or free neighbours are not merged.
        """
        ...


def check_num_slots(num_slots: int) -> None:
    """Refuse a pool or a region without slots.

    Raises:
        ConfigError: `num_slots` is less than 1.
    """
    if num_slots < 1:
        raise ConfigError(f"there must be at least 1 slot, not {num_slots}")


def check_partition(regions: list[Region], num_slots: int) -> None:
    """Check that the regions cover slots 0 to `num_slots - 1` without a gap or an overlap.

    Args:
        regions: the regions, in any order.
        num_slots: the number of slots in the pool.

    Raises:
        InvariantError: there is a gap or an overlap.
    """
    expected = 0
    for region in sorted(regions):
        if region.start != expected or region.num_slots < 1:
            raise InvariantError(f"a region begins at slot {expected}, but the next region is {region}")
        expected = region.end
    if expected != num_slots:
        raise InvariantError(f"the regions end at slot {expected}, the pool at {num_slots}")
