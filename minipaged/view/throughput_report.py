"""The benchmark of throughput as tables for a terminal of 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.bench.throughput.contestants import OURS
from minipaged.bench.throughput.results import ContestantRecord, Entry, ThroughputResult, WorkloadResult
from minipaged.view.whole_table import WholeTable

NOTHING = "–"
SHORT = ("absent", "not loaded", "ended before")
"""Failures whose names fit into the table. The last lines of the report explain them."""


def throughput_report(result: ThroughputResult) -> RenderableType:
    """A table and the machine's bound for each workload, and a line about each contestant."""
    parts: list[RenderableType] = [_heading(result)]
    for workload in result.workloads:
        parts += [Text(), _table(workload)]
        if line := _bound(workload):
            parts.append(Text(line))
        parts += [Text(f"- {line}") for line in _remarks(workload)]
    parts += [Text(), *(_contestant(record) for record in result.contestants)]
    return Group(*parts)


def _heading(result: ThroughputResult) -> Text:
    stage = "" if result.stage is None else f", our engine at stage {result.stage}"
    threads = "1 thread" if result.threads == 1 else f"{result.threads} threads"
    runs = "one run" if result.repeats == 1 else f"median of {result.repeats} alternating runs"
    return Text(
        f"{result.model} in {result.dtype}, {threads}, {runs}{stage}; {result.machine['processor']}, "
        f"{result.machine['cpus']} CPUs",
        style="bold",
    )


def _table(workload: WorkloadResult) -> WholeTable:
    title = (
        f"{workload.name}: {workload.description}; {workload.num_prompt_tokens:,} prompt and "
        f"{workload.num_output_tokens:,} output tokens"
    )
    headings = ("tokens/s", "slowest", "fastest", "ours/it", "peak MiB", "same tokens")
    table = WholeTable(title, "", *headings)
    for entry in workload.entries:
        table.add_row(entry.contestant, *_figures(workload, entry))
    return table


def _figures(workload: WorkloadResult, entry: Entry) -> list[str]:
    if entry.tokens_per_second is None or entry.spread is None:
        return [entry.failure if entry.failure in SHORT else "failed", *[NOTHING] * 5]
    ratio = workload.ratio(entry)
    agreement = entry.agreement
    return [
        f"{entry.tokens_per_second:,.1f}",
        f"{entry.spread[0]:,.1f}",
        f"{entry.spread[1]:,.1f}",
        NOTHING if ratio is None else f"{ratio:.2f}",
        f"{entry.peak_rss_mib:,.0f}",
        NOTHING
        if agreement is None
        else f"{agreement.num_requests - agreement.num_differing} of {agreement.num_requests}",
    ]


def _bound(workload: WorkloadResult) -> str | None:
    if workload.bound is None:
        return None
    what = "reading all weights once per token" if workload.num_requests == 1 else "only the linear layers"
    share = "" if workload.ours is None else f"; ours reaches {workload.ours / workload.bound:.0%} of it"
    return f"Bound, {what}: {workload.bound:,.0f} tokens/s{share}."


def _remarks(workload: WorkloadResult) -> list[str]:
    lines: list[str] = []
    for entry in workload.entries:
        if entry.failure is not None and entry.failure not in SHORT:
            lines.append(f"{entry.contestant}: {entry.failure}")
        if entry.agreement is not None and entry.agreement.first is not None:
            request, position = entry.agreement.first
            lines.append(
                f"{entry.contestant}: {entry.agreement.num_differing} requests got different tokens than "
                f"from {OURS}, the first of them request {request} from token {position} on"
            )
        computed = entry.runs[-1].num_computed_tokens if entry.runs else None
        if computed is not None:
            useful = workload.num_prompt_tokens + workload.num_output_tokens
            lines.append(f"{entry.contestant}: computed {computed:,} tokens, and {useful:,} were needed")
    return lines


def _contestant(record: ContestantRecord) -> Text:
    if record.absent is not None:
        return Text(f"{record.name}: absent ({record.absent})", style="dim")
    if record.failure is not None:
        return Text(f"{record.name}: {record.failure}")
    versions = ", ".join(f"{name} {version}" for name, version in (record.versions or {}).items())
    loaded = "" if record.load_seconds is None else f"; loaded in {record.load_seconds:.1f} s"
    return Text(f"{record.name}: {versions}{loaded}", style="dim")
