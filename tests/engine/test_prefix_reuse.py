"""The prefix cache in the running engine: which tokens are computed again, and which requests may share."""

from __future__ import annotations

import pytest

from minipaged import LLMEngine, SamplingParams
from minipaged.engine.intake import TokensPrompt
from minipaged.kv.prefix_hash import HashInput
from minipaged.parts import Parts
from tests.engine.driving import assert_greedy, check_and_poison, drain, greedy, make_engine, run
from tests.model_pairs import Pair

BLOCK = 8


@pytest.mark.parametrize("num_blocks_in_prompt", [1, 2, 5])
def test_the_same_prompt_of_whole_blocks_computes_one_block(tiny: Pair, num_blocks_in_prompt: int) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200)
    prompt = [(5 * i) % 250 for i in range(num_blocks_in_prompt * BLOCK)]
    params = greedy(4, logprobs=3)
    [first] = run(engine, [prompt], params, after_step=check_and_poison)
    [second] = run(engine, [prompt], params, after_step=check_and_poison)
    assert first.num_cached_tokens == 0
    assert second.num_cached_tokens == len(prompt) - BLOCK
    assert second.outputs[0].token_ids == first.outputs[0].token_ids
    assert first.outputs[0].logprobs is not None
    assert second.outputs[0].logprobs is not None
    for one, other in zip(first.outputs[0].logprobs, second.outputs[0].logprobs, strict=True):
        assert one.keys() == other.keys()
        for token_id in one:
            assert one[token_id].logprob == pytest.approx(other[token_id].logprob, abs=1e-4)


def test_hits_and_queries_are_counted_in_tokens(tiny: Pair) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200)
    run(engine, [[1] * 20], greedy(1))
    run(engine, [[1] * 20], greedy(1))
    stats = engine.stats()
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (40, 16)


def test_identical_prompts_of_one_step_share_blocks(tiny: Pair) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200)
    prompt = [(3 * i) % 250 for i in range(3 * BLOCK + 2)]
    outputs = run(engine, [prompt] * 4, greedy(12), after_step=check_and_poison)
    assert [output.num_cached_tokens for output in outputs] == [0, 24, 24, 24]
    for output in outputs:
        assert_greedy(tiny.oracle, output, 12)


def test_output_tokens_are_reused_as_well(tiny: Pair) -> None:
    """The next turn of a conversation begins with the last one's prompt and answer."""
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200)
    [first] = run(engine, [[9] * 10], greedy(22))
    longer = first.prompt_token_ids + first.outputs[0].token_ids + [1, 2, 3]
    [second] = run(engine, [longer], greedy(5), after_step=check_and_poison)
    # 31 tokens were computed (the last sampled token never is): three full blocks.
    assert second.num_cached_tokens == 24
    assert_greedy(tiny.oracle, second, 5)


def salted(prompt: list[int], salt: str | None) -> TokensPrompt:
    return (
        TokensPrompt(prompt_token_ids=prompt)
        if salt is None
        else TokensPrompt(prompt_token_ids=prompt, cache_salt=salt)
    )


def serve(engine: LLMEngine, prompt: TokensPrompt) -> int:
    engine.add_request("a", prompt, greedy(2))
    return drain(engine, after_step=check_and_poison)["a"].num_cached_tokens


def test_only_equal_salts_share(tiny: Pair) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200)
    prompt = [4] * 30
    salts = ["alice", "bob", None]
    for salt in salts:
        assert serve(engine, salted(prompt, salt)) == 0
    for salt in salts:
        assert serve(engine, salted(prompt, salt)) == 24


def test_reset_forgets_everything(tiny: Pair) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200)
    prompt = TokensPrompt(prompt_token_ids=[4] * 30)
    serve(engine, prompt)
    engine.add_request("running", [4] * 30, greedy(8))
    engine.step()
    engine.reset_prefix_cache()
    drain(engine, after_step=check_and_poison)
    engine.reset_prefix_cache()
    assert serve(engine, prompt) == 0


@pytest.mark.parametrize("caching", [True, False])
def test_caching_off_means_no_hits(tiny: Pair, caching: bool) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200, enable_prefix_caching=caching)
    prompt = TokensPrompt(prompt_token_ids=[4] * 30)
    assert serve(engine, prompt) == 0
    assert serve(engine, prompt) == (24 if caching else 0)


def constant_hash(value: HashInput, /) -> bytes:
    return b"all the same"


def test_with_a_hash_that_always_collides_results_are_right(tiny: Pair) -> None:
    engine = make_engine(
        tiny.model,
        block_size=BLOCK,
        num_blocks=60,
        max_model_len=100,
        parts=Parts(hash_function=constant_hash),
    )
    common = [(3 * i) % 250 for i in range(2 * BLOCK)]
    prompts = [common + [n] * 10 for n in range(4)] + [[n, *common] for n in range(3)] + [common + [1] * 10]
    for output in run(engine, prompts, greedy(10), after_step=check_and_poison):
        assert_greedy(tiny.oracle, output, 10)
    [again] = run(engine, [prompts[2]], greedy(10), after_step=check_and_poison)
    assert again.num_cached_tokens == 24
    assert_greedy(tiny.oracle, again, 10)


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
def test_every_algorithm_finds_prefixes(tiny: Pair, algorithm: str) -> None:
    engine = make_engine(
        tiny.model,
        block_size=BLOCK,
        num_blocks=200,
        prefix_caching_hash_algo=algorithm,  # pyright: ignore[reportArgumentType]
    )
    prompt = TokensPrompt(prompt_token_ids=[4] * 30)
    assert [serve(engine, prompt), serve(engine, prompt)] == [0, 24]


def test_prompt_logprobs_are_computed_in_spite_of_a_cached_prefix(tiny: Pair) -> None:
    engine = make_engine(tiny.model, block_size=BLOCK, num_blocks=200, max_num_batched_tokens=11)
    prompt = [(11 * i) % 250 for i in range(30)]
    run(engine, [prompt], greedy(2))
    [output] = run(engine, [prompt], SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=2))
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    expected = tiny.oracle.logprobs(prompt)
    assert len(output.prompt_logprobs) == len(prompt)
    for position, found in enumerate(output.prompt_logprobs[1:], start=1):
        assert found is not None
        assert prompt[position] in found
        for token_id, entry in found.items():
            assert entry.logprob == pytest.approx(float(expected[position - 1, token_id]), abs=1e-4)
