"""FirstFitAllocator: each region is taken from the first gap that is large enough.

The plainest way to divide memory into pieces of any size. Freed regions merge with free neighbours
at once, and still, after a while, what is free is scattered over gaps: external fragmentation.
"""

from __future__ import annotations

import bisect
from typing import Protocol

from minipaged.baseline.region_allocator import Region, check_num_slots, check_partition
from minipaged.errors import InvariantError


class AllocateFirstFit(Protocol):
    """The seam of `allocate_first_fit`."""

    def __call__(self, free: list[Region], num_slots: int) -> int | None: ...


class FreeFirstFit(Protocol):
    """The seam of `free_first_fit`."""

    def __call__(self, free: list[Region], region: Region) -> None: ...


def allocate_first_fit(free: list[Region], num_slots: int) -> int | None:
    """Take the front of the first free region that is large enough.

    Args:
        free: the free regions, in order, no two of them side by side; changed in place.
        num_slots: at least 1.

    Returns:
        The first slot taken; `None`, with nothing changed, if no region is large enough.

    >>> free = [Region(0, 3), Region(5, 4)]
    >>> allocate_first_fit(free, 4), free
    (5, [Region(start=0, num_slots=3)])
    """
    for i, region in enumerate(free):
        if region.num_slots < num_slots:
            continue
        rest = region.num_slots - num_slots
        free[i : i + 1] = [Region(region.start + num_slots, rest)] if rest else []
        return region.start
    return None


def free_first_fit(free: list[Region], region: Region) -> None:
    """Give a region back, as one with the free regions on both sides.

    Args:
        free: the free regions, as above; changed in place.
        region: one that overlaps none of them.

    >>> free = [Region(0, 3), Region(5, 4)]
    >>> free_first_fit(free, Region(3, 2))
    >>> free
    [Region(start=0, num_slots=9)]
    """
    start, end = region.start, region.end
    i = bisect.bisect_left(free, region)
    first, last = i, i  # the free regions `first` to `last - 1` become part of this one
    if i > 0 and free[i - 1].end == start:
        first = i - 1
        start = free[first].start
    if i < len(free) and free[i].start == end:
        last = i + 1
        end = free[i].end
    free[first:last] = [Region(start, end - start)]


class FirstFitAllocator:
    """A `RegionAllocator` that gives exactly as many slots as were asked for.

    Both methods take time in the number of free regions. There is at most one more of them than
    there are allocated ones, since two free regions never touch.

    Args:
        num_slots: slots to divide.
        allocate: takes a region from the free ones.
        free: gives one back to them.

    Raises:
        ConfigError: fewer than one slot.

    >>> allocator = FirstFitAllocator(10)
    >>> allocator.allocate(4), allocator.allocate(4), allocator.allocate(4)
    (0, 4, None)
    >>> allocator.free(0)
    >>> allocator.num_free_slots, allocator.largest_free_region
    (6, 4)
    """

    def __init__(
        self,
        num_slots: int,
        allocate: AllocateFirstFit = allocate_first_fit,
        free: FreeFirstFit = free_first_fit,
    ) -> None:
        check_num_slots(num_slots)
        self._num_slots = num_slots
        self._allocate_from, self._free_into = allocate, free
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

    def allocated_regions(self) -> list[Region]:
        return [Region(start, self._allocated[start]) for start in sorted(self._allocated)]

    def max_regions(self, num_slots: int) -> int:
        check_num_slots(num_slots)
        return self._num_slots // num_slots

    def allocate(self, num_slots: int) -> int | None:
        check_num_slots(num_slots)
        start = self._allocate_from(self._free, num_slots)
        if start is not None:
            self._allocated[start] = num_slots
        return start

    def free(self, start: int) -> None:
        if start not in self._allocated:
            raise InvariantError(f"no region begins at slot {start}, so none can be freed there")
        self._free_into(self._free, Region(start, self._allocated.pop(start)))

    def check_invariants(self) -> None:
        allocated = [Region(start, size) for start, size in self._allocated.items()]
        check_partition(self._free + allocated, self._num_slots)
        if self._free != sorted(self._free):
            raise InvariantError(f"the free regions are out of order: {self._free}")
        for left, right in zip(self._free, self._free[1:], strict=False):
            if left.end == right.start:
                raise InvariantError(f"{left} and {right} are free side by side, but not merged")
