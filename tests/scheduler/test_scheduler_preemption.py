"""Preemption: which request loses its blocks, what it keeps, and how it comes back."""

from __future__ import annotations

import pytest

from minipaged.request import Request, RequestStatus
from minipaged.scheduler.scheduler_output import SchedulerOutput
from tests.fake_engine import FakeEngine


def shares(output: SchedulerOutput) -> list[tuple[Request, int]]:
    return [(item.request, item.num_tokens) for item in output.scheduled]


def leave_free(engine: FakeEngine, num_free: int) -> Request:
    """Let a new request hold all other free blocks. It computes nothing, and is never preempted."""
    num_tokens = (engine.manager.pool.num_free - num_free) * engine.manager.block_size
    request = engine.add(num_tokens, priority=-100)
    seq = request.sequences[0]
    assert engine.manager.append(seq, num_tokens) == []
    engine.tensor.write(list(seq.block_table), seq.token_ids, 0, num_tokens)
    seq.num_computed_tokens = num_tokens
    engine.scheduler.queues.waiting.remove(request)
    engine.scheduler.queues.running.insert(0, request)
    request.status = RequestStatus.RUNNING
    return request


def test_the_last_of_running_loses_its_blocks() -> None:
    engine = FakeEngine(3)
    first, second = engine.add(4), engine.add(8)
    engine.step()
    output = engine.step()  # the first needs a second block
    assert output.preempted == [second]
    assert shares(output) == [(first, 1)]
    assert engine.scheduler.queues.running == [first]
    assert engine.scheduler.counts.preemptions == second.num_preemptions == 1
    assert second.status is RequestStatus.PREEMPTED
    seq = second.sequences[0]
    assert (seq.num_computed_tokens, len(seq.block_table), seq.num_output_tokens) == (0, 0, 1)


def test_no_more_than_must_be() -> None:
    engine = FakeEngine(5)
    requests = [engine.add(4, max_tokens=5) for _ in range(5)]
    engine.step()
    output = engine.step()
    # Each request needs a second block. The first preempts the last request, and the second preempts the
    # one before it. Then the third is itself the last.
    assert output.preempted == [requests[4], requests[3], requests[2]]
    assert shares(output) == [(requests[0], 1), (requests[1], 1)]
    engine.run()
    assert [r.sequences[0].token_ids for r in requests] == [engine.expected(r)[0] for r in requests]


def test_one_may_be_its_own_victim() -> None:
    engine = FakeEngine(4)
    first, second = engine.add(6), engine.add(8)
    engine.step()
    output = engine.step()
    assert output.preempted == [second]
    assert shares(output) == [(first, 1)]


@pytest.mark.parametrize(
    ("priorities", "victim"),
    [((0, 3, 1), 1), ((3, 0, 1), 0), ((0, 0, 0), 2), ((1, 1, 0), 1), ((0, -1, -1), 0)],
)
def test_under_priority_the_least_urgent_is_the_victim(priorities: tuple[int, ...], victim: int) -> None:
    """The victim has the largest (priority, arrival), at any place in the list of running requests."""
    engine = FakeEngine(6, policy="priority")
    requests: list[Request] = []
    for num_tokens, priority in zip((6, 7, 8), priorities, strict=True):
        requests.append(engine.add(num_tokens, max_tokens=9, priority=priority))
        engine.step()
    assert engine.scheduler.queues.running == requests
    assert [request.sequences[0].num_computed_tokens for request in requests] == [8, 8, 8]
    output = engine.step()  # all three want a third block; one of them gives two
    assert output.preempted == [requests[victim]]
    assert shares(output) == [(request, 1) for i, request in enumerate(requests) if i != victim]


def test_the_budget_of_a_withdrawn_victim_is_handed_back() -> None:
    engine = FakeEngine(30, budget=8, policy="priority")
    victim = engine.add(6, max_tokens=9, priority=5)
    engine.step()
    urgent = engine.add(3, max_tokens=9, priority=0)
    engine.step()
    long = engine.add(30, priority=1)
    assert shares(engine.step()) == [(victim, 1), (urgent, 1), (long, 6)]
    # The victim takes the last block, and its token is planned. Then the urgent request needs a block.
    leave_free(engine, 1)
    output = engine.step()
    assert output.preempted == [victim]
    assert shares(output) == [(urgent, 1), (long, 7)]
    assert output.num_tokens == 8


def test_nothing_of_a_withdrawn_step_is_cached() -> None:
    """The victim's planned token would have filled its second block."""
    engine = FakeEngine(30, policy="priority")
    victim = engine.add(6, max_tokens=9, priority=5)
    engine.step()
    urgent = engine.add(4, max_tokens=9)
    engine.step()
    leave_free(engine, 0)
    seq = victim.sequences[0]
    assert (seq.num_computed_tokens, seq.num_tokens) == (7, 8)
    head = seq.block_table[0]
    output = engine.step()
    assert output.preempted == [victim]
    assert shares(output) == [(urgent, 1)]
    seq.token_ids.append(0)  # so that both blocks may be hit
    assert [hit.block_id for hit in engine.manager.find_prefix(seq, None)] == [head]


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    engine = FakeEngine(3, max_num_seqs=2, policy="priority")
    first, second = engine.add(4), engine.add(8, priority=1)
    engine.step()
    third = engine.add(1, priority=-1)
    output = engine.step()
    assert output.preempted == [second]
    assert (engine.manager.pool.num_free, len(engine.scheduler.queues.running)) == (1, 1), (
        "the third would fit"
    )
    assert output.admitted == []
    output = engine.step()
    assert output.admitted == [third]
    assert first in engine.requests


def test_the_preempted_one_comes_back_first() -> None:
    engine = FakeEngine(3)
    first, second = engine.add(4, max_tokens=3), engine.add(8)
    engine.step()
    third = engine.add(1)
    admitted: list[Request] = []
    while first in engine.requests:
        admitted += engine.step().admitted
    assert admitted == [], "the third would fit, but the second comes first"
    assert engine.step().admitted == [second]
    engine.run()
    assert third.is_finished


def test_tokens_are_kept_and_computed_again() -> None:
    engine = FakeEngine(20, caching=False)
    request = engine.add(9, max_tokens=6)
    for _ in range(3):
        engine.step()
    engine.scheduler.preempt(request)
    assert shares(engine.step()) == [(request, 12)], "nine of the prompt, and three that were sampled"
    assert request.sequences[0].num_output_tokens == 4
    engine.run()
    assert request.sequences[0].token_ids == engine.expected(request)[0]


def test_its_own_cached_blocks_are_hit() -> None:
    engine = FakeEngine(20)
    request = engine.add(9, max_tokens=6)
    for _ in range(3):
        engine.step()
    engine.scheduler.preempt(request)
    assert shares(engine.step()) == [(request, 12 - 8)]
    assert engine.scheduler.counts.prefix_cache_hits == 0, "not counted: the first admission found nothing"


def test_blocks_are_freed_last_first() -> None:
    engine = FakeEngine(4)
    request = engine.add(14)
    engine.step()
    blocks = list(request.sequences[0].block_table)
    engine.scheduler.preempt(request)
    assert list(engine.manager.pool.free_queue) == [blocks[3], blocks[2], blocks[1], blocks[0]]


def test_many_requests_in_a_pool_for_one() -> None:
    engine = FakeEngine(4, caching=False)
    requests = [engine.add(7, max_tokens=10) for _ in range(12)]
    engine.run(12 * 17)
    assert [r.sequences[0].token_ids for r in requests] == [engine.expected(r)[0] for r in requests]
