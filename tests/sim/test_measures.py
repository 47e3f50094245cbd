"""Percentiles in bins are as good as 1 %, and a run's averages are those of a hand-made run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minipaged import EngineConfig
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.sim.measures import Measures, Percentiles
from minipaged.sim.run import simulate
from minipaged.sim.simulation import Simulation
from minipaged.sim.timed_request import TimedRequest


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 100])
def test_percentiles_are_within_a_bin(percent: float) -> None:
    values = np.random.default_rng(0).lognormal(0, 2, 5000)
    percentiles = Percentiles()
    for value in values:
        percentiles.add(float(value))
    exact = np.percentile(values, percent, method="inverted_cdf")
    assert percentiles.at(percent) == pytest.approx(exact, rel=0.0051)
    assert percentiles.mean == pytest.approx(values.mean())


def test_nothing_has_no_percentiles() -> None:
    assert math.isnan(Percentiles().at(50))
    assert math.isnan(Percentiles().mean)


def test_zero_counts_as_next_to_nothing() -> None:
    percentiles = Percentiles()
    percentiles.add(0.0)
    assert 0 < percentiles.at(50) < 2e-9
    assert percentiles.mean == 0


def small() -> Simulation:
    plan = MemoryPlan(11, 4, 32, 1, None, "CPU")
    return Simulation(EngineConfig(block_size=4, enable_prefix_caching=False), plan, lambda load: 2.0)


def test_averages_of_a_run_by_hand() -> None:
    # Steps of 2 s. The first request arrives at once and runs in steps 1 to 3. The second arrives at 3 s,
    # during step 2, and runs in steps 3 and 4. Nothing runs from 8 s to 20 s; the third has step 5 alone.
    requests = [TimedRequest(0.0, 4, 3), TimedRequest(3.0, 4, 2), TimedRequest(20.0, 4, 1)]
    result = simulate(small(), requests, sample_every=1)
    assert (result.num_requests, result.num_steps, result.seconds) == (3, 5, 22.0)
    assert result.mean_batch == pytest.approx((1 + 1 + 2 + 1 + 1) / 5)
    assert result.latency.mean == pytest.approx((6 + 5 + 2) / 3)
    assert result.time_to_first_token.mean == pytest.approx((2 + 3 + 2) / 3)
    assert result.time_per_output_token.mean == pytest.approx(2.0)
    assert result.normalized_latency == pytest.approx((6 / 3 + 5 / 2 + 2 / 1) / 3)
    assert (result.prompt_tokens, result.output_tokens) == (12, 6)
    assert [moment.num_running for moment in result.moments] == [1, 1, 2, 1, 1]
    # After steps 1 to 5, there are 4, 5, 6 + 4, 5 and 4 tokens in the 40 slots of 10 blocks.
    assert result.memory["token_states"] == pytest.approx((4 + 5 + 10 + 5 + 4) / (5 * 40))
    assert sum(result.memory.values()) == pytest.approx(1)


def test_a_restart_forgets() -> None:
    simulation = small()
    measures = Measures(simulation)
    simulation.add(TimedRequest(0.0, 4, 3))
    while simulation.has_unfinished_requests:
        simulation.step()
    assert measures.num_finished == 1
    measures.restart()
    assert (measures.num_finished, measures.result().num_steps, measures.result().seconds) == (0, 0, 0.0)


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    result = simulate(small(), (TimedRequest(9.0 * i, 1, 3) for i in range(2000)), sample_every=1)
    assert result.num_steps == 6000
    assert len(result.moments) < 2048
    assert result.num_requests == 2000
