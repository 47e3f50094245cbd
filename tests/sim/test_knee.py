"""The knee is the largest rate that keeps the targets, as far as seven halvings can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipaged import EngineConfig
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.errors import ConfigError
from minipaged.sim.knee import Targets, find_knee
from minipaged.sim.measures import Latency, SimulationResult
from minipaged.sim.run import simulate
from minipaged.sim.simulation import Simulation
from minipaged.sim.timed_request import TimedRequest


def run(rate: float) -> SimulationResult:
    """A made-up replica: its first token takes as many seconds as requests come in a second."""
    plan = MemoryPlan(11, 4, 32, 1, None, "CPU")
    simulated = simulate(Simulation(EngineConfig(), plan, lambda load: 1.0), [TimedRequest(0.0, 1, 1)])
    return replace(simulated, time_to_first_token=Latency(rate, rate, rate, rate))


@pytest.mark.parametrize("target", [0.3, 2.0, 7.7])
def test_the_largest_rate_within_the_targets_is_found(target: float) -> None:
    rate, kept = find_knee(Targets(target, 1.0), 10.0, run)
    assert target - 10 / 2**7 <= rate <= target
    assert kept.time_to_first_token.p90 == rate


def test_targets_that_nothing_keeps_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"at 0\.156 requests a second, .* no number of replicas"):
        find_knee(Targets(0.1, 1.0), 10.0, run)
