"""The managers without blocks that emit events. An engine uses them if it has an observer."""

from __future__ import annotations

from functools import cached_property

from minipaged.baseline.contiguous_manager import ContiguousManager
from minipaged.baseline.uncached_manager import UncachedManager
from minipaged.events import BlocksReleased, RegionFreed, RegionHeld, RegionReserved, RegionReturned
from minipaged.kv.event_stream import Observed
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.request import Request, Sequence


class ObservedContiguousManager(ContiguousManager, Observed):
    """A `ContiguousManager` that emits events for what it does."""

    @cached_property
    def _told(self) -> set[int]:
        """The starts of the regions that were announced. A refused request announces none."""
        return set()

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        is_admitted = super().admit(request, hits)
        if is_admitted:
            self.events.admitted(request)
        return is_admitted

    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        super().begin(request, seq, hits)
        allocated = {region.start: region.num_slots for region in self.allocator.allocated_regions()}
        for region in self._reservations[request].regions:
            if region.start not in self._told:
                self._told.add(region.start)
                self.events.emit(
                    RegionReserved(
                        request.request_id, region.start, region.num_slots, allocated[region.start]
                    )
                )
        self._tell_held(seq)

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        super().fork(parent, child, num_tokens)
        self.events.forked(parent, child)
        self._tell_held(child)

    def free(self, seq: Sequence) -> None:
        region = seq.region
        super().free(seq)
        if region is None:
            return
        if seq.is_finished:
            self._tell_freed(region.start)
        else:
            self.events.emit(RegionReturned(self.events.id_of(seq), region.start))

    def free_request(self, request: Request) -> None:
        reservation = self._reservations.get(request)
        regions = [] if reservation is None else reservation.regions
        super().free_request(request)
        for region in regions:
            self._tell_freed(region.start)

    def _tell_held(self, seq: Sequence) -> None:
        self.events.emit(RegionHeld(self.events.id_of(seq), self._region(seq).start))

    def _tell_freed(self, start: int) -> None:
        if start in self._told:
            self._told.remove(start)
            self.events.emit(RegionFreed(start))


class ObservedUncachedManager(UncachedManager, Observed):
    """An `UncachedManager` that emits events for what it does."""

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        is_admitted = super().admit(request, hits)
        if is_admitted:
            self.events.admitted(request)
        return is_admitted

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        super().fork(parent, child, num_tokens)
        self.events.forked(parent, child)

    def free(self, seq: Sequence) -> None:
        was_computed = seq.num_computed_tokens > 0
        super().free(seq)
        if was_computed:
            self.events.emit(BlocksReleased(self.events.id_of(seq), ()))
