"""StaticBatch: what exercise 2.4 gives, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StaticBatch:
    """The work of one static batch, counted in rows: one row is one token of one member in one step.

    Every row that the batch computes is needed, padding or idle.

    Attributes:
        num_requests: members.
        num_steps: forward passes; the first one computes the prompts.
        num_computed: rows that somebody needs: padding and idle rows are left out.
        num_padding: rows that fill the shorter prompts up to the longest.
        num_idle: rows of members that have ended, while the longest goes on.
    """

    num_requests: int
    num_steps: int
    num_computed: int
    num_padding: int
    num_idle: int

    @property
    def num_rows(self) -> int:
        """All rows."""
        return self.num_computed + self.num_padding + self.num_idle

    @property
    def useful(self) -> float:
        """The share of rows that somebody needs, 0 to 1."""
        return self.num_computed / self.num_rows
