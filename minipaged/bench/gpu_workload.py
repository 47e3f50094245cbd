"""The models and the requests that `minipaged bench gpu` serves."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from minipaged.sim.workload import Workload, WorkloadRequest


@dataclass(frozen=True)
class EngineSizes:
    """A model's shape, and the workloads that it serves.

    Attributes:
        model: the text of a `config.json`. The weights are random.
        num_requests: requests of nano-vllm's workload.
        shortest, longest: bounds for the lengths of this workload's prompts and outputs, in tokens.
        last_token_id: prompts consist of token ids from 0 to this one.
        num_blocks: blocks in the pool. With `None`, the pool gets as many as fit.
        num_steps: decode steps that are timed and profiled.
        compared_outputs: tokens of each output when graphs are compared with eager steps.
        ladder_requests: the ladder serves this many requests from the beginning of the workload.
        ladder_longest: the ladder cuts its prompts, and its outputs, to this many tokens.
    """

    model: str
    num_requests: int
    shortest: int
    longest: int
    last_token_id: int
    num_blocks: int | None
    num_steps: int
    compared_outputs: int
    ladder_requests: int
    ladder_longest: int

    @property
    def longest_request(self) -> int:
        """Tokens of the longest request, prompt and output together."""
        return 2 * self.longest


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
    num_steps=20,
    compared_outputs=48,
    ladder_requests=16,
    ladder_longest=64,
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
    num_steps=1,
    compared_outputs=3,
    ladder_requests=2,
    ladder_longest=3,
)


def nano_vllm_workload(sizes: EngineSizes) -> Workload:
    """The requests of nano-vllm's bench.py (GeeeekExplorer/nano-vllm), drawn in its order with its seed."""
    rng = random.Random(0)
    prompts = [
        tuple(rng.randint(0, sizes.last_token_id) for _ in range(rng.randint(sizes.shortest, sizes.longest)))
        for _ in range(sizes.num_requests)
    ]
    lengths = [rng.randint(sizes.shortest, sizes.longest) for _ in prompts]
    requests = tuple(WorkloadRequest(*each) for each in zip(prompts, lengths, strict=True))
    return Workload("nano-vllm's", requests)


def first_requests(workload: Workload, num_requests: int, longest_prompt: int, max_tokens: int) -> Workload:
    """The first requests of a workload, cut to the given lengths."""
    requests = tuple(
        WorkloadRequest(each.prompt_token_ids[:longest_prompt], min(each.max_tokens, max_tokens))
        for each in workload.requests[:num_requests]
    )
    return Workload(f"the beginning of {workload.name}", requests)
