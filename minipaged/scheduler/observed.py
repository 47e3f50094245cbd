"""The scheduler of an engine with an observer. It reports which requests run and what each step computes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from minipaged.events import (
    RequestAborted,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepFailed,
    StepFinished,
    StepPlanned,
)
from minipaged.kv.cache import BlockCopy
from minipaged.kv.event_stream import EventStream, Observed
from minipaged.kv.manager import KVManager
from minipaged.kv.observed import ObservedBlockManager
from minipaged.request import Request
from minipaged.scheduler.queues import RequestQueues
from minipaged.scheduler.scheduler import Scheduler
from minipaged.scheduler.scheduler_output import SchedulerOutput


def tell_finished(events: EventStream, queues: RequestQueues, manager: KVManager) -> None:
    """Tell the observer that the results of a step have been processed."""
    events.emit(
        StepFinished(
            step=events.num_steps + 1,
            time=events.now(),
            num_running=len(queues.running),
            num_waiting=len(queues.waiting),
            num_swapped=len(queues.swapped),
            num_free=manager.num_free_blocks,
        )
    )
    events.num_steps += 1


class ObservedScheduler(Scheduler, Observed):
    """A `Scheduler` that tells an observer what it does."""

    def add(self, request: Request) -> None:
        super().add(request)
        text = self.events.token_text
        self.events.emit(
            RequestAdded(
                request_id=request.request_id,
                seq_id=self.events.id_of(request.sequences[0]),
                time=self.events.now(),
                prompt_token_ids=tuple(request.prompt_token_ids),
                prompt_texts=() if text is None else tuple(map(text, request.prompt_token_ids)),
                max_tokens=request.max_tokens,
                num_seqs=request.num_seqs,
                is_beam_search=request.search is not None,
                priority=request.priority,
                cache_salt=request.cache_salt,
                rank=self.queues.waiting.rank_of(request),
            )
        )

    def retire(self, request: Request) -> None:
        super().retire(request)
        kind = RequestFinished if request.is_finished else RequestAborted
        self.events.emit(kind(request.request_id, self.events.now()))

    def preempt(self, request: Request, undone: Sequence[BlockCopy] = ()) -> None:
        self.events.emit(RequestPreempted(request.request_id))
        super().preempt(request, undone)

    def schedule(self) -> SchedulerOutput:
        began = self.events.now()
        plan = super().schedule()
        self.events.emit(
            StepPlanned(
                step=self.events.num_steps + 1,
                began=began,
                time=self.events.now(),
                seq_ids=tuple(self.events.id_of(item.seq) for item in plan.scheduled),
                starts=tuple(item.seq.num_computed_tokens for item in plan.scheduled),
                num_tokens=tuple(item.num_tokens for item in plan.scheduled),
            )
        )
        return plan

    def rollback(self, requests: Collection[Request]) -> None:
        with self.events.muted():
            super().rollback(requests)
        holding = [seq for request in self.queues.running for seq in request.sequences if seq.holds_memory]
        manager = self._manager
        self.events.emit(
            StepFailed(
                time=self.events.now(),
                error=f"{sys.exception()!r:.200}",
                waiting=tuple(request.request_id for request in self.queues.waiting),
                seq_ids=tuple(self.events.id_of(seq) for seq in holding),
                num_computed_tokens=tuple(seq.num_computed_tokens for seq in holding),
                block_tables=tuple(tuple(seq.block_table) for seq in holding),
                cached=tuple(manager.cached_hashes()) if isinstance(manager, ObservedBlockManager) else (),
            )
        )
