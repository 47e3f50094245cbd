"""WaitingQueue, compared with a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minipaged.choices import SchedulingPolicy
from minipaged.request import Request
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.policy import WaitingQueue


def make_request(arrival: int, priority: int = 0) -> Request:
    return Request(str(arrival), [1], SamplingParams(), 1, 0, arrival, priority=priority)


def drain(queue: WaitingQueue) -> list[int]:
    return [queue.pop().arrival for _ in range(len(queue))]


def test_fcfs_goes_by_arrival_and_ignores_priorities() -> None:
    queue = WaitingQueue("fcfs")
    for arrival, priority in [(2, 0), (0, 9), (1, -3)]:
        queue.push(make_request(arrival, priority))
    assert [request.arrival for request in queue] == [0, 1, 2]
    assert drain(queue) == [0, 1, 2]


def test_priority_is_stable_within_a_level() -> None:
    queue = WaitingQueue("priority")
    for arrival, priority in [(0, 1), (1, 0), (2, 1), (3, -1), (4, 0)]:
        queue.push(make_request(arrival, priority))
    assert drain(queue) == [3, 1, 4, 0, 2]


def test_what_comes_back_is_at_the_front() -> None:
    queue = WaitingQueue("fcfs")
    requests = [make_request(arrival) for arrival in range(4)]
    for request in requests:
        queue.push(request)
    preempted = queue.pop()
    queue.pop()
    queue.push(preempted)
    assert drain(queue) == [0, 2, 3]


def test_removed_ones_do_not_pile_up() -> None:
    queue = WaitingQueue("fcfs")
    queue.push(make_request(0))
    for arrival in range(1, 5000):
        queue.push(request := make_request(arrival))
        queue.remove(request)
    assert drain(queue) == [0]


class QueueAgainstSortedList(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(["fcfs", "priority"]))
    def start(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self.queue = WaitingQueue(policy)
        self.model: list[Request] = []
        self.gone: list[Request] = []
        self.arrivals = 0

    def key(self, request: Request) -> tuple[int, int]:
        return (request.priority if self.policy == "priority" else 0, request.arrival)

    @rule(priority=st.integers(-2, 2), count=st.sampled_from([1, 1, 1, 40]))
    def push(self, priority: int, count: int) -> None:
        for _ in range(count):
            request = make_request(self.arrivals, priority)
            self.arrivals += 1
            self.queue.push(request)
            self.model.append(request)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def push_again(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.gone))
        self.gone.remove(request)
        self.queue.push(request)
        self.model.append(request)

    @rule()
    def pop(self) -> None:
        if not self.model:
            with pytest.raises(IndexError):
                self.queue.pop()
            return
        expected = min(self.model, key=self.key)
        assert self.queue.peek() is expected
        assert self.queue.pop() is expected
        self.model.remove(expected)
        self.gone.append(expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.sampled_from([1, 1, 1, 30]))
    def remove(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            request = data.draw(st.sampled_from(self.model)) if count == 1 else self.model[0]
            self.queue.remove(request)
            self.queue.remove(request)  # the second time it is not there
            self.model.remove(request)
            self.gone.append(request)

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.model)
        assert list(self.queue) == sorted(self.model, key=self.key)
        if self.model:
            assert self.queue.peek() is min(self.model, key=self.key)
        else:
            with pytest.raises(IndexError):
                self.queue.peek()


QueueAgainstSortedList.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestQueueAgainstSortedList = QueueAgainstSortedList.TestCase
