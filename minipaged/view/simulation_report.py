"""A simulation as tables for a terminal of 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.kv.manager import KVManager
from minipaged.sim.deployment import Deployment
from minipaged.sim.measures import Latency, SimulationResult
from minipaged.sim.systems import System
from minipaged.view.whole_table import WholeTable


def simulation_report(
    system: System, deployment: Deployment, manager: KVManager, result: SimulationResult
) -> RenderableType:
    """What was simulated, its rates, its latencies and its memory."""
    device = deployment.device
    heading = (
        f"{system.title}, {deployment.model.name} on {deployment.num_devices} × {device.name}; "
        f"{manager.num_blocks:,} blocks of {manager.block_size} tokens. Simulated here."
    )
    rates = WholeTable("", "", "")
    for name, value in (
        ("requests answered", f"{result.num_requests:,}"),
        ("seconds", f"{result.seconds:,.1f}"),
        ("requests per second", f"{result.requests_per_second:.2f}"),
        ("output tokens per second", f"{result.output_tokens_per_second:,.0f}"),
        ("requests in a batch, on average", f"{result.mean_batch:.2f}"),
        ("steps", f"{result.num_steps:,}"),
        ("time of a step, on average", f"{result.mean_step * 1000:.2f} ms"),
        ("preemptions", f"{result.num_preemptions:,}"),
        ("blocks swapped out", f"{result.num_swapped_blocks:,}"),
        ("prompt tokens found in the prefix cache", f"{result.prefix_cache_hits:,}"),
        ("blocks saved by sharing", f"{result.sharing_saving:.1%}"),
    ):
        rates.add_row(name, value)
    latencies = WholeTable("Seconds", "", "mean", "p50", "p90", "p99")
    for name, latency in (
        ("to the first token", result.time_to_first_token),
        ("per token after it", result.time_per_output_token),
        ("to the last token", result.latency),
    ):
        latencies.add_row(name, *_seconds(latency))
    normalized = Text(f"Latency per output token, mean over the requests: {result.normalized_latency:.4f} s")
    shares = ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in result.memory.items())
    assumptions = Text(
        f"- {device.memory_bytes_per_second / 1e9:,.0f} GB/s and {device.flops / 1e12:,.0f} TFLOPS for each "
        f"device, and {deployment.overhead * 1000:g} ms for each step in addition. Real kernels do not "
        "reach a datasheet's peaks, so these times are lower bounds."
    )
    return Group(
        Text(heading, style="bold"),
        rates,
        latencies,
        normalized,
        Text(f"KV memory: {shares or 'not looked at'}"),
        Text(),
        assumptions,
    )


def _seconds(latency: Latency) -> tuple[str, ...]:
    values = (latency.mean, latency.p50, latency.p90, latency.p99)
    return tuple(f"{value:.4f}" if value < 1 else f"{value:.2f}" for value in values)
