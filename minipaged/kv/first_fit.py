"""FirstFitAllocator: each region is taken from the first gap that is large enough.

The plainest way to divide memory into pieces of any size. Freed regions merge with free neighbours
at once, and still, after a while, what is free is scattered over gaps: external fragmentation.
"""

from __future__ import annotations

import bisect

from minipaged.errors import InvariantError
from minipaged.kv.region_allocator import Region, check_num_slots, check_partition


class FirstFitAllocator:
    """A `RegionAllocator` that gives exactly as many slots as were asked for.

    Both methods take time in the number of free regions. There is at most one more of them than
    there are allocated ones, since two free regions never touch.

    Args:
        num_slots: slots to divide.

    Raises:
        ConfigError: fewer than one slot.

    >>> allocator = FirstFitAllocator(10)
    >>> allocator.allocate(4), allocator.allocate(4), allocator.allocate(4)
    (0, 4, None)
    >>> allocator.free(0)
    >>> allocator.num_free_slots, allocator.largest_free_region
    (6, 4)
    """

    def __init__(self, num_slots: int) -> None:
        check_num_slots(num_slots)
        self._num_slots = num_slots
        self._free = [Region(0, num_slots)]  # in order; no two of them touch
        self._allocated: dict[int, int] = {}  # start -> slots

    @property
    def num_slots(self) -> int:
        return self._num_slots

    @property
    def num_free_slots(self) -> int:
        return sum(region.num_slots for region in self._free)

    @property
    def largest_free_region(self) -> int:
        return max((region.num_slots for region in self._free), default=0)

    def free_regions(self) -> list[Region]:
        return list(self._free)

    def allocate(self, num_slots: int) -> int | None:
        """Take the front of the first free region that is large enough. See `RegionAllocator`."""
        check_num_slots(num_slots)
        for i, region in enumerate(self._free):
            if region.num_slots < num_slots:
                continue
            rest = region.num_slots - num_slots
            self._free[i : i + 1] = [Region(region.start + num_slots, rest)] if rest else []
            self._allocated[region.start] = num_slots
            return region.start
        return None

    def free(self, start: int) -> None:
        """Give a region back, as one with the free regions on both sides. See `RegionAllocator`."""
        if start not in self._allocated:
            raise InvariantError(f"no region begins at slot {start}, so none can be freed there")
        end = start + self._allocated.pop(start)
        i = bisect.bisect_left(self._free, Region(start, 0))
        first, last = i, i  # the free regions `first` to `last - 1` become part of this one
        if i > 0 and self._free[i - 1].end == start:
            first = i - 1
            start = self._free[first].start
        if i < len(self._free) and self._free[i].start == end:
            last = i + 1
            end = self._free[i].end
        self._free[first:last] = [Region(start, end - start)]

    def check_invariants(self) -> None:
        allocated = [Region(start, size) for start, size in self._allocated.items()]
        check_partition(self._free + allocated, self._num_slots)
        if self._free != sorted(self._free):
            raise InvariantError(f"the free regions are out of order: {self._free}")
        for left, right in zip(self._free, self._free[1:], strict=False):
            if left.end == right.start:
                raise InvariantError(f"{left} and {right} are free side by side, but not merged")
