"""The draw: the exact distribution, and never a token of probability zero."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.sampling.draw import draw
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SamplingRow, sample
from minipaged.sampling.uniform import uniform
from tests.sampling.reference import distribution

INF = math.inf
ALMOST_ONE = 1.0 - 2.0**-53

LOGITS = [0.3, -1.0, 2.0, 2.0, -INF, 1.1, -4.0, 0.0, 1.9, -0.5]
SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=3.0, top_k=4),
    SamplingParams(top_p=0.7),
    SamplingParams(min_p=0.2),
    SamplingParams(temperature=1.5, top_k=6, top_p=0.8, min_p=0.1),
]


@pytest.mark.parametrize("params", SETTINGS)
def test_evenly_spaced_points_give_the_exact_shares(params: SamplingParams) -> None:
    num = 5000
    rows = [SamplingRow(params, (), (), (i + 0.5) / num) for i in range(num)]
    tokens = [result.token_id for result in sample(torch.tensor([LOGITS] * num), rows)]
    for token, probability in enumerate(distribution(LOGITS, params)):
        # A token is an interval of the points, so its count is off by less than one.
        assert abs(tokens.count(token) - num * probability) < 1.0 + 1e-3, token


@pytest.mark.parametrize("params", SETTINGS)
def test_seeded_numbers_give_the_distribution(params: SamplingParams) -> None:
    num = 5000
    rows = [SamplingRow(params, (), (), uniform(42, 0, i)) for i in range(num)]
    tokens = [result.token_id for result in sample(torch.tensor([LOGITS] * num), rows)]
    expected = [num * probability for probability in distribution(LOGITS, params)]
    assert all(tokens.count(token) == 0 for token, count in enumerate(expected) if count == 0)
    shown = [(tokens.count(token), count) for token, count in enumerate(expected) if count > 0]
    chi_square = sum((seen - count) ** 2 / count for seen, count in shown)
    assert chi_square < 3 * len(shown) + 10


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.just(-INF), st.floats(-800, 800, width=32)), min_size=1, max_size=12).filter(
        lambda logits: max(logits) > -INF
    ),
    st.one_of(st.sampled_from([0.0, 2.0**-53, 0.5, ALMOST_ONE]), st.floats(0, 1, exclude_max=True)),
)
def test_never_a_token_of_probability_zero(logits: list[float], u: float) -> None:
    token = int(draw(torch.tensor([logits]), [u]))
    assert math.exp(logits[token] - max(logits)) > 0


def test_ends_of_the_interval() -> None:
    logits = torch.tensor([[-INF, 0.0, 0.0, -INF]] * 4)
    assert draw(logits, [0.0, math.nextafter(0.5, 0), 0.5, ALMOST_ONE]).tolist() == [1, 1, 2, 2]


def test_large_vocabulary_to_its_ends() -> None:
    logits = torch.zeros(3, 150_000)
    assert draw(logits, [0.0, 0.5, ALMOST_ONE]).tolist() == [0, 75_000, 149_999]
