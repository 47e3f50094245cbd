"""SchedulerOutput: the plan of one step. SchedulerCounts: the totals over all steps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from minipaged.kv.cache import BlockCopy
from minipaged.kv.swap import BlockSwap
from minipaged.request import Request, Sequence


@dataclass(slots=True)
class ScheduledSequence:
    """One sequence's part of a step: compute the next `num_tokens` tokens.

    `copies` are the block copies to do first, so that the sequence does not write into a shared block.

    No code changes an instance. The class is still not frozen, because each step makes an instance for each
    sequence, and making a frozen instance takes twice as long.
    """

    request: Request
    seq: Sequence
    num_tokens: int
    copies: Collection[BlockCopy] = ()

    @property
    def reaches_end(self) -> bool:
        """Whether this step computes the last known token, so that it samples the next one."""
        return self.seq.num_computed_tokens + self.num_tokens == self.seq.num_tokens


@dataclass
class SchedulerOutput:
    """The plan of one step."""

    scheduled: list[ScheduledSequence] = field(default_factory=list)
    num_tokens: int = 0
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    """Requests that were swapped out and are swapped in again by this step."""
    swap_outs: list[BlockSwap] = field(default_factory=list)
    swap_ins: list[BlockSwap] = field(default_factory=list)

    def add(self, item: ScheduledSequence) -> None:
        self.scheduled.append(item)
        self.num_tokens += item.num_tokens

    def withdraw(self, request: Request) -> list[BlockCopy]:
        """Remove a request's sequences from the plan. Their part of the token budget is free again.

        Returns:
            The block copies that were planned for them, and will not be done.
        """
        copies = [copy for item in self.scheduled if item.request is request for copy in item.copies]
        self.scheduled = [item for item in self.scheduled if item.request is not request]
        self.num_tokens = sum(item.num_tokens for item in self.scheduled)
        return copies


@dataclass
class SchedulerCounts:
    """Totals over all steps. `engine/stats.py` reports them.

    Attributes:
        scheduled_tokens: tokens in all plans.
        prompt_tokens: prompt tokens of admitted requests, each request counted once.
        prefix_cache_queries: tokens looked up in the prefix cache when requests were first admitted.
        prefix_cache_hits: tokens found in the prefix cache by these lookups.
        preemptions: how often a request lost its blocks.
        swapped_blocks: blocks that were swapped out to CPU memory.
    """

    scheduled_tokens: int = 0
    prompt_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    preemptions: int = 0
    swapped_blocks: int = 0

    def add_admission(self, request: Request, num_cached_tokens: int, *, was_looked_up: bool) -> None:
        """Count a request, unless it was admitted before.

        Args:
            request: the request; `num_cached_tokens` is stored in it.
            num_cached_tokens: tokens found in the prefix cache.
            was_looked_up: whether the request's tokens were looked up in the prefix cache at all.
        """
        if request.num_cached_tokens is not None:
            return
        request.num_cached_tokens = num_cached_tokens
        self.prompt_tokens += len(request.prompt_token_ids)
        if was_looked_up:
            self.prefix_cache_queries += request.unfinished[0].num_tokens
            self.prefix_cache_hits += num_cached_tokens
