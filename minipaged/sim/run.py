"""Runs a simulation until all requests are answered, or with a queue that is never empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from minipaged.events import Observer
from minipaged.sim.deployment import Deployment
from minipaged.sim.measures import Measures, SimulationResult
from minipaged.sim.simulation import Simulation
from minipaged.sim.systems import System
from minipaged.sim.timed_request import TimedRequest

Watch = Callable[[int], None]
"""A function that is called now and then with the number of answered requests."""


def make_simulation(
    system: System, deployment: Deployment, observer: Observer | None = None, /, **options: object
) -> Simulation:
    """A simulation of a system.

    Args:
        system: the system.
        deployment: model and devices.
        observer: is told the events of the run.
        options: settings that replace those of the system.
    """
    config = replace(system.config(**options), model=deployment.model.name)
    return Simulation(
        config,
        deployment.memory_plan(config),
        deployment.step_time(),
        answers_together=system.answers_together,
        observer=observer,
    )


def simulate(
    simulation: Simulation,
    requests: Iterable[TimedRequest],
    *,
    watch: Watch = lambda num_finished: None,
    sample_every: int = 64,
) -> SimulationResult:
    """Serve all requests, each from the moment of its arrival.

    Args:
        simulation: a new simulation.
        requests: the requests, sorted by arrival. Only those that have arrived are kept in memory.
        watch: called with the number of answered requests, about every hundred steps.
        sample_every: the memory is examined once in this many steps.
    """
    measures = Measures(simulation, sample_every=sample_every)
    coming = iter(requests)
    following = next(coming, None)
    while following is not None or simulation.has_unfinished_requests:
        if not simulation.has_unfinished_requests and following is not None:
            simulation.clock = max(simulation.clock, following.arrival)  # idle until then
        while following is not None and following.arrival <= simulation.clock:
            simulation.add(following)
            following = next(coming, None)
        simulation.step()
        if simulation.num_steps % 100 == 0:
            watch(measures.num_finished)
    watch(measures.num_finished)
    return measures.result()


def simulate_full(
    simulation: Simulation,
    requests: Iterable[TimedRequest],
    *,
    num_requests: int,
    warm_up: int = 100,
    watch: Watch = lambda num_finished: None,
    sample_every: int = 16,
) -> SimulationResult:
    """Serve a queue that is never empty, until a number of requests are answered.

    The arrival times have no effect, because some requests are always waiting. So the result shows what the
    system can do at most. Latencies have no meaning here.

    Args:
        simulation: a new simulation.
        requests: a stream that does not end before the simulation.
        num_requests: answered requests to measure.
        warm_up: answered requests before the measurement. The first requests all start together, so the use
            of the memory is not yet typical.
        watch: called with the number of answered requests, about every hundred steps.
        sample_every: the memory is examined once in this many steps.
    """
    measures = Measures(simulation, sample_every=sample_every)
    coming = iter(requests)
    for wanted in (warm_up, num_requests):
        measures.restart()
        while measures.num_finished < wanted:
            while simulation.num_waiting < _QUEUE:
                simulation.add(next(coming))
            simulation.step()
            if simulation.num_steps % 100 == 0:
                watch(measures.num_finished)
    return measures.result()


_QUEUE = 300
"""How many requests are kept waiting. This is more than any system admits in one step."""
