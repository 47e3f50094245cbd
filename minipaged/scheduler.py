"""Scheduler: who runs in the next step, with how many tokens, on which blocks.

One token budget, and no phases: a sequence has tokens that are not computed yet, and a step gives
it up to all of them. Running requests come first; what is left of the budget admits waiting ones.
A prompt that exceeds the budget is computed in chunks, a prefix hit is a sequence that begins with
computed tokens, and a preempted request is one that lost them: none is a special case.

See the paper, section 4.5, and vLLM, `v1/core/sched/scheduler.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minipaged.config import SchedulingPolicy
from minipaged.errors import InvariantError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.cache import BlockCopy
from minipaged.kv.prefix import CachedBlock
from minipaged.request import Request, RequestStatus, Sequence
from minipaged.waiting_queue import WaitingQueue


@dataclass(frozen=True)
class ScheduledSequence:
    """One sequence's part of a step: compute `num_tokens` tokens after the computed ones.

    `copies` are the block copies that must be done first, so that its writes hit no shared block.
    """

    request: Request
    seq: Sequence
    num_tokens: int
    copies: tuple[BlockCopy, ...] = ()

    @property
    def reaches_end(self) -> bool:
        """Whether all known tokens are computed after this step, so that it samples the next."""
        return self.seq.num_computed_tokens + self.num_tokens == self.seq.num_tokens


@dataclass
class SchedulerOutput:
    """The plan of one step."""

    scheduled: list[ScheduledSequence] = field(default_factory=list)
    num_tokens: int = 0
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    def plan(self, item: ScheduledSequence) -> None:
        self.scheduled.append(item)
        self.num_tokens += item.num_tokens

    def withdraw(self, request: Request) -> None:
        """Take a request's sequences out of the step again, and hand their budget back."""
        self.scheduled = [item for item in self.scheduled if item.request is not request]
        self.num_tokens = sum(item.num_tokens for item in self.scheduled)


@dataclass
class PrefixCacheCounts:
    """Tokens looked up in the prefix cache, and found there, at first admissions."""

    queries: int = 0
    hits: int = 0


class Scheduler:
    """Orders the requests and gives them blocks.

    Args:
        manager: where blocks come from.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: the token budget of a step.
        enable_chunked_prefill: whether a prompt may be computed over several steps.
        policy: `"fcfs"` or `"priority"`.
    """

    def __init__(
        self,
        manager: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_chunked_prefill: bool = True,
        policy: SchedulingPolicy = "fcfs",
    ) -> None:
        self.waiting = WaitingQueue(policy)
        self.running: list[Request] = []
        self.num_preemptions = 0
        self.num_prompt_tokens = 0
        self.prefix_counts = PrefixCacheCounts()
        self._manager = manager
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._chunked = enable_chunked_prefill
        self._policy = policy

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.push(request)

    def schedule(self) -> SchedulerOutput:
        """Plan the next step, and take the blocks for it."""
        output = SchedulerOutput()
        for request in list(self.running):
            # A request further up may have preempted this one by now.
            if request.status is RequestStatus.RUNNING:
                self._schedule_running(request, output)
        for item in output.scheduled:
            self._cache_blocks(item)
        # Nobody is admitted in a step that had to preempt: the pool is dry.
        if not output.preempted:
            self._admit(output)
        return output

    def retire(self, request: Request) -> None:
        """Take a request out, wherever it is, and free all of its blocks."""
        for seq in request.sequences:
            self._manager.free(seq)
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks away; its tokens will be computed again (recomputation).

        All of its sequences lose all of their blocks: with one block missing, the others are of
        no use (the paper's all-or-nothing rule).
        """
        self.running.remove(request)
        for seq in request.sequences:
            self._manager.free(seq)
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.push(request)

    def rollback(self, output: SchedulerOutput) -> None:
        """Undo a step whose forward pass failed: what it promised to the prefix cache is not there."""
        for item in output.scheduled:
            self._manager.forget_uncomputed(item.seq)
        for request in list(self.running):
            if any(item.request is request for item in output.scheduled):
                self.preempt(request)

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Hold the queues together with all unfinished requests.

        Raises:
            InvariantError: a request in the wrong queue or in none, or a waiting one with blocks.
        """
        running = {id(request) for request in self.running}
        waiting = {id(request) for request in self.waiting}
        for request in requests:
            is_running = request.status is RequestStatus.RUNNING
            if (id(request) in running, id(request) in waiting) != (is_running, not is_running):
                raise InvariantError(f"request {request.request_id!r} is {request.status} in the wrong queue")
            if not is_running and any(len(seq.block_table) for seq in request.sequences):
                raise InvariantError(f"request {request.request_id!r} waits, but holds blocks")
        if sum(_num_slots(request) for request in self.running) > self._max_num_seqs:
            raise InvariantError("more sequences run than max_num_seqs")

    # Running requests

    def _schedule_running(self, request: Request, output: SchedulerOutput) -> None:
        for seq in request.unfinished:
            num_tokens = self._num_new_tokens(request, seq, output)
            if num_tokens == 0:
                continue
            while (copies := self._manager.append(seq, num_tokens)) is None:
                victim = self._victim()
                self.preempt(victim)
                output.withdraw(victim)
                output.preempted.append(victim)
                if victim is request:
                    return
            output.plan(ScheduledSequence(request, seq, num_tokens, tuple(copies)))

    def _num_new_tokens(self, request: Request, seq: Sequence, output: SchedulerOutput) -> int:
        """How many tokens of a running sequence this step computes."""
        budget = self._max_num_batched_tokens - output.num_tokens
        if budget == 0:
            return 0
        if len(seq.block_table) == 0 and not self._resume_sample(request, seq, output):
            return 0
        missing = seq.num_tokens - seq.num_computed_tokens
        if missing > budget and not self._chunked:
            # Only a sample that has just resumed can miss so much. A block that it shared meanwhile
            # would be written by a sibling.
            self._manager.free(seq)
            return 0
        return min(missing, budget)

    def _chunk(self, budget: int) -> int:
        """What a sequence gets that needs more than the budget."""
        return budget if self._chunked else 0

    def _victim(self) -> Request:
        """Whom to preempt: the latest arrived, or the least urgent."""
        if self._policy == "priority":
            return max(self.running, key=lambda request: request.urgency)
        return self.running[-1]

    def _resume_sample(self, request: Request, seq: Sequence, output: SchedulerOutput) -> bool:
        """Give a sample of a resumed request the blocks that its siblings have recomputed.

        Returns:
            Whether the sample can go on: not while a sibling is still computing what both share.
        """
        siblings = [s for s in request.sequences if len(s.block_table)]
        if not siblings:
            hits = self._find_prefix(request, seq)
            self._manager.adopt_prefix(seq, hits)
            return True

        def num_shared(sibling: Sequence) -> int:
            # The last token is computed in any case: its logits are needed.
            return min(_common_prefix(sibling, seq), seq.num_tokens - 1)

        closest = max(siblings, key=num_shared)
        # Nor while its last block is to be copied in this very step: a step reads the sources of all
        # its copies first, so a copy of the copy would hold what the new block held before.
        is_copied_to = any(item.seq is closest and item.copies for item in output.scheduled)
        if closest.num_computed_tokens < num_shared(closest) or is_copied_to:
            return False
        self._manager.fork(closest, seq, num_shared(closest))
        return True

    # Waiting requests

    def _admit(self, output: SchedulerOutput) -> None:
        num_seqs = sum(_num_slots(request) for request in self.running)
        while self.waiting and output.num_tokens < self._max_num_batched_tokens:
            request = self.waiting.peek()
            num_seqs += _num_slots(request)
            if num_seqs > self._max_num_seqs:
                return
            seq = request.unfinished[0]
            hits = self._find_prefix(request, seq)
            if not self._manager.can_admit(request, hits):
                return
            budget = self._max_num_batched_tokens - output.num_tokens
            missing = seq.num_tokens - len(hits) * self._manager.block_size
            num_tokens = missing if missing <= budget else self._chunk(budget)
            if num_tokens == 0:
                return
            self._count_prefix(request, seq, hits)
            self._manager.adopt_prefix(seq, hits)
            copies = self._manager.append(seq, num_tokens)
            assert copies is not None, "can_admit promised these blocks"
            self.waiting.pop()
            request.status = RequestStatus.RUNNING
            self.running.append(request)
            output.admitted.append(request)
            item = ScheduledSequence(request, seq, num_tokens, tuple(copies))
            output.plan(item)
            self._cache_blocks(item)

    def _find_prefix(self, request: Request, seq: Sequence) -> list[CachedBlock]:
        if request.params.prompt_logprobs is not None:
            return []  # cached tokens have no logits, and this request wants all of them
        return self._manager.find_prefix(seq, request.cache_salt)

    def _cache_blocks(self, item: ScheduledSequence) -> None:
        num_tokens = item.seq.num_computed_tokens + item.num_tokens
        self._manager.cache_full_blocks(item.seq, num_tokens, item.request.cache_salt)

    def _count_prefix(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        if request.num_cached_tokens is None:
            request.num_cached_tokens = len(hits) * self._manager.block_size
            self.num_prompt_tokens += seq.num_prompt_tokens
            self.prefix_counts.queries += seq.num_tokens
            self.prefix_counts.hits += request.num_cached_tokens


def _num_slots(request: Request) -> int:
    """How many sequences a request counts for: all its samples, also before they have forked."""
    if len(request.sequences) < request.params.n:
        return request.params.n
    return len(request.unfinished)


def _common_prefix(a: Sequence, b: Sequence) -> int:
    """How many leading tokens two sequences have in common."""
    shortest = min(a.num_tokens, b.num_tokens)
    if a.token_ids[:shortest] == b.token_ids[:shortest]:
        return shortest
    return next(i for i in range(shortest) if a.token_ids[i] != b.token_ids[i])
