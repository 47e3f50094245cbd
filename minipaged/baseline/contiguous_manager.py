"""ContiguousManager: the baseline without blocks. Each sequence has its own region of slots.

The token at a position is in slot `region start + position`, so attention needs no table. But memory must
be reserved for the greatest length that a sequence may reach (paper, section 3). `kv/breakdown.py` counts the
slots that this wastes.

All memory is taken when a request is admitted, so no request is ever preempted for lack of memory. Nothing
is shared: a fork copies all slots of its parent. Systems before the paper's copied their beams in the same
way (section 4.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from minipaged.baseline.contiguous_breakdown import ReservedRegion, contiguous_breakdown
from minipaged.baseline.region_allocator import Region, RegionAllocator
from minipaged.baseline.reserve import slots_to_reserve
from minipaged.choices import ReserveRule
from minipaged.errors import InvariantError, RequestTooLargeError
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.cache import BlockCopy
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.request import Request, RequestStatus, Sequence


class CopySlots(Protocol):
    """Copies the contents of slots, in all layers; see `KVCache.copy_slots`."""

    def __call__(self, source: int, target: int, num_slots: int) -> None: ...


@dataclass
class Reservation:
    """The regions of one admitted request.

    Attributes:
        held: the sequences that have begun, each with its region.
        spare: regions for sequences that have not begun, such as samples that are not forked yet, and beams.
    """

    held: dict[Sequence, Region] = field(default_factory=dict)
    spare: list[Region] = field(default_factory=list)

    @property
    def regions(self) -> list[Region]:
        return [*self.held.values(), *self.spare]


class ContiguousManager(KVManager):
    """A `KVManager` that gives each sequence one region of a `RegionAllocator`.

    The cache has as many slots as a paged one with the same number of bytes. All of them are usable. Only a
    paged cache needs a null block, which pads its block tables.

    Args:
        allocator: divides the slots into regions.
        block_size: tokens per block. It is used only as the unit of the counts in `EngineStats`.
        reserve: the rule for how many slots a sequence gets.
        max_model_len: the longest prompt plus output, in tokens.
        copy_slots: copies a region's contents. `fork` calls it at once, since the parent may end before the
            child is scheduled. The parent's region may then go to another request.
    """

    def __init__(
        self,
        allocator: RegionAllocator,
        block_size: int,
        *,
        reserve: ReserveRule,
        max_model_len: int,
        copy_slots: CopySlots,
    ) -> None:
        self.allocator = allocator
        self.num_blocks = allocator.num_slots // block_size
        self.block_size = block_size
        self._reserve: ReserveRule = reserve
        self._max_model_len = max_model_len
        self._copy_slots = copy_slots
        self._reservations: dict[Request, Reservation] = {}
        self._owners: dict[Sequence, Reservation] = {}

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        """Reserve a region for each sequence that the request can have at once, or no region at all."""
        num_slots = self._slots_for(len(request.prompt_token_ids), request.max_tokens)
        # The reservation is recorded first, so that `free_request` finds every region even after an
        # interrupt in this loop.
        reservation = self._reservations[request] = Reservation()
        for _ in range(request.num_seqs):
            start = self.allocator.allocate(num_slots)
            if start is None:
                self.free_request(request)
                return False
            reservation.spare.append(Region(start, num_slots))
        self.begin(request, request.unfinished[0], hits)
        return True

    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        self._hold(seq, self._reservations[request])

    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        """Do nothing, because the region is long enough for every token that the sequence may get."""
        return []

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Copy the parent's first `num_tokens` slots into a spare region."""
        source = self._region(parent).start
        target = self._hold(child, self._owners[parent]).start
        self._copy_slots(source, target, num_tokens)
        child.num_computed_tokens = num_tokens

    def free(self, seq: Sequence) -> None:
        """Free a sequence's region.

        The region of a finished sequence goes back to the allocator. The region of a dropped beam becomes
        a spare of its request, for another beam.
        """
        seq.num_computed_tokens = 0
        if seq.region is None:
            return
        reservation = self._owners.pop(seq)
        region = reservation.held.pop(seq)
        if seq.is_finished:
            self.allocator.free(region.start)
        else:
            reservation.spare.append(region)
        seq.region = None

    def free_request(self, request: Request) -> None:
        for seq in request.sequences:
            self.free(seq)
        reservation = self._reservations.pop(request, None)
        if reservation is not None:
            while reservation.spare:
                self.allocator.free(reservation.spare.pop().start)

    def _hold(self, seq: Sequence, reservation: Reservation) -> Region:
        seq.region = reservation.held[seq] = reservation.spare.pop(0)
        self._owners[seq] = reservation
        return seq.region

    @staticmethod
    def _region(seq: Sequence) -> Region:
        if seq.region is None:
            raise InvariantError(f"{seq} has no region to fork from")
        return seq.region

    # Whether requests fit

    def _slots_for(self, num_prompt_tokens: int, max_tokens: int) -> int:
        return slots_to_reserve(
            self._reserve,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=max_tokens,
            max_model_len=self._max_model_len,
        )

    def check_fits(self, num_prompt_tokens: int, max_tokens: int, num_seqs: int, kind: str) -> None:
        num_slots = self._slots_for(num_prompt_tokens, max_tokens)
        most = self.allocator.max_regions(num_slots)
        if num_seqs > most:
            raise RequestTooLargeError(
                f"{num_seqs} {kind} of {num_prompt_tokens:,} prompt and up to {max_tokens:,} output tokens "
                f"reserve {num_slots:,} slots each (reserve={self._reserve!r}), and a cache of "
                f"{self.allocator.num_slots:,} slots has room for {most:,} such regions. Ask for fewer "
                f"{kind} or tokens, or give the engine more memory."
            )

    def surely_fit(self, requests: Iterable[Request]) -> bool:
        """Always true: an admitted request already has all the memory that it will ever need."""
        return True

    # How much memory there is, and how much is used

    @property
    def num_free_blocks(self) -> int:
        return self.allocator.num_free_slots // self.block_size

    @property
    def usage(self) -> float:
        return 1 - self.allocator.num_free_slots / self.allocator.num_slots

    def breakdown(self, running: Iterable[Request], next_request: Request | None) -> MemoryBreakdown:
        reserved: list[ReservedRegion] = []
        for request in running:
            reservation = self._reservations[request]
            at_end = len(request.prompt_token_ids) + request.max_tokens - 1
            for seq, region in reservation.held.items():
                reserved.append(ReservedRegion(region, seq.num_computed_tokens, at_end))
            reserved += [ReservedRegion(region, 0, at_end) for region in reservation.spare]
        wanted = 1
        if next_request is not None:
            wanted = self._slots_for(len(next_request.prompt_token_ids), next_request.max_tokens)
        return contiguous_breakdown(self.allocator, reserved, wanted)

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Compare the allocator, the reservations and the regions of all unfinished requests.

        Raises:
            InvariantError: a region has no holder or two holders, a request runs without a reservation, a
                request has a reservation but does not run, or a sequence has more computed tokens than its
                region has slots.
        """
        self.allocator.check_invariants()
        running = {request for request in requests if request.status is RequestStatus.RUNNING}
        if self._reservations.keys() != running:
            raise InvariantError("the requests with a reservation are not those that run")
        regions = sorted(r for reservation in self._reservations.values() for r in reservation.regions)
        allocated = self.allocator.allocated_regions()
        if [region.start for region in regions] != [region.start for region in allocated]:
            raise InvariantError(f"the reserved regions are {regions}, but {allocated} are allocated")
        holding = {seq for reservation in self._reservations.values() for seq in reservation.held}
        if self._owners.keys() != holding:
            raise InvariantError("the sequences that hold a region are not those in the reservations")
        for request in requests:
            for seq in request.sequences:
                if (seq.region is not None) != (seq in holding):
                    raise InvariantError(f"{seq} holds a region that is not reserved for it, or has lost it")
                num_slots = 0 if seq.region is None else seq.region.num_slots
                if seq.num_computed_tokens > num_slots:
                    raise InvariantError(f"{seq} has computed tokens beyond its region")
                holding.discard(seq)
        if holding:
            raise InvariantError(f"{holding} hold regions, but no request has them")
