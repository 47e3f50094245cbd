"""Divide a full batch's decode step into the time in which a kernel runs and the time in which none runs."""

from __future__ import annotations

import time
import warnings

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from minipaged.bench.gpu_engines import add_requests, make_engine
from minipaged.bench.gpu_part import PartResult, Row
from minipaged.bench.gpu_workload import EngineSizes, nano_vllm_workload
from minipaged.engine.llm_engine import LLMEngine
from minipaged.sim.workload import Workload, WorkloadRequest


def look_at_steps(sizes: EngineSizes, device: torch.device, *, graphs: bool) -> PartResult:
    """Measure a step's time, the share of it outside kernels, and how often the host waits for the device.

    The steps are timed first and profiled afterwards, since the profiler slows them down.
    """
    engine = make_engine(sizes, device, graphs=graphs)
    _fill_batch(engine, sizes)
    seconds = _seconds(engine, sizes.num_steps)
    kernel_seconds = _kernel_seconds(engine, device, sizes.num_steps)
    waits = _waits(engine, device, sizes.num_steps)
    engine.abort_all()
    outside = 1 - kernel_seconds / seconds
    row: Row = {"sequences": sizes.num_requests, "milliseconds": 1e3 * seconds}
    row |= {"kernel milliseconds": 1e3 * kernel_seconds, "share outside kernels": outside}
    row |= {"waits for each step": waits}
    headline = f"{1e3 * seconds:.2f} ms a step, {outside:.0%} outside kernels, {waits:g} waits"
    return PartResult(headline, [row], failed=waits > 1)


def _fill_batch(engine: LLMEngine, sizes: EngineSizes) -> None:
    """Add the workload's prompts, and run the engine until every prompt is computed.

    Outputs are long enough for all measured steps, so each of these decodes all requests.
    """
    num_tokens = 3 * sizes.num_steps + 4
    requests = [each.prompt_token_ids[: sizes.longest // 2] for each in nano_vllm_workload(sizes).requests]
    add_requests(
        engine, Workload("all at once", tuple(WorkloadRequest(each, num_tokens) for each in requests))
    )
    num_tokens_before = -1
    while num_tokens_before != (num_tokens_before := engine.stats().prompt_tokens) or num_tokens_before == 0:
        engine.advance()


def _seconds(engine: LLMEngine, num_steps: int) -> float:
    """The mean time of a step. A step ends when its tokens are on the host, so the device is idle then."""
    start = time.perf_counter()
    for _ in range(num_steps):
        engine.advance()
    return (time.perf_counter() - start) / num_steps


def _kernel_seconds(engine: LLMEngine, device: torch.device, num_steps: int) -> float:
    """Seconds per step in which the device works, summed over kernels and copies."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as found:
        for _ in range(num_steps):
            engine.advance()
    on_device = [event for event in found.key_averages() if event.device_type == DeviceType.CUDA]
    return sum(event.self_device_time_total for event in on_device) / 1e6 / num_steps


def _waits(engine: LLMEngine, device: torch.device, num_steps: int) -> float:
    """How many operations per step make the host wait, as counted by PyTorch; 0 without CUDA."""
    if device.type != "cuda":
        return 0.0
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(num_steps):
                engine.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in caught) / num_steps
