"""How many programs share each sequence in a decode step, at the edges of the rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.triton_kernels.split_rule import MAX_SPLITS, MIN_TOKENS_PER_SPLIT, num_splits

LONG = 32_768
ROOM = 4 * 132  # an H100 with four programs on each multiprocessor


@pytest.mark.parametrize(
    ("num_programs", "max_seq_len", "expected"),
    [
        (1, LONG, 64),  # capped by the registers of the merge
        (8, LONG, 64),
        (8, 4096, 32),  # capped by the tokens
        (64, 4096, 8),  # ROOM // 64
        (ROOM // 2, LONG, 2),
        (ROOM // 2 + 1, LONG, 1),  # two splits would not all run at once
        (ROOM, LONG, 1),
        (ROOM + 1, LONG, 1),
        (100 * ROOM, LONG, 1),
        (8, 0, 1),
        (8, 1, 1),
        (8, 255, 1),  # a part would have less than 128 tokens
        (8, 256, 2),
    ],
)
def test_on_an_h100(num_programs: int, max_seq_len: int, expected: int) -> None:
    assert num_splits(num_programs, ROOM, max_seq_len) == expected


@given(st.integers(1, 5000), st.integers(1, 800), st.integers(0, 200_000))
def test_the_promises_of_the_rule(num_programs: int, room: int, max_seq_len: int) -> None:
    splits = num_splits(num_programs, room, max_seq_len)
    assert 1 <= splits <= MAX_SPLITS
    if splits > 1:
        assert num_programs * splits <= room
        assert max_seq_len // splits >= MIN_TOKENS_PER_SPLIT
    if num_programs <= room and max_seq_len >= MIN_TOKENS_PER_SPLIT * MAX_SPLITS and splits < MAX_SPLITS:
        assert 2 * num_programs * splits > room, "more than half of the room is filled"
