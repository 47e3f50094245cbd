"""Simulated figures as pictures: our numbers are bars, and the paper's are marks on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from minipaged.sim.paper.comparison import PaperFigure
from minipaged.view.labels import COLOURS


def plot_paper(figures: Sequence[PaperFigure], path: Path) -> None:
    """Draw one subplot for each figure. The ending of `path` decides the format.

    Args:
        figures: the figures, at least one.
        path: the file.

    Raises:
        OSError: the file cannot be written.
    """
    # A plain Figure instead of pyplot: it has no global state and needs no display.
    rows = [len(each.rows) + 2 for each in figures]
    figure = Figure(figsize=(10, 0.3 * sum(rows) + 0.5), layout="constrained")
    panels = figure.subplots(len(figures), 1, squeeze=False, height_ratios=rows)[:, 0]
    for axes, made in zip(panels, figures, strict=True):
        names = [row.what for row in made.rows]
        bars = axes.barh(
            names, [row.ours for row in made.rows], 0.6, color=COLOURS[1], label="simulated here"
        )
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize="small")
        quoted = [(place, row.paper) for place, row in enumerate(made.rows) if row.paper is not None]
        label = "the paper (quoted)"
        for place, (low, high) in quoted:
            axes.plot([low, high], [place, place], "-|", color="black", markersize=11, label=label)
            label = "_again"  # matplotlib leaves such labels out of the legend
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.set_title(f"{made.name}. {made.title}", fontsize="medium", loc="left")
        axes.legend(frameon=False, fontsize="small")
    figure.savefig(path)
