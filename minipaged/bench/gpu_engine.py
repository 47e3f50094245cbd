"""What `minipaged bench gpu` measures of the whole engine."""

from __future__ import annotations

import json
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from minipaged.bench.gpu_part import PartResult, Row
from minipaged.config import EngineConfig
from minipaged.engine import LLMEngine
from minipaged.sampling.params import SamplingParams
from minipaged.sim.workload import Workload, WorkloadRequest

TEMPERATURE = 0.6


@dataclass(frozen=True)
class EngineSizes:
    """A model's shape, and the workload that it serves.

    Attributes:
        model: a `config.json`, by field; the weights are random.
        num_requests: how many.
        shortest, longest: of prompts and of outputs, in tokens.
        last_token_id: prompts are of tokens from 0 to that.
        num_blocks: in the pool; `None` for what fits.
    """

    model: str
    num_requests: int
    shortest: int
    longest: int
    last_token_id: int
    num_blocks: int | None


def qwen3_config(**fields: int) -> str:
    """A `config.json` of the Qwen3 family."""
    fixed = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu"}
    fixed |= {"rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True, "attention_bias": False}
    return json.dumps(fixed | fields)


FULL = EngineSizes(
    model=qwen3_config(  # Qwen3-0.6B
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151_936,
        max_position_embeddings=40_960,
    ),
    num_requests=256,
    shortest=100,
    longest=1024,
    last_token_id=10_000,
    num_blocks=None,
)
REHEARSAL = EngineSizes(
    model=qwen3_config(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=64,
        max_position_embeddings=64,
    ),
    num_requests=3,
    shortest=2,
    longest=8,
    last_token_id=63,
    num_blocks=9,
)


def nano_vllm_workload(sizes: EngineSizes) -> Workload:
    """The requests of nano-vllm's bench.py (GeeeekExplorer/nano-vllm), drawn in its order from its seed."""
    rng = random.Random(0)
    prompts = [
        tuple(rng.randint(0, sizes.last_token_id) for _ in range(rng.randint(sizes.shortest, sizes.longest)))
        for _ in range(sizes.num_requests)
    ]
    lengths = [rng.randint(sizes.shortest, sizes.longest) for _ in prompts]
    requests = tuple(WorkloadRequest(*each) for each in zip(prompts, lengths, strict=True))
    return Workload("nano-vllm's", requests)


class EngineBench:
    """The parts, over one device."""

    def __init__(self, device: torch.device, sizes: EngineSizes) -> None:
        self._device = device
        self._sizes = sizes

    def throughput(self) -> PartResult:
        """Output tokens per second on nano-vllm's workload."""
        workload = nano_vllm_workload(self._sizes)
        engine = self._make_engine()
        few = tuple(replace(request, max_tokens=2) for request in workload.requests[:2])
        _serve(engine, Workload("warm-up", few))  # compiles the kernels
        num_steps, seconds = _serve(engine, workload)
        rate = workload.num_output_tokens / seconds
        row: Row = {"requests": len(workload.requests), "output tokens": workload.num_output_tokens}
        row |= {"steps": num_steps, "seconds": seconds, "output tokens/s": rate}
        return PartResult(f"{rate:,.0f} output tokens/s, {1e3 * seconds / num_steps:.1f} ms a step", [row])

    def _make_engine(self) -> LLMEngine:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(self._sizes.model, encoding="utf-8")
            return LLMEngine(
                EngineConfig(
                    model=folder,
                    load_format="dummy",
                    device=str(self._device),
                    attention_backend="triton",
                    max_model_len=self._longest_request,
                    max_num_seqs=self._sizes.num_requests,
                    max_num_batched_tokens=16_384,
                    enable_prefix_caching=False,  # no two prompts begin alike
                    num_blocks=self._sizes.num_blocks,
                )
            )

    @property
    def _longest_request(self) -> int:
        return 2 * self._sizes.longest


def _serve(engine: LLMEngine, workload: Workload) -> tuple[int, float]:
    """Serve a workload that arrives all at once; the steps, and the seconds that they took."""
    for number, request in enumerate(workload.requests):
        params = SamplingParams(
            temperature=TEMPERATURE, max_tokens=request.max_tokens, ignore_eos=True, seed=number
        )
        engine.add_request(str(number), list(request.prompt_token_ids), params)
    num_steps = 0
    start = time.perf_counter()
    while engine.has_unfinished_requests():
        engine.step()
        num_steps += 1
    return num_steps, time.perf_counter() - start
