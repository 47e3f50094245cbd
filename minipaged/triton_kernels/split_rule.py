"""num_splits: how many programs share each sequence in a decode step."""

from __future__ import annotations

MIN_TOKENS_PER_SPLIT = 128
"""With fewer tokens, starting a program and merging its result costs more than the split saves."""
MAX_SPLITS = 64
"""The limit comes from the merge kernel: its registers hold the results of all parts of a sequence."""


def num_splits(num_programs: int, room: int, max_seq_len: int) -> int:
    """How many parts each sequence is cut into. With 1, `paged_decode` runs, without a merge.

    The number is the largest with which all programs run on the GPU at once. Without a split there are
    P = sequences × KV heads programs. The GPU has room for R of them. So each sequence is cut into R // P
    parts:

    - At most R programs are launched, so no second wave runs for a few remaining programs.
    - More than R / 2 programs are launched, if the sequences are long enough.
    - If P > R / 2, sequences are not split.

    A part has at least 128 tokens of the longest sequence, and there are at most 64 parts.

    Args:
        num_programs: P, at least 1.
        room: R, at least 1: multiprocessors × `programs_per_multiprocessor`.
        max_seq_len: tokens of the longest sequence.
    """
    return max(1, min(room // num_programs, max_seq_len // MIN_TOKENS_PER_SPLIT, MAX_SPLITS))
