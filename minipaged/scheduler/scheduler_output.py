"""SchedulerOutput: the plan of one step; and SchedulerCounts, over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipaged.kv.cache import BlockCopy
from minipaged.kv.swap import BlockSwap
from minipaged.request import Request, Sequence


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
    resumed: list[Request] = field(default_factory=list)
    """Requests that were swapped out and are back."""
    swap_outs: list[BlockSwap] = field(default_factory=list)
    swap_ins: list[BlockSwap] = field(default_factory=list)

    def add(self, item: ScheduledSequence) -> None:
        self.scheduled.append(item)
        self.num_tokens += item.num_tokens

    def withdraw(self, request: Request) -> list[BlockCopy]:
        """Take a request's sequences out of the step again, and hand their budget back.

        Returns:
            The copies that were planned for them, and are not done.
        """
        copies = [copy for item in self.scheduled if item.request is request for copy in item.copies]
        self.scheduled = [item for item in self.scheduled if item.request is not request]
        self.num_tokens = sum(item.num_tokens for item in self.scheduled)
        return copies


@dataclass
class SchedulerCounts:
    """See `engine/stats.py`, which reports them.

    Attributes:
        scheduled_tokens: tokens in all plans.
        prompt_tokens: of admitted requests, each counted at its first admission.
        prefix_cache_queries: tokens looked up in the prefix cache, at first admissions.
        prefix_cache_hits: tokens found there.
        preemptions: requests that lost their blocks.
        swapped_blocks: blocks that went to CPU memory.
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
            request: it keeps the number of tokens that were found for it.
            num_cached_tokens: tokens found in the prefix cache.
            was_looked_up: whether the prefix cache was asked at all.
        """
        if request.num_cached_tokens is not None:
            return
        request.num_cached_tokens = num_cached_tokens
        self.prompt_tokens += len(request.prompt_token_ids)
        if was_looked_up:
            self.prefix_cache_queries += request.unfinished[0].num_tokens
            self.prefix_cache_hits += num_cached_tokens
