"""The rules for the regions of a contiguous cache."""

from __future__ import annotations

from minipaged.baseline.buddy import next_power_of_two
from minipaged.events import RegionFreed, RegionHeld, RegionReserved, RegionReturned
from minipaged.trace.block_rules import require
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedRequest, ReplayedSequence
from minipaged.trace.state import RegionState
from minipaged.trace.waste import wanted_slots


class RegionRules:
    """The rules for regions. They require nothing in layouts without regions."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._applies = replay.engine.kv_layout == "contiguous"

    def before(self, event: RegionReserved | RegionHeld | RegionReturned | RegionFreed) -> None:
        """Check an event about a region."""
        require(self._applies, "the layout has no regions")
        if isinstance(event, RegionReserved):
            self._check_reserved(event)
            return
        region = self._replay.regions.get(event.start)
        require(region is not None, f"no region begins at slot {event.start}")
        assert region is not None
        if isinstance(event, RegionFreed):
            holder = None if region.seq_id is None else self._replay.sequence(region.seq_id)
            in_use = holder is not None and holder.finish_reason is None
            require(not in_use, f"sequence {region.seq_id} still uses the region")
            return
        seq = self._replay.sequence(event.seq_id)
        require(region.request_id == seq.request.request_id, "the region belongs to another request")
        expected = None if isinstance(event, RegionHeld) else seq.seq_id
        require(region.seq_id == expected, f"sequence {region.seq_id} uses the region")
        if isinstance(event, RegionHeld):
            require(seq.region_start is None, "the sequence has a region already")

    def _check_reserved(self, event: RegionReserved) -> None:
        engine, request = self._replay.engine, self._replay.request(event.request_id)
        require(request.status in ("waiting", "preempted"), "only a request that waits reserves regions")
        wanted = wanted_slots(engine, request)
        require(event.num_slots == wanted, f"the rule {engine.reserve!r} reserves {wanted} slots")
        rounded = next_power_of_two(wanted) if engine.region_allocator == "buddy" else wanted
        require(event.num_allocated == rounded, f"the allocator takes {rounded} slots")
        end, num_slots = event.start + event.num_allocated, engine.num_blocks * engine.block_size
        require(event.start >= 0 and end <= num_slots, f"the cache has {num_slots} slots")
        for other in self._replay.regions.values():
            apart = end <= other.start or other.start + other.num_allocated <= event.start
            require(apart, f"it overlaps the region at slot {other.start}")

    def check_admission(self, request: ReplayedRequest) -> None:
        """Check that a new request has reserved a region for each of its sequences, and begins with one."""
        if self._applies:
            regions = self._regions_of(request)
            is_new = request.num_cached_tokens is None
            wanted = request.added.num_seqs
            require(len(regions) == wanted or not is_new, f"it has {len(regions)} regions, not {wanted}")
            held = [region for region in regions if region.seq_id is not None]
            require(len(held) == 1, "it does not begin with one region")

    def check_end(self, request: ReplayedRequest) -> None:
        """Check that a request that has ended has no regions."""
        if self._applies:
            starts = [region.start for region in self._regions_of(request)]
            require(not starts, f"the regions at slots {starts} are still reserved for it")

    def check_covers(self, seq: ReplayedSequence, num_tokens: int) -> None:
        """Check that the region of a sequence has space for its first `num_tokens` tokens."""
        if self._applies:
            require(seq.region_start is not None, f"sequence {seq.seq_id} has no region")
            assert seq.region_start is not None
            room = self._replay.regions[seq.region_start].num_slots
            require(num_tokens <= room, f"sequence {seq.seq_id} has a region of {room} slots")

    def _regions_of(self, request: ReplayedRequest) -> list[RegionState]:
        regions = self._replay.regions.values()
        return [region for region in regions if region.request_id == request.request_id]
