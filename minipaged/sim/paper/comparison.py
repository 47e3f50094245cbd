"""The form of a simulated figure: rows that compare our numbers with the paper's."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """One number of a figure.

    Attributes:
        what: what the number is, with its unit.
        ours: the number that is simulated here.
        paper: the lowest and the highest number that the paper states; `None` if the paper shows only a
            picture.
    """

    what: str
    ours: float
    paper: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        """Our number divided by the paper's.

        If ours is within the paper's range, the ratio is 1. Otherwise ours is divided by the nearer end of
        the range. The ratio is NaN if the paper has no number.
        """
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
        remarks: sentences that say what was assumed, and where and why the numbers differ.
    """

    name: str
    title: str
    rows: tuple[Comparison, ...]
    remarks: tuple[str, ...]


def exactly(value: float) -> tuple[float, float]:
    """A range that contains only one number."""
    return value, value
