"""The parts of `minipaged bench gpu` about the whole engine, with and without CUDA graphs."""

from __future__ import annotations

import math

import torch

from minipaged.bench.gpu_engines import make_engine, serve
from minipaged.bench.gpu_graphs import compare_with_eager
from minipaged.bench.gpu_part import PartResult, Parts, Row
from minipaged.bench.gpu_steps import look_at_steps
from minipaged.bench.gpu_workload import FULL, REHEARSAL, EngineSizes, first_requests, nano_vllm_workload

MAX_SECONDS = 35.0
"""The limit for one run of the workload."""


def make_parts(device: torch.device, *, rehearse: bool) -> Parts:
    """The parts to run, by name; see `gpu_groups`."""
    sizes = REHEARSAL if rehearse else FULL
    limit = math.inf if rehearse else MAX_SECONDS
    return {
        "graphs as eager": lambda: compare_with_eager(sizes, device),
        "engine, graphs": lambda: throughput(sizes, device, graphs=True, max_seconds=limit),
        "engine, eager": lambda: throughput(sizes, device, graphs=False, max_seconds=limit),
        "steps, graphs": lambda: look_at_steps(sizes, device, graphs=True),
        "steps, eager": lambda: look_at_steps(sizes, device, graphs=False),
    }


def throughput(sizes: EngineSizes, device: torch.device, *, graphs: bool, max_seconds: float) -> PartResult:
    """Measure output tokens per second on nano-vllm's workload. Tokens after the time limit do not count."""
    workload = nano_vllm_workload(sizes)
    engine = make_engine(sizes, device, graphs=graphs)
    serve(engine, first_requests(workload, 2, sizes.longest, 2), max_seconds)  # compiles the kernels
    served = serve(engine, workload, max_seconds)
    row: Row = {"requests": len(workload.requests), "output tokens": served.num_tokens}
    row |= {"of": workload.num_output_tokens, "steps": served.num_steps, "seconds": served.seconds}
    row |= {"output tokens/s": served.tokens_per_second, "blocks": engine.memory_plan.num_blocks}
    in_time = served.num_tokens == workload.num_output_tokens
    headline = f"{served.tokens_per_second:,.0f} output tokens/s, "
    headline += f"{1e3 * served.seconds / served.num_steps:.1f} ms a step"
    if not in_time:
        headline += f", {served.num_tokens:,} of {workload.num_output_tokens:,} tokens in time"
    return PartResult(headline, [row], failed=not in_time)
