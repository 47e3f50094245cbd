"""Arrivals have the rate and the spread that was asked for, and streams are made as they are used."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from minipaged.errors import ConfigError
from minipaged.sim.lengths import ALPACA
from minipaged.sim.timed_request import TimedRequest, all_at_once, bursty, poisson, stream


def gaps(variation: float, count: int = 20_000) -> np.ndarray:
    times = islice(bursty(4.0, variation, np.random.default_rng(0)), count)
    return np.diff(np.fromiter(times, dtype=np.float64), prepend=0.0)


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_asked_mean_and_spread(variation: float) -> None:
    drawn = gaps(variation)
    assert drawn.mean() == pytest.approx(0.25, rel=0.1)
    assert drawn.std() / drawn.mean() == pytest.approx(variation, rel=0.1, abs=1e-9)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    times = np.fromiter(islice(poisson(10.0, np.random.default_rng(1)), 20_000), dtype=np.float64)
    counts = np.histogram(times, bins=np.arange(0, 1900))[0]
    assert counts.var() == pytest.approx(counts.mean(), rel=0.1)


def test_a_stream_has_no_end_unless_it_was_asked_for() -> None:
    rng = np.random.default_rng(0)
    assert len(list(stream(ALPACA, all_at_once(), rng, num_requests=5))) == 5
    endless = stream(ALPACA, poisson(1.0, rng), rng)
    arrivals = [each.arrival for each in islice(endless, 5000)]
    assert arrivals == sorted(arrivals)


def test_prefixes_come_in_turn_and_are_part_of_the_prompt() -> None:
    drawn = list(
        stream(
            ALPACA,
            all_at_once(),
            np.random.default_rng(0),
            num_requests=6,
            num_samples=2,
            num_prefix_tokens=80,
            num_prefixes=3,
        )
    )
    assert [each.prefix for each in drawn] == [0, 1, 2, 0, 1, 2]
    assert all(each.num_prompt_tokens > 80 == each.num_prefix_tokens for each in drawn)
    assert {each.num_samples for each in drawn} == {2}


@pytest.mark.parametrize(
    "wrong", [(-1.0, 1, 1), (0.0, 0, 1), (0.0, 1, 0), (0.0, 1, 1, 0), (0.0, 5, 1, 1, 5), (0.0, 5, 1, 1, -1)]
)
def test_impossible_requests_are_refused(wrong: tuple[float, int, int]) -> None:
    with pytest.raises(ConfigError):
        TimedRequest(*wrong)


@pytest.mark.parametrize(("rate", "variation"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0)])
def test_impossible_arrivals_are_refused(rate: float, variation: float) -> None:
    with pytest.raises(ConfigError, match="rate above 0"):
        next(bursty(rate, variation, np.random.default_rng(0)))


def test_no_prefixes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 prefix"):
        next(stream(ALPACA, all_at_once(), np.random.default_rng(0), num_prefixes=0))
