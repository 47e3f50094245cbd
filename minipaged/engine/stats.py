"""EngineStats: what an engine says of itself; and the count of its blocks, after each step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minipaged.kv.block_usage import BlockUsage
from minipaged.request import Request
from minipaged.scheduler.scheduler_output import ScheduledSequence


@dataclass(frozen=True)
class EngineStats:
    """An engine's state and its counts since it was made. Names follow vLLM's metrics.

    Attributes:
        num_blocks: blocks in the pool, the null block included. Of a contiguous cache, its slots divided
            by the block size; 0 without a cache.
        num_free_blocks: blocks that can be handed out, cached ones included; in a contiguous cache
            likewise.
        num_running: requests in the batch.
        num_waiting: requests that wait, preempted and swapped ones included.
        kv_cache_usage: share of blocks in use, `1 - free / (total - 1)`; of slots, in a contiguous
            cache.
        num_steps: forward passes.
        num_preemptions: requests that lost their blocks.
        num_swapped_blocks: blocks that preemption has moved to CPU memory.
        num_copied_blocks: blocks copied because they were shared when written (or at all, with
            `fork_mode="copy"`).
        sharing_saving: the share of blocks that sharing saved, summed over the steps: 1 - distinct
            blocks / block table entries. Shared prefixes count, as well as samples and beams.
        prefix_cache_queries: tokens looked up in the prefix cache, at first admissions.
        prefix_cache_hits: tokens found there.
        prompt_tokens: prompt tokens of all admitted requests.
        generation_tokens: tokens sampled; of a beam search, those of its hypotheses.
    """

    num_blocks: int
    num_free_blocks: int
    num_running: int
    num_waiting: int
    kv_cache_usage: float
    num_steps: int
    num_preemptions: int
    num_swapped_blocks: int
    num_copied_blocks: int
    sharing_saving: float
    prefix_cache_queries: int
    prefix_cache_hits: int
    prompt_tokens: int
    generation_tokens: int


def count_blocks(
    total: BlockUsage, scheduled: Iterable[ScheduledSequence], running: Iterable[Request], num_in_use: int
) -> None:
    """Add one step to the counts of each running request, and to those of the whole engine.

    Args:
        total: the engine's counts.
        scheduled: what the step computed; its copies are done.
        running: the requests that hold blocks.
        num_in_use: blocks of the pool in use; what requests share counts once.
    """
    for item in scheduled:
        item.request.block_usage.num_copied_blocks += len(item.copies)
        total.num_copied_blocks += len(item.copies)
    num_logical = 0
    for request in running:
        num_logical += request.block_usage.add_step([seq.block_table for seq in request.sequences])
    total.add_counts(num_logical, num_in_use)
