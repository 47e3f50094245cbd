"""BuddyAllocator: regions are powers of two, split in half and merged with their other half.

The allocator of the paper's Orca baselines (section 6.1). A block of 2^k slots begins at a multiple
of 2^k, and its *buddy*, with which it merges, is found by flipping one bit of its start. What
rounding up to a power of two costs is lost to no token: the paper counts it with the gaps, as
external fragmentation.
"""

from __future__ import annotations

from minipaged.errors import InvariantError
from minipaged.kv.region_allocator import Region, check_num_slots, check_partition


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`, which is at least 1.

    >>> [next_power_of_two(n) for n in (1, 2, 3, 25, 32)]
    [1, 2, 4, 32, 32]
    """
    return 1 << (number - 1).bit_length()


class BuddyAllocator:
    """A `RegionAllocator` whose regions are powers of two, aligned to their size.

    A pool that is no power of two begins as several blocks, one for each bit of its size, the
    largest first. They have no buddies in the pool, so they never merge with each other.

    Args:
        num_slots: slots to divide.

    Raises:
        ConfigError: fewer than one slot.

    >>> allocator = BuddyAllocator(16)
    >>> allocator.allocate(3), allocator.allocate(5), allocator.allocate(4)
    (0, 8, 4)
    >>> allocator.num_free_slots
    0
    """

    def __init__(self, num_slots: int) -> None:
        check_num_slots(num_slots)
        self._num_slots = num_slots
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
        """The free blocks. Two may lie side by side without being buddies; no region spans both."""
        return sorted(
            Region(start, 1 << order) for order, starts in enumerate(self._free) for start in starts
        )

    def allocate(self, num_slots: int) -> int | None:
        """Take a block of `num_slots`, rounded up to a power of two. See `RegionAllocator`.

        It is cut from the smallest free block that is large enough, and from the first of these.
        """
        check_num_slots(num_slots)
        order = next_power_of_two(num_slots).bit_length() - 1
        larger = next((k for k in range(order, len(self._free)) if self._free[k]), None)
        if larger is None:
            return None
        start = min(self._free[larger])
        self._free[larger].remove(start)
        while larger > order:  # keep the lower half, free the upper one
            larger -= 1
            self._free[larger].add(start + (1 << larger))
        self._allocated[start] = order
        return start

    def free(self, start: int) -> None:
        """Give a block back, and merge it with its buddy as often as that is free as a whole.
        See `RegionAllocator`."""
        if start not in self._allocated:
            raise InvariantError(f"no region begins at slot {start}, so none can be freed there")
        order = self._allocated.pop(start)
        while (buddy := start ^ (1 << order)) in self._free[order]:
            self._free[order].remove(buddy)
            start = min(start, buddy)
            order += 1
        self._free[order].add(start)

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
