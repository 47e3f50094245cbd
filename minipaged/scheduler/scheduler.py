"""Scheduler: which requests run in the next step, with how many tokens, on which blocks.

There are no phases for prefill and decode. Each step has one token budget. A sequence has tokens that are not
computed yet, and a step computes some or all of them. Running requests come first; the rest of the budget
goes to waiting requests. So nothing needs a special case: a prompt that exceeds the budget is computed in
chunks, a prefix hit is a sequence that begins with computed tokens, and a preempted request is one that lost
its computed tokens.

Two older ways of serving are special cases of this scheduler. With *static batching*, no request is admitted
until the whole batch has ended. Without preemption, a request is admitted only if it surely fits until its
end.

See the paper, section 4.5, and vLLM, `v1/core/sched/scheduler.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from minipaged.choices import Batching, SchedulingPolicy
from minipaged.errors import InvariantError
from minipaged.kv.cache import BlockCopy
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.kv.swap import BlockSwap, SwapSpace
from minipaged.request import Request, RequestStatus
from minipaged.request import Sequence as TokenSequence
from minipaged.scheduler.queues import RequestQueues
from minipaged.scheduler.resume import Resumption, find_resumption
from minipaged.scheduler.rollback import rollback
from minipaged.scheduler.scheduler_output import ScheduledSequence, SchedulerCounts, SchedulerOutput
from minipaged.scheduler.static_batch import StaticBatch


class Scheduler:
    """Plans each step.

    Args:
        manager: gives sequences their memory.
        max_num_seqs: the most sequences that run at once.
        max_num_batched_tokens: the token budget of a step.
        enable_chunked_prefill: whether a prompt may be computed over several steps.
        policy: the order of requests, see `scheduler/policy.py`.
        swap_space: the CPU blocks for preempted requests. With `None`, their tokens are computed again.
        batching: `"continuous"`, or `"static"` (see `scheduler/static_batch.py`).
        admits_surely: whether a request is admitted only if it and all running requests surely fit until
            they end. Then no request is ever preempted.

    Attributes:
        queues: where each unfinished request is.
        counts: the totals of all steps so far.
    """

    def __init__(
        self,
        manager: KVManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_chunked_prefill: bool = True,
        policy: SchedulingPolicy = "fcfs",
        swap_space: SwapSpace | None = None,
        batching: Batching = "continuous",
        admits_surely: bool = False,
    ) -> None:
        self.queues = RequestQueues(policy)
        self.counts = SchedulerCounts()
        self._manager = manager
        self._swap_space = swap_space
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._chunked = enable_chunked_prefill
        self._static_batch = StaticBatch() if batching == "static" else None
        self._admits_surely = admits_surely
        self._plan = SchedulerOutput()
        self._pending_swap_outs: list[BlockSwap] = []  # swaps of preemptions that no plan includes yet

    def add(self, request: Request) -> None:
        """Queue a request."""
        request.arrival_clock = self.counts.scheduled_tokens
        self.queues.waiting.push(request)

    def retire(self, request: Request) -> None:
        """Take a request out of its queue, and free all its memory. It has finished or was aborted."""
        self._manager.free_request(request)
        if self._swap_space is not None:
            self._swap_space.discard(request)
        self.queues.remove(request)
        request.status = RequestStatus.FINISHED

    def schedule(self) -> SchedulerOutput:
        """Plan the next step, and allocate the memory for it.

        The scheduler stores the plan while it grows, so that `rollback` knows how far it got if planning
        or the forward pass fails or is interrupted.
        """
        self._plan = plan = SchedulerOutput()
        for request in list(self.queues.running):
            # An earlier request in this loop may have preempted this one.
            if not plan.preempted or request.status is RequestStatus.RUNNING:
                self._schedule_running(request, request.sequences)
        self._cache_blocks(plan.scheduled)
        # No request comes in while memory is short. A step that has preempted a request swaps in and
        # admits no request. While any request is swapped out, no waiting request is admitted.
        self._swap_in()
        if not plan.preempted and not self.queues.swapped:
            self._admit()
        plan.swap_outs += self._pending_swap_outs
        self._pending_swap_outs.clear()
        self.counts.scheduled_tokens += plan.num_tokens
        return plan

    def rollback(self, requests: Collection[Request]) -> None:
        """Undo the last planned step. It failed, so its tokens were not computed.

        Args:
            requests: all unfinished requests.
        """
        self.counts.preemptions += rollback(
            self._plan, requests, self.queues, self._manager, self._swap_space
        )
        self._pending_swap_outs.clear()

    def check_invariants(self, requests: Collection[Request]) -> None:
        """Compare the queues and the CPU blocks with all unfinished requests.

        Raises:
            InvariantError: they disagree, or too many sequences run.
        """
        self.queues.check_invariants(requests)
        if self._swap_space is not None:
            self._swap_space.check_invariants(requests)
        if sum(request.num_seqs for request in self.queues.running) > self._max_num_seqs:
            raise InvariantError("more sequences run than max_num_seqs")

    # Running requests

    def _schedule_running(self, request: Request, seqs: Sequence[TokenSequence]) -> None:
        for seq in seqs:
            budget = self._budget
            if budget == 0:
                return
            num_tokens = len(seq.token_ids) - seq.num_computed_tokens
            if num_tokens == 0 or seq.finish_reason is not None:
                continue  # its next token is not chosen yet, or it has finished
            is_resuming = seq.num_computed_tokens == 0
            if is_resuming:
                if not self._resume_sample(request, seq):
                    continue
                num_tokens = len(seq.token_ids) - seq.num_computed_tokens
            if num_tokens > budget:
                num_tokens = self._fit_budget(num_tokens)
            if num_tokens == 0:
                # Without chunked prefill, the tokens wait for a step with enough budget. Until then, a
                # resuming sample must not keep the block that it just shared, since its sibling writes
                # into this block.
                if is_resuming:
                    self._manager.free(seq)
                continue
            while (copies := self._manager.append(seq, num_tokens)) is None:
                if self._admits_surely:
                    raise InvariantError(f"request {request.request_id!r} was sure to fit, and does not")
                victim = self.queues.victim()
                self.preempt(victim, undone=self._plan.withdraw(victim))
                self._plan.preempted.append(victim)
                if victim is request:
                    return
            self._plan.add(ScheduledSequence(request, seq, num_tokens, copies))

    @property
    def _budget(self) -> int:
        """The rest of the step's token budget."""
        return self._max_num_batched_tokens - self._plan.num_tokens

    def _fit_budget(self, num_tokens: int) -> int:
        """How many of `num_tokens` tokens fit into the budget. Without chunked prefill, all or none fit."""
        if num_tokens <= self._budget:
            return num_tokens
        return self._budget if self._chunked else 0

    def _resume_sample(self, request: Request, seq: TokenSequence) -> bool:
        """Bring back a sample of a preempted request. Returns whether it can continue in this step."""
        match find_resumption(request, seq, self._plan.scheduled):
            case "later":
                return False
            case "alone":
                self._manager.begin(request, seq, self._find_prefix(request, seq))
            case Resumption(sibling, num_shared):
                self._manager.fork(sibling, seq, num_shared)
        return True

    # Preemption

    def preempt(self, request: Request, undone: Sequence[BlockCopy] = ()) -> None:
        """Preempt a running request: free all its blocks, and put it back into a queue.

        If there is a swap space with enough CPU blocks, its blocks are swapped out. Otherwise its tokens
        will be computed again (*recomputation*). All of its sequences lose all of their blocks, because a
        sequence cannot continue if a single block is missing (the paper's all-or-nothing rule). With
        prefix caching, its full blocks can still be found. So if the request comes back soon, prefix hits
        replace most of the recomputation.

        Args:
            request: one of `queues.running`.
            undone: block copies for the request that were in this step's plan, and will not be done.
        """
        self.queues.remove(request)
        request.num_preemptions += 1
        self.counts.preemptions += 1
        swaps = None
        if self._swap_space is not None:
            swaps = self._swap_space.swap_out(request, {copy.target: copy.source for copy in undone})
        if swaps is None:
            self._manager.free_request(request)
            self.queues.wait(request)
        else:
            self._pending_swap_outs += swaps
            self.counts.swapped_blocks += len(swaps)
            self.queues.swap(request)

    # Requests that come in

    def _swap_in(self) -> None:
        swapped = self.queues.swapped
        while self._swap_space is not None and swapped and not self._plan.preempted:
            request = swapped.peek()
            if not self._swap_space.can_swap_in(request):
                return
            self._plan.resumed.append(request)
            self._plan.swap_ins += self._swap_space.swap_in(request)
            self.queues.start_running(swapped)
            # The request continues in this step, in the blocks that `can_swap_in` counted, so no other
            # request is preempted for it. Samples that had no blocks to save come back in a later step.
            num_planned = len(self._plan.scheduled)
            restored = [seq for seq in request.unfinished if len(seq.block_table)]
            self._schedule_running(request, restored)
            self._cache_blocks(self._plan.scheduled[num_planned:])

    def _admit(self) -> None:
        batch, running = self._static_batch, self.queues.running
        if batch is None:
            self._fill_batch()
        elif batch.is_open(len(running)):
            is_full = self._fill_batch()
            batch.record(len(running), is_full=is_full)

    def _fill_batch(self) -> bool:
        """Admit waiting requests in order, as long as they fit.

        Returns:
            `False` if it stopped only because the step's token budget was used up.
        """
        waiting = self.queues.waiting
        while waiting:
            if self._budget == 0:
                return False
            request = waiting.peek()
            if not self._has_place(request):
                return True
            seq = request.unfinished[0]
            hits = self._find_prefix(request, seq)
            num_tokens = self._fit_budget(seq.num_tokens - len(hits) * self._manager.block_size)
            if num_tokens == 0:
                return False
            if not self._manager.admit(request, hits):
                return True
            self.counts.add_admission(
                request,
                len(hits) * self._manager.block_size,
                was_looked_up=self._manager.caches_prefixes and request.reads_prefix_cache,
            )
            copies = self._manager.append(seq, num_tokens)
            assert copies is not None, "the manager promised room for these"
            item = ScheduledSequence(request, seq, num_tokens, copies)
            self._plan.add(item)
            self._plan.admitted.append(request)
            self.queues.start_running(waiting)
            self._cache_blocks([item])
        return True

    def _has_place(self, request: Request) -> bool:
        """Whether a request may join the batch. The memory that it needs now is not checked here.

        `max_num_seqs` limits the batch. With `admits_surely`, the batch is also limited by the memory that
        all of its requests may need until they end.
        """
        joined = [*self.queues.running, request]
        if sum(each.num_seqs for each in joined) > self._max_num_seqs:
            return False
        return not self._admits_surely or self._manager.surely_fit(joined)

    def _find_prefix(self, request: Request, seq: TokenSequence) -> list[CachedBlock]:
        return self._manager.find_prefix(seq, request.cache_salt) if request.reads_prefix_cache else []

    def _cache_blocks(self, scheduled: Iterable[ScheduledSequence]) -> None:
        """Cache the blocks that this step fills."""
        if not self._manager.caches_prefixes:
            return
        block_size = self._manager.block_size
        for item in scheduled:
            seq = item.seq
            num_tokens = seq.num_computed_tokens + item.num_tokens
            if num_tokens // block_size > len(seq.prefix_ids):
                self._manager.cache_full_blocks(seq, num_tokens, item.request.cache_salt)
