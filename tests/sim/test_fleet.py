"""Routers choose the replica that they say, and a fleet answers every request once."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged import EngineConfig
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.errors import ConfigError
from minipaged.sim.fleet import ROUTINGS, Fleet, FleetResult, Routing
from minipaged.sim.run import simulate
from minipaged.sim.simulation import Simulation
from minipaged.sim.timed_request import TimedRequest


def replica() -> Simulation:
    return Simulation(EngineConfig(block_size=4), MemoryPlan(101, 4, 64, 1, None, "CPU"), lambda load: 1.0)


def serve(count: int, routing: Routing, requests: list[TimedRequest], seed: int = 0) -> FleetResult:
    return Fleet([replica() for _ in range(count)], routing, np.random.default_rng(seed)).serve(requests)


def some(count: int, num_prefixes: int) -> list[TimedRequest]:
    rng = np.random.default_rng(0)
    return [
        TimedRequest(
            3.0 * number,
            num_prompt_tokens=int(rng.integers(26, 32)),
            num_output_tokens=int(rng.integers(1, 20)),
            num_prefix_tokens=24,
            prefix=int(rng.integers(num_prefixes)),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_request_is_answered_once(routing: Routing) -> None:
    result = serve(3, routing, some(60, 4))
    assert result.num_requests == 60
    assert sum(result.shares) == pytest.approx(1)
    assert min(result.shares) > 0
    assert result == serve(3, routing, some(60, 4))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_fleet_of_one_is_a_simulation(routing: Routing) -> None:
    fleet, alone = serve(1, routing, some(40, 2)), simulate(replica(), some(40, 2))
    assert fleet.time_to_first_token == alone.time_to_first_token
    assert fleet.time_per_output_token == alone.time_per_output_token
    assert fleet.prefix_hits == alone.prefix_cache_hits / alone.prompt_tokens
    assert fleet.seconds == alone.seconds


def test_the_least_loaded_replica_is_chosen() -> None:
    # The first replica gets the long request, and is still busy with it when the others come.
    requests = [TimedRequest(0.0, 4, 50), TimedRequest(1.0, 4, 2), TimedRequest(10.0, 4, 2)]
    assert serve(2, "least-loaded", requests).shares == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_a_prefix_is_computed_on_one_replica_alone() -> None:
    """Eight prefixes of 24 tokens: each is computed once, and found by all requests that come later."""
    requests = some(80, 8)
    missed = 8 * 24 / sum(each.num_prompt_tokens for each in requests)
    shared = 80 * 24 / sum(each.num_prompt_tokens for each in requests)
    by_prefix = serve(4, "prefix", requests).prefix_hits
    assert by_prefix == pytest.approx(shared - missed)
    assert serve(4, "random", requests).prefix_hits < by_prefix
    assert serve(4, "least-loaded", requests).prefix_hits < by_prefix


def test_an_empty_fleet_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 replica"):
        Fleet([], "random", np.random.default_rng(0))
