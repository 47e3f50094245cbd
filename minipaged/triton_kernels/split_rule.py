"""num_splits: over how many programs a decode step spreads each sequence."""

from __future__ import annotations

PROGRAMS_PER_MULTIPROCESSOR = 4
"""Decode programs that a multiprocessor holds at once: while one waits for memory, others compute."""
MIN_TOKENS_PER_SPLIT = 128
"""Below that, starting a program and merging its result costs more than it saves."""
MAX_SPLITS = 64
"""The merge kernel holds the results of all parts of a sequence in its registers."""


def num_splits(num_programs: int, num_multiprocessors: int, max_seq_len: int) -> int:
    """How many parts each sequence is cut into; 1 means `paged_decode`, without a merge.

    As many as keep the whole grid on the GPU at once. With P programs to begin with (sequences ×
    KV heads), and room for R = 4 × multiprocessors of them, that is R // P:

    - never more than R programs run, so there is no second wave for a few that are left over;
    - more than half of the room is filled, whenever the sequences are long enough;
    - from P > R / 2 on there is nothing to split.

    A part has at least 128 tokens of the longest sequence, and there are at most 64 parts.

    Args:
        num_programs: P, at least 1.
        num_multiprocessors: of the GPU, at least 1.
        max_seq_len: tokens of the longest sequence.
    """
    room = PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors
    return max(1, min(room // num_programs, max_seq_len // MIN_TOKENS_PER_SPLIT, MAX_SPLITS))
