"""Snapshot: the result of exercise 1.5."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Snapshot:
    """A full cache at one moment.

    Attributes:
        num_requests: requests in it.
        num_tokens: their tokens so far, one in each slot that is in use.
        num_slots: all slots of the cache.
    """

    num_requests: int
    num_tokens: int
    num_slots: int

    @property
    def used(self) -> float:
        """The share of slots that hold a token, 0 to 1."""
        return self.num_tokens / self.num_slots
