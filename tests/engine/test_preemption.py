"""A request that loses its blocks loses time, but its output stays the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged import LLMEngine, RequestOutput, SamplingParams
from minipaged.choices import PreemptionMode, SchedulingPolicy
from minipaged.loading.loader import LoadedModel
from tests.engine.driving import assert_all_free, check_and_poison, drain, make_engine
from tests.long_tests import examples
from tests.model_pairs import Pair

PROMPTS = [[(3 * i + n) % 250 for i in range(length)] for n, length in enumerate([5, 17, 8, 30])]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=14, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0.9, seed=7, max_tokens=14, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=1.2, seed=8, top_k=40, top_p=0.9, n=3, max_tokens=12, logprobs=0),
    SamplingParams(
        temperature=0.7,
        seed=9,
        max_tokens=14,
        repetition_penalty=1.2,
        frequency_penalty=0.5,
        prompt_logprobs=1,
    ),
]


def serve(engine: LLMEngine, rng: random.Random | None = None, share: float = 0.0) -> list[RequestOutput]:
    """Serve all four requests; before each step, preempt a random share of the running ones."""
    for number, (prompt, params) in enumerate(zip(PROMPTS, PARAMS, strict=True)):
        engine.add_request(str(number), prompt, params)
    finished: dict[str, RequestOutput] = {}
    num_steps = 0
    while engine.has_unfinished_requests():
        for request in list(engine.scheduler.queues.running):
            if rng is not None and num_steps < 60 and rng.random() < share:
                engine.scheduler.preempt(request)
        check_and_poison(engine)
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        check_and_poison(engine)
        num_steps += 1
    assert_all_free(engine)
    return [finished[str(number)] for number in range(len(PROMPTS))]


def assert_same(got: list[RequestOutput], expected: list[RequestOutput]) -> None:
    for output, other in zip(got, expected, strict=True):
        for sample, wanted in zip(output.outputs, other.outputs, strict=True):
            assert sample.token_ids == wanted.token_ids
            assert (sample.text, sample.finish_reason) == (wanted.text, wanted.finish_reason)
            if wanted.cumulative_logprob is not None:
                assert sample.cumulative_logprob == pytest.approx(wanted.cumulative_logprob, abs=1e-3)
        assert (output.prompt_logprobs is None) == (other.prompt_logprobs is None)
        for found, entries in zip(output.prompt_logprobs or [], other.prompt_logprobs or [], strict=True):
            assert (found is None) == (entries is None)
            for token_id, entry in (entries or {}).items():
                assert found is not None
                assert found[token_id].logprob == pytest.approx(entry.logprob, abs=1e-4)


def assert_same_logprobs(got: list[RequestOutput], expected: list[RequestOutput]) -> None:
    for output, other in zip(got, expected, strict=True):
        for sample, wanted in zip(output.outputs, other.outputs, strict=True):
            for position, entry in zip(sample.logprobs or [], wanted.logprobs or [], strict=True):
                for token_id in entry.keys() & position.keys():
                    assert position[token_id].logprob == pytest.approx(entry[token_id].logprob, abs=1e-4)


@pytest.fixture(scope="module")
def undisturbed(tiny: Pair) -> list[RequestOutput]:
    """What the requests give that nobody preempts."""
    return serve(make_engine(tiny.model, num_blocks=200))


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    block_size=st.sampled_from([1, 4, 16]),
    budget=st.sampled_from([5, 24, 512]),
    caching=st.booleans(),
    mode=st.sampled_from(["recompute", "swap"]),
    cpu_blocks=st.sampled_from([None, 0, 5]),
)
def test_preempting_anything_at_any_step_changes_nothing(
    tiny: Pair,
    undisturbed: list[RequestOutput],
    seed: int,
    share: float,
    block_size: int,
    budget: int,
    caching: bool,
    mode: PreemptionMode,
    cpu_blocks: int | None,
) -> None:
    engine = make_engine(
        tiny.model,
        block_size=block_size,
        num_blocks=1 + 300 // block_size,
        max_model_len=128,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        preemption_mode=mode,
        num_cpu_blocks=cpu_blocks if mode == "swap" else None,
    )
    got = serve(engine, random.Random(seed), share)
    assert_same(got, undisturbed)
    assert_same_logprobs(got, undisturbed)


def test_it_says_how_often_a_request_was_preempted(tiny: Pair) -> None:
    engine = make_engine(tiny.model, num_blocks=80)
    engine.add_request("a", PROMPTS[0], PARAMS[0])
    for _ in range(3):
        engine.step()
        engine.scheduler.preempt(engine.scheduler.queues.running[0])
    assert drain(engine)["a"].num_preemptions == 3
    assert engine.stats().num_preemptions == 3


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("caching", [True, False])
def test_the_samples_of_a_request_share_their_prompt_again_after_preemption(
    tiny: Pair, caching: bool, mode: PreemptionMode
) -> None:
    engine = make_engine(
        tiny.model,
        block_size=4,
        num_blocks=100,
        max_model_len=64,
        enable_prefix_caching=caching,
        preemption_mode=mode,
    )
    engine.add_request("a", [5] * 18, SamplingParams(n=4, seed=1, max_tokens=12, ignore_eos=True))
    for _ in range(4):
        engine.step()
    [request] = engine.scheduler.queues.running

    def shared() -> set[int]:
        return {b for b, count in enumerate(engine.manager.pool.ref_cnt) if count == 4}

    assert len(shared()) == 4  # 18 tokens: four full blocks
    engine.scheduler.preempt(request)
    assert engine.stats().num_free_blocks == 99
    for _ in range(3):
        engine.step()
        engine.check_invariants()
    assert len(shared()) == 4
    drain(engine)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("policy", ["fcfs", "priority", "shortest"])
def test_with_the_smallest_pool_and_many_requests_all_finish(
    nano_model: LoadedModel, policy: SchedulingPolicy, mode: PreemptionMode
) -> None:
    """No livelock, and no thrashing: on average a request is preempted less than once."""
    engine = make_engine(
        nano_model,
        block_size=4,
        num_blocks=1 + 8,
        max_model_len=32,
        enable_prefix_caching=False,
        preemption_mode=mode,
        scheduling_policy=policy,
    )
    num_requests = examples(300)
    rng = random.Random(0)
    for number in range(num_requests):
        length = rng.randint(1, 20)
        params = SamplingParams(temperature=0, max_tokens=rng.randint(1, 32 - length), ignore_eos=True)
        priority = rng.randint(0, 5) if policy == "priority" else 0
        engine.add_request(str(number), [number % 32] * length, params, priority)
    finished = drain(engine)
    assert len(finished) == num_requests
    assert 0 < engine.stats().num_preemptions <= num_requests
    assert (engine.stats().num_swapped_blocks > 0) == (mode == "swap")
    assert_all_free(engine)
