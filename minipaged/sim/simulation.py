"""Simulation: the engine without its model. The scheduler and the KV manager are the engine's own.

add -> step -> step -> ...
       |- Scheduler.schedule     as in the engine
       |- StepTime               seconds, in place of a forward pass: the clock moves on
       `- tokens                 each sequence that was computed to its end gets one, until it has enough

So the engine's own code makes every decision and allocates every block. Only the times are computed, and the
tokens are invented.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from minipaged.config import EngineConfig
from minipaged.engine.assembly import make_bookkeeping
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.engine.observed import engine_started
from minipaged.errors import InvariantError, RequestTooLargeError
from minipaged.events import Observer, SequenceFinished, StepExecuted, TokenSampled
from minipaged.kv.event_stream import EventStream
from minipaged.request import Request, Sequence
from minipaged.runner.step_batch import decodes_first
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.observed import tell_finished
from minipaged.scheduler.scheduler_output import SchedulerOutput
from minipaged.sim.step_time import StepLoad, StepTime
from minipaged.sim.timed_request import TimedRequest


@dataclass
class Served:
    """A request in the simulation, and its times on the simulation's clock.

    Attributes:
        timed: the request.
        request: the scheduler's object for the same request.
        first_token: when its first token was generated.
        finished: when its last token was generated, or when the answer was delivered if that was later.
    """

    timed: TimedRequest
    request: Request
    first_token: float | None = None
    finished: float | None = None


class Simulation:
    """Serves requests step by step, on a simulated clock.

    Args:
        config: the settings of the engine. Settings of the model have no effect.
        plan: the engine's memory plan.
        step_time: how long a step takes.
        answers_together: whether all answers of a static batch are delivered when its last request ends.
        observer: is told the events that a real engine tells, with the times of this clock.

    Attributes:
        clock: seconds since the beginning.
        scheduler, manager: instances of the engine's own classes.
        num_steps: steps so far.
        on_step: called in each step with the step's seconds. At that time its tokens are computed, but the
            requests that end with the step are not removed yet.
        on_finished: called with each request that has been answered.
    """

    def __init__(
        self,
        config: EngineConfig,
        plan: MemoryPlan,
        step_time: StepTime,
        *,
        answers_together: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.clock = 0.0
        self.num_steps = 0
        self.num_arrivals = 0
        self._events = None if observer is None else EventStream(observer, lambda: self.clock)
        self.manager, self.scheduler = make_bookkeeping(config, plan, self._copy_slots, self._events)
        if self._events is not None:
            self._events.emit(engine_started(config, plan))
        self.on_step: Callable[[float], None] = lambda seconds: None
        self.on_finished: Callable[[Served], None] = lambda served: None
        self._plan = plan
        self._max_num_seqs = config.max_num_seqs
        self._step_time = step_time
        self._answers_together = answers_together
        self._served: dict[Request, Served] = {}
        self._undelivered: list[Served] = []
        self._num_copied_slots = 0  # copied by forks since the last step

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self._served)

    @property
    def num_waiting(self) -> int:
        """Requests that wait, including preempted and swapped ones."""
        return len(self.scheduler.queues.waiting) + len(self.scheduler.queues.swapped)

    def add(self, timed: TimedRequest) -> None:
        """Queue a request.

        Raises:
            RequestTooLargeError: it could never fit.
        """
        length = timed.num_prompt_tokens + timed.num_output_tokens
        if length > self._plan.max_model_len:
            raise RequestTooLargeError(
                f"{timed.num_prompt_tokens:,} prompt and {timed.num_output_tokens:,} output tokens are more "
                f"than max_model_len={self._plan.max_model_len:,}"
            )
        if timed.num_samples > self._max_num_seqs:
            raise RequestTooLargeError(
                f"{timed.num_samples} samples run together, but max_num_seqs is {self._max_num_seqs}"
            )
        self.manager.check_fits(
            timed.num_prompt_tokens, timed.num_output_tokens, timed.num_samples, "samples"
        )
        request = Request(
            request_id=str(self.num_arrivals),
            prompt_token_ids=prompt_token_ids(timed, self.num_arrivals),
            params=_params(timed.num_samples),
            max_tokens=timed.num_output_tokens,
            sampling_seed=0,
            arrival=self.num_arrivals,
        )
        self.num_arrivals += 1
        self._served[request] = Served(timed, request)
        self.scheduler.add(request)

    def step(self) -> None:
        """Compute one step. There must be unfinished requests.

        Raises:
            InvariantError: no request can be scheduled, which is a bug.
        """
        plan = self.scheduler.schedule()
        if not plan.scheduled:
            raise InvariantError("requests are unfinished, but none of them can be scheduled")
        load, sampling = self._compute(plan)
        seconds = self._step_time(load)
        self.clock += seconds
        self.num_steps += 1
        if self._events is not None:
            self._events.emit(StepExecuted(self._events.now()))
        self.on_step(seconds)
        for request, seq in sampling:
            self._sample(request, seq)
        for request, _ in sampling:  # as in the engine, requests end after all tokens of the step
            if request.is_finished and request in self._served:
                self.scheduler.retire(request)
                self._deliver(self._served.pop(request))
        if self._events is not None:
            tell_finished(self._events, self.scheduler.queues, self.manager)

    def _compute(self, plan: SchedulerOutput) -> tuple[StepLoad, list[tuple[Request, Sequence]]]:
        """Count what a step computes, and mark its tokens as computed.

        Returns:
            The counts, and the sequences that get a token.
        """
        num_kv_tokens = num_pairs = num_copied = 0
        sampling: list[tuple[Request, Sequence]] = []
        for item in decodes_first(plan.scheduled):
            seq, new = item.seq, item.num_tokens
            before = seq.num_computed_tokens
            seq.num_computed_tokens = after = before + new
            num_kv_tokens += after
            num_pairs += new * before + (new * (new + 1) >> 1)  # each query sees the keys up to its own
            num_copied += len(item.copies)
            if after == len(seq.token_ids):
                sampling.append((item.request, seq))
        block_size = self._plan.block_size
        load = StepLoad(
            num_seqs=len(plan.scheduled),
            num_tokens=plan.num_tokens,
            num_sampled=len(sampling),
            num_kv_tokens=num_kv_tokens,
            num_pairs=num_pairs,
            num_copied_tokens=num_copied * block_size + self._num_copied_slots,
            num_swapped_tokens=(len(plan.swap_outs) + len(plan.swap_ins)) * block_size,
        )
        self._num_copied_slots = 0
        return load, sampling

    def _sample(self, request: Request, seq: Sequence) -> None:
        """Give a sequence its next token. At the end of the prompt, fork the other samples first."""
        if len(seq.token_ids) == seq.num_prompt_tokens:
            self._fork_samples(request, seq)
            self._served[request].first_token = self.clock
            for sample in request.sequences:
                self._append_token(request, sample)
        else:
            self._append_token(request, seq)

    def _fork_samples(self, request: Request, parent: Sequence) -> None:
        for index in range(1, request.params.n):
            child = Sequence(request.prompt_token_ids, index)
            self.manager.fork(parent, child, parent.num_computed_tokens)
            request.sequences.append(child)

    def _append_token(self, request: Request, seq: Sequence) -> None:
        seq.token_ids.append(-1 - seq.index)  # samples differ in it, and no prompt contains it
        is_last = len(seq.token_ids) - seq.num_prompt_tokens == request.max_tokens
        if self._events is not None:
            seq_id = self._events.id_of(seq)
            self._events.emit(TokenSampled(seq_id, seq.token_ids[-1], ""))
            if is_last:
                self._events.emit(SequenceFinished(seq_id, "length", None))
        if not is_last:
            return
        seq.finish_reason = "length"
        self.manager.free(seq)

    def _deliver(self, served: Served) -> None:
        self._undelivered.append(served)
        if self._answers_together and self.scheduler.queues.running:
            return
        for each in self._undelivered:
            each.finished = self.clock
            self.on_finished(each)
        self._undelivered.clear()

    def _copy_slots(self, source: int, target: int, num_slots: int) -> None:
        """Count the slots that a contiguous cache would copy when a request forks."""
        self._num_copied_slots += num_slots


def prompt_token_ids(timed: TimedRequest, number: int) -> list[int]:
    """An invented prompt. Two requests share only their prefix, and only if it has the same number.

    Args:
        timed: the request.
        number: the number of the request's arrival.
    """
    shared = timed.num_prefix_tokens
    return [2 * timed.prefix] * shared + [2 * number + 1] * (timed.num_prompt_tokens - shared)


@cache
def _params(num_samples: int) -> SamplingParams:
    """One cached value for all requests. Checking a new one would take most of an arrival's time."""
    return SamplingParams(n=num_samples)
