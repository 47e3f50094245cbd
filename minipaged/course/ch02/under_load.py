"""Fig. 2 of the paper in the running engine: what its slots hold while the queue is never empty.

The memory does not depend on what the model generates. So the model has one small layer with random weights,
and the engine around it is the real one. Everything is a quarter of the paper's size: a context of 512 tokens
instead of 2,048, 3,932 slots instead of 15,728, and blocks of 4 instead of 16. The shares do not change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

import torch

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.options import EngineOptions
from minipaged.sampling.params import SamplingParams
from minipaged.sim.lengths import SHAREGPT
from minipaged.sim.workload import make_workload

SCALE = 4
MAX_MODEL_LEN = 2048 // SCALE
BLOCK_SIZE = 16 // SCALE
NUM_BLOCKS = 983
"""The paper's 15,728 slots are 983 blocks of 16."""

_NUM_REQUESTS = 400
_VOCAB_SIZE = 32


@dataclass(frozen=True)
class UnderLoad:
    """The averages over many steps of one engine.

    Attributes:
        shares: share of all slots, 0 to 1, for each field of `MemoryBreakdown`. As in the paper's Fig. 2,
            `free` is counted in `external_fragmentation`.
        num_running: mean number of requests in the batch.
    """

    shares: dict[str, float]
    num_running: float


def under_load(num_steps: int, *, workload_seed: int = 0, **options: Unpack[EngineOptions]) -> UnderLoad:
    """Serve requests with lengths like ShareGPT's from a queue that is never empty.

    Args:
        num_steps: steps of the engine. The first quarter fills the cache, and does not count.
        workload_seed: the seed of the lengths.
        options: options of the engine: its layout, how much it reserves, and its allocator.
    """
    wanted = EngineOptions(
        dtype="float32",
        device="cpu",
        block_size=BLOCK_SIZE,
        num_blocks=NUM_BLOCKS,
        max_model_len=MAX_MODEL_LEN,
        enable_prefix_caching=False,
    )
    engine = LLMEngine(EngineConfig(**(wanted | options)), _small_model())
    lengths = SHAREGPT.scaled_to(MAX_MODEL_LEN)
    for number, request in enumerate(
        make_workload(lengths, _NUM_REQUESTS, _VOCAB_SIZE, workload_seed).requests
    ):
        params = SamplingParams(temperature=0, max_tokens=request.max_tokens, ignore_eos=True)
        engine.add_request(str(number), list(request.prompt_token_ids), params)
    seen: list[MemoryBreakdown] = []
    running = []
    for step in range(num_steps):
        ended = any(processor.request.is_finished for processor in engine.advance())
        if not engine.stats().num_waiting:
            raise RuntimeError(f"the queue was empty after {step} steps: this is no load")
        # The slots of a request that has just ended are free until the next step allocates them again.
        if step >= num_steps // 4 and not ended:
            seen.append(engine.memory_breakdown())
            running.append(engine.stats().num_running)
    total = sum(each.num_slots for each in seen)
    shares = {each.name: sum(getattr(one, each.name) for one in seen) / total for each in fields(seen[0])}
    shares["external_fragmentation"] += shares.pop("free")
    return UnderLoad(shares, sum(running) / len(running))


def _small_model() -> LoadedModel:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": _VOCAB_SIZE,
        "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return load_model(folder, dtype=torch.float32, device=torch.device("cpu"), load_format="dummy")
