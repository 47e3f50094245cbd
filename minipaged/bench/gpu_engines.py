"""The engines that `minipaged bench gpu` measures: a model with random weights, and Triton kernels."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import torch

from minipaged.bench.gpu_workload import EngineSizes
from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.options import EngineOptions
from minipaged.parts import Parts
from minipaged.runner.capture import rerun
from minipaged.sampling.params import SamplingParams
from minipaged.sim.workload import Workload

TEMPERATURE = 0.6


@contextmanager
def model_folder(sizes: EngineSizes) -> Iterator[str]:
    """A temporary folder with the model's `config.json`. It exists while the `with` block runs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(sizes.model, encoding="utf-8")
        yield folder


def make_engine(
    sizes: EngineSizes, on: torch.device, *, graphs: bool, **options: Unpack[EngineOptions]
) -> LLMEngine:
    """An engine for nano-vllm's workload.

    Args:
        sizes: the model, and the workload.
        on: the engine's device. Without CUDA, "replaying" a graph only calls the captured function again.
        graphs: whether decode steps are captured as graphs.
        options: other settings. They override the defaults below.
    """
    defaults = EngineOptions(
        load_format="dummy",
        device=str(on),
        attention_backend="triton",
        enforce_eager=not graphs,
        max_model_len=sizes.longest_request,
        max_num_seqs=sizes.num_requests,
        max_num_batched_tokens=16_384,
        enable_prefix_caching=False,  # no two prompts share a prefix
        num_blocks=sizes.num_blocks,
        parts=Parts(capture=rerun) if graphs and on.type != "cuda" else None,
    )
    with model_folder(sizes) as folder:
        return LLMEngine(EngineConfig(model=folder, **(defaults | options)))


@dataclass(frozen=True)
class Served:
    """The result of a workload: output tokens, steps, and the seconds that they took."""

    num_tokens: int
    num_steps: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def serve(engine: LLMEngine, workload: Workload, max_seconds: float) -> Served:
    """Serve a workload whose requests all arrive at once. At the time limit, drop unfinished requests."""
    before = engine.stats()
    add_requests(engine, workload)
    start = time.perf_counter()
    while engine.has_unfinished_requests() and time.perf_counter() - start < max_seconds:
        engine.advance()
    seconds = time.perf_counter() - start
    engine.abort_all()
    after = engine.stats()
    num_tokens = after.generation_tokens - before.generation_tokens
    return Served(num_tokens, after.num_steps - before.num_steps, seconds)


def add_requests(engine: LLMEngine, workload: Workload) -> None:
    """Queue a workload's requests, with the sampling parameters of nano-vllm's bench.py.

    Each output gets exactly the length that the workload says.
    """
    for number, request in enumerate(workload.requests):
        params = SamplingParams(
            temperature=TEMPERATURE, max_tokens=request.max_tokens, ignore_eos=True, seed=number
        )
        engine.add_request(str(number), list(request.prompt_token_ids), params)
