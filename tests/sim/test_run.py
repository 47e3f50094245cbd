"""A run takes requests as they arrive, holds only those that run or wait, and can keep the queue full."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from minipaged.loading.shape_lookup import shape_of
from minipaged.sim.deployment import Deployment
from minipaged.sim.device import find_device
from minipaged.sim.lengths import SHAREGPT
from minipaged.sim.run import make_simulation, simulate, simulate_full
from minipaged.sim.simulation import Simulation
from minipaged.sim.systems import find_system
from minipaged.sim.timed_request import TimedRequest, all_at_once, stream

DEPLOYMENT = Deployment(shape_of("OPT-13B"), find_device("A100-40GB"), kv_cache_bytes=12 * 2**30)


def vllm() -> Simulation:
    return make_simulation(find_system("vllm"), DEPLOYMENT)


def test_requests_are_taken_no_earlier_than_they_arrive() -> None:
    simulation = vllm()
    taken: list[float] = []

    def coming() -> Iterator[TimedRequest]:
        for second in range(50):
            # The run asks for one request ahead, to know how long nothing will happen.
            taken.append(simulation.clock)
            yield TimedRequest(float(second), 10, 5)

    simulate(simulation, coming())
    assert all(clock >= second - 1 for second, clock in enumerate(taken))


def test_a_request_alone_takes_the_time_of_its_steps() -> None:
    result = simulate(vllm(), [TimedRequest(5.0, 100, 11)])
    weights = 2 * 12_853_473_280 / 1555e9  # seconds to read all weights
    cached = sum(range(101, 111)) * 819_200 / 1555e9  # ten decode steps, after 100 prompt tokens
    prefill = weights + 100 * 819_200 / 1555e9
    assert result.time_to_first_token.mean == pytest.approx(prefill)
    assert result.latency.mean == pytest.approx(prefill + 10 * weights + cached)


@pytest.mark.parametrize("name", ["orca-max", "fastertransformer"])
def test_a_full_queue_fills_seven_regions_of_2048_slots(name: str) -> None:
    """Paper: 15,728 slots hold 7 requests of 2,048 (Fig. 13)."""
    simulation = make_simulation(find_system(name), DEPLOYMENT)
    requests = stream(SHAREGPT, all_at_once(), np.random.default_rng(0))
    result = simulate_full(simulation, requests, num_requests=50, warm_up=10)
    assert result.num_requests >= 50
    assert max(moment.num_running for moment in result.moments) == 7
    if name == "orca-max":
        assert result.mean_batch == pytest.approx(7)


def test_paging_holds_more_requests_than_exact_reservation_and_that_more_than_the_maximum() -> None:
    batches = []
    for name in ("orca-max", "orca-oracle", "vllm"):
        simulation = make_simulation(find_system(name), DEPLOYMENT)
        requests = stream(SHAREGPT, all_at_once(), np.random.default_rng(0))
        batches.append(simulate_full(simulation, requests, num_requests=60, warm_up=40).mean_batch)
    assert batches[0] * 1.5 < batches[1]
    assert batches[1] * 1.5 < batches[2]


def test_memory_does_not_grow_with_the_number_of_requests() -> None:
    def peak(count: int) -> int:
        simulation = vllm()
        requests = (TimedRequest(0.5 * number, 8, 2) for number in range(count))
        gc.collect()
        tracemalloc.start()
        try:
            simulate(simulation, requests)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # imports and caches
    # A request that were kept would take more than 1,500 bytes. The curves over time may grow a little.
    few, many = peak(200), peak(2000)
    assert many < few + 1800 * 300
