"""StaticBatch: a batch that is filled once, and runs until its longest request ends.

FasterTransformer and most servers before Orca worked this way (paper, section 2.1). Chapter 6 measures what
it costs.
"""

from __future__ import annotations


class StaticBatch:
    """Knows whether requests may still join the batch."""

    def __init__(self) -> None:
        self._size = 0
        self._is_full = False

    def is_open(self, num_running: int) -> bool:
        """Whether requests may join.

        They may if nothing runs, or if the batch is not full and none of its requests has ended.

        Args:
            num_running: how many requests run now.
        """
        has_member_ended = num_running < self._size
        return num_running == 0 or not (self._is_full or has_member_ended)

    def record(self, num_running: int, *, is_full: bool) -> None:
        """Record the batch after a step has admitted requests.

        Args:
            num_running: how many requests run now.
            is_full: whether the batch is full. It is not full if only the step's token budget was used
                up.
        """
        self._size = num_running
        self._is_full = is_full
