"""The batch sizes for which decode steps are captured."""

from __future__ import annotations

import pytest

from minipaged.runner.decode_graphs import LARGEST_BUCKET, decode_buckets


@pytest.mark.parametrize(
    ("max_num_seqs", "expected"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (16, (1, 2, 4, 8, 16)),
        (17, (1, 2, 4, 8, 16, 17)),
        (48, (1, 2, 4, 8, 16, 32, 48)),
    ],
)
def test_by_hand(max_num_seqs: int, expected: tuple[int, ...]) -> None:
    assert decode_buckets(max_num_seqs) == expected


@pytest.mark.parametrize("max_num_seqs", range(1, 600, 7))
def test_every_size_has_a_bucket_that_is_not_much_larger(max_num_seqs: int) -> None:
    buckets = decode_buckets(max_num_seqs)
    assert buckets == tuple(sorted(set(buckets)))
    assert buckets[-1] == min(max_num_seqs, LARGEST_BUCKET)
    for size in range(1, buckets[-1] + 1):
        bucket = min(each for each in buckets if each >= size)
        assert bucket - size < max(size, 1) if size <= 16 else bucket - size <= 15
