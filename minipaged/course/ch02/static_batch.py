"""StaticBatch: the result of exercise 2.4."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StaticBatch:
    """The work of one static batch, counted in rows. A row is one token of one member in one step.

    Every row of the batch is either needed, padding or idle.

    Attributes:
        num_requests: members of the batch.
        num_steps: forward passes. The first one computes the prompts.
        num_computed: rows that a request needs, without padding and idle rows.
        num_padding: rows that fill up the shorter prompts to the longest one.
        num_idle: rows of members that have finished, while the longest one goes on.
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
        """The share of rows that a request needs, 0 to 1."""
        return self.num_computed / self.num_rows
