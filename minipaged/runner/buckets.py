"""The batch sizes that decode steps are captured for."""

from __future__ import annotations

LARGEST_BUCKET = 512
"""With more sequences each kernel has more to do, and its launch matters less."""
STEP = 16
"""From here on a bucket every 16: no more than 15 rows of a step are padding."""


def decode_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4, 8, then each multiple of 16, up to `max_num_seqs`, which is one too.

    >>> decode_buckets(40)
    (1, 2, 4, 8, 16, 32, 40)

    Args:
        max_num_seqs: most sequences in one step, at least 1.

    Returns:
        In ascending order; none is above 512.
    """
    largest = min(max_num_seqs, LARGEST_BUCKET)
    sizes = {size for size in (1, 2, 4, 8, *range(STEP, largest, STEP)) if size < largest}
    return (*sorted(sizes), largest)
