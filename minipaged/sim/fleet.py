"""Fleet: several replicas of one deployment, and a router that assigns requests to them.

Each replica is a `Simulation` with a clock of its own. When a request arrives, every replica first computes
the steps that begin before that moment. Then the router looks at all of them, and chooses one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from minipaged.errors import ConfigError
from minipaged.request import Sequence as TokenSequence
from minipaged.sim.measures import Latency, Percentiles
from minipaged.sim.run import Watch
from minipaged.sim.simulation import Served, Simulation, prompt_token_ids
from minipaged.sim.timed_request import TimedRequest

Routing = Literal["random", "least-loaded", "prefix"]
ROUTINGS: tuple[Routing, ...] = get_args(Routing)
"""How a replica is chosen. `"random"` chooses any replica, and `"least-loaded"` chooses the one with the
fewest requests. `"prefix"` chooses the one whose prefix cache holds the most of the prompt; if several hold
equally much, it chooses the one of these with the fewest requests."""


@dataclass(frozen=True)
class FleetResult:
    """What a simulated fleet measured.

    Attributes:
        num_requests: answered requests.
        seconds: simulated time from 0 to the last answer.
        time_to_first_token, time_per_output_token: in seconds, over the requests of all replicas.
        prefix_hits: the share of all prompt tokens that was found in a prefix cache.
        num_preemptions: how often a request lost its blocks.
        shares: the share of the requests that each replica answered.
    """

    num_requests: int
    seconds: float
    time_to_first_token: Latency
    time_per_output_token: Latency
    prefix_hits: float
    num_preemptions: int
    shares: tuple[float, ...]


class Fleet:
    """Replicas behind a router.

    Args:
        replicas: new simulations of one deployment, at least one.
        routing: how a replica is chosen.
        rng: the random generator for `"random"`.

    Raises:
        ConfigError: there is no replica.
    """

    def __init__(self, replicas: Sequence[Simulation], routing: Routing, rng: np.random.Generator) -> None:
        if not replicas:
            raise ConfigError("a fleet needs at least 1 replica")
        self._replicas = replicas
        self._routing: Routing = routing
        self._rng = rng
        self._first, self._each = Percentiles(), Percentiles()
        self._prompt_tokens = 0
        self._answered = [0] * len(replicas)
        for number, replica in enumerate(replicas):
            replica.on_finished = self._counter(number)

    def serve(
        self, requests: Iterable[TimedRequest], watch: Watch = lambda num_finished: None
    ) -> FleetResult:
        """Serve all requests.

        Args:
            requests: sorted by arrival.
            watch: called now and then with the number of answered requests.
        """
        for number, timed in enumerate(requests):
            for replica in self._replicas:
                _advance(replica, timed.arrival)
            self._choose(timed, number).add(timed)
            if number % 100 == 0:
                watch(sum(self._answered))
        for replica in self._replicas:
            while replica.has_unfinished_requests:
                replica.step()
        total = sum(self._answered)
        watch(total)
        counts = [replica.scheduler.counts for replica in self._replicas]
        return FleetResult(
            num_requests=total,
            seconds=max(replica.clock for replica in self._replicas),
            time_to_first_token=Latency.of(self._first),
            time_per_output_token=Latency.of(self._each),
            prefix_hits=sum(each.prefix_cache_hits for each in counts) / max(1, self._prompt_tokens),
            num_preemptions=sum(each.preemptions for each in counts),
            shares=tuple(count / max(1, total) for count in self._answered),
        )

    def _choose(self, timed: TimedRequest, number: int) -> Simulation:
        if self._routing == "random":
            return self._replicas[int(self._rng.integers(len(self._replicas)))]
        if self._routing == "least-loaded":
            return min(self._replicas, key=_load)
        seq = TokenSequence(prompt_token_ids(timed, number))
        return max(
            self._replicas,
            key=lambda replica: (len(replica.manager.find_prefix(seq, None)), -_load(replica)),
        )

    def _counter(self, number: int) -> Callable[[Served], None]:
        def count(served: Served) -> None:
            assert served.finished is not None
            assert served.first_token is not None
            timed = served.timed
            self._answered[number] += 1
            self._prompt_tokens += timed.num_prompt_tokens
            self._first.add(served.first_token - timed.arrival)
            if timed.num_output_tokens > 1:
                self._each.add((served.finished - served.first_token) / (timed.num_output_tokens - 1))

        return count


def _advance(replica: Simulation, moment: float) -> None:
    """Compute all steps that begin before a moment. An idle replica waits until then."""
    while replica.has_unfinished_requests and replica.clock < moment:
        replica.step()
    replica.clock = max(replica.clock, moment)


def _load(replica: Simulation) -> int:
    """Requests that run or wait on a replica."""
    return len(replica.scheduler.queues.running) + replica.num_waiting
