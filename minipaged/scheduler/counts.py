"""SchedulerCounts: what a scheduler has done since it was made."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.request import Request


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
