"""What a simulated figure is: rows of our numbers beside the paper's."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """One number of a figure.

    Attributes:
        what: what the number is, with its unit.
        ours: simulated here.
        paper: the lowest and the highest number of the paper, quoted; `None` if the paper has only a picture.
    """

    what: str
    ours: float
    paper: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        """Ours divided by the paper's. 1 within a range; outside, by its nearer end. NaN without a number."""
        if self.paper is None:
            return math.nan
        low, high = self.paper
        nearest = min(max(self.ours, low), high)
        return self.ours / nearest if nearest else math.nan


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper, simulated.

    Attributes:
        name: such as `fig13`.
        title: what it shows.
        rows: the numbers.
        remarks: sentences: what was assumed, and where and why the numbers differ.
    """

    name: str
    title: str
    rows: tuple[Comparison, ...]
    remarks: tuple[str, ...]


def exactly(value: float) -> tuple[float, float]:
    """A range of one number."""
    return value, value
