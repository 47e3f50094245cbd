"""The part of `minipaged bench gpu` that runs one workload at every stage of the course."""

from __future__ import annotations

import torch

from minipaged.bench.gpu_engines import model_folder
from minipaged.bench.gpu_part import PartResult, Parts, Row
from minipaged.bench.gpu_workload import FULL, REHEARSAL, EngineSizes, first_requests, nano_vllm_workload
from minipaged.bench.ladder import Ladder
from minipaged.config import EngineConfig
from minipaged.engine.assembly import load_configured_model
from minipaged.kv.size import blocks_needed
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from minipaged.stages import NUM_STAGES

BLOCK_SIZE = 16


def make_parts(device: torch.device, *, rehearse: bool) -> Parts:
    """The parts to run, by name; see `gpu_groups`."""
    return {"ladder": lambda: climb(REHEARSAL if rehearse else FULL, device)}


def climb(sizes: EngineSizes, device: torch.device) -> PartResult:
    """Measure output tokens per second at each stage.

    The memory is enough for half of the requests at their greatest length. In bfloat16, rounding differs
    from stage to stage, so tokens may differ too.
    """
    longest = 2 * sizes.ladder_longest
    workload = first_requests(
        nano_vllm_workload(sizes), sizes.ladder_requests, sizes.ladder_longest, sizes.ladder_longest
    )
    ladder = Ladder(
        model=_load(sizes, device),
        num_usable_blocks=-(-sizes.ladder_requests // 2) * blocks_needed(longest, BLOCK_SIZE),
        max_model_len=longest,
        options=EngineOptions(block_size=BLOCK_SIZE),
    )
    result = ladder.run(workload, range(1, NUM_STAGES + 1), lambda stage: lambda num_tokens: None)
    rows: list[Row] = [
        {"stage": each.stage, "output tokens/s": each.tokens_per_second, "steps": each.num_steps}
        for each in result.stages
    ]
    fastest = max(result.stages, key=lambda each: each.tokens_per_second)
    tokens = "equal tokens" if result.difference is None else str(result.difference)
    headline = f"stage {fastest.stage}: {result.ratio(fastest):.1f} × stage {result.base.stage}; {tokens}"
    return PartResult(headline, rows)


def _load(sizes: EngineSizes, device: torch.device) -> LoadedModel:
    with model_folder(sizes) as folder:
        return load_configured_model(EngineConfig(model=folder, load_format="dummy", device=str(device)))
