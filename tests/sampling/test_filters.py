"""Penalties and filters, compared with transformers' logits processors, and in edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minipaged.sampling.filters import keep_min_p, keep_top_k, keep_top_p, scale_by_temperature
from minipaged.sampling.penalties import ban_tokens, penalise

INF = math.inf


def random_logits(rows: int, vocab: int, seed: int, spread: float = 3.0) -> Tensor:
    return spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def ids(values: Tensor) -> torch.LongTensor:
    assert isinstance(values, torch.LongTensor)
    return values


NO_IDS = ids(torch.zeros(4, 1, dtype=torch.int64))


@pytest.mark.parametrize("vocab", [7, 300, 5000])
def test_temperature_as_transformers(vocab: int) -> None:
    logits = random_logits(4, vocab, 0)
    theirs = TemperatureLogitsWarper(0.7)(NO_IDS, logits).softmax(-1)
    torch.testing.assert_close(scale_by_temperature(logits, [0.7] * 4).softmax(-1), theirs)


@pytest.mark.parametrize("vocab", [7, 300, 5000])
@pytest.mark.parametrize("k", [1, 2, 6, 50, 4999])
def test_top_k_as_transformers(vocab: int, k: int) -> None:
    logits = random_logits(4, vocab, 1)
    assert torch.equal(keep_top_k(logits, [k] * 4), TopKLogitsWarper(k)(NO_IDS, logits))


@pytest.mark.parametrize("vocab", [7, 300, 5000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_top_p_as_transformers(vocab: int, p: float, spread: float) -> None:
    logits = random_logits(4, vocab, 2, spread)
    assert torch.equal(keep_top_p(logits, [p] * 4), TopPLogitsWarper(p)(NO_IDS, logits))


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 1.0])
def test_min_p_as_transformers(p: float) -> None:
    logits = random_logits(4, 300, 3)
    assert torch.equal(keep_min_p(logits, [p] * 4), MinPLogitsWarper(p)(NO_IDS, logits))


@pytest.mark.parametrize("penalty", [0.5, 1.3, 7.0])
def test_repetition_penalty_as_transformers(penalty: float) -> None:
    logits = random_logits(4, 50, 4)
    seen = torch.randint(0, 50, (4, 30), generator=torch.Generator().manual_seed(5))
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(ids(seen), logits.clone())
    ours = logits.clone()
    prompts, outputs = seen[:, :20].tolist(), seen[:, 20:].tolist()
    penalise(ours, prompts, outputs, [penalty] * 4, [0.0] * 4, [0.0] * 4)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_presence_and_frequency_count_the_output_alone() -> None:
    logits = torch.zeros(2, 4)
    penalise(logits, [[0, 0, 1], [3]], [[1, 2, 2], [0]], [1.0, 1.0], [0.5, 0.0], [0.25, 0.0])
    assert logits.tolist() == [[0.0, -0.75, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]


def test_ids_outside_the_vocabulary_are_passed_over() -> None:
    logits = torch.ones(1, 4)
    ban_tokens(logits, [[2, 4, 10**9, -1]])
    penalise(logits, [[4, 3]], [[99, -7, 0]], [2.0], [1.0], [0.0])
    assert logits.tolist() == [[-0.5, 1.0, -INF, 0.5]]


def test_penalties_beyond_float32_stay_numbers() -> None:
    logits = torch.tensor([[0.0, -1.0, 1.0], [0.0, -1.0, 0.5]])
    penalise(logits, [[0, 1, 2]] * 2, [[], []], [1e300, 1e-300], [0.0] * 2, [0.0] * 2)
    assert not logits.isnan().any()


def test_tiny_and_huge_temperatures() -> None:
    logits = torch.tensor([[1e30, -1e30, 3.0, -INF], [1.0, 1.0, 0.999999, -INF]])
    for temperature in (5e-324, 1e-300, 1e-40, 1e-9):
        scaled = scale_by_temperature(logits, [temperature] * 2)
        assert scaled.softmax(-1).tolist() == [[1, 0, 0, 0], [0.5, 0.5, 0, 0]]
    scaled = scale_by_temperature(torch.tensor([[5.0, -5.0, -INF]]), [1e308])
    assert scaled.softmax(-1).tolist() == [[0.5, 0.5, 0.0]]


def test_ties_at_the_border() -> None:
    level = torch.tensor([[1.0, 2.0, 1.0, 1.0, 2.0]])
    assert keep_top_k(level, [3]).tolist() == level.tolist()  # all that tie with the third stay
    assert keep_top_k(level, [2]).tolist() == [[-INF, 2.0, -INF, -INF, 2.0]]
    assert keep_min_p(level, [1.0]).tolist() == [[-INF, 2.0, -INF, -INF, 2.0]]
    flat = torch.zeros(1, 3000)
    kept = keep_top_p(flat, [0.5])[0].isfinite()
    assert kept[:1500].all()  # of equals the lower ids stay
    assert not kept[1500:].any()


def test_off_means_untouched() -> None:
    logits = random_logits(3, 2000, 6, 100.0)
    assert torch.equal(keep_top_k(logits, [0, -1, 2000]), logits)
    assert torch.equal(keep_top_p(logits, [1.0, 1.0, 1.0]), logits)
    assert torch.equal(keep_min_p(logits, [0.0, 0.0, 0.0]), logits)


def test_one_token_is_always_kept() -> None:
    logits = torch.tensor([[0.0, 5.0, -INF]])
    for kept in (keep_top_p(logits, [5e-324]), keep_top_k(logits, [1]), keep_min_p(logits, [1.0])):
        assert kept.tolist() == [[-INF, 5.0, -INF]]


def test_head_and_full_sort_agree() -> None:
    """The top-p tokens of most rows are among the largest 1024 logits; those of one row are not."""
    peaked, flat = random_logits(3, 4000, 7, 6.0), random_logits(1, 4000, 8, 0.1)
    alone = keep_top_p(peaked, [0.9] * 3)
    beside = keep_top_p(torch.cat([peaked, flat]), [0.9] * 4)
    assert torch.equal(alone, beside[:3])
    assert alone.isfinite().sum(-1).max() < 1024 < beside[3].isfinite().sum()
