"""Fig. 6 and Fig. 8 of the paper in the running engine: the same blocks, with the right contents."""

from __future__ import annotations

import torch

from minipaged import LLMEngine, SamplingParams
from minipaged.loading.loader import LoadedModel
from tests.engine.driving import assert_all_free, drain, greedy, make_engine
from tests.kv.test_paper_block_numbers import blocks, counts, hand_out

PROMPT = [4, 8, 15, 16, 23, 9, 2]


def make(model: LoadedModel) -> LLMEngine:
    engine = make_engine(model, block_size=4, num_blocks=9, max_model_len=12)
    hand_out(engine.manager.pool, 7, 1, 3)
    return engine


def test_figure_6(nano_model: LoadedModel) -> None:
    engine = make(nano_model)
    engine.add_request("a", PROMPT, greedy(4))
    tables = []
    for _ in range(3):
        engine.step()
        tables.append(blocks(engine.scheduler.queues.running[0].sequences[0]))
    assert tables == [[7, 1], [7, 1], [7, 1, 3]]


def test_figure_8(nano_model: LoadedModel) -> None:
    engine = make(nano_model)
    engine.add_request("a", PROMPT, SamplingParams(n=2, seed=1, max_tokens=4, ignore_eos=True))
    engine.step()
    a1, a2 = engine.scheduler.queues.running[0].sequences
    assert blocks(a1) == blocks(a2) == [7, 1]
    assert counts(engine.manager) == {7: 2, 1: 2}
    layer = engine.kv_cache.layers[0]  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    before = layer[:, 1].clone()  # [2, block_size, num_kv_heads, head_dim]

    assert a1.token_ids[-1] != a2.token_ids[-1], "the samples must part here"
    engine.step()
    assert (blocks(a1), blocks(a2)) == ([7, 3], [7, 1])
    assert counts(engine.manager) == {7: 2, 1: 1, 3: 1}
    assert engine.stats().num_copied_blocks == 1
    assert torch.equal(layer[:, 3, :3], before[:, :3]), "the copy has the prompt's three tokens"
    assert torch.equal(layer[:, 1, :3], before[:, :3])
    assert not torch.equal(layer[:, 3, 3], layer[:, 1, 3]), "each sample wrote its own fourth"
    drain(engine)
    assert_all_free(engine)
