"""The limits, counts and messages of engines whose KV layout has no blocks."""

from __future__ import annotations

from typing import Unpack

import pytest

from minipaged import LLM, BeamSearchParams, LLMEngine, MemoryBreakdown, SamplingParams
from minipaged.choices import RegionAllocatorName
from minipaged.errors import ConfigError, InvariantError, RequestTooLargeError, SamplingParamsError
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from minipaged.stages import stage_options
from tests.engine.driving import (
    assert_all_free,
    assert_greedy,
    check_and_poison,
    drain,
    greedy,
    make_engine,
    run,
)
from tests.model_pairs import Pair

CONTIGUOUS = EngineOptions(kv_layout="contiguous", block_size=4, max_model_len=16)
UNCACHED = EngineOptions(kv_layout="none", max_model_len=16)


def contiguous(model: LoadedModel, blocks: int, **options: Unpack[EngineOptions]) -> LLMEngine:
    return make_engine(model, **(CONTIGUOUS | EngineOptions(num_blocks=blocks) | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": 3}, "region of 16 slots, and the largest .* has 12: ask for max_model_len=12"),
        ({"num_blocks": 7, "region_allocator": "buddy", "max_model_len": 17}, "has 16"),
        ({"kv_cache_memory_bytes": 1}, "has none: give it more memory"),
        ({"max_model_len": 2000}, "trained for"),
    ],
)
def test_a_cache_too_small_for_one_request(
    nano_model: LoadedModel, options: EngineOptions, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_engine(nano_model, **(CONTIGUOUS | options))


@pytest.mark.parametrize(("allocator", "longest"), [("first_fit", 28), ("buddy", 16)])
def test_the_longest_request_that_fits(tiny: Pair, allocator: RegionAllocatorName, longest: int) -> None:
    engine = contiguous(tiny.model, 7, max_model_len="auto", region_allocator=allocator)
    assert engine.max_model_len == longest
    [output] = run(engine, [[1] * (longest - 1)], greedy(1), after_step=check_and_poison)
    assert_greedy(tiny.oracle, output, 1)
    assert_all_free(engine)


def test_what_can_never_fit_is_refused_with_the_arithmetic(nano_model: LoadedModel) -> None:
    engine = contiguous(nano_model, 11, reserve="oracle")
    engine.add_request("fits", [1] * 3, SamplingParams(n=4, max_tokens=9))
    with pytest.raises(RequestTooLargeError, match=r"5 samples .* 11 slots each .* 44 slots has room for 4"):
        engine.add_request("a", [1] * 3, SamplingParams(n=5, max_tokens=9))
    with pytest.raises(RequestTooLargeError, match=r"3 beams .* 15 slots each .* room for 2"):
        engine.add_request("b", [1] * 3, BeamSearchParams(beam_width=3, max_tokens=99))
    with pytest.raises(RequestTooLargeError, match="longest prompt is 15"):
        engine.add_request("c", [1] * 16, greedy(1))
    assert len(drain(engine)["fits"].outputs) == 4
    assert_all_free(engine)


def test_copied_forks_need_more_blocks(nano_model: LoadedModel) -> None:
    """8 prompt and 5 output tokens, in blocks of 4: three blocks for each sample. Two could be shared."""
    params = SamplingParams(n=3, max_tokens=5)
    options = EngineOptions(block_size=4, num_blocks=9, max_model_len=16)
    make_engine(nano_model, **options).add_request("a", [1] * 8, params)
    with pytest.raises(RequestTooLargeError, match="9 blocks of 4, sharing nothing; the pool has 8"):
        make_engine(nano_model, **(options | EngineOptions(fork_mode="copy"))).add_request(
            "a", [1] * 8, params
        )


def test_counts_of_a_contiguous_engine(nano_model: LoadedModel) -> None:
    engine = contiguous(nano_model, 10)
    for request_id in "abc":
        engine.add_request(request_id, [1, 2, 3], greedy(5))
    engine.step()
    stats = engine.stats()
    assert (stats.num_blocks, stats.num_free_blocks, stats.kv_cache_usage) == (10, 2, 0.8)
    assert (stats.num_running, stats.num_waiting) == (2, 1)
    # 2 x 16 slots are reserved, each for 3 tokens, 4 more that will be computed, and 9 that are wasted. The
    # 8 free slots are too few for c.
    assert engine.memory_breakdown() == MemoryBreakdown(6, 8, 18, 8, 0)
    engine.abort_request("c")
    assert engine.memory_breakdown() == MemoryBreakdown(6, 8, 18, 0, 8)
    with pytest.raises(ConfigError, match="has no blocks to look at"):
        _ = engine.manager
    engine.reset_prefix_cache()
    engine.abort_all()
    assert_all_free(engine)


def test_counts_of_an_engine_without_a_cache(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, **(stage_options(1) | EngineOptions(num_blocks=10)))
    assert str(engine.memory_plan).startswith("No KV cache")
    engine.add_request("a", [1, 2, 3], greedy(5))
    engine.step()
    stats = engine.stats()
    assert (stats.num_blocks, stats.num_free_blocks, stats.kv_cache_usage) == (0, 0, 0.0)
    assert engine.kv_cache.data.numel() == 0
    assert engine.memory_breakdown() == MemoryBreakdown(0, 0, 0, 0, 0)
    assert str(engine.memory_breakdown()) == "no KV memory"
    with pytest.raises(SamplingParamsError, match="max_num_seqs is 1"):
        engine.add_request("b", [1], SamplingParams(n=2))
    drain(engine)
    assert_all_free(engine)


@pytest.mark.parametrize("options", [CONTIGUOUS, UNCACHED])
def test_aborting_beams_and_samples_at_any_moment(nano_model: LoadedModel, options: EngineOptions) -> None:
    for num_steps in range(6):
        engine = make_engine(nano_model, **(options | EngineOptions(num_blocks=30, max_num_batched_tokens=4)))
        engine.add_request("beams", [1, 2], BeamSearchParams(beam_width=3, max_tokens=5))
        engine.add_request("samples", [1, 2], SamplingParams(n=3, max_tokens=5))
        engine.add_request("other", [3, 2, 1], greedy(3))
        for _ in range(num_steps):
            engine.step()
            check_and_poison(engine)
        for request_id in ("beams", "samples"):
            engine.abort_request(request_id)
            check_and_poison(engine)
        drain(engine, after_step=check_and_poison)
        assert_all_free(engine)


def test_bookkeeping_that_cannot_be_trusted_begins_anew(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = contiguous(tiny.model, 10)
    engine.add_request("a", [1, 2, 3], greedy(5))
    engine.step()

    def fail(*arguments: object) -> None:
        raise InvariantError("halfway")

    monkeypatch.setattr(engine._processors["a"], "add_token", fail)
    with pytest.raises(InvariantError, match="halfway"):
        engine.step()
    assert_all_free(engine)
    [output] = run(engine, [[1, 2, 3]], greedy(5), after_step=check_and_poison)
    assert_greedy(tiny.oracle, output, 5)


def test_an_llm_at_a_stage() -> None:
    llm = LLM("tiny", **(stage_options(2) | EngineOptions(num_blocks=80, device="cpu")))
    outputs = llm.generate(["a", "b c"], SamplingParams(temperature=0, max_tokens=5))
    assert [len(output.outputs[0].token_ids) for output in outputs] == [5, 5]
    assert llm.memory_breakdown() == MemoryBreakdown(0, 0, 0, 0, 80 * 16)
