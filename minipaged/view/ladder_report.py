"""The ladder, which compares the engine's stages, as tables and bars for a terminal of 80 columns."""

from __future__ import annotations

from dataclasses import fields

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from minipaged.bench.ladder import STAGE_NAMES, WorkloadResult
from minipaged.bench.stage_run import Latency, MemoryShares
from minipaged.view.whole_table import WholeTable

BAR_WIDTH = 36


def ladder_report(result: WorkloadResult, lines: list[str]) -> RenderableType:
    """The report about one workload.

    Args:
        result: the measurements.
        lines: the remarks, from `bench.ladder_remarks`.
    """
    parts: list[RenderableType] = [_heading(result), _bars(result), Text(), _speeds(result)]
    if any(each.memory is not None for each in result.stages):
        parts += [Text(), _memory(result)]
    parts += [Text(), _tokens(result)]
    parts += [Text(f"- {line}") for line in lines]
    return Group(*parts)


def _heading(result: WorkloadResult) -> Text:
    prefix = (
        f", {result.num_prefix_tokens:,} tokens of each prompt shared" if result.num_prefix_tokens else ""
    )
    return Text(
        f"{result.num_requests:,} requests {result.name}: {result.num_prompt_tokens:,} prompt and "
        f"{result.num_output_tokens:,} output tokens{prefix}; the KV cache has room for {result.num_slots:,}",
        style="bold",
    )


def _bars(result: WorkloadResult) -> Table:
    table = Table(
        title=f"Output tokens/s, stage {result.base.stage} = 1.0",
        title_justify="left",
        title_style="italic",
        box=None,
        padding=(0, 1),
        show_header=False,
    )
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(max_width=BAR_WIDTH)  # shrinks if the terminal is too narrow
    table.add_column(justify="right", no_wrap=True)
    most = max(result.ratio(each) for each in result.stages)
    for each in result.stages:
        ratio = result.ratio(each)
        bar = Bar(size=most, begin=0, end=ratio, color="cyan")
        table.add_row(str(each.stage), STAGE_NAMES[each.stage], bar, f"{ratio:.2f}")
    return table


def _speeds(result: WorkloadResult) -> WholeTable:
    headings = ("stage", "tokens/s", "TTFT", "p99", "TPOT", "p99", "batch", "steps", "preempted", "hits")
    table = WholeTable("Speed (TTFT in s, TPOT in ms; mean, 99th percentile)", *headings)
    for each in result.stages:
        hits = (
            f"{each.prefix_cache_hits / each.prefix_cache_queries:.0%}" if each.prefix_cache_queries else "–"
        )
        table.add_row(
            str(each.stage),
            f"{each.tokens_per_second:,.0f}",
            *_latency(each.ttft, 1),
            *_latency(each.tpot, 1000),
            f"{each.mean_batch:.1f}",
            f"{each.num_steps:,}",
            f"{each.num_preemptions:,}",
            hits,
        )
    return table


def _latency(latency: Latency | None, scale: float) -> tuple[str, str]:
    if latency is None:
        return "–", "–"
    return f"{latency.mean * scale:.2f}", f"{latency.p99 * scale:.2f}"


def _memory(result: WorkloadResult) -> WholeTable:
    shares_of = [field.name.replace("_fragmentation", "").replace("_", " ") for field in fields(MemoryShares)]
    table = WholeTable("KV memory, on average (%)", "stage", *shares_of)
    for each in result.stages:
        if each.memory is None:
            shares = ["–"] * len(fields(MemoryShares))
        else:
            shares = [f"{100 * getattr(each.memory, field.name):.1f}" for field in fields(MemoryShares)]
        table.add_row(str(each.stage), *shares)
    return table


def _tokens(result: WorkloadResult) -> Text:
    if result.difference is not None:
        return Text(f"DIFFERENT TOKENS: {result.difference}", style="bold red")
    if len(result.stages) == 1:
        return Text("Only one stage was run, so there is nothing to compare its tokens with.")
    return Text(f"All {len(result.stages)} stages gave the same {result.num_output_tokens:,} tokens.")
