"""BuddyAllocator: splits free blocks in half, and merges the halves again. All sizes are powers of two.

This is the allocator of the paper's Orca baselines (section 6.1). A *block* of this module is 2^k slots that
begin at a multiple of 2^k. It merges with its *buddy*, the block of the same size whose start differs from
its own only in bit k. Rounding up to a power of two leaves slots that no token can use. The paper counts
these slots, like the gaps between regions, as external fragmentation.
"""

from __future__ import annotations

from typing import Protocol

from minipaged.baseline.region_allocator import Region, check_num_slots, check_partition
from minipaged.errors import InvariantError


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is not less than `number`. `number` must be at least 1.

    >>> [next_power_of_two(n) for n in (1, 2, 3, 25, 32)]
    [1, 2, 4, 32, 32]
    """
    return 1 << (number - 1).bit_length()


class AllocateBuddy(Protocol):
    """The signature of `allocate_buddy`, for functions that replace it in the engine."""

    def __call__(self, free: list[set[int]], num_slots: int) -> int | None: ...


class FreeBuddy(Protocol):
    """The signature of `free_buddy`, for functions that replace it in the engine."""

    def __call__(self, free: list[set[int]], start: int, order: int) -> None: ...


def allocate_buddy(free: list[set[int]], num_slots: int) -> int | None:
    """Take a block of `num_slots` slots, rounded up to a power of two.

    The block is cut from the smallest free block that is large enough. If there are several of that size,
    the one with the lowest start is used.

    Args:
        free: `free[order]` is the set of the starts of the free blocks of `2 ** order` slots. It is changed
            in place.
        num_slots: at least 1.

    Returns:
        The first slot taken. `None` if no block is large enough; in that case nothing has changed.

    >>> free = [set(), set(), set(), {0}]
    >>> allocate_buddy(free, 2), free
    (0, [set(), {2}, {4}, set()])
    """
    order = next_power_of_two(num_slots).bit_length() - 1
    larger = next((k for k in range(order, len(free)) if free[k]), None)
    if larger is None:
        return None
    start = min(free[larger])
    free[larger].remove(start)
    while larger > order:  # keep the lower half, free the upper one
        larger -= 1
        free[larger].add(start + (1 << larger))
    return start


def free_buddy(free: list[set[int]], start: int, order: int) -> None:
    """Free a block. As long as its buddy is entirely free, merge the two into a block of twice the size.

    Args:
        free: as in `allocate_buddy`; changed in place.
        start: the block's first slot.
        order: the block has `2 ** order` slots.

    >>> free = [set(), {2}, {4}, set()]
    >>> free_buddy(free, start=0, order=1)
    >>> free
    [set(), set(), set(), {0}]
    """
    while (buddy := start ^ (1 << order)) in free[order]:
        free[order].remove(buddy)
        start = min(start, buddy)
        order += 1
    free[order].add(start)


class BuddyAllocator:
    """A `RegionAllocator` whose region sizes are powers of two. A region begins at a multiple of its size.

    If the number of slots is not a power of two, the pool begins as several blocks: one for each bit of that
    number that is 1, the largest block first. Their buddies are outside the pool, so these blocks never
    merge.

    Args:
        num_slots: how many slots to divide.
        allocate: takes a block from the free blocks.
        free: adds a block to the free blocks.

    Raises:
        ConfigError: `num_slots` is less than 1.

    >>> allocator = BuddyAllocator(16)
    >>> allocator.allocate(3), allocator.allocate(5), allocator.allocate(4)
    (0, 8, 4)
    >>> allocator.num_free_slots
    0
    """

    def __init__(
        self, num_slots: int, allocate: AllocateBuddy = allocate_buddy, free: FreeBuddy = free_buddy
    ) -> None:
        check_num_slots(num_slots)
        self._num_slots = num_slots
        self._allocate_from, self._free_into = allocate, free
        # order -> starts of the free blocks of 2^order slots
        self._free: list[set[int]] = [set() for _ in range(num_slots.bit_length())]
        self._allocated: dict[int, int] = {}  # start -> order
        start = 0
        for order in reversed(range(num_slots.bit_length())):
            if num_slots >> order & 1:
                self._free[order].add(start)
                start += 1 << order

    @property
    def num_slots(self) -> int:
        return self._num_slots

    @property
    def num_free_slots(self) -> int:
        return sum(len(starts) << order for order, starts in enumerate(self._free))

    @property
    def largest_free_region(self) -> int:
        return max((1 << order for order, starts in enumerate(self._free) if starts), default=0)

    def free_regions(self) -> list[Region]:
        """The free blocks. Neighbours that are not buddies stay separate, since no region can span both."""
        return sorted(
            Region(start, 1 << order) for order, starts in enumerate(self._free) for start in starts
        )

    def allocated_regions(self) -> list[Region]:
        return [Region(start, 1 << self._allocated[start]) for start in sorted(self._allocated)]

    def max_regions(self, num_slots: int) -> int:
        """Count the multiples of the rounded size in the pool, since every block begins at a multiple."""
        check_num_slots(num_slots)
        return self._num_slots // next_power_of_two(num_slots)

    def allocate(self, num_slots: int) -> int | None:
        check_num_slots(num_slots)
        start = self._allocate_from(self._free, num_slots)
        if start is not None:
            self._allocated[start] = next_power_of_two(num_slots).bit_length() - 1
        return start

    def free(self, start: int) -> None:
        if start not in self._allocated:
            raise InvariantError(f"no region begins at slot {start}, so none can be freed there")
        self._free_into(self._free, start, self._allocated.pop(start))

    def check_invariants(self) -> None:
        allocated = [Region(start, 1 << order) for start, order in self._allocated.items()]
        check_partition(self.free_regions() + allocated, self._num_slots)
        for region in [*self.free_regions(), *allocated]:
            if region.start % region.num_slots:
                raise InvariantError(f"{region} does not begin at a multiple of its size")
        for order, starts in enumerate(self._free):
            for start in starts:
                if start ^ (1 << order) in starts:
                    raise InvariantError(
                        f"{Region(start, 1 << order)} and its buddy are free, but not merged"
                    )
