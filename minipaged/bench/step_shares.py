"""Measure the share of bookkeeping in an engine's step, with a real model."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from minipaged.bench.scheduler_steps import locating_layout
from minipaged.config import EngineConfig
from minipaged.engine.assembly import assemble
from minipaged.engine.observed import ObservedOutputProcessor, engine_started
from minipaged.engine.output_processor import OutputProcessor
from minipaged.events import StepExecuted
from minipaged.kv.event_stream import EventStream
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.request import Request
from minipaged.runner.step_batch import build_step_batch
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.observed import tell_finished
from minipaged.trace.writer import TraceWriter

PROMPT_TOKENS = 128


@dataclass(frozen=True)
class StepShare:
    """Times of a decode step with a model, in seconds. Each time is the median over the steps.

    Attributes:
        model: the model's name.
        num_requests: number of requests in the batch.
        whole: time of the whole step.
        schedule, prepare, take_in: times of its parts, as in `scheduler_steps.StepTimes`.
        trace: how much longer `schedule` and `take_in` take together if the engine writes a trace.
    """

    model: str
    num_requests: int
    whole: float
    schedule: float
    prepare: float
    take_in: float
    trace: float

    @property
    def share(self) -> float:
        """The share of the step that is spent outside the model."""
        return (self.schedule + self.prepare + self.take_in) / self.whole

    @property
    def trace_share(self) -> float:
        """The time that the trace costs, as a share of a step without a trace."""
        return self.trace / self.whole


def measure_share(model_name: str, *, num_requests: int = 32, num_steps: int = 32, threads: int) -> StepShare:
    """Serve a batch, and time the parts of each decode step.

    To time the input alone, each step prepares the input a second time, which is not part of `whole`. To find
    the cost of a trace, a second batch of the same requests writes one. The two batches take turns.

    Args:
        model_name: a model as for `LLM`. It runs in float32 on the CPU.
        num_requests: number of requests in the batch.
        num_steps: decode steps that are measured.
        threads: number of torch's threads. The previous number is restored afterwards.

    Raises:
        ConfigError: the memory is too small for the batch.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = load_model(model_name, dtype=torch.float32, device=torch.device("cpu"))
        config = EngineConfig(
            model_name,
            device="cpu",
            max_model_len=PROMPT_TOKENS + num_steps + 2,
            max_num_seqs=num_requests,
            max_num_batched_tokens=num_requests * PROMPT_TOKENS,
        )
        with tempfile.TemporaryDirectory() as folder, TraceWriter(Path(folder) / "trace.jsonl") as writer:
            return _measure(config, model, writer, num_requests, num_steps)
    finally:
        torch.set_num_threads(before)


def _measure(
    config: EngineConfig, model: LoadedModel, writer: TraceWriter, num_requests: int, num_steps: int
) -> StepShare:
    # In addition to the measured steps, there is one step for the prompts, and one decode step as a warm-up.
    plain = _Batch(config, model, None, num_requests, num_steps + 3)
    traced = _Batch(config, model, writer, num_requests, num_steps + 3)
    pairs = [(plain.step(), traced.step()) for _ in range(num_steps + 2)][2:]
    times, with_trace = ([pair[i] for pair in pairs] for i in (0, 1))
    return StepShare(
        config.model_name,
        num_requests,
        whole=median(each.whole for each in times),
        schedule=median(each.schedule for each in times),
        prepare=median(each.prepare for each in times),
        take_in=median(each.take_in for each in times),
        trace=median(each.schedule + each.take_in for each in with_trace)
        - median(each.schedule + each.take_in for each in times),
    )


@dataclass(frozen=True)
class _Times:
    """Seconds of one step. `whole` does not include the second preparation of the input."""

    schedule: float
    prepare: float
    take_in: float
    whole: float


class _Batch:
    """The parts of an engine, and a batch of requests that all run at the same time."""

    def __init__(
        self,
        config: EngineConfig,
        model: LoadedModel,
        writer: TraceWriter | None,
        num_requests: int,
        max_tokens: int,
    ) -> None:
        self._events = None if writer is None else EventStream(writer)
        self._parts = assemble(config, model, self._events, progress=False)
        self._layout = locating_layout(config.block_size)
        if self._events is not None:
            self._events.emit(engine_started(config, self._parts.memory_plan))
        kind = OutputProcessor if self._events is None else ObservedOutputProcessor
        self._processors: dict[str, OutputProcessor] = {}
        rng = np.random.default_rng(0)
        for number in range(num_requests):
            prompt = rng.integers(0, model.config.vocab_size, PROMPT_TOKENS).tolist()
            params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
            request = Request(str(number), prompt, params, max_tokens, sampling_seed=0, arrival=number)
            self._parts.scheduler.add(request)
            processor = kind(request, self._parts.kv_manager, model, arrival_time=0.0)
            self._processors[request.request_id] = processor
            if self._events is not None:
                self._events.observe(processor)

    def step(self) -> _Times:
        """Compute one step."""
        began = time.perf_counter()
        plan = self._parts.scheduler.schedule()
        planned = time.perf_counter()
        self._layout.locate(build_step_batch(plan.scheduled))
        prepared = time.perf_counter()
        results = self._parts.runner.execute(plan)
        executed = time.perf_counter()
        if self._events is not None:
            self._events.emit(StepExecuted(self._events.now()))
        for result in results:
            result.item.seq.num_computed_tokens += result.item.num_tokens
            self._processors[result.item.request.request_id].take(result)
        if self._events is not None:
            tell_finished(self._events, self._parts.scheduler.queues, self._parts.kv_manager)
        ended = time.perf_counter()
        whole = (planned - began) + (ended - prepared)
        return _Times(planned - began, prepared - planned, ended - executed, whole)
