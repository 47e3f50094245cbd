"""Scheduler: which requests are admitted, in which order, and with how many tokens."""

from __future__ import annotations

import pytest

from minipaged.errors import InvariantError
from minipaged.request import Request, RequestStatus
from minipaged.scheduler.scheduler_output import SchedulerOutput
from tests.fake_engine import FakeEngine


def shares(output: SchedulerOutput) -> dict[int, int]:
    """How many tokens the step computes for each request, by its arrival number."""
    counts: dict[int, int] = {}
    for item in output.scheduled:
        counts[item.request.arrival] = counts.get(item.request.arrival, 0) + item.num_tokens
    return counts


def arrivals(requests: list[Request]) -> list[int]:
    return [request.arrival for request in requests]


def test_nothing_to_do() -> None:
    engine = FakeEngine(10)
    output = engine.schedule()
    assert (output.scheduled, output.num_tokens, output.admitted, output.preempted) == ([], 0, [], [])


def test_running_first_then_waiting() -> None:
    engine = FakeEngine(20, budget=8)
    engine.add(4)
    assert shares(engine.step()) == {0: 4}
    engine.add(20)
    output = engine.step()
    assert shares(output) == {0: 1, 1: 7}
    assert [item.request.arrival for item in output.scheduled] == [0, 1]


def test_a_prompt_larger_than_the_budget_is_computed_in_chunks() -> None:
    engine = FakeEngine(20, budget=8)
    request = engine.add(20)
    seen: list[tuple[int, bool]] = []
    for _ in range(4):
        output = engine.schedule()
        seen.append((output.num_tokens, output.scheduled[0].reaches_end))
        engine.compute(output)
    assert seen == [(8, False), (8, False), (4, True), (1, True)]
    assert request.sequences[0].num_output_tokens == 2


def test_a_chunk_is_followed_by_others_in_the_same_step() -> None:
    engine = FakeEngine(20, budget=8)
    engine.add(10)
    assert shares(engine.step()) == {0: 8}
    engine.add(3)
    engine.add(9)
    assert shares(engine.step()) == {0: 2, 1: 3, 2: 3}


def test_without_chunks_a_prompt_waits_for_a_budget_that_holds_all_of_it() -> None:
    engine = FakeEngine(20, budget=8, chunked=False)
    engine.add(4, max_tokens=2)
    engine.add(8)
    engine.add(2)
    output = engine.step()
    assert shares(output) == {0: 4}, "8 tokens do not fit beside 4; and nobody passes it"
    assert shares(engine.step()) == {0: 1}
    assert shares(engine.step()) == {1: 8}
    assert shares(engine.step()) == {1: 1, 2: 2}


def test_first_come_first_served() -> None:
    engine = FakeEngine(30, max_num_seqs=2)
    requests = [engine.add(4, max_tokens=1 + i) for i in range(4)]
    admitted = []
    while engine.requests:
        admitted += engine.step().admitted
    assert admitted == requests


def test_nobody_passes_one_that_does_not_fit() -> None:
    """The second needs more blocks than are free. The third would fit, but must wait for the second."""
    engine = FakeEngine(6)
    engine.add(15)
    assert arrivals(engine.step().admitted) == [0]
    engine.add(12)
    engine.add(1)
    assert engine.step().admitted == []
    assert [request.arrival for request in engine.scheduler.queues.waiting] == [1, 2]


def test_several_are_admitted_in_one_step() -> None:
    engine = FakeEngine(10, budget=64)
    for _ in range(3):
        engine.add(5)
    output = engine.step()
    assert arrivals(output.admitted) == [0, 1, 2]
    assert output.num_tokens == 15
    assert all(request.status is RequestStatus.RUNNING for request in output.admitted)


def test_max_num_seqs() -> None:
    engine = FakeEngine(50, max_num_seqs=3)
    for _ in range(5):
        engine.add(2, max_tokens=3)
    assert len(engine.step().admitted) == 3
    assert len(engine.step().admitted) == 0
    engine.step()
    assert len(engine.step().admitted) == 2, "the first three have ended"


def test_priorities() -> None:
    engine = FakeEngine(50, max_num_seqs=1, policy="priority")
    for priority in (1, 0, 1, -5, 0):
        engine.add(2, max_tokens=2, priority=priority)
    admitted: list[int] = []
    while engine.requests:
        admitted += arrivals(engine.step().admitted)
    assert admitted == [3, 1, 4, 0, 2], "smaller first, and by arrival within a level"


def test_an_admission_takes_all_known_tokens_into_account() -> None:
    """A chunk of the prompt would fit into the free blocks, but the whole prompt would not."""
    engine = FakeEngine(5, budget=4)
    engine.add(8)
    engine.step()
    engine.step()
    engine.add(16)
    output = engine.step()
    assert shares(output) == {0: 1}
    assert engine.manager.pool.num_free == 2


def test_duplicate_prompts_of_one_step_share_blocks() -> None:
    engine = FakeEngine(20)
    prompt = list(range(10))
    first, second = engine.add(prompt), engine.add(prompt)
    output = engine.step()
    assert shares(output) == {0: 10, 1: 2}
    a, b = (list(request.sequences[0].block_table) for request in (first, second))
    assert a[:2] == b[:2]
    assert a[2] != b[2]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8)
    engine.run()
    assert first.sequences[0].token_ids == second.sequences[0].token_ids == engine.expected(first)[0]


def test_duplicates_share_only_what_the_step_computes() -> None:
    """The first gets a chunk of its prompt. The second may share only the blocks of that chunk."""
    engine = FakeEngine(20, budget=10)
    prompt = list(range(9))
    engine.add(3)
    first, second = engine.add(prompt), engine.add(prompt)
    assert shares(engine.step()) == {0: 3, 1: 7}
    assert first.sequences[0].num_computed_tokens == 7
    assert shares(engine.step()) == {0: 1, 1: 2, 2: 1}
    assert second.num_cached_tokens == 8


@pytest.mark.parametrize(("salts", "shared"), [(("a", "a"), 8), (("a", "b"), 0), (("a", None), 0)])
def test_salts(salts: tuple[str, str | None], shared: int) -> None:
    engine = FakeEngine(20)
    prompt = list(range(10))
    engine.add(prompt, salt=salts[0])
    second = engine.add(prompt, salt=salts[1])
    engine.step()
    assert second.num_cached_tokens == shared


def test_hits_are_counted_in_tokens_at_the_first_admission_alone() -> None:
    engine = FakeEngine(20)
    prompt = list(range(12))
    engine.add(prompt)
    engine.run()
    request = engine.add(prompt)
    engine.step()
    engine.scheduler.preempt(request)
    engine.run()
    counts = engine.scheduler.counts
    assert (counts.prefix_cache_queries, counts.prefix_cache_hits) == (24, 8)
    assert counts.prompt_tokens == 24
    assert request.num_cached_tokens == 8


def test_a_request_that_waits_is_not_counted_each_time_it_is_looked_up() -> None:
    engine = FakeEngine(4)
    engine.add(12, max_tokens=5)
    engine.add(9)
    for _ in range(4):
        engine.step()
    assert engine.scheduler.counts.prefix_cache_queries == 12


def test_prompt_logprobs_need_every_token_computed() -> None:
    engine = FakeEngine(20)
    prompt = list(range(12))
    engine.add(prompt)
    engine.run()
    request = engine.add(prompt, prompt_logprobs=0)
    assert engine.step().num_tokens == 12
    assert request.num_cached_tokens == 0
    other = engine.add(prompt)
    engine.step()
    assert other.num_cached_tokens == 8, "but others may use what it computed"


def test_retiring_a_waiting_request() -> None:
    engine = FakeEngine(20, max_num_seqs=1)
    first, second, third = (engine.add(4) for _ in range(3))
    engine.step()
    engine.abort(second)
    assert second.status is RequestStatus.FINISHED
    engine.abort(first)
    assert engine.step().admitted == [third]


def test_retiring_a_running_request_frees_its_blocks() -> None:
    engine = FakeEngine(20)
    first, second = engine.add(6), engine.add(6)
    engine.step()
    engine.abort(first)
    assert engine.scheduler.queues.running == [second]
    assert engine.manager.pool.num_free == 18
    engine.run()


def test_check_invariants_sees_a_request_in_the_wrong_queue() -> None:
    engine = FakeEngine(20)
    request = engine.add(6)
    engine.step()
    request.status = RequestStatus.WAITING
    with pytest.raises(InvariantError, match="wrong queue"):
        engine.scheduler.check_invariants([request])


def test_check_invariants_sees_a_waiting_request_with_blocks() -> None:
    engine = FakeEngine(20)
    request = engine.add(6)
    engine.manager.append(request.sequences[0], 6)
    with pytest.raises(InvariantError, match="holds memory"):
        engine.scheduler.check_invariants([request])
