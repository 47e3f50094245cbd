"""Drawn lengths: means as in the paper, a tail that fits its Fig. 2, and nothing out of bounds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.errors import ConfigError
from minipaged.sim.lengths import ALPACA, SHAREGPT, SIGMA, LengthDistribution

COUNT = 20_000


def draw(lengths: LengthDistribution, count: int = COUNT, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and output lengths, `[count]` each."""
    drawn = lengths.draw(count, np.random.default_rng(seed))
    pairs = np.array([(each.num_prompt_tokens, each.num_output_tokens) for each in drawn])
    return pairs[:, 0], pairs[:, 1]


def standard_error(mean: float) -> float:
    """The standard error of the mean of `COUNT` draws."""
    return mean * float(np.sqrt(np.exp(SIGMA**2) - 1)) / COUNT**0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("lengths", "mean_prompt", "mean_output"), [(SHAREGPT, 161.31, 337.99), (ALPACA, 19.31, 58.45)]
)
def test_means_are_the_published_ones(
    lengths: LengthDistribution, mean_prompt: float, mean_output: float, seed: int
) -> None:
    prompts, outputs = draw(lengths, seed=seed)
    cut_short = 0.01 * mean_output  # the context's end shortens some outputs
    assert abs(prompts.mean() - mean_prompt) < 4 * standard_error(mean_prompt)
    assert -cut_short < outputs.mean() - mean_output + 4 * standard_error(mean_output)
    assert outputs.mean() - mean_output < 4 * standard_error(mean_output)


def test_the_tail_gives_back_the_papers_memory_breakdown() -> None:
    """Drawn lengths give the shares of Fig. 2, Orca (Max), where reservations take 91.0 % of the memory.

    The shares are the slots that are filled and those that will be filled. A request with O output tokens
    counts for O steps.
    """
    uncut = dataclasses.replace(SHAREGPT, max_model_len=100_000)  # the context cuts off some of the tail
    prompts, outputs = draw(uncut, 200_000)
    weights = outputs / outputs.sum()
    to_come = float((weights * outputs / 2).sum()) / 2048 * 91.0
    filled = float((weights * (prompts + outputs / 2)).sum()) / 2048 * 91.0
    assert to_come == pytest.approx(13.3, abs=0.3)
    assert filled == pytest.approx(20.4, abs=0.3)


def test_sigma_is_the_one_that_was_derived() -> None:
    assert pytest.approx(0.756, abs=5e-4) == SIGMA


@given(
    max_model_len=st.integers(2, 3000),
    count=st.integers(1, 50),
    seed=st.integers(0, 99),
    prefix=st.integers(0, 2998),
)
def test_nothing_is_out_of_bounds(max_model_len: int, count: int, seed: int, prefix: int) -> None:
    prefix = min(prefix, max_model_len - 2)
    drawn = SHAREGPT.scaled_to(max_model_len).draw(count, np.random.default_rng(seed), prefix)
    assert len(drawn) == count
    for lengths in drawn:
        assert lengths.num_prompt_tokens > prefix
        assert lengths.num_output_tokens >= 1
        assert lengths.num_prompt_tokens + lengths.num_output_tokens <= max_model_len


@pytest.mark.parametrize("max_model_len", [128, 1024, 8192])
def test_all_lengths_scale_with_the_context(max_model_len: int) -> None:
    scaled = SHAREGPT.scaled_to(max_model_len)
    assert scaled.max_model_len == max_model_len
    for whole, part in zip(draw(SHAREGPT), draw(scaled), strict=True):
        assert part.mean() == pytest.approx(whole.mean() * max_model_len / 2048, rel=0.02)
        assert np.median(part) == pytest.approx(np.median(whole) * max_model_len / 2048, rel=0.07)


def test_the_same_seed_draws_the_same() -> None:
    assert all(np.array_equal(a, b) for a, b in zip(draw(ALPACA, 50), draw(ALPACA, 50), strict=True))
    assert not all(
        np.array_equal(a, b) for a, b in zip(draw(ALPACA, 50), draw(ALPACA, 50, seed=1), strict=True)
    )


@pytest.mark.parametrize("max_model_len", [1, 0, -5])
def test_a_context_without_room_is_refused(max_model_len: int) -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        SHAREGPT.scaled_to(max_model_len)


def test_bad_distributions_and_counts_are_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        LengthDistribution("none", mean_prompt=0, mean_output=1)
    with pytest.raises(ConfigError, match="sigma at least 0"):
        LengthDistribution("none", mean_prompt=1, mean_output=1, sigma=-1)
    with pytest.raises(ConfigError, match="at least 1 request"):
        ALPACA.draw(0, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="prefix of 2,047 tokens"):
        ALPACA.draw(1, np.random.default_rng(0), 2047)
