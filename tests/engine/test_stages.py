"""Every stage and every layout gives the same tokens, even in little memory."""

from __future__ import annotations

from itertools import pairwise

import pytest

from minipaged import BeamSearchParams, EngineConfig, LLMEngine, SamplingParams
from minipaged.choices import AttentionBackend, KVLayoutName
from minipaged.errors import ConfigError
from minipaged.options import EngineOptions
from minipaged.stages import NUM_STAGES, stage_options
from tests.engine.beams import assert_hypotheses, transformers_beam_search
from tests.engine.driving import assert_all_free, assert_greedy, check_and_poison, greedy, num_slots, run
from tests.model_pairs import RANDOM_MODELS, Pair

STAGES = range(1, NUM_STAGES + 1)
PROMPTS = [[(7 * i + n) % 250 for i in range(length)] for n, length in enumerate([3, 21, 9, 40, 1, 9])]

LAYOUTS: dict[str, EngineOptions] = {
    "none": {"kv_layout": "none"},
    "max": {"kv_layout": "contiguous"},
    "pow2 buddy": {"kv_layout": "contiguous", "reserve": "pow2", "region_allocator": "buddy"},
    "oracle": {"kv_layout": "contiguous", "reserve": "oracle", "attention_backend": "reference"},
    "oracle static": {"kv_layout": "contiguous", "reserve": "oracle", "batching": "static"},
    "paged": {"num_blocks": 33},
    "paged never": {"preemption_mode": "never"},
    "paged copy": {"fork_mode": "copy"},
    "paged copy never": {"fork_mode": "copy", "preemption_mode": "never", "batching": "static"},
}


def at_stage(pair: Pair, stage: int) -> LLMEngine:
    """Enough for two requests of the greatest length."""
    return LLMEngine(
        EngineConfig.at_stage(
            stage, dtype="float32", device="cpu", block_size=4, num_blocks=33, max_model_len=64
        ),
        pair.model,
    )


def in_layout(pair: Pair, options: EngineOptions) -> LLMEngine:
    defaults = EngineOptions(dtype="float32", device="cpu", block_size=4, num_blocks=65, max_model_len=64)
    return LLMEngine(EngineConfig(**(defaults | options)), pair.model)


def check(engine: LLMEngine) -> None:
    check_and_poison(engine)
    assert engine.memory_breakdown().num_slots == num_slots(engine)


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["llama-gqa", "qwen2-mqa", "qwen3-mha"])
def test_greedy_tokens_are_the_oracles_at_every_stage(
    random_models: dict[str, Pair], name: str, stage: int
) -> None:
    pair = random_models[name]
    engine = at_stage(pair, stage)
    for output in run(engine, PROMPTS, [greedy(4 + 5 * n) for n in range(6)], after_step=check):
        assert_greedy(pair.oracle, output)
    assert (engine.stats().num_preemptions > 0) == (stage >= 7), "the pool is small enough to tell"
    assert_all_free(engine)


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("layout", ["none", "contiguous"])
@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_chunks_without_blocks(
    random_models: dict[str, Pair], name: str, layout: KVLayoutName, backend: AttentionBackend
) -> None:
    pair = random_models[name]
    options = EngineOptions(kv_layout=layout, attention_backend=backend, max_num_batched_tokens=7)
    engine = in_layout(pair, options)
    for output in run(engine, PROMPTS[:4], greedy(6), after_step=check):
        assert_greedy(pair.oracle, output, 6)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("budget", [5, 2048])
@pytest.mark.parametrize("name", LAYOUTS)
def test_samples_and_beams_are_the_same_in_every_layout(tiny: Pair, name: str, budget: int) -> None:
    engine = in_layout(tiny, LAYOUTS[name] | EngineOptions(max_num_batched_tokens=budget))
    plain = in_layout(tiny, EngineOptions(num_blocks=400))
    sampling = SamplingParams(n=3, seed=5, temperature=1.0, max_tokens=14, ignore_eos=True)
    short = SamplingParams(n=4, seed=6, temperature=1.0, max_tokens=1)
    search = BeamSearchParams(beam_width=4, max_tokens=14, ignore_eos=True)
    for each in (engine, plain):
        each.add_request("beams", PROMPTS[2], search)
        each.add_request("samples", PROMPTS[1], sampling)
        each.add_request("short", PROMPTS[0], short)
        each.add_request("greedy", PROMPTS[3], greedy(10))
    finished = {}
    while engine.has_unfinished_requests():
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        check(engine)
    expected = {}
    while plain.has_unfinished_requests():
        expected |= {output.request_id: output for output in plain.step() if output.finished}
    assert_hypotheses(finished["beams"], transformers_beam_search(tiny.oracle, PROMPTS[2], search, ()))
    assert_greedy(tiny.oracle, finished["greedy"], 10)
    for request_id in ("samples", "short"):
        got = [sample.token_ids for sample in finished[request_id].outputs]
        assert got == [sample.token_ids for sample in expected[request_id].outputs]
    assert_all_free(engine)


def test_what_a_stage_adds() -> None:
    """Each stage differs from the one before only in the subject of its chapter."""
    configs = [EngineConfig.at_stage(stage) for stage in STAGES]
    changes = [
        sorted(name for name in vars(after) if getattr(after, name) != getattr(before, name))
        for before, after in pairwise(configs)
    ]
    assert changes == [
        ["kv_layout", "max_num_seqs"],
        ["fork_mode", "kv_layout"],
        ["fork_mode"],
        ["attention_backend"],
        ["batching"],
        ["preemption_mode"],
        ["enable_prefix_caching"],
    ]
    assert configs[-1] == EngineConfig()


def test_options_go_before_those_of_the_stage() -> None:
    config = EngineConfig.at_stage(2, "smollm2-135m", reserve="oracle", batching="continuous")
    assert (config.model, config.reserve, config.batching) == ("smollm2-135m", "oracle", "continuous")
    assert config.kv_layout == "contiguous"
    assert EngineConfig.at_stage(3, enable_prefix_caching=True, fork_mode="share").enable_prefix_caching


@pytest.mark.parametrize("stage", [0, 9, True, "3", None])
def test_there_are_eight_stages(stage: int) -> None:
    with pytest.raises(ConfigError, match="1 to 8"):
        stage_options(stage)


def test_copying_forks_shares_nothing_once_it_has_begun(tiny: Pair) -> None:
    engine = in_layout(tiny, {"fork_mode": "copy"})
    engine.add_request("a", PROMPTS[1], SamplingParams(n=3, seed=1, max_tokens=9, ignore_eos=True))
    engine.step()
    engine.step()
    tables = [set(seq.block_table) for seq in engine.scheduler.queues.running[0].sequences]
    assert len(set.union(*tables)) == sum(map(len, tables)) == 18
    assert engine.stats().num_copied_blocks == 2 * 6, "the third keeps the prompt's own"


@pytest.mark.parametrize("options", [LAYOUTS["none"], LAYOUTS["max"], LAYOUTS["paged"]])
def test_prompt_logprobs_of_chunks_in_every_layout(tiny: Pair, options: EngineOptions) -> None:
    engine = in_layout(tiny, options | EngineOptions(max_num_batched_tokens=7))
    [output] = run(engine, [PROMPTS[1]], greedy(2, prompt_logprobs=0), after_step=check)
    expected = tiny.oracle.logprobs(PROMPTS[1])  # [T, vocab]
    assert output.prompt_logprobs is not None
    for position, found in enumerate(output.prompt_logprobs[1:]):
        assert found is not None
        token = PROMPTS[1][position + 1]
        assert abs(found[token].logprob - float(expected[position, token])) < 1e-4
