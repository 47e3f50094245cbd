"""Draws a trace as two pictures: what each request did, and what the pool's slots were used for."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from matplotlib.figure import Figure

from minipaged.trace.timeline import Phase, TimelineEntry
from minipaged.trace.trace import Trace

MOST_REQUESTS = 40
"""The most rows of the timeline. More rows would not be readable in a picture."""


class _Look(NamedTuple):
    """How a phase is drawn. Phases differ in height as well as in colour."""

    height: float
    colour: str
    hatch: str


_PHASES: dict[Phase, _Look] = {
    "waiting": _Look(0.1, "#888888", ""),
    "prefill": _Look(0.9, "#0072B2", ""),
    "decode": _Look(0.45, "#56B4E9", ""),
    "idle": _Look(0.2, "#009E73", ""),
    "preempted": _Look(0.3, "#D55E00", "////"),
    "swapped": _Look(0.3, "#CC79A7", "...."),
}
_SLOTS = {
    "token_states": "#0072B2",
    "reservation": "#8FC4E6",
    "internal_fragmentation": "#E69F00",
    "external_fragmentation": "#C4551A",
    "free": "#E4E4DE",
}


def draw_timeline(trace: Trace) -> Figure:
    """A row for each request: in which steps it waited, computed, or was preempted."""
    request_ids = list(dict.fromkeys(trace.request_ids()))
    shown = request_ids[:MOST_REQUESTS]
    made = Figure(figsize=(9, 1.1 + 0.22 * max(3, len(shown))), dpi=100, layout="constrained")
    axes = made.subplots()
    seen: set[Phase] = set()
    for row, request_id in enumerate(shown):
        for phase, entries in groupby(trace.timeline(request_id), key=_phase):
            steps = [entry.step for entry in entries]
            look = _PHASES[phase]
            axes.broken_barh(
                [(steps[0] - 1, len(steps))],
                (row - look.height / 2, look.height),
                facecolor=look.colour,
                hatch=look.hatch or None,
                edgecolor="white" if look.hatch else "none",
                linewidth=0,
                label=phase if phase not in seen else None,
            )
            seen.add(phase)
    # Matplotlib would read an unescaped `$` as the beginning of a formula.
    names = [_shortened(request_id).replace("$", r"\$") for request_id in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, max(1, trace.num_steps))
    axes.set_xlabel("step")
    title = "What each request did"
    if len(request_ids) > len(shown):
        title += f": the first {len(shown)} of {len(request_ids):,}"
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    if seen:
        made.legend(loc="outside lower right", ncols=len(seen), fontsize=8, frameon=False)
    return made


def draw_pool(trace: Trace) -> Figure:
    """What the slots of the KV cache were used for after each step."""
    made = Figure(figsize=(9, 2.8), dpi=100, layout="constrained")
    axes = made.subplots()
    steps = trace.waste()
    axes.stackplot(
        [each.step for each in steps],
        [[getattr(each.slots, kind) for each in steps] for kind in _SLOTS],
        colors=list(_SLOTS.values()),
        labels=[kind.replace("_", " ") for kind in _SLOTS],
        step="pre",
        linewidth=0,
    )
    axes.set_xlim(min(1, trace.num_steps), max(2, trace.num_steps))
    axes.set_xlabel("step")
    axes.set_ylabel("slots")
    axes.set_title("What the slots of the KV cache were used for", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    made.legend(loc="outside lower right", ncols=len(_SLOTS), fontsize=8, frameon=False)
    return made


def _phase(entry: TimelineEntry) -> Phase:
    return entry.phase


def _shortened(name: str, most: int = 24) -> str:
    printable = "".join(each if each.isprintable() else "?" for each in name)
    return printable if len(printable) <= most else f"{printable[: most - 1]}…"
