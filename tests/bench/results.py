"""Made-up results of a ladder."""

from __future__ import annotations

from dataclasses import replace

from minipaged.bench.ladder import Difference, WorkloadResult
from minipaged.bench.stage_run import Latency, MemoryShares, StageResult


def stage_result(stage: int, **changes: object) -> StageResult:
    """A stage that generated 1,000 tokens in 10 seconds, unless `changes` say otherwise."""
    result = StageResult(
        stage=stage,
        seconds=10.0,
        num_steps=500,
        num_output_tokens=1000,
        ttft=Latency(1.0, 2.0),
        tpot=Latency(0.01, 0.02),
        mean_batch=2.0,
        memory=None if stage == 1 else MemoryShares(0.2, 0.1, 0.5, 0.1, 0.1),
        num_preemptions=0,
        num_copied_blocks=0,
        prefix_cache_queries=800 if stage == 8 else 0,
        prefix_cache_hits=0,
    )
    return replace(result, **changes)  # pyright: ignore[reportArgumentType]


def workload_result(*stages: StageResult, difference: Difference | None = None) -> WorkloadResult:
    """A workload with the results of these stages."""
    return WorkloadResult(
        name="like ShareGPT",
        num_requests=20,
        num_prompt_tokens=800,
        num_output_tokens=1000,
        num_prefix_tokens=0,
        num_slots=1024,
        stages=stages,
        difference=difference,
    )
