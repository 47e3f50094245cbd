"""The likeliest next tokens of beams."""

from __future__ import annotations

import math

import pytest
import torch

from minipaged.sampling.candidates import RankedTokens, queue_likeliest_tokens
from minipaged.sampling.logprob_tensors import queue_prompt_logprobs
from minipaged.transfer import queued_together


def likeliest_tokens(logits: torch.Tensor, counts: list[int]) -> list[RankedTokens]:
    return queue_likeliest_tokens(logits, counts).read()


def test_they_are_the_largest_log_probabilities_of_each_row() -> None:
    logits = torch.randn(5, 100, generator=torch.Generator().manual_seed(0)) * 4
    found = likeliest_tokens(logits, [1, 8, 30, 2, 100])
    for row, (candidates, count) in enumerate(zip(found, [1, 8, 30, 2, 100], strict=True)):
        logprobs, ids = logits[row].log_softmax(-1).topk(count)
        assert [token for token, _ in candidates] == ids.tolist()
        assert [logprob for _, logprob in candidates] == pytest.approx(logprobs.tolist(), abs=1e-5)


def test_of_equals_the_lower_token_first() -> None:
    logits = torch.zeros(1, 10)
    assert [token for token, _ in likeliest_tokens(logits, [4])[0]] == [0, 1, 2, 3]


def test_no_more_than_the_vocabulary_and_nothing_impossible() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    assert likeliest_tokens(logits, [50]) == [
        ((0, pytest.approx(-math.log(2))), (2, pytest.approx(-math.log(2))))
    ]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_sound_has_none_and_leaves_the_others_alone(bad: float) -> None:
    logits = torch.tensor([[1.0, bad, 0.0], [1.0, 0.0, 0.0], [-math.inf] * 3])
    first, second, third = likeliest_tokens(logits, [2, 2, 2])
    assert first == third == ()
    assert [token for token, _ in second] == [0, 1]


def test_no_rows() -> None:
    assert likeliest_tokens(torch.zeros(0, 5), []) == []


def test_results_of_several_kinds_are_read_at_once() -> None:
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(1))
    following = [3, 5, 7, 9]
    rows = (slice(0, 3), slice(3, 4))
    pieces = [queue_prompt_logprobs(logits[part], following[part], 2) for part in rows]
    found = queue_likeliest_tokens(logits, [1, 2, 3, 4]).beside(queued_together(pieces, logits.device)).read()
    assert found[0] == likeliest_tokens(logits, [1, 2, 3, 4])
    assert found[1] == [piece.read() for piece in pieces]
    nothing = queued_together([], logits.device).beside(queued_together([], logits.device))
    assert nothing.read() == ([], [])
