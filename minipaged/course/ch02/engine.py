"""The exercises of chapter 2, made from the engine's own code."""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.attention.reference import attend_one as attend_region
from minipaged.baseline.buddy import allocate_buddy, free_buddy
from minipaged.baseline.first_fit import allocate_first_fit, free_first_fit
from minipaged.baseline.region_slots import read_region, write_region
from minipaged.baseline.uncached_manager import UncachedManager
from minipaged.course.ch02.static_batch import StaticBatch
from minipaged.request import Request
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.scheduler import Scheduler
from minipaged.scheduler.scheduler_output import SchedulerOutput
from minipaged.sim.lengths import RequestLengths

__all__ = [
    "allocate_buddy",
    "allocate_first_fit",
    "attend_region",
    "free_buddy",
    "free_first_fit",
    "read_region",
    "serve_static",
    "static_batch",
    "write_region",
]

_NO_LIMIT = 1 << 40  # tokens of one step


def static_batch(members: Sequence[RequestLengths]) -> StaticBatch:
    [batch] = serve_static(members, len(members))
    return batch


def serve_static(queue: Sequence[RequestLengths], batch_size: int) -> list[StaticBatch]:
    """Run the real scheduler without a model: each scheduled request gets a token."""
    manager = UncachedManager(block_size=1)
    scheduler = Scheduler(
        manager, max_num_seqs=batch_size, max_num_batched_tokens=_NO_LIMIT, batching="static"
    )
    for number, each in enumerate(queue):
        params = SamplingParams(max_tokens=each.num_output_tokens)
        prompt = [0] * each.num_prompt_tokens
        scheduler.add(Request(str(number), prompt, params, each.num_output_tokens, 0, number))
    batches: list[list[SchedulerOutput]] = []  # the steps of each batch
    while scheduler.queues.running or scheduler.queues.waiting:
        output = scheduler.schedule()
        if output.admitted:
            batches.append([])
        batches[-1].append(output)
        for item in output.scheduled:
            item.seq.num_computed_tokens += item.num_tokens
            item.seq.token_ids.append(0)
            if item.seq.num_output_tokens == item.request.max_tokens:
                item.seq.finish_reason = "length"
                scheduler.retire(item.request)
    return [_counts(steps) for steps in batches]


def _counts(steps: Sequence[SchedulerOutput]) -> StaticBatch:
    prompts = [item.num_tokens for item in steps[0].scheduled]
    return StaticBatch(
        num_requests=len(prompts),
        num_steps=len(steps),
        num_computed=sum(step.num_tokens for step in steps),
        num_padding=sum(max(prompts) - each for each in prompts),  # the engine itself computes no padding
        num_idle=sum(len(prompts) - len(step.scheduled) for step in steps),
    )
