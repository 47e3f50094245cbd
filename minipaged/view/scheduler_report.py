"""The benchmark of the scheduler as tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.bench.scheduler_steps import Pool, StepCost
from minipaged.bench.step_shares import StepShare
from minipaged.view.whole_table import WholeTable

MICROSECONDS = 1e6


def scheduler_report(pool: Pool, costs: Sequence[StepCost], shares: Sequence[StepShare]) -> RenderableType:
    """The time of a step at each context length, and the share of bookkeeping in a step with a model."""
    title = (
        f"A step of {pool.num_requests:,} running requests, without a model; {pool.num_blocks:,} blocks of "
        f"{pool.block_size} tokens; µs"
    )
    steps = WholeTable(title, "context", "schedule", "take in", "both", "per request", "input")
    for cost in costs:
        steps.add_row(
            f"{cost.context:,}",
            _microseconds(cost.schedule),
            _microseconds(cost.take_in),
            _microseconds(cost.bookkeeping),
            f"{cost.bookkeeping * MICROSECONDS / cost.num_requests:.2f}",
            _microseconds(cost.prepare),
        )
    with_model = WholeTable(
        "A decode step with a model, float32; µs",
        "model",
        "requests",
        "schedule",
        "input",
        "take in",
        "whole step",
        "share",
        "trace",
    )
    for share in shares:
        with_model.add_row(
            share.model,
            str(share.num_requests),
            _microseconds(share.schedule),
            _microseconds(share.prepare),
            _microseconds(share.take_in),
            _microseconds(share.whole),
            f"{share.share:.1%}",
            f"{share.trace_share:.1%}",
        )
    return Group(steps, *(Text(f"- {line}") for line in _remarks(costs)), Text(), with_model)


def _remarks(costs: Sequence[StepCost]) -> list[str]:
    lines = ["the time of the input grows with the context, since the input holds the block tables"]
    if len(costs) > 1:
        first, last = costs[0], costs[-1]
        lines.insert(
            0,
            f"with {last.context / first.context:,.0f} times the context, schedule and take in take "
            f"{last.bookkeeping / first.bookkeeping:.2f} times as long",
        )
    return lines


def _microseconds(seconds: float) -> str:
    return f"{seconds * MICROSECONDS:,.0f}"
