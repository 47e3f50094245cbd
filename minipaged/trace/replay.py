"""Replay: an engine's state, changed by one event at a time.

It applies the events without checking whether they make sense. `rules.py` does that.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatchmethod

from minipaged.errors import TraceError
from minipaged.events import (
    AllBlocksCleared,
    BeamsChosen,
    BlockCopied,
    BlockRemoved,
    BlocksReleased,
    BlocksSwappedIn,
    BlocksSwappedOut,
    BlocksTaken,
    BlockStored,
    BlocksTouched,
    CpuBlocksFreed,
    EngineReset,
    EngineStarted,
    Event,
    PrefixHit,
    RegionFreed,
    RegionHeld,
    RegionReserved,
    RegionReturned,
    RequestAborted,
    RequestAdded,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    SequenceForked,
    StepExecuted,
    StepFailed,
    StepFinished,
    StepPlanned,
    TokenSampled,
)
from minipaged.trace.replayed import CachedContents, ReplayedPool, ReplayedRequest, ReplayedSequence
from minipaged.trace.state import RegionState, TracedStatus


class Replay:
    """The state after some events.

    Attributes:
        engine: the settings.
        step: the last step that finished. `time` is when it ended.
        pool: the blocks.
        regions: the regions, by their starts.
        requests: all requests that have arrived, in the order of their arrival.
        unfinished: the requests that wait or run, by their ids.
        sequences: all sequences by their ids, including those of ended requests and dropped beams.
        running, waiting, swapped: as in `TraceState`.
        plan: the last planned step.
    """

    def __init__(self, engine: EngineStarted) -> None:
        self.engine = engine
        self.step, self.time = 0, 0.0
        self.requests: list[ReplayedRequest] = []
        self.sequences: dict[int, ReplayedSequence] = {}
        self.plan: StepPlanned | None = None
        self.num_preemptions = self.num_copied_blocks = self.num_hit_tokens = 0
        self.pool = ReplayedPool(engine.num_blocks if engine.kv_layout == "paged" else 0)
        self.regions: dict[int, RegionState] = {}
        self.unfinished: dict[str, ReplayedRequest] = {}
        self.running: list[ReplayedRequest] = []
        self.waiting: list[ReplayedRequest] = []
        self.swapped: list[ReplayedRequest] = []

    @property
    def num_free(self) -> int:
        """The free memory, as `StepFinished.num_free` counts it."""
        if self.engine.kv_layout != "contiguous":
            return self.pool.num_free
        num_reserved = sum(region.num_allocated for region in self.regions.values())
        return self.engine.num_blocks - -(-num_reserved // self.engine.block_size)

    def sequence(self, seq_id: int) -> ReplayedSequence:
        """The sequence of this id.

        Raises:
            TraceError: no event has introduced it.
        """
        try:
            return self.sequences[seq_id]
        except KeyError:
            raise TraceError(f"no event has introduced sequence {seq_id}") from None

    def request(self, request_id: str) -> ReplayedRequest:
        """The unfinished request of this id.

        Raises:
            TraceError: there is none.
        """
        try:
            return self.unfinished[request_id]
        except KeyError:
            raise TraceError(f"no request {request_id!r} waits or runs") from None

    # Events

    @singledispatchmethod
    def apply(self, event: Event) -> None:
        """Change the state as the event says.

        Raises:
            TraceError: the event names a sequence, a request, a block or a region that does not exist.
        """
        raise TraceError(f"there is no event {event!r:.80}")

    @apply.register
    def _(self, event: RequestAdded) -> None:
        request = ReplayedRequest(event)
        self._add_sequence(event.seq_id, request, 0, event.prompt_token_ids)
        self.requests.append(request)
        self.unfinished[event.request_id] = request
        self._move(request, "waiting")

    @apply.register
    def _(self, event: PrefixHit) -> None:
        self.sequence(event.seq_id).num_computed_tokens = event.num_tokens
        self.num_hit_tokens += event.num_tokens

    @apply.register
    def _(self, event: RequestAdmitted) -> None:
        request = self.request(event.request_id)
        request.num_cached_tokens = event.num_cached_tokens
        self._move(request, "running")

    @apply.register
    def _(self, event: RequestResumed) -> None:
        self._move(self.request(event.request_id), "running")

    @apply.register
    def _(self, event: RequestPreempted) -> None:
        request = self.request(event.request_id)
        request.num_preemptions += 1
        self.num_preemptions += 1
        self._move(request, "preempted")

    @apply.register
    def _(self, event: RequestFinished) -> None:
        self._move(self.request(event.request_id), "finished")

    @apply.register
    def _(self, event: RequestAborted) -> None:
        self._move(self.request(event.request_id), "aborted")

    @apply.register
    def _(self, event: BlocksTaken) -> None:
        self._hold(self.sequence(event.seq_id), event.block_ids)

    @apply.register
    def _(self, event: BlocksTouched) -> None:
        self._hold(self.sequence(event.seq_id), event.block_ids)

    @apply.register
    def _(self, event: BlockCopied) -> None:
        table = self.sequence(event.seq_id).block_ids
        if not 0 <= event.index < len(table):
            raise TraceError(f"the block table of sequence {event.seq_id} has no entry {event.index}")
        table[event.index] = event.target
        self.pool.hold([event.target])
        self.pool.release([event.source])
        self.num_copied_blocks += 1

    @apply.register
    def _(self, event: SequenceForked) -> None:
        parent = self.sequence(event.parent)
        child = self.sequences.get(event.child)
        if child is None:
            child = self._add_sequence(event.child, parent.request, event.index, parent.token_ids)
            child.texts = list(parent.texts)
        child.num_computed_tokens = event.num_tokens
        self._hold(child, event.block_ids)

    @apply.register
    def _(self, event: BlocksReleased) -> None:
        seq = self.sequence(event.seq_id)
        self.pool.release(seq.block_ids)
        seq.block_ids = []
        if not seq.cpu_block_ids:
            seq.num_computed_tokens = 0

    @apply.register
    def _(self, event: BlockStored) -> None:
        size = self.engine.block_size
        tokens = self.sequence(event.seq_id).token_ids[event.index * size : (event.index + 1) * size]
        contents = CachedContents(event.block_hash, event.parent_block_hash, tuple(tokens))
        self.pool.cached[event.block_id] = contents

    @apply.register
    def _(self, event: BlockRemoved) -> None:
        self.pool.uncache(event.block_id)

    @apply.register
    def _(self, event: AllBlocksCleared) -> None:
        self.pool.evicted.clear()

    @apply.register
    def _(self, event: BlocksSwappedOut) -> None:
        seq = self.sequence(event.seq_id)
        seq.cpu_block_ids = event.cpu_block_ids
        if seq.request.status != "swapped":
            self._move(seq.request, "swapped")

    @apply.register
    def _(self, event: BlocksSwappedIn) -> None:
        seq = self.sequence(event.seq_id)
        seq.cpu_block_ids = ()
        self._hold(seq, event.block_ids)

    @apply.register
    def _(self, event: CpuBlocksFreed) -> None:
        seq = self.sequence(event.seq_id)
        seq.cpu_block_ids = ()
        seq.num_computed_tokens = 0

    @apply.register
    def _(self, event: RegionReserved) -> None:
        self.regions[event.start] = RegionState(
            event.start, event.num_slots, event.num_allocated, event.request_id, None
        )

    @apply.register
    def _(self, event: RegionHeld) -> None:
        self._set_holder(event.start, event.seq_id)
        self.sequence(event.seq_id).region_start = event.start

    @apply.register
    def _(self, event: RegionReturned) -> None:
        self._set_holder(event.start, None)
        seq = self.sequence(event.seq_id)
        seq.region_start, seq.num_computed_tokens = None, 0

    @apply.register
    def _(self, event: RegionFreed) -> None:
        region = self._region(event.start)
        del self.regions[event.start]
        if region.seq_id is not None:
            seq = self.sequence(region.seq_id)
            seq.region_start, seq.num_computed_tokens = None, 0

    @apply.register
    def _(self, event: StepPlanned) -> None:
        self.plan = event

    @apply.register
    def _(self, event: StepExecuted) -> None:
        if self.plan is None:
            raise TraceError("a step was executed, but none is planned")
        for seq_id, start, num_tokens in zip(
            self.plan.seq_ids, self.plan.starts, self.plan.num_tokens, strict=False
        ):
            self.sequence(seq_id).num_computed_tokens = start + num_tokens

    @apply.register
    def _(self, event: TokenSampled) -> None:
        seq = self.sequence(event.seq_id)
        seq.token_ids.append(event.token_id)
        seq.texts.append(event.text)

    @apply.register
    def _(self, event: BeamsChosen) -> None:
        request = self.request(event.request_id)
        request.sequences = [self.sequence(seq_id) for seq_id in event.seq_ids]
        for seq, token_id in zip(request.sequences, event.token_ids, strict=False):
            seq.token_ids.append(token_id)

    @apply.register
    def _(self, event: SequenceFinished) -> None:
        self.sequence(event.seq_id).finish_reason = event.finish_reason

    @apply.register
    def _(self, event: StepFinished) -> None:
        self.step, self.time = event.step, event.time

    @apply.register
    def _(self, event: StepFailed) -> None:
        for request_id in event.waiting:
            request = self.request(request_id)
            if request.status == "running":
                request.num_preemptions += 1
                self.num_preemptions += 1
            self._move(request, "preempted")
            for seq in request.sequences:
                seq.lose_memory()
        lost = [start for start, region in self.regions.items() if region.request_id in event.waiting]
        for start in lost:
            del self.regions[start]
        cached = self.pool.cached
        self.pool.clear()
        for seq_id, num_computed, table in zip(
            event.seq_ids, event.num_computed_tokens, event.block_tables, strict=False
        ):
            seq = self.sequence(seq_id)
            seq.num_computed_tokens, seq.block_ids = num_computed, list(table)
            self.pool.hold(table)
        unknown = CachedContents("", None, ())
        self.pool.cached = {block_id: cached.get(block_id, unknown) for block_id in event.cached}

    @apply.register
    def _(self, event: EngineReset) -> None:
        for request in list(self.unfinished.values()):
            self._move(request, "aborted")
            for seq in request.sequences:
                seq.lose_memory()
        self.pool.clear()
        self.regions.clear()

    # Details

    def _add_sequence(
        self, seq_id: int, request: ReplayedRequest, index: int, token_ids: Iterable[int]
    ) -> ReplayedSequence:
        seq = self.sequences[seq_id] = ReplayedSequence(seq_id, request, index, list(token_ids))
        request.sequences.append(seq)
        return seq

    def _move(self, request: ReplayedRequest, status: TracedStatus) -> None:
        """Move a request from the queue that it is in, if any, to the queue of its new status."""
        for queue in (self.running, self.waiting, self.swapped):
            if request in queue:
                queue.remove(request)
        request.status = status
        match status:
            case "running":
                self.running.append(request)
            case "waiting" | "preempted":
                bisect.insort(self.waiting, request, key=_rank)
            case "swapped":
                bisect.insort(self.swapped, request, key=_rank)
            case "finished" | "aborted":
                del self.unfinished[request.request_id]

    def _hold(self, seq: ReplayedSequence, block_ids: Iterable[int]) -> None:
        """Append blocks to a block table."""
        self.pool.hold(block_ids)
        seq.block_ids += block_ids

    def _region(self, start: int) -> RegionState:
        try:
            return self.regions[start]
        except KeyError:
            raise TraceError(f"no region begins at slot {start}") from None

    def _set_holder(self, start: int, seq_id: int | None) -> None:
        self.regions[start] = replace(self._region(start), seq_id=seq_id)


def _rank(request: ReplayedRequest) -> tuple[int, int]:
    return request.added.rank
