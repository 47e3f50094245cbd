"""StaticBatch: a batch that is filled once and runs until its longest member ends.

So served FasterTransformer and most servers before Orca (paper, section 2.1; chapter 6 measures the cost).
"""

from __future__ import annotations


class StaticBatch:
    """Whether requests may still join the batch."""

    def __init__(self) -> None:
        self._size = 0
        self._is_full = False

    def is_open(self, num_running: int) -> bool:
        """Whether there is no batch, or one that is not filled yet and of which no member has ended.

        Args:
            num_running: requests that run now.
        """
        has_member_ended = num_running < self._size
        return num_running == 0 or not (self._is_full or has_member_ended)

    def record(self, num_running: int, *, is_full: bool) -> None:
        """Note what a step admitted.

        Args:
            num_running: requests that run now.
            is_full: whether no more requests have room. A step whose token budget was used up has not
                filled the batch yet.
        """
        self._size = num_running
        self._is_full = is_full
