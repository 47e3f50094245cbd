"""In every configuration, the engine's greedy tokens are those of transformers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.errors import RequestTooLargeError
from minipaged.kv.size import blocks_needed
from tests.engine.driving import assert_all_free, assert_greedy, check_and_poison, greedy, make_engine, run
from tests.long_tests import examples
from tests.model_pairs import RANDOM_MODELS, Pair

BLOCK_SIZES = (1, 4, 16, 32)
VOCAB = 257


@st.composite
def workloads(draw: st.DrawFn, block_size: int) -> list[tuple[list[int], int]]:
    """Prompts with lengths around block boundaries, some with a shared beginning; and output lengths."""
    token = st.integers(0, VOCAB - 1)
    common = draw(st.lists(token, min_size=0, max_size=40))
    jobs = []
    for _ in range(draw(st.integers(1, 5))):
        boundary = block_size * draw(st.integers(0, max(1, 48 // block_size)))
        length = max(1, boundary + draw(st.integers(-1, 1)))
        own = draw(st.lists(token, min_size=length, max_size=length))
        prompt = (common + own)[: max(length, 1)] if draw(st.booleans()) else own
        jobs.append((prompt, draw(st.integers(1, 12))))
    return jobs


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_greedy_tokens_for_any_configuration(random_models: dict[str, Pair], data: st.DataObject) -> None:
    pair = random_models[data.draw(st.sampled_from(list(RANDOM_MODELS)), label="model")]
    block_size = data.draw(st.sampled_from(BLOCK_SIZES), label="block_size")
    jobs = data.draw(workloads(block_size), label="jobs")
    longest = max(len(prompt) + out for prompt, out in jobs)
    smallest = 1 + blocks_needed(longest, block_size)
    engine = make_engine(
        pair.model,
        block_size=block_size,
        # From a pool in which only one request fits to one with more than enough blocks.
        num_blocks=smallest + data.draw(st.sampled_from([0, 1, 2, smallest, 200]), label="spare"),
        max_model_len=longest,
        max_num_batched_tokens=data.draw(st.sampled_from([1, 2, 3, 7, 16, 33, 512]), label="budget"),
        max_num_seqs=data.draw(st.sampled_from([1, 2, 128]), label="max_num_seqs"),
        enable_prefix_caching=data.draw(st.booleans(), label="caching"),
        preemption_mode=data.draw(st.sampled_from(["recompute", "swap"]), label="mode"),
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "shortest"]), label="policy"),
        attention_backend=data.draw(st.sampled_from(["reference", "cpu"]), label="attention"),
    )
    outputs = run(engine, [p for p, _ in jobs], [greedy(out) for _, out in jobs], after_step=check_and_poison)
    for output, (_, num_tokens) in zip(outputs, jobs, strict=True):
        assert_greedy(pair.oracle, output, num_tokens)
    assert_all_free(engine)


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("name", RANDOM_MODELS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_model_around_every_block_boundary(
    random_models: dict[str, Pair], name: str, block_size: int
) -> None:
    pair = random_models[name]
    lengths = sorted({max(1, k * block_size + d) for k in (0, 1, 2) for d in (-1, 0, 1)})
    prompts = [[(7 * i + length) % VOCAB for i in range(length)] for length in lengths]
    engine = make_engine(pair.model, block_size=block_size, num_blocks=400, max_num_batched_tokens=48)
    for output in run(engine, prompts, greedy(block_size + 2), after_step=check_and_poison):
        assert_greedy(pair.oracle, output, block_size + 2)
    assert_all_free(engine)


def test_whole_prompts_without_chunked_prefill(random_models: dict[str, Pair]) -> None:
    pair = random_models["llama-gqa"]
    prompts = [[(3 * i + n) % VOCAB for i in range(n)] for n in (5, 60, 33, 1, 64)]
    engine = make_engine(
        pair.model,
        enable_chunked_prefill=False,
        max_num_batched_tokens=80,
        max_model_len=80,
        num_blocks=30,
        block_size=4,
    )
    for output in run(engine, prompts, greedy(9), after_step=check_and_poison):
        assert_greedy(pair.oracle, output, 9)


def test_tiny(tiny: Pair) -> None:
    engine = make_engine(tiny.model, num_blocks=65)
    prompts = ["Once upon a time", "Once upon a hill there was a house", "x"]
    outputs = run(engine, [tiny.model.tokenizer.encode(p) for p in prompts], greedy(40))  # pyright: ignore[reportOptionalMemberAccess]
    for output in outputs:
        assert_greedy(tiny.oracle, output, 40)


@pytest.mark.smollm2
@pytest.mark.parametrize("block_size", [1, 16, 32])
def test_smollm2(smollm2: Pair, block_size: int) -> None:
    assert smollm2.model.tokenizer is not None
    texts = [
        "The capital of France is",
        "Once upon a time, in a village by the sea, there lived a boy who",
        "Once upon a time, in a village by the sea, there lived a girl who could not",
        "def fibonacci(n):\n",
        "1, 2, 3, 4, 5, 6,",
    ]
    engine = make_engine(
        smollm2.model,
        block_size=block_size,
        num_blocks=1 + blocks_needed(80, block_size),  # preemptions happen
        max_model_len=64,
        max_num_batched_tokens=20,
    )
    prompts = [smollm2.model.tokenizer.encode(text) for text in texts]
    for output in run(engine, prompts, greedy(24), after_step=check_and_poison):
        assert_greedy(smollm2.oracle, output, 24)
    assert engine.stats().num_preemptions > 0
    assert_all_free(engine)


def test_a_prompt_longer_than_the_model_was_trained_for(random_models: dict[str, Pair]) -> None:
    engine = make_engine(random_models["llama-gqa"].model, num_blocks=100)
    with pytest.raises(RequestTooLargeError, match="256"):
        engine.add_request("a", [1] * 256, greedy(1))
    assert_all_free(engine)
