"""Let one engine serve one workload, and measure how fast it is and how it uses its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from minipaged.engine.llm_engine import LLMEngine
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.sampling.params import SamplingParams
from minipaged.sim.workload import Workload

Outputs = tuple[tuple[int, ...], ...]
"""The output tokens of each request, in the order of the requests."""

OnTokens = Callable[[int], None]
"""Called after each step with the number of output tokens so far."""


@dataclass(frozen=True)
class Latency:
    """Mean and 99th percentile of a time over all requests, in seconds."""

    mean: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency | None:
        """The mean and the percentile of these times; `None` if there are no times."""
        if not seconds:
            return None
        return cls(float(np.mean(seconds)), float(np.percentile(seconds, 99)))


@dataclass(frozen=True)
class MemoryShares:
    """How the KV memory was divided: shares of its slots, each the mean over all steps.

    The shares add up to 1. They are explained in `kv.breakdown.MemoryBreakdown`.
    """

    token_states: float
    reservation: float
    internal_fragmentation: float
    external_fragmentation: float
    free: float

    @classmethod
    def of(cls, breakdowns: Sequence[MemoryBreakdown]) -> MemoryShares | None:
        """The mean shares; `None` for an engine without KV memory."""
        if not breakdowns or breakdowns[0].num_slots == 0:
            return None
        return cls(
            *(
                float(np.mean([getattr(each, field.name) / each.num_slots for each in breakdowns]))
                for field in fields(cls)
            )
        )


@dataclass(frozen=True)
class StageResult:
    """The result of one stage for a workload. All requests arrive at the start.

    Attributes:
        stage: the number of the stage, 1 to 8.
        seconds: time in the engine's steps, without the time of measuring.
        num_steps: number of forward passes.
        num_output_tokens: output tokens of all requests.
        ttft: time to first token, including the time in the waiting queue.
        tpot: time per output token after the first, for requests with more than one output token.
        mean_batch: mean number of requests in the batch, over all steps.
        memory: how the KV memory was divided at the end of a step, as the mean over all steps.
        num_preemptions, num_copied_blocks, prefix_cache_queries, prefix_cache_hits: as in `EngineStats`.
    """

    stage: int
    seconds: float
    num_steps: int
    num_output_tokens: int
    ttft: Latency | None
    tpot: Latency | None
    mean_batch: float
    memory: MemoryShares | None
    num_preemptions: int
    num_copied_blocks: int
    prefix_cache_queries: int
    prefix_cache_hits: int

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second."""
        return self.num_output_tokens / self.seconds


def run_stage(
    stage: int, engine: LLMEngine, workload: Workload, on_tokens: OnTokens
) -> tuple[StageResult, Outputs]:
    """Serve a workload with greedy sampling. Each output gets the length that the workload says.

    Args:
        stage: the stage's number, for the result.
        engine: a new engine.
        workload: requests that the engine can serve.
        on_tokens: called after each step, to show the progress.

    Raises:
        PromptError, RequestTooLargeError: this engine cannot serve a request.
    """
    _warm_up(engine, workload)
    before = engine.stats()
    for number, request in enumerate(workload.requests):
        engine.add_request(
            str(number), {"prompt_token_ids": list(request.prompt_token_ids)}, _greedy(request.max_tokens)
        )
    clock = 0.0  # seconds in the engine
    num_tokens = 0
    first_token: dict[str, float] = {}
    finished: dict[str, float] = {}
    outputs: dict[str, tuple[int, ...]] = {}
    batches: list[int] = []
    breakdowns: list[MemoryBreakdown] = []
    while engine.has_unfinished_requests():
        began = time.perf_counter()
        processors = engine.advance()
        clock += time.perf_counter() - began
        num_finished = 0
        for processor in processors:
            request = processor.request
            first_token.setdefault(request.request_id, clock)
            if request.is_finished:
                num_finished += 1
                finished[request.request_id] = clock
                outputs[request.request_id] = tuple(processor.build().outputs[0].token_ids)
        stats = engine.stats()
        batches.append(stats.num_running + num_finished)
        breakdowns.append(engine.memory_breakdown())
        num_tokens = stats.generation_tokens - before.generation_tokens
        on_tokens(num_tokens)
    after = engine.stats()
    per_token = [
        (finished[name] - first_token[name]) / (len(tokens) - 1)
        for name, tokens in outputs.items()
        if len(tokens) > 1
    ]
    result = StageResult(
        stage=stage,
        seconds=clock,
        num_steps=after.num_steps - before.num_steps,
        num_output_tokens=num_tokens,
        ttft=Latency.of(list(first_token.values())),
        tpot=Latency.of(per_token),
        mean_batch=float(np.mean(batches)),
        memory=MemoryShares.of(breakdowns),
        num_preemptions=after.num_preemptions - before.num_preemptions,
        num_copied_blocks=after.num_copied_blocks - before.num_copied_blocks,
        prefix_cache_queries=after.prefix_cache_queries - before.prefix_cache_queries,
        prefix_cache_hits=after.prefix_cache_hits - before.prefix_cache_hits,
    )
    return result, tuple(outputs[str(number)] for number in range(len(workload.requests)))


def _warm_up(engine: LLMEngine, workload: Workload) -> None:
    """Serve one short request, so that first-use compilation and allocation are not measured."""
    request = workload.requests[0]
    prompt = list(request.prompt_token_ids)
    engine.add_request("warm-up", {"prompt_token_ids": prompt}, _greedy(min(2, request.max_tokens)))
    while engine.has_unfinished_requests():
        engine.advance()
    engine.reset_prefix_cache()


def _greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
