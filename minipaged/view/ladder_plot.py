"""The ladder, which compares the engine's stages, as a picture."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minipaged.bench.ladder import STAGE_NAMES, LadderResult, WorkloadResult
from minipaged.bench.stage_run import MemoryShares

COLOURS = ("tab:blue", "tab:cyan", "tab:orange", "tab:red", "lightgrey")
"""Colours of the parts of the memory, in the order of `MemoryShares`."""


def plot_ladder(result: LadderResult, path: Path) -> None:
    """Draw speed and memory of each workload. The ending of `path` decides the format.

    Raises:
        OSError: the file cannot be written.
    """
    # A plain Figure instead of pyplot: it has no global state and needs no display.
    rows = len(result.workloads)
    height = 1.2 + 0.4 * sum(len(each.stages) + 2 for each in result.workloads)
    figure = Figure(figsize=(11, height), layout="constrained")
    axes = figure.subplots(
        rows, 2, squeeze=False, height_ratios=[len(w.stages) + 2 for w in result.workloads]
    )
    for (speed, memory), workload in zip(axes, result.workloads, strict=True):
        _draw_speed(speed, workload)
        _draw_memory(memory, workload)
    figure.suptitle(f"{result.model}, {result.dtype}, {result.device}; measured here")
    figure.legend(
        *axes[0, 1].get_legend_handles_labels(), loc="outside lower right", ncols=5, fontsize="small"
    )
    figure.savefig(path)


def _draw_speed(axes: Axes, workload: WorkloadResult) -> None:
    names = [f"{each.stage} {STAGE_NAMES[each.stage]}" for each in workload.stages]
    bars = axes.barh(names, [each.tokens_per_second for each in workload.stages], color="tab:blue")
    axes.bar_label(bars, [f"{workload.ratio(each):.2f}×" for each in workload.stages], padding=3)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_xlabel("output tokens/s")
    axes.set_title(f"{workload.num_requests} requests {workload.name}", fontsize="medium")


def _draw_memory(axes: Axes, workload: WorkloadResult) -> None:
    stages = [each for each in workload.stages if each.memory is not None]
    names = [str(each.stage) for each in stages]
    left = [0.0] * len(stages)
    for field, colour in zip(fields(MemoryShares), COLOURS, strict=True):
        shares = [100 * getattr(each.memory, field.name) for each in stages]
        axes.barh(names, shares, left=left, color=colour, label=field.name.replace("_", " "))
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(f"% of the KV memory ({workload.num_slots:,} slots), on average")
    axes.set_ylabel("stage")
