"""The demo's sizes fit every model, and the real run does the same as the rehearsal."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.cli.demo import serve
from minipaged.cli.demo_pool import choose_block_size, choose_num_blocks, rehearse
from minipaged.cli.demo_show import Show
from minipaged.cli.demo_workload import make_workload
from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.errors import ConfigError
from minipaged.kv.size import blocks_needed
from minipaged.loading.loader import load_model
from minipaged.view.labels import Labels
from tests.byte_tokenizer import byte_tokenizer


@given(longest=st.integers(2, 2000), vocab_size=st.integers(1, 1000))
def test_no_request_is_longer_than_asked(longest: int, vocab_size: int) -> None:
    workload = make_workload(None, vocab_size, longest)
    assert len(workload.requests) == 8
    assert 2 <= workload.longest <= longest
    for request in workload.requests:
        assert request.token_ids
        assert request.max_tokens >= 1
        assert all(0 <= token_id < vocab_size for token_id in request.token_ids)


@given(longest=st.integers(2, 2000))
@settings(max_examples=30)
def test_texts_are_cut_in_the_middle(longest: int) -> None:
    tokenizer = byte_tokenizer()
    for request in make_workload(tokenizer, 257, longest).requests:
        assert request.text is not None
        whole = tokenizer.encode(request.text)
        cut = request.token_ids
        assert cut[0] == whole[0]
        assert len(cut) == len(whole) or len(cut) + request.max_tokens == longest
        tail = len(cut) // 3
        assert tail == 0 or cut[-tail:] == whole[-tail:]


def test_there_must_be_room_for_two_tokens() -> None:
    with pytest.raises(ConfigError, match="at least 2 tokens"):
        make_workload(None, 10, 1)


@given(num_shared=st.integers(0, 500))
def test_the_shared_prefix_fills_three_blocks_if_it_can(num_shared: int) -> None:
    size = choose_block_size(num_shared)
    assert size in (1, 2, 4, 8, 16)
    assert num_shared // size >= 3 or size == 1
    assert size == 16 or num_shared < 3 * 2 * size


@given(
    longest=st.integers(30, 1000),
    block_size=st.sampled_from([3, 8, 16, 64]),
    caching=st.booleans(),
    max_num_seqs=st.sampled_from([1, 3, 128]),
)
@settings(max_examples=15, deadline=None)
def test_the_pool_holds_the_longest_request_and_not_all(
    longest: int, block_size: int, caching: bool, max_num_seqs: int
) -> None:
    workload = make_workload(None, 100, longest)
    config = EngineConfig(block_size=block_size, enable_prefix_caching=caching, max_num_seqs=max_num_seqs)
    num_blocks = choose_num_blocks(workload, config)
    assert num_blocks - 1 >= blocks_needed(workload.longest, block_size)
    said = rehearse(workload.requests, config, num_blocks)
    assert said.peak_used <= num_blocks - 1
    if max_num_seqs > 1 and block_size <= 16:
        assert said.num_preemptions >= 1


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("caching", [True, False])
def test_the_real_run_does_what_the_rehearsal_said(block_size: int, caching: bool) -> None:
    model = load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))
    workload = make_workload(model.tokenizer, model.config.vocab_size, 120)
    config = EngineConfig(block_size=block_size, enable_prefix_caching=caching, max_model_len=120)
    config = replace(config, num_blocks=choose_num_blocks(workload, config))
    engine = LLMEngine(config, model)
    serve(engine, workload, Show(Labels()))
    assert config.num_blocks is not None
    said = rehearse(workload.requests, config, config.num_blocks)
    stats = engine.stats()
    assert (stats.num_preemptions, stats.prefix_cache_hits) == (said.num_preemptions, said.prefix_cache_hits)
    assert stats.num_preemptions >= 1
