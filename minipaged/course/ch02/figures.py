"""The figures of chapter 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minipaged.course.ch02.ticks import Tick
from minipaged.course.ch02.under_load import UnderLoad
from minipaged.course.figures import COLOURS, HATCHES, figure, show
from minipaged.sim.lengths import RequestLengths


def draw_gaps(tick: Tick, num_slots: int) -> None:
    """Draw all slots of a cache at one moment, and the next request, which fits into no gap."""
    made, ax = figure(
        f"{tick.num_free:,} slots are free, {tick.wanted:,} are wanted, and there is no room",
        "slot",
        "",
        height=2.2,
    )
    for number, region in enumerate(sorted(tick.held)):
        colour, hatch = ((COLOURS[1], ""), (COLOURS[4], "//"))[number % 2]
        span = [(region.start, region.num_slots)]
        ax.broken_barh(span, (1.2, 0.8), facecolors=colour, hatch=hatch, edgecolor="white")
    wanted = [(0, tick.wanted)]
    ax.broken_barh(wanted, (0.1, 0.5), facecolors=COLOURS[5], hatch="xx", edgecolor="white")
    ax.text(tick.wanted + 150, 0.25, f"the next request: {tick.wanted:,} slots", fontsize=9)
    gaps = f"{len(tick.free)} gaps, the largest of {tick.largest:,} slots"
    ax.text(0, 2.12, f"white: {gaps}", fontsize=9)
    ax.set_xlim(0, num_slots)
    ax.set_ylim(0, 2.5)
    ax.set_yticks([])
    ax.grid(visible=False)
    show(
        made,
        f"A row of {num_slots:,} slots. {len(tick.held)} regions lie in it, with {gaps}. Below it, as a bar, "
        f"the next request: its {tick.wanted:,} slots fit into no gap.",
    )


def draw_free_slots(ticks: Sequence[Tick], warm_up: int) -> None:
    """Draw the free slots and the largest free region over time. The first ticks fill the cache."""
    made, ax = figure(
        "What is free, and what one request could get of it",
        "tick: one token for each running request",
        "slots",
    )
    free, largest = [tick.num_free for tick in ticks], [tick.largest for tick in ticks]
    ax.plot(free, color=COLOURS[4], linewidth=1.2, label="free slots")
    ax.plot(largest, "--", color=COLOURS[5], linewidth=1.2, label="largest free region")
    ax.axvspan(0, warm_up, color=COLOURS[7], alpha=0.3)
    ax.set_ylim(bottom=0)
    ax.text(20, 0.93 * ax.get_ylim()[1], "filling up", fontsize=9)
    ax.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    show(
        made,
        f"Two jagged lines over {len(ticks):,} ticks. The first {warm_up} fill the cache. After them, free "
        f"slots go up and down between {min(free[warm_up:]):,} and {max(free[warm_up:]):,}, and the largest "
        f"free region between {min(largest[warm_up:]):,} and {max(largest[warm_up:]):,}.",
    )


def draw_batch(members: Sequence[RequestLengths]) -> None:
    """Draw a static batch as the rectangle that is computed, with a row for each member."""
    longest_prompt = max(each.num_prompt_tokens for each in members)
    longest_output = max(each.num_output_tokens for each in members)
    made, ax = figure(
        f"A static batch of {len(members)}: a rectangle, computed whole",
        "tokens of a member: prompt (padded), then one in each step",
        "member",
        height=3.2,
    )
    kinds = ("padding", "prompt", "decoded", "idle")
    looks = tuple(
        zip((COLOURS[7], COLOURS[1], COLOURS[4], COLOURS[0]), ("...", "///", "", "xx"), strict=True)
    )
    totals = dict.fromkeys(kinds, 0)
    for number, each in enumerate(members):
        widths = (
            longest_prompt - each.num_prompt_tokens,
            each.num_prompt_tokens,
            each.num_output_tokens - 1,
            longest_output - each.num_output_tokens,
        )
        left = 0
        for kind, width, (colour, hatch) in zip(kinds, widths, looks, strict=True):
            label = kind if number == 0 else None
            ax.barh(number, width, 0.8, left, color=colour, hatch=hatch, edgecolor="white", label=label)
            left += width
            totals[kind] += width
    ax.invert_yaxis()
    ax.set_yticks(range(len(members)))
    ax.grid(visible=False)
    ax.legend(ncols=4, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    words = ", ".join(f"{total} {kind}" for kind, total in totals.items())
    show(made, f"One bar for each of {len(members)} members, all equally long. Tokens in all: {words}.")


def draw_fig2(measured: Mapping[str, UnderLoad], paper: Mapping[str, Sequence[float]]) -> None:
    """Draw the paper's Fig. 2 as bars, with the paper's bar beside each measured one.

    Args:
        measured: the results for Max, Pow2, Oracle and paged, in this order.
        paper: the paper's numbers in %, in the same order. For paged there are only the first number and the
            rest.
    """
    from matplotlib.patches import Patch

    made, ax = figure(
        "Fig. 2: left bars from this engine, right bars quoted from the paper",
        "",
        "share of all slots, %",
        width=7.4,
        height=4.0,
    )
    kinds = ("token states", "reservation", "internal fragmentation", "external and other")
    looks = tuple(zip((COLOURS[2], COLOURS[1], COLOURS[0], COLOURS[5]), HATCHES, strict=False))
    undivided = (looks[0], (COLOURS[7], "||"))
    words = []
    for place, (name, load) in enumerate(measured.items()):
        ours = [100 * share for share in load.shares.values()]
        for offset, bar in ((-0.2, ours), (0.2, paper[name])):
            bottom = 0.0
            shown = looks if len(bar) == len(kinds) else undivided
            for share, (colour, hatch) in zip(bar, shown, strict=True):
                ax.bar(
                    place + offset,
                    share,
                    0.36,
                    bottom,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    linewidth=0.5,
                )
                bottom += share
            ax.text(
                place + offset,
                bar[0] / 2,
                f"{bar[0]:.0f}",
                ha="center",
                va="center",
                fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
        words.append(f"{name}: tokens in {ours[0]:.0f} % of the slots, in the paper {paper[name][0]:.0f} %")
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=kind)
        for kind, (colour, hatch) in zip(
            (*kinds, "not divided in the paper"), (*looks, undivided[1]), strict=True
        )
    ]
    ax.set_xticks(range(4), ["Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "vLLM, paged"])
    ax.set_ylim(0, 100)
    ax.legend(handles=handles, frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.grid(visible=False)
    show(made, f"Pairs of stacked bars, ours and the paper's. {'; '.join(words)}.")
