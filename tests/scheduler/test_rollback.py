"""A forward pass that fails: no token was computed, so the cache must not contain its blocks."""

from __future__ import annotations

from minipaged.request import Request, RequestStatus
from tests.fake_engine import FakeEngine


def hits(engine: FakeEngine, request: Request) -> int:
    """How many cached blocks a request would find now."""
    return len(engine.manager.find_prefix(request.sequences[0], request.cache_salt))


def test_nothing_is_cached_that_was_not_computed() -> None:
    engine = FakeEngine(20)
    request = engine.add(13)
    assert engine.fail().num_tokens == 13
    assert engine.manager.prefix_cache.block_ids() == frozenset()
    assert hits(engine, request) == 0
    assert engine.manager.pool.num_free == 20
    assert request.status is RequestStatus.PREEMPTED
    engine.run()
    assert request.sequences[0].token_ids == engine.expected(request)[0]


def test_what_had_been_computed_stays() -> None:
    engine = FakeEngine(20, budget=8)
    request = engine.add(20)
    engine.step()
    engine.fail()
    assert hits(engine, request) == 2
    output = engine.step()
    assert [(item.seq.num_computed_tokens, item.num_tokens) for item in output.scheduled] == [(16, 8)]
    engine.run()
    assert request.sequences[0].token_ids == engine.expected(request)[0]


def test_requests_that_built_on_each_other_in_the_failed_step() -> None:
    """The second request hits blocks that the first computes in this step; the third hits the second's."""
    engine = FakeEngine(30)
    prompts = [list(range(9)), list(range(13)), list(range(17))]
    requests = [engine.add(prompt) for prompt in prompts]
    output = engine.fail()
    assert [item.num_tokens for item in output.scheduled] == [9, 5, 5]
    assert engine.manager.prefix_cache.block_ids() == frozenset()
    engine.run()
    assert [r.sequences[0].token_ids for r in requests] == [engine.expected(r)[0] for r in requests]


def test_an_older_hit_survives() -> None:
    """A request of the failed step had hit two blocks of an earlier request. They stay cached."""
    engine = FakeEngine(30)
    engine.add(list(range(8)), max_tokens=1)
    engine.run()
    request = engine.add(list(range(17)))
    assert engine.fail().num_tokens == 9
    assert hits(engine, request) == 2


def test_all_that_were_scheduled_wait_again_in_their_order() -> None:
    engine = FakeEngine(30)
    requests = [engine.add(5, max_tokens=9) for _ in range(2)]
    engine.step()
    requests.append(engine.add(5))
    engine.fail()
    assert engine.scheduler.queues.running == []
    assert list(engine.scheduler.queues.waiting) == requests
    assert engine.step().admitted == requests


def test_who_was_not_scheduled_is_not_disturbed() -> None:
    engine = FakeEngine(30, budget=2)
    group, other = engine.add(1, max_tokens=9, n=2), engine.add(1, max_tokens=9)
    engine.step()
    output = engine.fail()
    assert {item.request for item in output.scheduled} == {group}, "its samples used up the budget"
    assert engine.scheduler.queues.running == [other]
    assert (group.num_preemptions, other.num_preemptions) == (1, 0)
    engine.run()
    for request in (group, other):
        assert [seq.token_ids for seq in request.sequences] == engine.expected(request)


def test_a_group_that_was_about_to_part() -> None:
    """Two block copies were planned but never done."""
    engine = FakeEngine(30)
    request = engine.add(6, max_tokens=5, n=3)
    engine.step()
    output = engine.fail()
    assert sum(len(item.copies) for item in output.scheduled) == 2
    engine.run()
    assert [seq.token_ids for seq in request.sequences] == engine.expected(request)


def test_failing_again_and_again() -> None:
    engine = FakeEngine(6)
    requests = [engine.add(7, max_tokens=6, n=n) for n in (1, 2)]
    for _ in range(40):
        engine.fail()
        if engine.requests:
            engine.step()
    engine.run()
    for request in requests:
        assert [seq.token_ids for seq in request.sequences] == engine.expected(request)
