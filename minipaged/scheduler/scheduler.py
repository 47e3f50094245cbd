"""Scheduler: who runs in the next step, with how many tokens, on which blocks.

One token budget, and no phases: a sequence has tokens that are not computed yet, and a step gives
it up to all of them. Running requests come first; what is left of the budget admits waiting ones.
A prompt that exceeds the budget is computed in chunks, a prefix hit is a sequence that begins with
computed tokens, and a preempted request is one that lost them: none is a special case.

Older ways of serving are two restrictions of this one. With *static batching* nobody is admitted until
the whole batch has ended. An engine that never preempts admits only what surely fits to the end.

See the paper, section 4.5, and vLLM, `v1/core/sched/scheduler.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from minipaged.config import Batching, SchedulingPolicy
from minipaged.errors import InvariantError
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.kv.swap import SwapSpace
from minipaged.request import Request, RequestStatus, common_prefix
from minipaged.request import Sequence as TokenSequence
from minipaged.scheduler.policy import rank
from minipaged.scheduler.request_queues import RequestQueues
from minipaged.scheduler.scheduler_output import PrefixCacheCounts, ScheduledSequence, SchedulerOutput


class Scheduler(RequestQueues):
    """The queues, and the plan of each step.

    Args:
        manager: where memory comes from.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: the token budget of a step.
        enable_chunked_prefill: whether a prompt may be computed over several steps.
        policy: the order of requests, see `minipaged/scheduler/policy.py`.
        swap_space: where preempted requests' blocks go; `None`: they are computed again.
        batching: `"static"`: nobody joins a batch once it has been filled, or a member has ended. A step
            whose budget was used up has not filled it yet.
        admits_surely: admit a request only if it and all running ones surely fit to their ends, so that
            nobody is preempted.
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
        super().__init__(manager, policy, swap_space)
        self.num_prompt_tokens = 0
        self.num_scheduled_tokens = 0
        self.prefix_counts = PrefixCacheCounts()
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._chunked = enable_chunked_prefill
        self._policy: SchedulingPolicy = policy
        self._is_static = batching == "static"
        self._is_batch_full = False
        self._batch_size = 0
        self._admits_surely = admits_surely

    def add(self, request: Request) -> None:
        """Queue a request."""
        request.arrival_clock = self.num_scheduled_tokens
        self.waiting.push(request)

    def schedule(self, output: SchedulerOutput) -> None:
        """Plan the next step, and take the memory for it.

        Args:
            output: an empty plan, which is filled. It is the caller's, so that whatever goes wrong
                from here to the end of the forward pass, the caller can `rollback`.
        """
        for request in list(self.running):
            # A request further up may have preempted this one by now.
            if request.status is RequestStatus.RUNNING:
                self._schedule_running(request, request.unfinished, output)
        for item in output.scheduled:
            self._cache_blocks(item)
        # Nobody comes in while the pool is dry: not in a step that had to preempt, and nobody new
        # while somebody is swapped out.
        self._swap_in(output)
        if not output.preempted and not self.swapped:
            self._admit(output)
        output.swap_outs += self.pending_swap_outs
        self.pending_swap_outs.clear()
        self.num_scheduled_tokens += output.num_tokens

    def check_invariants(self, requests: Collection[Request]) -> None:
        """Compare the queues with all unfinished requests.

        Raises:
            InvariantError: see `RequestQueues.check_invariants`, or too many sequences run.
        """
        super().check_invariants(requests)
        if sum(request.num_seqs for request in self.running) > self._max_num_seqs:
            raise InvariantError("more sequences run than max_num_seqs")

    # Running requests

    def _schedule_running(
        self, request: Request, seqs: Sequence[TokenSequence], output: SchedulerOutput
    ) -> None:
        for seq in seqs:
            if self._budget(output) == 0:
                return
            if seq.awaits_siblings:
                continue
            is_resuming = seq.num_computed_tokens == 0
            if is_resuming and not self._resume_sample(request, seq, output):
                continue
            num_tokens = self._fit_budget(seq.num_tokens - seq.num_computed_tokens, output)
            if num_tokens == 0:
                # A whole prompt must wait for a step with more room. What it shared just now, its
                # sibling is about to write.
                if is_resuming:
                    self._manager.free(seq)
                continue
            while (copies := self._manager.append(seq, num_tokens)) is None:
                if self._admits_surely:
                    raise InvariantError(f"request {request.request_id!r} was sure to fit, and does not")
                victim = max(self.running, key=lambda request: rank(request, self._policy))
                self.preempt(victim, undone=output.withdraw(victim))
                output.preempted.append(victim)
                if victim is request:
                    return
            output.add(ScheduledSequence(request, seq, num_tokens, tuple(copies)))

    def _budget(self, output: SchedulerOutput) -> int:
        """What is left of the step's token budget."""
        return self._max_num_batched_tokens - output.num_tokens

    def _fit_budget(self, num_tokens: int, output: SchedulerOutput) -> int:
        """How many of a sequence's missing tokens this step computes; without chunks, all or none."""
        budget = self._budget(output)
        if num_tokens <= budget:
            return num_tokens
        return budget if self._chunked else 0

    def _resume_sample(self, request: Request, seq: TokenSequence, output: SchedulerOutput) -> bool:
        """Bring back a sample whose request was preempted, so that it shares blocks as before.

        A preempted request with several samples is admitted with the first of them alone, and
        that one is computed like any prompt. The others come back here, one by one: each waits
        until a sibling has computed the tokens that both have in common, then forks from it, and
        computes the rest.

        Returns:
            Whether the sample can go on in this step.
        """
        closest = request.closest_sibling(seq)
        if closest is None:  # those that were back have finished already
            self._manager.begin(request, seq, self._find_prefix(request, seq))
            return True
        # The last token is computed in any case: its logits are needed.
        num_shared = min(common_prefix(closest, seq), seq.num_tokens - 1)
        if closest.num_computed_tokens < num_shared:
            return False
        if any(item.seq is closest and item.copies for item in output.scheduled):
            # The sibling's last block is copied in this very step, and a copy of a copy would be
            # taken too early: all sources are read before any target is written.
            return False
        self._manager.fork(closest, seq, num_shared)
        return True

    # Requests that come in

    def _swap_in(self, output: SchedulerOutput) -> None:
        while self._swap_space is not None and self.swapped and not output.preempted:
            request = self.swapped.peek()
            if not self._swap_space.can_swap_in(request):
                return
            output.resumed.append(request)
            output.swap_ins += self._swap_space.swap_in(request)
            self.swapped.pop()
            self.running.append(request)
            request.status = RequestStatus.RUNNING
            # It goes on at once, in the room that `can_swap_in` has counted, so that nobody is
            # preempted for it. Samples that had no blocks to save come back in a later step.
            num_planned = len(output.scheduled)
            restored = [seq for seq in request.unfinished if len(seq.block_table)]
            self._schedule_running(request, restored, output)
            for item in output.scheduled[num_planned:]:
                self._cache_blocks(item)

    def _admit(self, output: SchedulerOutput) -> None:
        if self._is_static and self.running:
            has_member_ended = len(self.running) < self._batch_size
            if self._is_batch_full or has_member_ended:
                return
        self._is_batch_full = self._fill_batch(output)
        self._batch_size = len(self.running)

    def _fill_batch(self, output: SchedulerOutput) -> bool:
        """Admit whoever has room, in order; whether it was anything but this step's budget that ended it."""
        while self.waiting:
            if self._budget(output) == 0:
                return False
            request = self.waiting.peek()
            if not self._has_place(request):
                return True
            seq = request.unfinished[0]
            hits = self._find_prefix(request, seq)
            num_tokens = self._fit_budget(seq.num_tokens - len(hits) * self._manager.block_size, output)
            if num_tokens == 0:
                return False
            if not self._manager.admit(request, hits):
                return True
            self._count_admission(request, seq, hits)
            copies = self._manager.append(seq, num_tokens)
            assert copies is not None, "the manager promised room for these"
            item = ScheduledSequence(request, seq, num_tokens, tuple(copies))
            output.add(item)
            output.admitted.append(request)
            self.waiting.pop()
            self.running.append(request)
            request.status = RequestStatus.RUNNING
            self._cache_blocks(item)
        return True

    def _has_place(self, request: Request) -> bool:
        """Whether the batch has a place for a request's sequences, whatever memory they take now."""
        joined = [*self.running, request]
        if sum(each.num_seqs for each in joined) > self._max_num_seqs:
            return False
        return not self._admits_surely or self._manager.surely_fit(joined)

    def _find_prefix(self, request: Request, seq: TokenSequence) -> list[CachedBlock]:
        if request.params.prompt_logprobs is not None:
            return []  # cached tokens have no logits, and this request wants all of them
        return self._manager.find_prefix(seq, request.cache_salt)

    def _cache_blocks(self, item: ScheduledSequence) -> None:
        num_tokens = item.seq.num_computed_tokens + item.num_tokens
        self._manager.cache_full_blocks(item.seq, num_tokens, item.request.cache_salt)

    def _count_admission(self, request: Request, seq: TokenSequence, hits: list[CachedBlock]) -> None:
        if request.num_cached_tokens is not None:
            return  # it was admitted before
        request.num_cached_tokens = len(hits) * self._manager.block_size
        self.num_prompt_tokens += seq.num_prompt_tokens
        if self._manager.caches_prefixes and request.params.prompt_logprobs is None:
            self.prefix_counts.queries += seq.num_tokens
            self.prefix_counts.hits += request.num_cached_tokens
