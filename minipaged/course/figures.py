"""Figures of the chapters: one size, one look, readable in print and for the colour-blind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minipaged.view.labels import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHES = ("", "///", "...", "xx", "\\\\\\", "++")
"""For areas: the same as the colours, for those who see none."""

STYLES = ("-", "--", "-.", ":")
"""For lines, likewise."""

__all__ = ["COLOURS", "HATCHES", "STYLES", "figure", "label_bars"]


def figure(title: str, x: str, y: str, *, width: float = 7.0, height: float = 3.2) -> tuple[Figure, Axes]:
    """One set of axes.

    Args:
        title: what is to be seen, as a sentence.
        x, y: the axes' labels, with units.
        width, height: in inches; 7 fits a page of 800 pixels.
    """
    import matplotlib.pyplot as plt

    made, axes = plt.subplots(figsize=(width, height), dpi=100, layout="constrained")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    return made, axes


def label_bars(axes: Axes, form: str = "%.1f") -> None:
    """Write each bar's value on it."""
    from matplotlib.container import BarContainer

    for container in axes.containers:
        if isinstance(container, BarContainer):
            axes.bar_label(container, fmt=form, fontsize=8, padding=2)
