"""The ladder on a very small model: the same memory, the same tokens, and correct counts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from minipaged import LLMEngine
from minipaged.bench.ladder import (
    STAGE_NAMES,
    Difference,
    Ladder,
    LadderResult,
    WorkloadResult,
    find_difference,
)
from minipaged.bench.stage_run import Latency, MemoryShares, run_stage
from minipaged.errors import ConfigError
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.options import EngineOptions
from minipaged.sim.lengths import ALPACA, SHAREGPT
from minipaged.sim.workload import make_shared_prefix_workload, make_workload
from minipaged.stages import NUM_STAGES
from tests.bench.results import stage_result, workload_result
from tests.oracle import make_model

STAGES = range(1, NUM_STAGES + 1)
VOCAB_SIZE = 32


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_model(
        tmp_path_factory.mktemp("models") / "nano",
        num_layers=1,
        hidden_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=16,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=64,
    )
    return load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))


def make_ladder(model: LoadedModel, num_usable: int = 32) -> Ladder:
    return Ladder(model, num_usable, 64, EngineOptions(block_size=4, device="cpu"))


def unwatched(stage: int) -> Callable[[int], None]:
    return lambda num_tokens: None


@pytest.fixture(scope="module")
def result(nano: LoadedModel) -> WorkloadResult:
    workload = make_workload(SHAREGPT.scaled_to(64), 30, VOCAB_SIZE, seed=0)
    return make_ladder(nano).run(workload, STAGES, unwatched)


def test_every_stage_gives_the_same_tokens(result: WorkloadResult) -> None:
    assert result.difference is None
    assert [each.stage for each in result.stages] == list(STAGES) == list(STAGE_NAMES)
    assert {each.num_output_tokens for each in result.stages} == {result.num_output_tokens}


def test_each_layout_has_room_for_as_many_tokens(nano: LoadedModel, result: WorkloadResult) -> None:
    assert result.num_slots == 32 * 4
    for stage in STAGES[1:]:
        engine = LLMEngine(make_ladder(nano).config(stage), nano)
        assert engine.memory_breakdown().num_slots == result.num_slots


def test_what_the_counts_say(result: WorkloadResult) -> None:
    by_stage = {each.stage: each for each in result.stages}
    assert by_stage[1].mean_batch == 1.0
    assert by_stage[1].memory is None
    assert by_stage[1].num_steps == result.num_output_tokens, "one by one"
    assert 1 < by_stage[2].mean_batch <= 2, "two regions of the maximum length"
    assert by_stage[3].mean_batch > by_stage[2].mean_batch
    assert by_stage[6].mean_batch > by_stage[5].mean_batch
    assert by_stage[7].mean_batch > by_stage[6].mean_batch
    for each in result.stages:
        assert each.seconds > 0
        assert each.ttft is not None
        assert each.tpot is not None
        assert 0 < each.ttft.mean <= each.ttft.p99 <= each.seconds
        assert 0 < each.tpot.mean <= each.tpot.p99
    for stage in STAGES[1:]:
        memory = by_stage[stage].memory
        assert memory is not None
        shares = [
            memory.token_states,
            memory.reservation,
            memory.internal_fragmentation,
            memory.external_fragmentation,
            memory.free,
        ]
        assert sum(shares) == pytest.approx(1)
        assert min(shares) >= 0
        assert memory.token_states > 0
    contiguous, paged = by_stage[2].memory, by_stage[3].memory
    assert contiguous is not None
    assert paged is not None
    assert contiguous.internal_fragmentation > 3 * paged.internal_fragmentation


def test_a_shared_prefix_is_found_at_stage_8_alone(nano: LoadedModel) -> None:
    workload = make_shared_prefix_workload(ALPACA.scaled_to(64), 8, VOCAB_SIZE, 0, num_prefix_tokens=10)
    result = make_ladder(nano).run(workload, [7, 8], unwatched)
    without, reusing = result.stages
    assert result.difference is None
    assert (without.prefix_cache_queries, without.prefix_cache_hits) == (0, 0)
    assert reusing.prefix_cache_queries == workload.num_prompt_tokens
    assert reusing.prefix_cache_hits == 7 * 8, "all but the first request: two blocks of the prefix"
    assert result.num_prefix_tokens == 10


def test_progress_is_the_tokens_so_far(nano: LoadedModel) -> None:
    workload = make_workload(SHAREGPT.scaled_to(64), 4, VOCAB_SIZE, seed=1)
    seen: list[int] = []
    result, outputs = run_stage(7, LLMEngine(make_ladder(nano).config(7), nano), workload, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == workload.num_output_tokens == result.num_output_tokens
    assert len(seen) == result.num_steps, "the warm-up does not count"
    assert [len(tokens) for tokens in outputs] == [request.max_tokens for request in workload.requests]


def test_the_base_is_stage_2_or_else_the_first() -> None:
    result = workload_result(stage_result(1, seconds=40.0), stage_result(2), stage_result(3, seconds=5.0))
    assert [result.ratio(each) for each in result.stages] == [0.25, 1.0, 2.0]
    result = workload_result(stage_result(6), stage_result(8, seconds=5.0))
    assert [result.ratio(each) for each in result.stages] == [1.0, 2.0]


def test_a_difference_is_found() -> None:
    expected = ((1, 2, 3), (4, 5))
    assert find_difference(1, expected, 2, expected) is None
    assert find_difference(1, expected, 2, ((1, 2, 3), (4, 6))) == Difference(2, 1, request=1, position=1)
    assert find_difference(1, expected, 2, ((1, 2), (4, 5))) == Difference(2, 1, request=0, position=2)
    assert "stages 1 and 2 differ from output token 2 of request 0 on" in str(Difference(2, 1, 0, 2))


def test_json_has_what_was_measured(result: WorkloadResult) -> None:
    whole = LadderResult("nano", "float32", "cpu", 1, 0, 4, 64, (result,))
    document = json.loads(whole.to_json())
    assert document["model"] == "nano"
    [workload] = document["workloads"]
    assert workload["num_output_tokens"] == result.num_output_tokens
    assert [entry["stage"] for entry in workload["stages"]] == list(STAGES)
    for entry, stage in zip(workload["stages"], result.stages, strict=True):
        assert entry["tokens_per_second"] == pytest.approx(result.num_output_tokens / stage.seconds)
        assert entry["ratio"] == pytest.approx(result.ratio(stage))
    assert workload["stages"][1]["memory"]["free"] == pytest.approx(
        1 - sum(share for name, share in workload["stages"][1]["memory"].items() if name != "free")
    )


def test_what_cannot_run_is_refused_at_once(nano: LoadedModel) -> None:
    ladder = make_ladder(nano, num_usable=4)  # 16 tokens, for requests of up to 64
    for stage in (2, 8):
        with pytest.raises(ConfigError, match="max_model_len=64"):
            ladder.check([stage])
    with pytest.raises(ConfigError, match="at least one stage"):
        ladder.run(make_workload(ALPACA.scaled_to(64), 1, VOCAB_SIZE, 0), [], unwatched)
    with pytest.raises(ConfigError, match="stages 1 to 8"):
        ladder.check([9])


def test_latency_and_memory_of_nothing() -> None:
    assert Latency.of([]) is None
    assert Latency.of([2.0]) == Latency(2.0, 2.0)
    latency = Latency.of([float(n) for n in range(101)])
    assert latency == Latency(50.0, 99.0)
    assert MemoryShares.of([MemoryBreakdown(0, 0, 0, 0, 0)]) is None
    shares = MemoryShares.of([MemoryBreakdown(2, 1, 1, 0, 4), MemoryBreakdown(4, 1, 1, 2, 0)])
    assert shares == MemoryShares(6 / 16, 2 / 16, 2 / 16, 2 / 16, 4 / 16)
