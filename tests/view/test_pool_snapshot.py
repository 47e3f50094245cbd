"""A snapshot accounts for every block exactly once, and never changes."""

from __future__ import annotations

from collections import Counter

from minipaged.engine.llm_engine import LLMEngine
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.loading.loader import LoadedModel
from minipaged.view.pool_snapshot import PoolSnapshot, take_snapshot
from tests.view.histories import RandomHistory


def assert_accounts_for_the_pool(snapshot: PoolSnapshot, engine: LLMEngine) -> None:
    pool, block_size = engine.manager.pool, engine.manager.block_size
    assert [block.block_id for block in snapshot.blocks] == list(range(pool.num_blocks))
    assert 1 + snapshot.num_used + snapshot.num_cached + snapshot.num_free == pool.num_blocks
    assert snapshot.num_cached + snapshot.num_free == pool.num_free
    named = Counter(
        block_id
        for request in engine.scheduler.queues.running
        for seq in request.sequences
        for block_id in seq.block_table
    )
    for block in snapshot.blocks:
        if block.block_id == NULL_BLOCK:
            assert block.state == "null"
            continue
        assert len(block.holders) == len(set(block.holders)) == pool.ref_cnt[block.block_id]
        assert len(block.holders) == named[block.block_id]
        assert (block.state == "used") == bool(block.holders)
        assert block.is_shared == (pool.ref_cnt[block.block_id] > 1)
        assert (block.state == "cached") == (not block.holders and pool.is_cached(block.block_id))
        assert 0 <= block.num_filled <= block_size


def assert_accounts_for_the_queues(snapshot: PoolSnapshot, engine: LLMEngine) -> None:
    assert [r.request_id for r in snapshot.running] == [r.request_id for r in engine.scheduler.queues.running]
    assert [r.request_id for r in snapshot.waiting] == [r.request_id for r in engine.scheduler.queues.waiting]
    for taken, request in zip(snapshot.running, engine.scheduler.queues.running, strict=True):
        assert [seq.block_ids for seq in taken.sequences] == [
            tuple(seq.block_table) for seq in request.unfinished
        ]
        # Each block is filled at least as far as this sequence has computed it.
        for seq in taken.sequences:
            for i, block_id in enumerate(seq.block_ids):
                here = min(snapshot.block_size, seq.num_computed_tokens - i * snapshot.block_size)
                assert snapshot.blocks[block_id].num_filled >= here
    stats = engine.stats()
    assert (snapshot.num_steps, snapshot.num_preemptions) == (stats.num_steps, stats.num_preemptions)


def test_every_block_is_accounted_for_on_random_histories(tiny: LoadedModel) -> None:
    states: set[str] = set()
    num_shared = num_partial = num_preemptions = 0
    for seed in range(15):
        history = RandomHistory(tiny, seed)
        for _ in range(50):
            history.advance()
            snapshot = take_snapshot(history.engine)
            assert_accounts_for_the_pool(snapshot, history.engine)
            assert_accounts_for_the_queues(snapshot, history.engine)
            states |= {block.state for block in snapshot.blocks}
            num_shared += snapshot.num_shared
            num_partial += snapshot.num_unused_slots
        num_preemptions += history.engine.stats().num_preemptions
    # The checks above mean nothing unless all these states have occurred.
    assert states == {"null", "free", "cached", "used"}
    assert num_shared > 0
    assert num_partial > 0
    assert num_preemptions > 0


def test_a_snapshot_does_not_change_with_the_engine(tiny: LoadedModel) -> None:
    history = RandomHistory(tiny, seed=3)
    for _ in range(20):
        history.advance()
    before = take_snapshot(history.engine)
    again = take_snapshot(history.engine)
    assert before == again
    for _ in range(40):
        history.advance()
    assert before == again
    assert take_snapshot(history.engine) != before


def test_taking_one_changes_nothing_in_the_engine(tiny: LoadedModel) -> None:
    watched, left_alone = RandomHistory(tiny, seed=5), RandomHistory(tiny, seed=5)
    for _ in range(60):
        watched.advance()
        left_alone.advance()
        take_snapshot(watched.engine)
    assert take_snapshot(watched.engine) == take_snapshot(left_alone.engine)
