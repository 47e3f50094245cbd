"""Traces of random histories, in every layout, obey the rules and lead to the engines' own states."""

from __future__ import annotations

import pytest

from minipaged import LLMEngine
from minipaged.events import Event
from minipaged.kv.observed import short_hash
from minipaged.loading.loader import LoadedModel
from minipaged.request import Request
from minipaged.trace.state import RequestState, TraceState
from minipaged.trace.trace import Trace
from tests.engine.test_histories import live_one_history

NUM_HISTORIES = 400


class Follower:
    """Collects an engine's events, and compares the state to which they lead with the engine."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def compare(self, engine: LLMEngine) -> None:
        trace = Trace.of(self.events)
        assert_same_state(trace.final(), engine)


def assert_same_state(state: TraceState, engine: LLMEngine) -> None:
    queues = engine.scheduler.queues
    assert state.running == tuple(request.request_id for request in queues.running)
    assert state.waiting == tuple(request.request_id for request in queues.waiting)
    assert state.swapped == tuple(request.request_id for request in queues.swapped)
    told = {
        request.request_id: request for request in state.requests if request.request_id in engine._requests
    }
    assert list(told) == engine.unfinished_request_ids()
    for request_id, request in engine._requests.items():
        assert_same_request(state, told[request_id], request)
    assert state.slots == engine.memory_breakdown()
    stats = engine.stats()
    assert (state.step, state.num_free) == (stats.num_steps, stats.num_free_blocks)
    assert state.num_preemptions == stats.num_preemptions
    if engine.config.kv_layout == "paged":
        pool, cache = engine.manager.pool, engine.manager.prefix_cache
        assert [block.ref_cnt for block in state.blocks] == pool.ref_cnt
        hashes = {block: short_hash(cache.contents(block).block_hash) for block in cache.block_ids()}
        assert {b.block_id: b.block_hash for b in state.blocks if b.block_hash is not None} == hashes
        contents = {block: cache.contents(block).token_ids for block in cache.block_ids()}
        free = {block: tokens for block, tokens in contents.items() if pool.ref_cnt[block] == 0}
        assert {block: state.blocks[block].token_ids for block in free} == free


def assert_same_request(state: TraceState, told: RequestState, request: Request) -> None:
    assert told.status == request.status.value
    assert told.num_preemptions == request.num_preemptions
    assert told.num_cached_tokens == request.num_cached_tokens
    sequences = [state.sequences[seq_id] for seq_id in told.seq_ids]
    assert [seq.index for seq in sequences] == [seq.index for seq in request.sequences]
    for mine, seq in zip(sequences, request.sequences, strict=True):
        assert mine.token_ids == tuple(seq.token_ids)
        assert mine.num_computed_tokens == seq.num_computed_tokens
        assert mine.block_ids == tuple(seq.block_table)
        assert mine.cpu_block_ids == tuple(seq.cpu_block_table)
        assert mine.region_start == (None if seq.region is None else seq.region.start)
        assert mine.finish_reason == seq.finish_reason


@pytest.mark.parametrize("first", range(0, NUM_HISTORIES, 100))
def test_a_trace_leads_to_the_engine_s_own_state_after_every_event(
    nano_model: LoadedModel, first: int
) -> None:
    for seed in range(first, first + 100):
        follower = Follower()
        live_one_history(nano_model, seed, follower.events.append, follower.compare)
        Trace.of(follower.events).check()
