"""RegionAllocator: what a contiguous KV cache needs of whoever divides its slots.

Without block tables, attention finds a token at `region start + position`, so all slots of a
request lie side by side, and room for its whole life is taken when it is admitted (paper, section
3). Two allocators have this shape: `first_fit.FirstFitAllocator`, and the paper's baseline,
`buddy.BuddyAllocator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minipaged.errors import ConfigError, InvariantError


@dataclass(frozen=True, order=True)
class Region:
    """Slots `start` to `end - 1`."""

    start: int
    num_slots: int

    @property
    def end(self) -> int:
        return self.start + self.num_slots


class RegionAllocator(Protocol):
    """Divides slots 0 to `num_slots - 1` into regions that never overlap."""

    @property
    def num_slots(self) -> int:
        """All slots, free or not."""
        ...

    @property
    def num_free_slots(self) -> int:
        """Slots in no region. They may not lie together, so a smaller request can still fail."""
        ...

    @property
    def largest_free_region(self) -> int:
        """The most slots that `allocate` could give now; 0 if none is free."""
        ...

    def free_regions(self) -> list[Region]:
        """The free regions from which `allocate` chooses, in the order of their starts."""
        ...

    def allocated_regions(self) -> list[Region]:
        """What `allocate` gave and nobody gave back, in the order of their starts. One is larger
        than was asked for where the allocator rounds up."""
        ...

    def max_regions(self, num_slots: int) -> int:
        """How many regions of `num_slots` slots there can be at once, if nothing else is allocated."""
        ...

    def allocate(self, num_slots: int) -> int | None:
        """Take a region of at least `num_slots` slots.

        Returns:
            Its first slot; `None`, with nothing changed, if no free region is that large.

        Raises:
            ConfigError: fewer than one slot.
        """
        ...

    def free(self, start: int) -> None:
        """Give the region that begins at `start` back, and merge it with what is free beside it.

        Raises:
            InvariantError: no allocated region begins there.
        """
        ...

    def check_invariants(self) -> None:
        """Compare the regions with the whole.

        Raises:
            InvariantError: regions overlap, leave a gap, or are free side by side but not merged.
        """
        ...


def check_num_slots(num_slots: int) -> None:
    """Refuse a pool or a region of nothing.

    Raises:
        ConfigError: fewer than one slot.
    """
    if num_slots < 1:
        raise ConfigError(f"there must be at least 1 slot, not {num_slots}")


def check_partition(regions: list[Region], num_slots: int) -> None:
    """Whether regions, put in order, cover `num_slots` slots without a gap or an overlap.

    Raises:
        InvariantError: they do not.
    """
    expected = 0
    for region in sorted(regions):
        if region.start != expected or region.num_slots < 1:
            raise InvariantError(f"a region begins at slot {expected}, but what comes there is {region}")
        expected = region.end
    if expected != num_slots:
        raise InvariantError(f"the regions end at slot {expected}, the pool at {num_slots}")
