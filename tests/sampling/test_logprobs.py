"""Log-probabilities: values, ranks, and what a request's output shows."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.sampling.logprob_tensors import queue_prompt_logprobs
from minipaged.sampling.logprobs import Logprob, TokenLogprobs, decode_logprobs
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SamplingRow, sample


def prompt_logprobs(logits: torch.Tensor, following: torch.Tensor, k: int) -> list[TokenLogprobs]:
    return queue_prompt_logprobs(logits, following.tolist(), k).read()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([-3.0, 0.0, 0.5, 0.5, 2.0, 7.25, -math.inf]), min_size=2, max_size=9).filter(
        lambda logits: max(logits) > -math.inf
    ),
    st.integers(0, 12),
    st.data(),
)
def test_as_computed_in_plain_python(logits: list[float], k: int, data: st.DataObject) -> None:
    token = data.draw(st.integers(0, len(logits) - 1))
    found = prompt_logprobs(torch.tensor([logits]), torch.tensor([token]), k)[0]
    log_sum = math.log(sum(math.exp(logit) for logit in logits))
    order = sorted(range(len(logits)), key=lambda t: (-logits[t], t))
    assert found.token_id == token
    assert found.logprob == pytest.approx(logits[token] - log_sum, abs=1e-5)
    assert found.rank == order.index(token) + 1
    assert [lp for _, lp in found.top] == pytest.approx([logits[t] - log_sum for t in order[:k]], abs=1e-5)
    assert [t for t, _ in found.top] == order[:k]


def test_of_equals_the_lower_ids_come_first() -> None:
    logits = torch.randint(0, 3, (20, 500), generator=torch.Generator().manual_seed(0)).float()
    for row, found in zip(logits.tolist(), prompt_logprobs(logits, logits.argmax(-1), 20), strict=True):
        order = sorted(range(500), key=lambda token: (-row[token], token))
        assert [token for token, _ in found.top] == order[:20]
        assert (found.token_id, found.rank) == (order[0], 1)


def test_sampled_ones_are_of_the_raw_logits() -> None:
    params = SamplingParams(
        temperature=0.2, top_k=1, repetition_penalty=5.0, frequency_penalty=2.0, logprobs=2
    )
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    result = sample(logits, [SamplingRow(params, [1], [1], 0.5, banned_token_ids=(3,))])[0]
    raw = logits.log_softmax(-1)[0].tolist()
    assert result.token_id == 2  # token 1 was penalised
    assert result.logprob is not None
    assert (result.logprob.token_id, result.logprob.rank) == (2, 2)
    assert result.logprob.logprob == pytest.approx(raw[2])
    assert [token for token, _ in result.logprob.top] == [1, 2]
    assert [lp for _, lp in result.logprob.top] == pytest.approx([raw[1], raw[2]])


def test_each_row_gets_what_it_asked_for() -> None:
    wanted = [None, 0, 2, 20]
    rows = [SamplingRow(SamplingParams(temperature=0, logprobs=k), [], [], 0.0) for k in wanted]
    results = sample(torch.tensor([[0.0, 2.0, 1.0]] * 4), rows)
    tops = [None if result.logprob is None else len(result.logprob.top) for result in results]
    assert tops == [None, 0, 2, 3]


def test_large_logits_lose_no_precision() -> None:
    found = prompt_logprobs(torch.tensor([[10_000.0, 10_001.0]]), torch.tensor([0]), 0)[0]
    assert found.logprob == pytest.approx(-1.0 - math.log1p(math.exp(-1.0)), abs=1e-6)


def test_output_shows_the_token_first_and_each_token_once() -> None:
    position = TokenLogprobs(7, -2.0, 3, ((5, -0.5), (6, -1.0)))
    shown = decode_logprobs(position, lambda token_id: f"<{token_id}>")
    assert list(shown.items()) == [
        (7, Logprob(-2.0, 3, "<7>")),
        (5, Logprob(-0.5, 1, "<5>")),
        (6, Logprob(-1.0, 2, "<6>")),
    ]
    among = decode_logprobs(TokenLogprobs(5, -0.5, 1, ((5, -0.5), (6, -1.0))), lambda _: None)
    assert among == {5: Logprob(-0.5, 1, None), 6: Logprob(-1.0, 2, None)}


def test_prompt_without_rows_and_with_wrong_tokens() -> None:
    assert prompt_logprobs(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 2) == []
    with pytest.raises(ValueError, match="2 rows of logits need 2 tokens"):
        prompt_logprobs(torch.zeros(2, 4), torch.tensor([1]), 2)
