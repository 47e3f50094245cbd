"""FreeBlockQueue, compared with a plain list. That it takes O(1) follows from its links; no test times it."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minipaged.kv.free_queue import FreeBlockQueue, full_queue

NUM_BLOCKS = 9
ANY_BLOCK = st.integers(0, NUM_BLOCKS - 1)
OUTSIDE = st.sampled_from([-NUM_BLOCKS - 1, -2, -1, NUM_BLOCKS, NUM_BLOCKS + 1])


class QueueAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = FreeBlockQueue(NUM_BLOCKS)
        self.model: list[int] = []

    @rule(block_id=ANY_BLOCK, end=st.sampled_from(["front", "back"]))
    def push(self, block_id: int, end: Literal["front", "back"]) -> None:
        push = self.queue.push_front if end == "front" else self.queue.push_back
        if block_id in self.model:
            with pytest.raises(KeyError, match=f"block {block_id} "):
                push(block_id)
            return
        push(block_id)
        self.model.insert(0 if end == "front" else len(self.model), block_id)

    @rule(block_id=ANY_BLOCK)
    def remove(self, block_id: int) -> None:
        if block_id not in self.model:
            with pytest.raises(KeyError, match=f"block {block_id} "):
                self.queue.remove(block_id)
            return
        self.queue.remove(block_id)
        self.model.remove(block_id)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        assert self.queue.pop_front() == self.model.pop(0)

    @precondition(lambda self: not self.model)
    @rule()
    def pop_from_nothing(self) -> None:
        with pytest.raises(IndexError):
            self.queue.pop_front()

    @rule(block_id=OUTSIDE)
    def no_such_block(self, block_id: int) -> None:
        assert block_id not in self.queue
        for change in (self.queue.remove, self.queue.push_front, self.queue.push_back):
            with pytest.raises(KeyError):
                change(block_id)

    @invariant()
    def agrees(self) -> None:
        assert list(self.queue) == self.model
        assert len(self.queue) == len(self.model)
        assert [b for b in range(NUM_BLOCKS) if b in self.queue] == sorted(self.model)


QueueAgainstList.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestQueueAgainstList = QueueAgainstList.TestCase


def test_begins_empty() -> None:
    queue = FreeBlockQueue(3)
    assert len(queue) == 0
    assert list(queue) == []
    assert not queue


def test_a_queue_of_no_blocks() -> None:
    queue = FreeBlockQueue(0)
    assert list(queue) == []
    with pytest.raises(IndexError):
        queue.pop_front()


def test_takes_from_the_middle() -> None:
    queue = FreeBlockQueue(5)
    for block_id in range(5):
        queue.push_back(block_id)
    queue.remove(2)
    queue.push_front(2)
    assert list(queue) == [2, 0, 1, 3, 4]


def test_a_full_queue_has_all_but_the_null_block() -> None:
    assert list(full_queue(5)) == [1, 2, 3, 4]
    assert list(full_queue(1)) == []
