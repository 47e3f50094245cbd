"""A simulated figure as a table: the paper's numbers next to ours."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.sim.paper.comparison import Comparison, PaperFigure
from minipaged.view.whole_table import WholeTable


def paper_report(figure: PaperFigure) -> RenderableType:
    """The numbers of a figure, and the remarks."""
    title = f"{figure.name}. {figure.title}. The paper's numbers are quoted, ours are simulated here."
    table = WholeTable(title, "", "paper", "ours", "ratio")
    for row in figure.rows:
        table.add_row(row.what, _paper(row), _number(row.ours), _ratio(row))
    return Group(table, *(Text(f"- {remark}") for remark in figure.remarks), Text())


def _paper(row: Comparison) -> str:
    if row.paper is None:
        return "a curve"
    low, high = row.paper
    return _number(low) if low == high else f"{_number(low)} to {_number(high)}"


def _ratio(row: Comparison) -> str:
    if math.isnan(row.ratio):
        return ""
    is_within = row.paper is not None and row.paper[0] < row.paper[1] and row.ratio == 1
    return "within" if is_within else f"{row.ratio:.2f}"


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
