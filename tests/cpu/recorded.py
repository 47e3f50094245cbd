"""Run engines whose decode steps are recorded, and overwrite what they keep between steps."""

from __future__ import annotations

import torch

from minipaged import LLMEngine
from minipaged.cpu.recorded_decode import RecordedDecode
from minipaged.options import EngineOptions
from tests.engine.driving import check_and_poison, make_engine
from tests.model_pairs import Pair

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [1], [9, 9], [6, 2, 8, 3, 1]]


def make(pair: Pair, **options: object) -> LLMEngine:
    defaults: dict[str, object] = {"block_size": 4, "num_blocks": 60, "max_model_len": 64, "max_num_seqs": 8}
    return make_engine(pair.model, **EngineOptions(**(defaults | options)))  # pyright: ignore[reportArgumentType]


def steps_of(engine: LLMEngine) -> RecordedDecode:
    steps = engine._runner._decode_steps
    assert isinstance(steps, RecordedDecode)
    return steps


def sizes(engine: LLMEngine) -> set[int]:
    """The numbers of sequences for which steps have been recorded."""
    return {num_rows for num_rows, _ in steps_of(engine)._recorded}


@torch.inference_mode()
def spoil(engine: LLMEngine) -> None:
    """After a step, overwrite unused numbers with NaN, and the inputs with those of another step."""
    check_and_poison(engine)
    steps = steps_of(engine)
    for kept in (steps._hidden, steps._normed, steps._cos, steps._sin, steps._heads, steps._attended):
        kept.fill_(float("nan"))
    steps._inputs.slot_mapping.fill_(0)
    steps._inputs.seq_lens.fill_(31)
    steps._inputs.block_tables.fill_(10**6)
    groups = steps._groups
    groups.members.copy_(torch.arange(len(groups.members)))
    groups.starts.copy_(2 * (torch.arange(len(groups.starts)) % 2))  # wrong groups, if they were read
    groups.shared.fill_(10**6)
