"""EngineStats: the state and the counts of an engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStats:
    """An engine's state, and its counts since it was created. Names follow vLLM's metrics.

    Attributes:
        num_blocks: blocks in the pool, including the null block. For a contiguous cache, its slots divided
            by the block size; 0 without a cache.
        num_free_blocks: blocks that can be handed out, including cached ones. For a contiguous cache, its
            free slots divided by the block size.
        num_running: requests in the batch.
        num_waiting: requests that wait, including preempted and swapped ones.
        kv_cache_usage: the share of blocks in use, `1 - free / (total - 1)`. For a contiguous cache, the
            share of slots in allocated regions.
        num_steps: forward passes.
        num_preemptions: how often a request lost its blocks.
        num_swapped_blocks: blocks that were swapped out to CPU memory.
        num_copied_blocks: blocks copied because they were shared when written. With `fork_mode="copy"`,
            all blocks copied for forks.
        sharing_saving: the share of blocks that sharing saved: 1 - distinct blocks / block table entries.
            Both numbers are summed over the steps. Samples, beams and cached prefixes all share.
        prefix_cache_queries: tokens looked up in the prefix cache when requests were first admitted.
        prefix_cache_hits: tokens found in the prefix cache by these lookups.
        prompt_tokens: prompt tokens of all admitted requests.
        generation_tokens: sampled tokens. For a beam search, the tokens of its hypotheses.
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
