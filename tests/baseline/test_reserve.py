"""The three rules by which a request reserves slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.baseline.reserve import slots_to_reserve
from minipaged.choices import ReserveRule
from minipaged.errors import RequestTooLargeError


@pytest.mark.parametrize(
    ("num_output_tokens", "room"), [(1, 1), (2, 2), (3, 4), (16, 16), (25, 32), (32, 32), (33, 64)]
)
def test_pow2_rounds_the_output_up(num_output_tokens: int, room: int) -> None:
    """The paper's example: an output of 25 gets 32 slots."""
    reserved = slots_to_reserve(
        "pow2", num_prompt_tokens=7, num_output_tokens=num_output_tokens, max_model_len=2048
    )
    assert reserved == 7 + room


def test_pow2_reserves_no_more_than_the_maximum() -> None:
    reserved = slots_to_reserve("pow2", num_prompt_tokens=100, num_output_tokens=300, max_model_len=512)
    assert reserved == 512


@given(
    num_prompt_tokens=st.integers(1, 3000),
    num_output_tokens=st.integers(1, 3000),
    spare=st.integers(0, 5000),
)
def test_who_knows_more_reserves_less(num_prompt_tokens: int, num_output_tokens: int, spare: int) -> None:
    used = num_prompt_tokens + num_output_tokens - 1  # the last token is never computed

    def reserved(rule: ReserveRule) -> int:
        return slots_to_reserve(
            rule,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            max_model_len=used + 1 + spare,
        )

    assert reserved("oracle") == used
    assert used <= reserved("pow2") <= reserved("max") == used + 1 + spare
    assert reserved("pow2") - num_prompt_tokens < 2 * num_output_tokens


@pytest.mark.parametrize("rule", ["max", "pow2", "oracle"])
def test_what_does_not_fit_is_refused(rule: ReserveRule) -> None:
    with pytest.raises(RequestTooLargeError, match="max_model_len=64"):
        slots_to_reserve(rule, num_prompt_tokens=40, num_output_tokens=25, max_model_len=64)
