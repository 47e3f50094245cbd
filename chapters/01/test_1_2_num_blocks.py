"""Checks of exercise 1.2: blocks and tokens that fit into a device."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.expect import expect, expect_equal

GIB = 2**30


NULL_BLOCK = "the null block takes memory, too: it counts here, so do not subtract it"


@pytest.mark.exercise("1.2")
@pytest.mark.parametrize(
    ("utilization", "weights", "activations", "block", "expected", "rule"),
    [
        (1.0, 0, 0, 100, 10, "1000 bytes are ten blocks of 100"),
        (1.0, 0, 0, 300, 3, "a block that fits only in part does not fit"),
        (0.5, 0, 0, 100, 5, "the engine may take half of the 1000 bytes"),
        (1.0, 400, 0, 100, 6, "subtract the weights first: 600 bytes are left"),
        (1.0, 400, 200, 100, 4, "subtract weights and activations first: 400 bytes are left"),
        (0.5, 400, 0, 100, 1, "utilization limits all that the engine uses, including weights: 500 − 400"),
        (1.0, 1200, 0, 100, 0, "if no memory is left, the result is 0"),
    ],
)
def test_of_a_thousand_bytes(
    code: ModuleType,
    utilization: float,
    weights: int,
    activations: int,
    block: int,
    expected: int,
    rule: str,
) -> None:
    got = code.num_blocks_that_fit(1000, utilization, weights, activations, block)
    case = f"num_blocks_that_fit(1000, {utilization}, {weights}, {activations}, {block})"
    expect_equal(got, expected, case=case, rule=NULL_BLOCK if expected and got == expected - 1 else rule)


@pytest.mark.exercise("1.2")
def test_the_paper_s_13b_row(code: ModuleType) -> None:
    block = 819_200 * 16
    got = code.num_blocks_that_fit(12 * GIB, 1.0, 0, 0, block)
    expect_equal(
        got,
        983,
        case=f"num_blocks_that_fit(12 * 2**30, 1.0, 0, 0, {block}): blocks of 16 tokens of OPT-13B",
        rule=NULL_BLOCK if got == 982 else "a block that fits only in part does not fit",
    )


@pytest.mark.exercise("1.2")
def test_weights_and_activations_come_off_what_the_engine_may_take(code: ModuleType) -> None:
    expect_equal(
        code.num_blocks_that_fit(40 * GIB, 0.9, 20 * GIB, 3 * GIB, GIB),
        13,
        case="40 GiB × 0.9 − 20 GiB of weights − 3 GiB of activations, in blocks of 1 GiB",
        rule="utilization limits all that the engine uses, including weights: 36 − 20 − 3 GiB are left",
    )


@pytest.mark.exercise("1.2")
def test_nothing_left(code: ModuleType) -> None:
    expect_equal(
        code.num_blocks_that_fit(16 * GIB, 0.9, 26 * GIB, GIB, 2**20),
        0,
        case="16 GiB of device memory, 26 GiB of weights",
        rule="if no memory is left, the result is 0",
    )


@pytest.mark.exercise("1.2")
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 5000))
def test_as_many_as_fit_and_no_more(
    code: ModuleType, memory: int, weights: int, activations: int, half_a_block: int
) -> None:
    block = 2 * half_a_block
    num_blocks = code.num_blocks_that_fit(memory, 1.0, weights, activations, block)
    rest = memory - weights - activations - num_blocks * block
    case = f"num_blocks_that_fit({memory}, 1.0, {weights}, {activations}, {block})"
    fits = num_blocks >= 0 and (num_blocks == 0 or rest >= 0)
    most = f"{max(0, (memory - weights - activations) // block):,}"
    expect(fits, case=case, rule="all of these blocks must fit", expected=most, got=num_blocks)
    rule = f"another block of {block} bytes would have fitted"
    expect(rest < block, case=case, rule=rule, expected=most, got=num_blocks)


@pytest.mark.exercise("1.2")
@pytest.mark.parametrize(
    ("num_blocks", "block_size", "expected"), [(1, 16, 0), (0, 16, 0), (2, 16, 16), (983, 16, 15_712)]
)
def test_the_longest_request(code: ModuleType, num_blocks: int, block_size: int, expected: int) -> None:
    expect_equal(
        code.max_model_len_that_fits(num_blocks, block_size),
        expected,
        case=f"max_model_len_that_fits({num_blocks}, {block_size})",
        rule="all blocks but the null block" if num_blocks else "a length is never negative",
    )
