"""Measures a simulation, in memory that does not grow with the number of requests."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields

from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.sim.simulation import Served, Simulation

_GROWTH = math.log(1.01)
_MOST_MOMENTS = 2048


class Percentiles:
    """Percentiles of many positive numbers. They are counted in bins that are 1 % wide."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._count = 0
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a number. 0 is counted in the smallest bin, which is one nanosecond."""
        self._bins[math.floor(math.log(max(value, 1e-9)) / _GROWTH)] += 1
        self._count += 1
        self._sum += value

    @property
    def count(self) -> int:
        return self._count

    @property
    def mean(self) -> float:
        """The exact mean; NaN if no number was counted."""
        return self._sum / self._count if self._count else math.nan

    def at(self, percent: float) -> float:
        """The middle of the bin that holds this percentile; NaN if no number was counted."""
        wanted, seen = math.ceil(self._count * percent / 100), 0
        for number in sorted(self._bins):
            seen += self._bins[number]
            if seen >= max(1, wanted):
                return math.exp((number + 0.5) * _GROWTH)
        return math.nan


@dataclass(frozen=True)
class Latency:
    """Mean and percentiles, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Percentiles) -> Latency:
        return cls(values.mean, values.at(50), values.at(90), values.at(99))


@dataclass(frozen=True)
class Moment:
    """One point of the curves over time.

    Attributes:
        seconds: the time.
        num_running, num_waiting: the numbers of running and of waiting requests.
        usage: the share of the KV memory in use.
    """

    seconds: float
    num_running: int
    num_waiting: int
    usage: float


@dataclass(frozen=True)
class SimulationResult:
    """What a simulation measured.

    Attributes:
        num_requests: the number of answered requests.
        num_steps: the number of steps.
        seconds: simulated seconds.
        prompt_tokens, output_tokens: tokens of the answered requests, including those of all samples.
        num_preemptions: how often a request lost its blocks.
        num_swapped_blocks: blocks that were copied to the CPU's memory.
        prefix_cache_hits: prompt tokens found in the prefix cache.
        mean_batch: running requests, averaged over the time of the steps.
        mean_step: mean time of a step, in seconds.
        normalized_latency: latency / output tokens, mean over the requests (paper, section 6.1), in seconds.
        latency: the time from arrival to the last token.
        time_to_first_token: the time from arrival to the first token.
        time_per_output_token: the mean time between the tokens of a request, from the first token on.
        memory: the share of the KV slots in each use, averaged over steps. The names of the uses are those in
            `MemoryBreakdown`.
        sharing_saving: the share of block table entries that sharing saved, averaged over steps.
        moments: the curves over time, thinned to a few thousand points.
    """

    num_requests: int
    num_steps: int
    seconds: float
    prompt_tokens: int
    output_tokens: int
    num_preemptions: int
    num_swapped_blocks: int
    prefix_cache_hits: int
    mean_batch: float
    mean_step: float
    normalized_latency: float
    latency: Latency
    time_to_first_token: Latency
    time_per_output_token: Latency
    memory: dict[str, float]
    sharing_saving: float
    moments: tuple[Moment, ...]

    @property
    def requests_per_second(self) -> float:
        """Answered requests per simulated second."""
        return self.num_requests / self.seconds if self.seconds else math.inf

    @property
    def output_tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds if self.seconds else math.inf


class Measures:
    """Collects measurements from a simulation.

    Args:
        simulation: the simulation; its callbacks are replaced.
        sample_every: the memory is examined once in this many steps. Examining it is slower than a step.
    """

    def __init__(self, simulation: Simulation, *, sample_every: int = 64) -> None:
        self._simulation = simulation
        self._sample_every = sample_every
        self.restart()
        simulation.on_step = self._step
        simulation.on_finished = self._finished

    def restart(self) -> None:
        """Forget all that was measured so far, and begin to measure now."""
        self._begin = self._simulation.clock
        self._first_step = self._simulation.num_steps
        counts = self._simulation.scheduler.counts
        self._counts = (counts.preemptions, counts.swapped_blocks, counts.prefix_cache_hits)
        self._busy = self._batch_seconds = 0.0
        self._normalized, self._latency = Percentiles(), Percentiles()
        self._first, self._each = Percentiles(), Percentiles()
        self._prompt_tokens = self._output_tokens = 0
        self._slots: Counter[str] = Counter()
        self._entries = self._blocks = 0
        self._moments: list[Moment] = []
        self._moment_every = self._sample_every

    @property
    def num_finished(self) -> int:
        """The number of answered requests."""
        return self._latency.count

    def _step(self, seconds: float) -> None:
        simulation = self._simulation
        running = simulation.scheduler.queues.running
        self._busy += seconds
        self._batch_seconds += seconds * len(running)
        number = simulation.num_steps - self._first_step
        if number % self._sample_every == 0:
            self._look_at_memory()
        if number % self._moment_every == 0:
            usage = simulation.manager.usage
            self._moments.append(Moment(simulation.clock, len(running), simulation.num_waiting, usage))
            if len(self._moments) == _MOST_MOMENTS:
                del self._moments[::2]
                self._moment_every *= 2

    def _look_at_memory(self) -> None:
        manager, queues = self._simulation.manager, self._simulation.scheduler.queues
        next_request = queues.waiting.peek() if queues.waiting else None
        seen = manager.breakdown(queues.running, next_request)
        for field in fields(MemoryBreakdown):
            self._slots[field.name] += getattr(seen, field.name)
        if manager.num_blocks_in_tables:
            tables = (seq.block_table for request in queues.running for seq in request.sequences)
            self._entries += sum(map(len, tables))
            self._blocks += manager.num_blocks_in_tables

    def _finished(self, served: Served) -> None:
        timed = served.timed
        assert served.finished is not None
        assert served.first_token is not None
        latency = served.finished - timed.arrival
        self._latency.add(latency)
        self._normalized.add(latency / timed.num_output_tokens)
        self._first.add(served.first_token - timed.arrival)
        if timed.num_output_tokens > 1:
            self._each.add((served.finished - served.first_token) / (timed.num_output_tokens - 1))
        self._prompt_tokens += timed.num_prompt_tokens
        self._output_tokens += timed.num_output_tokens * timed.num_samples

    def result(self) -> SimulationResult:
        """All that was measured so far."""
        counts = self._simulation.scheduler.counts
        num_steps = self._simulation.num_steps - self._first_step
        slots = sum(self._slots.values())
        return SimulationResult(
            num_requests=self.num_finished,
            num_steps=num_steps,
            seconds=self._simulation.clock - self._begin,
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            num_preemptions=counts.preemptions - self._counts[0],
            num_swapped_blocks=counts.swapped_blocks - self._counts[1],
            prefix_cache_hits=counts.prefix_cache_hits - self._counts[2],
            mean_batch=self._batch_seconds / self._busy if self._busy else math.nan,
            mean_step=self._busy / num_steps if num_steps else math.nan,
            normalized_latency=self._normalized.mean,
            latency=Latency.of(self._latency),
            time_to_first_token=Latency.of(self._first),
            time_per_output_token=Latency.of(self._each),
            memory={name: count / slots for name, count in self._slots.items()} if slots else {},
            sharing_saving=1 - self._blocks / self._entries if self._entries else 0.0,
            moments=tuple(self._moments),
        )
