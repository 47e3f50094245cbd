"""The style of the chapters' figures, for print and for colour-blind readers. Each has a text description."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

from minipaged.view.labels import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHES = ("", "///", "...", "xx", "\\\\\\", "++")
"""Hatches that distinguish areas for readers who cannot distinguish the colours."""

STYLES = ("-", "--", "-.", ":")
"""Styles that distinguish lines in the same way."""

__all__ = ["COLOURS", "HATCHES", "STYLES", "figure", "label_bars", "show"]


def figure(title: str, x: str, y: str, *, width: float = 7.0, height: float = 3.2) -> tuple[Figure, Axes]:
    """Make a figure with one set of axes. When everything is drawn, `show` it.

    Args:
        title: what the figure shows, as a sentence.
        x, y: the axes' labels, with units.
        width, height: the figure's size in inches. A width of 7 fits a page of 800 pixels.
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


def show(made: Figure, alt: str) -> None:
    """Show a figure below the cell, with a description for readers who cannot see it.

    The figure is shown as HTML, because pages and slides drop the description of a bare PNG.

    Args:
        made: the figure. It is closed afterwards.
        alt: the alternative text. It says in full sentences what kind of figure this is and what it shows.
    """
    import matplotlib.pyplot as plt
    from IPython.display import display

    png = io.BytesIO()
    made.savefig(png, format="png")
    plt.close(made)
    source = base64.b64encode(png.getvalue()).decode("ascii")
    image = f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{source}">'
    display({"text/html": image, "text/plain": alt}, raw=True)


def label_bars(axes: Axes, form: str = "%.1f") -> None:
    """Write each bar's value on it."""
    from matplotlib.container import BarContainer

    for container in axes.containers:
        if isinstance(container, BarContainer):
            axes.bar_label(container, fmt=form, fontsize=8, padding=2)
