"""BlockPool: which blocks are handed out, in which order, and which mistakes are detected."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.block_pool import NULL_BLOCK, BlockPool


def allocate(pool: BlockPool, count: int) -> list[int]:
    return [pool.allocate() for _ in range(count)]


def cache(pool: BlockPool, *block_ids: int) -> None:
    for block_id in block_ids:
        pool.set_cached(block_id, True)


def release(pool: BlockPool, *block_ids: int) -> None:
    for block_id in block_ids:
        pool.release(block_id)


def test_the_queue_of_ten_blocks() -> None:
    """The queue order of vLLM's `v1/core/block_pool.py`.

    Request 1 holds the cached blocks 1, 2, 3 and a partly filled block 4. Request 2 shares 1, 2, 3 and has
    a partly filled block 5. Request 1 ends, then request 2.
    """
    pool = BlockPool(10)
    assert allocate(pool, 4) == [1, 2, 3, 4]
    cache(pool, 1, 2, 3)
    for block_id in (1, 2, 3):
        pool.touch(block_id)
    assert pool.allocate() == 5
    release(pool, 4, 3, 2, 1)
    assert list(pool.free_queue) == [4, 6, 7, 8, 9]
    release(pool, 5, 3, 2, 1)
    assert list(pool.free_queue) == [5, 4, 6, 7, 8, 9, 3, 2, 1]
    pool.check_invariants()


def test_evicts_the_least_recently_used_and_the_tail_of_a_prefix_first() -> None:
    evicted: list[int] = []
    pool = BlockPool(7, on_evict=evicted.append)
    old, new = allocate(pool, 3), allocate(pool, 3)
    cache(pool, *old, *new)
    release(pool, *reversed(old))
    release(pool, *reversed(new))
    taken = allocate(pool, 6)
    assert taken == [*reversed(old), *reversed(new)]
    assert evicted == taken


def test_a_hit_makes_a_block_recently_used() -> None:
    pool = BlockPool(4)
    first, second, third = allocate(pool, 3)
    cache(pool, first, second, third)
    release(pool, first, second, third)
    pool.touch(first)
    assert list(pool.free_queue) == [second, third]
    pool.release(first)
    assert allocate(pool, 3) == [second, third, first]


def test_eviction_is_told_once_before_the_block_is_reused() -> None:
    states: list[tuple[int, bool, int]] = []
    pool = BlockPool(2, on_evict=lambda b: states.append((b, pool.is_cached(b), pool.ref_cnt[b])))
    block_id = pool.allocate()
    cache(pool, block_id)
    pool.release(block_id)
    assert pool.is_cached(block_id), "a free block stays findable until it is reused"
    assert pool.allocate() == block_id
    assert states == [(block_id, False, 0)]
    pool.release(block_id)
    pool.allocate()
    assert len(states) == 1, "it had lost its hash"


def test_no_eviction_is_told_for_a_block_without_hash() -> None:
    evicted: list[int] = []
    pool = BlockPool(3, on_evict=evicted.append)
    block_id = pool.allocate()
    cache(pool, block_id)
    pool.set_cached(block_id, False)
    pool.release(block_id)
    assert pool.allocate() == block_id, "it went to the front"
    assert evicted == []


def test_the_null_block_is_nobodys() -> None:
    pool = BlockPool(5)
    assert NULL_BLOCK not in allocate(pool, 4)
    with pytest.raises(OutOfBlocksError, match="all 4 blocks"):
        pool.allocate()
    with pytest.raises(InvariantError):
        pool.touch(NULL_BLOCK)
    with pytest.raises(InvariantError):
        pool.release(NULL_BLOCK)
    pool.check_invariants()


def test_double_free() -> None:
    pool = BlockPool(3)
    block_id = pool.allocate()
    pool.touch(block_id)
    release(pool, block_id, block_id)
    with pytest.raises(InvariantError, match=f"block {block_id} "):
        pool.release(block_id)
    assert list(pool.free_queue).count(block_id) == 1
    pool.check_invariants()


def test_usage() -> None:
    pool = BlockPool(11)
    assert pool.usage == 0.0
    block_ids = allocate(pool, 3)
    assert pool.usage == pytest.approx(3 / 10)
    pool.touch(block_ids[0])
    assert pool.usage == pytest.approx(3 / 10), "a shared block is one block"
    cache(pool, *block_ids)
    release(pool, block_ids[0], *block_ids)
    assert pool.usage == 0.0, "what is only cached can be handed out"
    allocate(pool, 10)
    assert pool.usage == 1.0


def test_the_smallest_pool() -> None:
    pool = BlockPool(2)
    assert pool.allocate() == 1
    assert pool.usage == 1.0
    with pytest.raises(OutOfBlocksError):
        pool.allocate()


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool: pool.ref_cnt.__setitem__(1, 0),
        lambda pool: pool.ref_cnt.__setitem__(2, 1),
        lambda pool: pool.ref_cnt.__setitem__(NULL_BLOCK, 0),
        lambda pool: pool.ref_cnt.__setitem__(NULL_BLOCK, 2),
        lambda pool: pool.set_cached(NULL_BLOCK, True),
        lambda pool: pool.free_queue.push_back(1),
        lambda pool: pool.free_queue.push_back(NULL_BLOCK),
        lambda pool: pool.free_queue.remove(3),
    ],
)
def test_check_invariants_sees_damage(damage) -> None:
    pool = BlockPool(5)
    pool.allocate()
    pool.check_invariants()
    damage(pool)
    with pytest.raises(InvariantError):
        pool.check_invariants()


class PoolAgainstLists(RuleBasedStateMachine):
    """The model: holders as a list with repetitions, the queue as a list, the cached blocks as a set."""

    NUM_BLOCKS = 6

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[int] = []
        self.pool = BlockPool(self.NUM_BLOCKS, on_evict=self.evicted.append)
        self.held: list[int] = []
        self.queue = list(range(1, self.NUM_BLOCKS))
        self.cached: set[int] = set()

    @rule()
    def allocate(self) -> None:
        if not self.queue:
            with pytest.raises(OutOfBlocksError):
                self.pool.allocate()
            return
        self.evicted.clear()
        expected = self.queue.pop(0)
        assert self.pool.allocate() == expected
        assert self.evicted == [expected] * (expected in self.cached)
        self.cached.discard(expected)
        self.held.append(expected)

    @precondition(lambda self: self.held or self.cached)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        block_id = data.draw(st.sampled_from(sorted(self.cached | set(self.held))))
        self.pool.touch(block_id)
        if block_id in self.queue:
            self.queue.remove(block_id)
        self.held.append(block_id)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block_id = data.draw(st.sampled_from(self.held))
        self.pool.release(block_id)
        self.held.remove(block_id)
        if block_id not in self.held:
            self.queue.insert(len(self.queue) if block_id in self.cached else 0, block_id)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), cached=st.booleans())
    def set_cached(self, data: st.DataObject, cached: bool) -> None:
        block_id = data.draw(st.sampled_from(self.held))
        self.pool.set_cached(block_id, cached)
        (self.cached.add if cached else self.cached.discard)(block_id)

    @rule(block_id=st.integers(0, NUM_BLOCKS - 1))
    def free_twice(self, block_id: int) -> None:
        if block_id not in self.held:
            with pytest.raises(InvariantError):
                self.pool.release(block_id)

    @invariant()
    def agrees(self) -> None:
        pool = self.pool
        assert list(pool.free_queue) == self.queue
        assert pool.ref_cnt[1:] == [self.held.count(b) for b in range(1, self.NUM_BLOCKS)]
        assert {b for b in range(self.NUM_BLOCKS) if pool.is_cached(b)} == self.cached
        assert pool.num_free + len(set(self.held)) + 1 == pool.num_blocks
        assert pool.usage == pytest.approx(len(set(self.held)) / (self.NUM_BLOCKS - 1))
        pool.check_invariants()


PoolAgainstLists.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestPoolAgainstLists = PoolAgainstLists.TestCase
