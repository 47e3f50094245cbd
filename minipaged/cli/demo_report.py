"""The report at the end of the demo: the generated texts, and how the run used its pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipaged.cli.demo_show import Show
from minipaged.cli.demo_workload import DemoRequest, DemoWorkload
from minipaged.view.byte_amounts import format_binary
from minipaged.view.pool_snapshot import SequenceKey
from minipaged.view.printable import one_line

if TYPE_CHECKING:
    from minipaged.engine.llm_engine import LLMEngine
    from minipaged.engine.outputs import RequestOutput

PROMPT_WIDTH = 48
TEXT_WIDTH = 160


def print_report(
    console: Console,
    engine: LLMEngine,
    workload: DemoWorkload,
    outputs: Sequence[RequestOutput],
    show: Show,
) -> None:
    """Print the texts and the summary."""
    console.print()
    console.print(_texts(workload, outputs, show))
    console.print()
    console.print(_summary(engine, show))


def _texts(workload: DemoWorkload, outputs: Sequence[RequestOutput], show: Show) -> Table:
    table = Table(title="Outputs", title_justify="left", box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for request, output in zip(workload.requests, outputs, strict=True):
        label = show.labels[SequenceKey(output.request_id)]
        sample = output.outputs[0]
        answer = " ".join(map(str, sample.token_ids)) if request.text is None else sample.text
        text = Text("…" + _end(_prompt(request), PROMPT_WIDTH), "dim")
        text.append(" → ").append(_start(one_line(answer), TEXT_WIDTH), "not dim")
        table.add_row(Text(f" {label.letter} ", label.solid), text)
    return table


def _summary(engine: LLMEngine, show: Show) -> Table:
    stats, meter, plan = engine.stats(), show.meter, engine.memory_plan
    usable = plan.num_blocks - 1
    table = Table(title="Summary", title_justify="left", box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    counts = f"{stats.prompt_tokens:,} in prompts, {stats.generation_tokens:,} generated"
    size = format_binary(plan.kv_cache_bytes)
    peak = f"{meter.peak_used:,} of {usable:,} blocks ({_share(meter.peak_used, usable)})"
    table.add_row("tokens", f"{counts}, in {stats.num_steps:,} steps")
    table.add_row("pool", f"{usable:,} blocks, block size {plan.block_size}, and the null block: {size}")
    table.add_row("peak usage", f"{peak}, {meter.peak_running} sequences, {meter.peak_shared} blocks shared")
    table.add_row("waste, paged", _waste(meter.mean_unused, meter.mean_slots, "slots of used blocks"))
    table.add_row(
        "waste, reserved",
        _waste(
            meter.mean_reserved_unused,
            meter.mean_reserved,
            f"slots, if each running sequence reserved max_model_len={plan.max_model_len:,}",
        ),
    )
    table.add_row(
        "prefix hits",
        f"{stats.prefix_cache_hits:,} of {stats.prefix_cache_queries:,} prompt tokens "
        f"({_share(stats.prefix_cache_hits, stats.prefix_cache_queries)})",
    )
    table.add_row("preemptions", f"{stats.num_preemptions:,}")
    rate = stats.generation_tokens / show.seconds if show.seconds else 0.0
    table.add_row("speed", f"{rate:,.0f} tokens/s, {show.seconds:.2f} s in all steps")
    return table


def _waste(unused: float, of: float, what: str) -> str:
    """A text about the unused share of some slots, from two means over the steps."""
    return f"{_share(unused, of)}: on average {unused:,.0f} of {of:,.0f} {what}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"


def _prompt(request: DemoRequest) -> str:
    return one_line(" ".join(map(str, request.token_ids)) if request.text is None else request.text)


def _start(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _end(text: str, width: int) -> str:
    return text if len(text) <= width else text[len(text) - width :]
