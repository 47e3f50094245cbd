"""Beam search in the engine gives transformers' hypotheses and scores, even under memory pressure."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged import BeamSearchParams, LLMEngine, RequestOutput, SamplingParams
from minipaged.choices import PreemptionMode
from minipaged.kv.size import blocks_needed
from minipaged.loading.loader import LoadedModel
from tests.engine.beams import assert_hypotheses, transformers_beam_search, with_eos
from tests.engine.driving import (
    assert_all_free,
    assert_greedy,
    check_and_poison,
    drain,
    greedy,
    make_engine,
    run,
)
from tests.long_tests import examples
from tests.model_pairs import RANDOM_MODELS, Pair
from tests.oracle import Oracle

PROMPT = [(11 * i + 3) % 250 for i in range(13)]


def met_tokens(pair: Pair, count: int, width: int = 4) -> list[int]:
    """The most frequent tokens after the first four of each hypothesis: good end-of-sequence tokens."""
    return [token for token, _ in _reached(pair.oracle, width).most_common(count)]


@cache
def _reached(oracle: Oracle, width: int) -> Counter[int]:
    """How many hypotheses have a token after their first four."""
    unending = BeamSearchParams(width, 12, ignore_eos=True)
    reached: Counter[int] = Counter()
    for hypothesis in transformers_beam_search(oracle, PROMPT, unending, ()):
        reached.update(set(hypothesis.token_ids[4:]) - set(hypothesis.token_ids[:4]))
    return reached


def search(engine: LLMEngine, params: BeamSearchParams, prompt: list[int] = PROMPT) -> RequestOutput:
    engine.add_request("0", prompt, params)
    output = drain(engine, after_step=check_and_poison)["0"]
    assert_all_free(engine)
    return output


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("width", [2, 4, 6])
@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_hypotheses_equal_those_of_transformers(
    random_models: dict[str, Pair], name: str, width: int
) -> None:
    pair = random_models[name]
    eos = met_tokens(pair, 2, width)
    params = BeamSearchParams(beam_width=width, max_tokens=9)
    output = search(make_engine(with_eos(pair.model, *eos), block_size=4, num_blocks=200), params)
    assert_hypotheses(output, transformers_beam_search(pair.oracle, PROMPT, params, eos))


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("width", [2, 4, 6])
def test_every_rule_of_ranking_and_ending(
    random_models: dict[str, Pair],
    width: int,
    length_penalty: float,
    early_stopping: bool | Literal["never"],
) -> None:
    pair = random_models["llama-mha"]
    reasons: set[str | None] = set()
    params = BeamSearchParams(width, 12, length_penalty, early_stopping=early_stopping)
    for prompt in (PROMPT, PROMPT[:6]):
        for eos in (met_tokens(pair, 3, width), list(range(0, 257, 5))):
            output = search(make_engine(with_eos(pair.model, *eos), num_blocks=200), params, prompt)
            assert_hypotheses(output, transformers_beam_search(pair.oracle, prompt, params, eos))
            for sample in output.outputs:
                ends = sample.token_ids[-1] in eos
                assert sample.finish_reason == ("stop" if ends else "length")
                assert len(sample.token_ids) == 12 or ends
                reasons.add(sample.finish_reason)
    assert "stop" in reasons


def test_ends_of_sequence_can_be_ignored(random_models: dict[str, Pair]) -> None:
    pair = random_models["llama-gqa"]
    eos = met_tokens(pair, 3)
    params = BeamSearchParams(4, 12, ignore_eos=True)
    output = search(make_engine(with_eos(pair.model, *eos), num_blocks=200), params)
    assert_hypotheses(output, transformers_beam_search(pair.oracle, PROMPT, params, eos))
    assert {len(sample.token_ids) for sample in output.outputs} == {12}
    assert any(set(eos) & set(sample.token_ids) for sample in output.outputs)


def test_a_wide_search(random_models: dict[str, Pair]) -> None:
    pair = random_models["qwen3-gqa"]
    params = BeamSearchParams(beam_width=32, max_tokens=6)
    output = search(make_engine(pair.model, block_size=4, num_blocks=200), params)
    assert_hypotheses(output, transformers_beam_search(pair.oracle, PROMPT, params, ()))


def test_one_beam_is_greedy(random_models: dict[str, Pair]) -> None:
    pair = random_models["mistral"]
    output = search(make_engine(pair.model, num_blocks=50), BeamSearchParams(beam_width=1, max_tokens=10))
    assert_greedy(pair.oracle, output, 10)
    assert output.block_usage.num_copied_blocks == 0


@settings(max_examples=examples(50), deadline=None)
@given(
    name=st.sampled_from(["llama-gqa", "mistral", "qwen2-mqa"]),
    block_size=st.sampled_from([1, 4, 16]),
    spare=st.sampled_from([0, 1, 10]),
    budget=st.sampled_from([1, 3, 7, 64]),
    caching=st.booleans(),
    mode=st.sampled_from(["recompute", "swap"]),
    cpu_blocks=st.sampled_from([None, 0, 6]),
    width=st.sampled_from([2, 3, 6]),
    max_tokens=st.integers(1, 12),
    num_eos=st.sampled_from([0, 1, 3]),
    length_penalty=st.sampled_from([0.0, 1.0, 2.0]),
    lengths=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_nothing_on_the_way_changes_anything(
    random_models: dict[str, Pair],
    name: str,
    block_size: int,
    spare: int,
    budget: int,
    caching: bool,
    mode: PreemptionMode,
    cpu_blocks: int | None,
    width: int,
    max_tokens: int,
    num_eos: int,
    length_penalty: float,
    lengths: list[int],
    seed: int,
    share: float,
) -> None:
    """Several searches in a pool that holds only the largest one.

    Small budgets spread the beams of a search over several steps. Preemption may come at any point, even
    when the candidates of only some beams are known.
    """
    pair, rng = random_models[name], random.Random(seed)
    eos = met_tokens(pair, num_eos)
    params = BeamSearchParams(width, max_tokens, length_penalty)
    longest = max(lengths) + max_tokens
    most = width * blocks_needed(longest, block_size)
    engine = make_engine(
        with_eos(pair.model, *eos),
        block_size=block_size,
        num_blocks=1 + most + spare,
        max_model_len=longest,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        preemption_mode=mode,
        num_cpu_blocks=cpu_blocks if mode == "swap" else None,
    )
    for number, length in enumerate(lengths):
        engine.add_request(str(number), PROMPT[:length], params)
    finished: dict[str, RequestOutput] = {}
    num_steps = 0
    while engine.has_unfinished_requests():
        for request in list(engine.scheduler.queues.running):
            if num_steps < 60 and rng.random() < share:
                engine.scheduler.preempt(request)
        check_and_poison(engine)
        finished |= {output.request_id: output for output in engine.step()}
        check_and_poison(engine)
        num_steps += 1
        assert num_steps < 3000
    assert_all_free(engine)
    for number, length in enumerate(lengths):
        output = finished[str(number)]
        assert_hypotheses(output, transformers_beam_search(pair.oracle, PROMPT[:length], params, eos))
        assert output.block_usage.peak_blocks <= most


def test_beside_ordinary_requests(random_models: dict[str, Pair]) -> None:
    """The pool is too small for all of them, so that each is preempted."""
    pair = random_models["llama-gqa"]
    eos = met_tokens(pair, 1)
    model = with_eos(pair.model, *eos)
    sampled = SamplingParams(n=3, seed=5, max_tokens=14, ignore_eos=True)
    params = [
        BeamSearchParams(4, 14, ignore_eos=True),
        greedy(30),
        sampled,
        BeamSearchParams(3, 14, 0.0),
        greedy(20),
    ]
    prompts = [PROMPT, PROMPT[:9], PROMPT, PROMPT[:5], [7, 7, 7]]
    alone = run(make_engine(model, num_blocks=200), [PROMPT], sampled)[0]
    engine = make_engine(model, block_size=2, num_blocks=44, max_model_len=60, max_num_batched_tokens=9)
    for number, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        engine.add_request(str(number), prompt, one)
    finished = drain(engine, after_step=check_and_poison)
    assert engine.stats().num_preemptions > 0
    for number in (0, 3):
        one = params[number]
        assert isinstance(one, BeamSearchParams)
        expected = transformers_beam_search(pair.oracle, prompts[number], one, eos)
        assert_hypotheses(finished[str(number)], expected)
    assert_greedy(pair.oracle, finished["1"], 30)
    assert_greedy(pair.oracle, finished["4"], 20)
    assert [s.token_ids for s in finished["2"].outputs] == [s.token_ids for s in alone.outputs]
    assert_all_free(engine)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("budget", [2, 64])
def test_aborted_at_any_step_it_leaves_nothing(
    nano_model: LoadedModel, budget: int, mode: PreemptionMode
) -> None:
    """Even in the middle of a search step, while it waits, and while it is swapped out."""
    params = BeamSearchParams(4, 8, ignore_eos=True)
    seen: set[str] = set()
    for num_steps in range(40):
        engine = make_engine(
            nano_model,
            block_size=2,
            num_blocks=40,
            max_model_len=40,
            max_num_batched_tokens=budget,
            preemption_mode=mode,
        )
        engine.add_request("first", [4, 5, 6], params)
        engine.add_request("second", [1, 2, 3, 4, 5], params)
        for _ in range(num_steps):
            engine.step()
        if "second" not in {request.request_id for request in engine.scheduler.queues.running}:
            seen.add("waiting")
        elif num_steps % 3 == 2:
            [second] = [r for r in engine.scheduler.queues.running if r.request_id == "second"]
            engine.scheduler.preempt(second)
            seen.add("preempted")
        output = engine.abort_request("second")
        engine.check_invariants()
        if output is None:
            seen.add("finished")
        else:
            assert output.finished
            assert {sample.finish_reason for sample in output.outputs} == {"abort"}
        engine.abort_request("first")
        assert_all_free(engine)
    assert seen == {"waiting", "preempted", "finished"}
