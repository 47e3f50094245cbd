"""Chooses a pool for the demo that is small enough for preemptions.

The scheduler and the block manager make the same decisions without a model. So the demo rehearses: it runs
its requests through both with invented tokens, and chooses a pool in which some request is preempted. The
real outputs have the same lengths, so the real run has the same preemptions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minipaged.cli.demo_workload import DemoRequest, DemoWorkload
from minipaged.config import EngineConfig
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.kv.size import blocks_needed
from minipaged.request import Request
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.scheduler import Scheduler

LARGEST_BLOCK = 16
SHARED_BLOCKS = 3
"""The common prefix fills at least this many blocks, if it is long enough."""

PRESSURE = 0.7
"""Size of the first pool to try, as a share of the blocks that all requests would use together."""

PREEMPTIONS = 2
"""The wanted number of preemptions: enough to see them, and few enough to follow."""

MOST_REHEARSALS = 20


@dataclass(frozen=True)
class Rehearsal:
    """The result of a rehearsal.

    Attributes:
        peak_used: largest number of blocks in use.
        num_preemptions, prefix_cache_hits: as in `EngineStats`.
    """

    peak_used: int
    num_preemptions: int
    prefix_cache_hits: int


def choose_block_size(num_shared_tokens: int) -> int:
    """The largest power of two, up to 16, such that the common prefix fills three blocks."""
    size = LARGEST_BLOCK
    while size > 1 and num_shared_tokens < SHARED_BLOCKS * size:
        size //= 2
    return size


def choose_num_blocks(workload: DemoWorkload, config: EngineConfig) -> int:
    """The number of blocks, including the null block, of a pool for some but not all of the requests.

    The pool holds at least the longest request. Sizes are tried in the order of their distance to `PRESSURE`,
    until one gives `PREEMPTIONS`.

    Args:
        workload: the demo's requests.
        config: the engine's settings. `num_blocks` and `max_model_len` are not read.
    """
    longest = blocks_needed(workload.longest, config.block_size)
    enough = sum(blocks_needed(request.most_tokens, config.block_size) for request in workload.requests)
    all_at_once = rehearse(workload.requests, config, 1 + enough).peak_used
    wanted = max(longest, min(round(all_at_once * PRESSURE), all_at_once))
    step = max(1, (all_at_once - longest) // MOST_REHEARSALS)
    best, least_off = wanted, math.inf
    for usable in sorted(range(longest, all_at_once, step), key=lambda usable: abs(usable - wanted)):
        preemptions = rehearse(workload.requests, config, 1 + usable).num_preemptions
        off = abs(preemptions - PREEMPTIONS)
        if preemptions and off < least_off:
            best, least_off = usable, off
        if least_off == 0:
            break
    return 1 + best


def rehearse(requests: tuple[DemoRequest, ...], config: EngineConfig, num_blocks: int) -> Rehearsal:
    """Run the requests through scheduler and block manager, without a model."""
    hasher = PrefixHasher(config.prefix_caching_hash_algo) if config.caches_prefixes else None
    manager = BlockManager(num_blocks, config.block_size, hasher)
    scheduler = Scheduler(
        manager,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        enable_chunked_prefill=config.enable_chunked_prefill,
        policy=config.scheduling_policy,
    )
    for number, request in enumerate(requests):
        scheduler.add(
            Request(
                request_id=str(number),
                prompt_token_ids=request.token_ids,
                params=SamplingParams(),
                max_tokens=request.max_tokens,
                sampling_seed=0,
                arrival=number,
            )
        )
    peak_used = 0
    while scheduler.queues.running or scheduler.queues.waiting:
        output = scheduler.schedule()
        scheduled = output.scheduled
        peak_used = max(peak_used, manager.pool.num_blocks - 1 - manager.pool.num_free)
        for item in scheduled:
            samples = item.reaches_end
            item.seq.num_computed_tokens += item.num_tokens
            if samples:
                # Not a token of any vocabulary, so that the output is never the prefix of another request.
                item.seq.token_ids.append(-1 - item.request.arrival)
                if item.seq.num_output_tokens == item.request.max_tokens:
                    item.seq.finish_reason = "length"
                    scheduler.retire(item.request)
    return Rehearsal(peak_used, scheduler.counts.preemptions, scheduler.counts.prefix_cache_hits)
