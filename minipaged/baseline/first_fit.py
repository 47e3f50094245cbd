"""FirstFitAllocator: each region is taken from the first gap that is large enough.

This is the simplest way to divide memory into pieces of any size. A freed region merges with its free
neighbours at once. Even so, the free slots become scattered over many gaps. This is external fragmentation.
"""

from __future__ import annotations

import bisect
from typing import Protocol

from minipaged.baseline.region_allocator import Region, check_num_slots, check_partition
from minipaged.errors import InvariantError


class AllocateFirstFit(Protocol):
    """The signature of `allocate_first_fit`, for functions that replace it in the engine."""

    def __call__(self, free: list[Region], num_slots: int) -> int | None: ...


class FreeFirstFit(Protocol):
    """The signature of `free_first_fit`, for functions that replace it in the engine."""

    def __call__(self, free: list[Region], region: Region) -> None: ...


def allocate_first_fit(free: list[Region], num_slots: int) -> int | None:
    """Take `num_slots` slots from the front of the first free region that is large enough.

    Args:
        free: the free regions, in order of their starts. No two touch. The list is changed in place.
        num_slots: at least 1.

    Returns:
        The first slot taken. `None` if no region is large enough; in that case nothing has changed.

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
    """Free a region, and merge it with the free regions that touch it.

    Args:
        free: the free regions, as in `allocate_first_fit`; changed in place.
        region: the region to free. It overlaps no free region.

    >>> free = [Region(0, 3), Region(5, 4)]
    >>> free_first_fit(free, Region(3, 2))
    >>> free
    [Region(start=0, num_slots=9)]
    """
    start, end = region.start, region.end
    i = bisect.bisect_left(free, region)
    first, last = i, i  # the free regions `first` to `last - 1` are merged with this region
    if i > 0 and free[i - 1].end == start:
        first = i - 1
        start = free[first].start
    if i < len(free) and free[i].start == end:
        last = i + 1
        end = free[i].end
    free[first:last] = [Region(start, end - start)]


class FirstFitAllocator:
    """A `RegionAllocator` whose regions have exactly the number of slots that was asked for.

    `allocate` and `free` take time proportional to the number of free regions. Two free regions never
    touch, so there is at most one more free region than there are allocated regions.

    Args:
        num_slots: how many slots to divide.
        allocate: takes a region from the free regions.
        free: adds a region to the free regions.

    Raises:
        ConfigError: `num_slots` is less than 1.

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
        self._free = [Region(0, num_slots)]  # in order of their starts; no two touch
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
