"""The share of bookkeeping in an engine's step, measured with a real model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from minipaged.attention.paged_layout import PagedLayout
from minipaged.bench.scheduler_steps import locating_layout
from minipaged.config import EngineConfig
from minipaged.engine.assembly import Machinery, assemble
from minipaged.engine.output_processor import OutputProcessor
from minipaged.loading.loader import load_model
from minipaged.request import Request
from minipaged.runner.step_batch import build_step_batch
from minipaged.sampling.params import SamplingParams

PROMPT_TOKENS = 128


@dataclass(frozen=True)
class StepShare:
    """Times of a decode step with a model, in seconds: medians over the steps.

    Attributes:
        model: the model's name.
        num_requests: number of requests in the batch.
        whole: time of the whole step.
        schedule, prepare, take_in: times of its parts, as in `scheduler_steps.StepTimes`.
    """

    model: str
    num_requests: int
    whole: float
    schedule: float
    prepare: float
    take_in: float

    @property
    def share(self) -> float:
        """The share of the step that is spent outside the model."""
        return (self.schedule + self.prepare + self.take_in) / self.whole


def measure_share(model_name: str, *, num_requests: int = 32, num_steps: int = 32, threads: int) -> StepShare:
    """Serve a batch, and time the parts of each decode step.

    To time the input alone, each step prepares it a second time. The second time is not part of `whole`.

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
        return _measure(assemble(config, model, progress=False), config, num_requests, num_steps)
    finally:
        torch.set_num_threads(before)


def _measure(machinery: Machinery, config: EngineConfig, num_requests: int, num_steps: int) -> StepShare:
    scheduler, model = machinery.scheduler, machinery.model
    layout = locating_layout(config.block_size)
    rng = np.random.default_rng(0)
    processors: dict[str, OutputProcessor] = {}
    # Besides the measured steps: one step for the prompts, and one decode step as a warm-up.
    max_tokens = num_steps + 3
    for number in range(num_requests):
        prompt = rng.integers(0, model.config.vocab_size, PROMPT_TOKENS).tolist()
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        request = Request(str(number), prompt, params, max_tokens, sampling_seed=0, arrival=number)
        scheduler.add(request)
        processors[request.request_id] = OutputProcessor(
            request, machinery.kv_manager, model, arrival_time=0.0
        )
    times = [_step(machinery, layout, processors) for _ in range(num_steps + 2)][2:]
    schedule, prepare, take_in, whole = (median(column) for column in zip(*times, strict=True))
    return StepShare(config.model_name, num_requests, whole, schedule, prepare, take_in)


def _step(
    machinery: Machinery, layout: PagedLayout, processors: dict[str, OutputProcessor]
) -> tuple[float, float, float, float]:
    """Seconds of `schedule`, `prepare` and `take_in`, and of the whole step without the extra input."""
    began = time.perf_counter()
    plan = machinery.scheduler.schedule()
    planned = time.perf_counter()
    layout.locate(build_step_batch(plan.scheduled))
    prepared = time.perf_counter()
    results = machinery.runner.execute(plan)
    executed = time.perf_counter()
    for result in results:
        result.item.seq.num_computed_tokens += result.item.num_tokens
        processors[result.item.request.request_id].take(result)
    ended = time.perf_counter()
    whole = (planned - began) + (ended - prepared)
    return planned - began, prepared - planned, ended - executed, whole
