"""sample: compared with the reference, for any mixture of rows. An error affects only its own row."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import NO_TOKEN, SampledToken, SamplingRow, sample
from tests.long_tests import examples
from tests.sampling.reference import distribution, penalised, pick

INF, NAN = math.inf, math.nan
VOCAB = 11


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    greedy = draw(st.booleans())
    return SamplingParams(
        temperature=0.0 if greedy else draw(st.sampled_from([1e-12, 0.3, 1.0, 4.0])),
        top_k=draw(st.sampled_from([-1, 0, 1, 3, 8, 500])),
        top_p=draw(st.sampled_from([0.05, 0.41, 0.87, 1.0])),
        min_p=draw(st.sampled_from([0.0, 0.013, 0.37, 1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 0.6, 1.7])),
        presence_penalty=draw(st.sampled_from([0.0, -1.1, 0.9])),
        frequency_penalty=draw(st.sampled_from([0.0, -0.7, 0.43])),
        logprobs=draw(st.sampled_from([None, 0, 3, 20])),
    )


@st.composite
def sampling_rows(draw: st.DrawFn) -> SamplingRow:
    ids = st.lists(st.integers(0, VOCAB - 1), max_size=8)
    return SamplingRow(
        draw(params()),
        draw(ids),
        draw(ids),
        draw(st.floats(0, 1, exclude_max=True)),
        tuple(draw(st.lists(st.integers(0, VOCAB + 2), max_size=3))),
    )


def logits_for(rows: int, seed: int) -> Tensor:
    return 2.5 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(sampling_rows(), min_size=1, max_size=6), st.integers(0, 2**32))
def test_as_the_reference(rows: list[SamplingRow], seed: int) -> None:
    logits = logits_for(len(rows), seed)
    before = logits.clone()
    for row, raw, result in zip(rows, logits.tolist(), sample(logits, rows), strict=True):
        changed = penalised(raw, row.params, row.prompt_token_ids, row.output_token_ids, row.banned_token_ids)
        if row.params.greedy:
            # Penalties in float32 may give different values where those in float64 are equal.
            assert changed[result.token_id] == pytest.approx(max(changed), abs=1e-4)
            continue
        # Near the border between two tokens, rounding decides: both are right.
        probabilities = distribution(changed, row.params)
        near = {pick(probabilities, min(max(row.uniform + step, 0.0), 1.0)) for step in (-1e-5, 0, 1e-5)}
        assert result.token_id in near
    assert torch.equal(logits, before)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(sampling_rows(), min_size=1, max_size=6),
    st.integers(0, 2**32),
    st.lists(st.sampled_from([None, None, None, NAN, INF, -INF]), min_size=6, max_size=6),
)
def test_a_row_does_not_depend_on_the_others(
    rows: list[SamplingRow], seed: int, faults: list[float | None]
) -> None:
    logits = logits_for(len(rows), seed)
    for row, fault in enumerate(faults[: len(rows)]):
        if fault is not None:
            logits[row, row % VOCAB] = fault
    together = sample(logits, rows)
    alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert together == alone
    backwards = sample(logits.flip(0), rows[::-1])
    assert backwards[::-1] == together


GREEDY, DRAWN = SamplingParams(temperature=0), SamplingParams()


@pytest.mark.parametrize(
    "setting",
    [GREEDY, DRAWN, SamplingParams(top_p=0.5, top_k=2, min_p=0.1, repetition_penalty=1.5, logprobs=2)],
)
@pytest.mark.parametrize("bad", [[NAN, 1, 2], [1, INF, 2], [INF, NAN, -INF], [-INF, -INF, -INF]])
def test_broken_logits_end_their_row_alone(setting: SamplingParams, bad: list[float]) -> None:
    rows = [SamplingRow(setting, [0], [1], 0.5)] * 3
    good = [0.0, 3.0, -INF]
    results = sample(torch.tensor([good, bad, good]), rows)
    assert results[1].token_id == NO_TOKEN
    assert results[1].error is not None
    assert "the model's logits" in results[1].error
    assert results[1].logprob is None
    assert results[0] == results[2] == sample(torch.tensor([good]), rows[:1])[0]
    assert results[0].error is None


def test_banning_every_token_is_an_error_of_that_row() -> None:
    rows = [SamplingRow(setting, [], [], 0.1, (0, 1, 2)) for setting in (GREEDY, DRAWN)]
    rows.append(SamplingRow(GREEDY, [], [], 0.1))
    results = sample(torch.tensor([[0.0, 1.0, 2.0]] * 3), rows)
    assert [result.token_id for result in results] == [NO_TOKEN, NO_TOKEN, 2]
    assert "banned tokens" in str(results[0].error)


def test_a_ban_does_not_hide_nan() -> None:
    row = SamplingRow(GREEDY, [], [], 0.0, (0,))
    assert "the model's logits" in str(sample(torch.tensor([[NAN, 1.0]]), [row])[0].error)


def test_greedy_takes_the_first_of_equals_and_ignores_filters() -> None:
    strict = replace(GREEDY, top_k=1, top_p=0.01, min_p=1.0)
    rows = [SamplingRow(strict, [], [], 0.99), SamplingRow(replace(DRAWN, top_k=1), [], [], 0.0)]
    assert [r.token_id for r in sample(torch.tensor([[1.0, 2.0, 2.0]] * 2), rows)] == [1, 1]


def test_rows_are_worked_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        SamplingRow(replace(DRAWN, logprobs=i % 3, top_k=i % 4), [1], [2], (i + 0.5) / 10) for i in range(10)
    ]
    logits = logits_for(10, 9)
    whole = sample(logits, rows)
    monkeypatch.setattr("minipaged.sampling.logprob_tensors.ELEMENTS_AT_ONCE", 3 * VOCAB)
    assert sample(logits, rows) == whole


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_types_are_taken(dtype: torch.dtype) -> None:
    rows = [SamplingRow(GREEDY, [], [], 0.0), SamplingRow(replace(DRAWN, logprobs=1), [], [], 0.0)]
    results = sample(torch.tensor([[0.0, 1.0], [-INF, 1.0]], dtype=dtype), rows)
    assert [result.token_id for result in results] == [1, 1]
    assert results[1].logprob is not None
    assert results[1].logprob.logprob == 0.0


def test_no_rows_and_wrong_numbers_of_rows() -> None:
    assert sample(torch.zeros(0, 5), []) == []
    with pytest.raises(ValueError, match=r"1 rows need logits \[1, vocab\], not \[2, 5\]"):
        sample(torch.zeros(2, 5), [SamplingRow(GREEDY, [], [], 0.0)])


def test_plain_greedy_rows_are_one_argmax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.sampling.sampler._choose", None)  # would be called for anything else
    rows = [SamplingRow(replace(GREEDY, top_p=0.5), [0], [1], 0.0)] * 2
    assert sample(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), rows) == [SampledToken(0), SampledToken(1)]
