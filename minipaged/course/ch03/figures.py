"""The figures of chapter 3 that show numbers. The figures that show blocks are in `pictures.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minipaged.bench.stage_run import StageResult
from minipaged.course.figures import COLOURS, STYLES, figure, show

_KINDS = {
    "token_states": ("tokens", COLOURS[4], ""),
    "reservation": ("reserved", COLOURS[1], "//"),
    "internal_fragmentation": ("never used", COLOURS[5], "xx"),
    "external_fragmentation": ("gaps", COLOURS[6], "\\\\"),
    "free": ("free", "white", ".."),
}
"""Fields of a stage's mean memory: label, colour and hatch."""


def draw_growth(tokens: Sequence[int], held: Sequence[int], reserved: int) -> None:
    """Draw what one request holds, step by step.

    Args:
        tokens: the request's tokens after each step.
        held: the slots of its blocks after each step.
        reserved: slots that a contiguous cache would hold for it.
    """
    made, ax = figure("Held: never a block more than the tokens need", "steps", "slots of one request")
    steps = range(1, len(tokens) + 1)
    ax.plot(steps, [reserved] * len(tokens), "--", color=COLOURS[5])
    ax.step(steps, held, where="mid", color=COLOURS[4])
    ax.fill_between(steps, tokens, color=COLOURS[1], alpha=0.6, linewidth=0)
    ax.text(2, 0.93 * reserved, "stage 2: reserved for the greatest length", color=COLOURS[5])
    ax.text(22.5, 0.66 * reserved, "stage 3: held", color=COLOURS[4])
    ax.text(34, 0.14 * reserved, "tokens")
    ax.set_ylim(0, 1.05 * reserved)
    show(
        made,
        f"Over {len(tokens)} steps the tokens grow in a straight line from {tokens[0]} to {tokens[-1]}. The "
        f"slots held follow in stairs just above them, from {held[0]} to {held[-1]}. A flat line at "
        f"{reserved} is what stage 2 reserves.",
    )


def draw_block_sizes(
    sizes: Sequence[int], gathers: Sequence[float], waste: Mapping[str, Sequence[float]]
) -> None:
    """Draw the costs of small and of large blocks.

    Args:
        sizes: tokens per block, powers of two.
        gathers: time of a gather from blocks of each size, divided by the time of one contiguous copy.
        waste: for each data set and size, the empty slots in % of the slots held.
    """
    made, ax = figure("Small blocks: slow gathers. Large blocks: empty slots", "tokens per block", "")
    ax.plot(sizes, gathers, "o-", color=COLOURS[4])
    ax.axhline(1, color=COLOURS[4], linestyle=":")
    ax.set_ylabel("gather, times one contiguous copy", color=COLOURS[4])
    ax.set_ylim(bottom=0)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    right = ax.twinx()
    right.spines["top"].set_visible(False)
    right.set_ylabel("empty slots, % of those held", color=COLOURS[5])
    for (name, values), style, marker in zip(waste.items(), STYLES[1:], "s^", strict=False):
        right.plot(sizes, values, style, marker=marker, color=COLOURS[5])
        right.text(sizes[-1], values[-1] + 4, name, color=COLOURS[5], ha="right")
    right.set_ylim(0, 100)
    empty = "; ".join(f"{name} {each[0]:.0f} to {each[-1]:.0f} %" for name, each in waste.items())
    show(
        made,
        f"Lines over blocks of {sizes[0]} to {sizes[-1]} tokens. The time of a gather falls: "
        f"{gathers[0]:.1f} to {gathers[-1]:.1f} times one copy. Empty slots rise: {empty}.",
    )


def draw_memory(results: Mapping[str, StageResult]) -> None:
    """Draw what the KV memory held on average over all steps, as a bar for each run."""
    made, ax = figure(
        "The same memory, on average over all steps", "share of the KV memory, %", "", height=2.6
    )
    words = []
    for place, (name, result) in enumerate(results.items()):
        left, parts = 0.0, []
        for kind, (label, colour, hatch) in _KINDS.items():
            share = 100 * getattr(result.memory, kind)
            ax.barh(
                place,
                share,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="grey" if kind == "free" else "white",
                label=label if place == 0 else None,
            )
            left += share
            parts.append(f"{label} {share:.0f}")
        words.append(f"{name}: {', '.join(parts)}")
    ax.set_yticks(range(len(results)), list(results))
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.legend(frameon=False, ncols=5, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.25))
    show(made, f"Stacked bars of the memory, in %. {'; '.join(words)}.")
