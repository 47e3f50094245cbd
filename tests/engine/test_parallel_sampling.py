"""Parallel sampling at its limit: 64 samples of one prompt."""

from __future__ import annotations

import pytest
import torch

from minipaged import LLMEngine, RequestOutput, SamplingParams
from minipaged.kv.block_table import BlockIds, Slots, slot_mapping
from minipaged.parts import Parts
from tests.engine.driving import assert_all_free, drain, greedy, make_engine, run
from tests.model_pairs import Pair

N = 64
PROMPT = [(7 * i) % 250 for i in range(20)]
"""20 tokens. In blocks of 16 these are one full block, and one with 4 tokens."""
NUM_TOKENS = 8


def sampling(n: int = N, seed: int = 5) -> SamplingParams:
    # The temperature is so high that two equal samples among 64 are unlikely.
    return SamplingParams(n=n, seed=seed, temperature=2.0, max_tokens=NUM_TOKENS, ignore_eos=True)


def tokens(output: RequestOutput) -> list[list[int]]:
    assert [sample.index for sample in output.outputs] == list(range(len(output.outputs)))
    return [sample.token_ids for sample in output.outputs]


@pytest.fixture
def engine(tiny: Pair) -> LLMEngine:
    return make_engine(tiny.model, num_blocks=80)


def test_the_prompt_is_computed_once(tiny: Pair) -> None:
    written: list[int] = []

    def counting(block_ids: BlockIds, start: int, end: int, block_size: int) -> Slots:
        written.append(end - start)
        return slot_mapping(block_ids, start, end, block_size)

    engine = make_engine(tiny.model, num_blocks=80, parts=Parts(slot_mapping=counting))
    run(engine, [PROMPT], sampling())
    # The last token of each sample is sampled, and never computed.
    assert sum(written) == len(PROMPT) + N * (NUM_TOKENS - 1)
    assert engine.stats().generation_tokens == N * NUM_TOKENS


def test_its_last_block_is_copied_63_times(engine: LLMEngine) -> None:
    engine.add_request("a", PROMPT, sampling())
    pool = engine.manager.pool
    engine.step()
    samples = engine.scheduler.queues.running[0].sequences
    assert len(samples) == N
    assert {tuple(seq.block_table) for seq in samples} == {tuple(samples[0].block_table)}
    full, last = samples[0].block_table
    assert (pool.ref_cnt[full], pool.ref_cnt[last]) == (N, N)
    before = [layer[:, last, :4].clone() for layer in engine.kv_cache.layers]  # [2, 4, heads, head_dim]

    engine.step()
    assert engine.stats().num_copied_blocks == N - 1
    assert {seq.block_table[0] for seq in samples} == {full}
    own = [seq.block_table[1] for seq in samples]
    assert len(set(own)) == N
    assert own[-1] == last, "the last sharer writes in place"
    assert all(pool.ref_cnt[block] == 1 for block in own)
    for layer, prompt_part in zip(engine.kv_cache.layers, before, strict=True):
        for block in own:
            assert torch.equal(layer[:, block, :4], prompt_part)
    engine.check_invariants()
    drain(engine)
    assert engine.stats().num_copied_blocks == N - 1
    assert_all_free(engine)


def test_samples_are_distinct_and_repeatable(engine: LLMEngine, tiny: Pair) -> None:
    [first] = run(engine, [PROMPT], sampling())
    [again] = run(engine, [PROMPT], sampling())  # the prompt's full block is a prefix hit this time
    [fresh] = run(make_engine(tiny.model, block_size=4, num_blocks=400), [PROMPT], sampling())
    assert len({tuple(each) for each in tokens(first)}) == N
    assert tokens(first) == tokens(again) == tokens(fresh)
    [other] = run(engine, [PROMPT], sampling(seed=6))
    assert tokens(other) != tokens(first)


def test_a_sample_depends_on_its_index_and_not_on_how_many_there_are(engine: LLMEngine) -> None:
    [many] = run(engine, [PROMPT], sampling())
    for n in (1, 2, 9):
        [few] = run(engine, [PROMPT], sampling(n=n))
        assert tokens(few) == tokens(many)[:n]


def test_under_pressure_they_stay_the_same(engine: LLMEngine, tiny: Pair) -> None:
    """The pool has the smallest possible size: 1 shared block, and one more for each of the 64 samples.

    An older request needs some of these blocks too.
    """
    [alone] = run(engine, [PROMPT], sampling())
    tight = make_engine(tiny.model, num_blocks=1 + 1 + N, max_model_len=64)
    both = run(tight, [PROMPT[:9], PROMPT], [greedy(40), sampling()])
    assert both[1].num_preemptions > 0
    assert tokens(both[1]) == tokens(alone)
    assert_all_free(tight)
