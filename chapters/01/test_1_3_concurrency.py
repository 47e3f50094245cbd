"""Checks of exercise 1.3: requests at the greatest and at average length."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.expect import expect_close


@pytest.mark.exercise("1.3")
@pytest.mark.parametrize(
    ("num_blocks", "block_size", "max_model_len", "expected"),
    [(10, 16, 16, 10.0), (10, 16, 17, 5.0), (7, 1, 2, 3.5), (3, 16, 60, 0.75), (983, 16, 2048, 983 / 128)],
)
def test_at_the_greatest_length(
    code: ModuleType, num_blocks: int, block_size: int, max_model_len: int, expected: float
) -> None:
    got = code.max_concurrency(num_blocks, block_size, max_model_len)
    blocks = -(-max_model_len // block_size)
    if got == num_blocks // blocks:
        rule = "the result is a fraction, not rounded to whole requests"
    elif max_model_len % block_size == 0 and got == num_blocks / (blocks + 1):
        rule = f"{max_model_len} tokens fill {blocks} of {block_size} exactly: there is no further block"
    else:
        rule = f"divide the pool's blocks by those of one request: {blocks}, including a partly filled one"
    expect_close(
        got, expected, case=f"max_concurrency({num_blocks}, {block_size}, {max_model_len})", rule=rule
    )


@pytest.mark.exercise("1.3")
@given(st.integers(1, 2000), st.integers(1, 64), st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_at_average_length(code: ModuleType, num_blocks: int, block_size: int, lengths: list[int]) -> None:
    blocks = [-(-length // block_size) for length in lengths]
    mean_length = sum(lengths) / len(lengths)
    got = code.average_concurrency(num_blocks, block_size, lengths)
    if got == pytest.approx(num_blocks / -(-mean_length // block_size)):
        rule = "take the mean of the blocks, not the blocks of the mean length"
    elif got == pytest.approx(num_blocks * block_size / mean_length):
        rule = "a request's last block counts in full: round each length up to whole blocks"
    else:
        rule = "divide the pool's blocks by the mean blocks of a request, without rounding"
    expect_close(
        got,
        num_blocks / (sum(blocks) / len(blocks)),
        case=f"average_concurrency({num_blocks}, {block_size}, {lengths}); they take {blocks} blocks",
        within=1e-6,
        rule=rule,
    )


@pytest.mark.exercise("1.3")
def test_equal_lengths_need_no_average(code: ModuleType) -> None:
    expect_close(
        code.average_concurrency(983, 16, [2048] * 3),
        code.max_concurrency(983, 16, 2048),
        case="three requests of 2,048 tokens each",
        rule="if all requests have the maximum length, both results are the same",
    )
