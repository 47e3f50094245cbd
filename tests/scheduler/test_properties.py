"""Random workloads, with random interference: every request ends, with the right tokens."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from minipaged.choices import Batching, SchedulingPolicy
from minipaged.request import Request
from tests.fake_engine import FakeEngine
from tests.long_tests import examples

POLICIES: st.SearchStrategy[SchedulingPolicy] = st.sampled_from(["fcfs", "priority"])


@dataclass(frozen=True)
class Asked:
    """A request of a random workload."""

    prompt: tuple[int, ...]
    max_tokens: int
    n: int = 1
    priority: int = 0
    salt: str | None = None

    @property
    def work(self) -> int:
        """The number of tokens to compute for all samples, if nothing is shared."""
        return self.n * (len(self.prompt) + self.max_tokens)


@dataclass(frozen=True)
class Workload:
    asked: tuple[Asked, ...]
    num_extra_blocks: int
    block_size: int
    budget: int
    max_num_seqs: int
    chunked: bool
    policy: SchedulingPolicy
    caching: bool
    batching: Batching = "continuous"
    admits_surely: bool = False
    copies_forks: bool = False

    def engine(self) -> FakeEngine:
        """An engine whose pool has a few blocks more than the largest request needs alone."""
        sizes = FakeEngine(1, block_size=self.block_size, copies_forks=self.copies_forks).manager
        most = max(sizes.most_blocks(len(a.prompt), a.max_tokens, a.n) for a in self.asked)
        longest = max(len(a.prompt) + a.max_tokens for a in self.asked)
        return FakeEngine(
            most + self.num_extra_blocks,
            block_size=self.block_size,
            max_num_seqs=max(self.max_num_seqs, *(a.n for a in self.asked), 1),
            budget=self.budget if self.chunked else max(self.budget, longest),
            chunked=self.chunked,
            policy=self.policy,
            caching=self.caching,
            batching=self.batching,
            admits_surely=self.admits_surely,
            copies_forks=self.copies_forks,
        )


def add(engine: FakeEngine, asked: Asked) -> Request:
    return engine.add(
        list(asked.prompt), asked.max_tokens, n=asked.n, priority=asked.priority, salt=asked.salt
    )


REQUESTS = st.builds(
    Asked,
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple),
    max_tokens=st.integers(1, 8),
    n=st.sampled_from([1, 1, 1, 2, 3, 4]),
    priority=st.integers(0, 2),
    salt=st.sampled_from([None, None, None, "red"]),
)
WORKLOADS = st.builds(
    Workload,
    asked=st.lists(REQUESTS, min_size=1, max_size=6).map(tuple),
    num_extra_blocks=st.sampled_from([0, 0, 1, 2, 5, 20]),
    block_size=st.integers(1, 4),
    budget=st.sampled_from([1, 2, 3, 5, 8, 64]),
    max_num_seqs=st.integers(1, 8),
    chunked=st.booleans(),
    policy=POLICIES,
    caching=st.booleans(),
    batching=st.sampled_from(["continuous", "continuous", "static"]),
    admits_surely=st.booleans(),
    copies_forks=st.sampled_from([False, False, True]),
)


@settings(max_examples=150, deadline=None)
@given(workload=WORKLOADS)
def test_all_finish_within_a_bounded_number_of_steps(workload: Workload) -> None:
    """In each step the most urgent running request advances by at least one token.

    It keeps its blocks until it ends or a more urgent request arrives.
    """
    engine = workload.engine()
    requests = [add(engine, asked) for asked in workload.asked]
    bound = sum(asked.work for asked in workload.asked)
    engine.run(bound if workload.policy == "fcfs" else bound * (len(requests) + 1))
    for request in requests:
        assert [seq.token_ids for seq in request.sequences] == engine.expected(request)
    assert engine.manager.pool.num_free == engine.manager.pool.num_blocks - 1
    assert not (workload.admits_surely and engine.scheduler.counts.preemptions)


@settings(max_examples=examples(250), deadline=None)
@given(workload=WORKLOADS, data=st.data())
def test_interference_changes_no_token(workload: Workload, data: st.DataObject) -> None:
    """The remaining requests end with the same tokens as alone.

    Meanwhile requests arrive at any time, any of them is aborted or preempted, steps fail, and the prefix
    cache is emptied.
    """
    engine = workload.engine()
    to_come = list(workload.asked)
    served: list[Request] = []
    for _ in range(data.draw(st.integers(0, 30), label="steps of interference")):
        event = data.draw(st.sampled_from(["add", "step", "step", "preempt", "fail", "abort", "reset"]))
        if event == "add" and to_come:
            served.append(add(engine, to_come.pop()))
        elif event == "preempt" and engine.scheduler.queues.running:
            engine.scheduler.preempt(data.draw(st.sampled_from(engine.scheduler.queues.running)))
            engine.check()
        elif event == "fail":
            engine.fail()
        elif event == "abort" and engine.requests:
            request = data.draw(st.sampled_from(engine.requests))
            engine.abort(request)
            served.remove(request)
        elif event == "reset":
            engine.manager.reset_prefix_cache()
            engine.check()
        else:
            engine.step()
    served += [add(engine, asked) for asked in to_come]
    engine.run(10 * sum(asked.work for asked in workload.asked) + 10)
    for request in served:
        assert [seq.token_ids for seq in request.sequences] == engine.expected(request)
    assert engine.manager.pool.num_free == engine.manager.pool.num_blocks - 1
    assert (len(engine.scheduler.queues.running), len(engine.scheduler.queues.waiting)) == (0, 0)


@settings(max_examples=100, deadline=None)
@given(asked=REQUESTS, block_size=st.integers(1, 4), budget=st.sampled_from([1, 3, 64]), data=st.data())
@example(asked=Asked(prompt=(0,), max_tokens=1, n=4), block_size=2, budget=64, data=None)
def test_a_request_alone_never_holds_more_than_most_blocks(
    asked: Asked, block_size: int, budget: int, data: st.DataObject | None
) -> None:
    """Even if it is preempted again and again, and its samples come back one by one."""
    workload = Workload((asked,), 0, block_size, budget, 4, True, "fcfs", True)
    engine = workload.engine()
    request = add(engine, asked)
    preemptions = 0
    while engine.requests:
        output = engine.step()
        assert not output.preempted, "alone it always fits"
        if (
            data is not None
            and preemptions < 3
            and engine.scheduler.queues.running
            and data.draw(st.booleans())
        ):
            engine.scheduler.preempt(request)
            preemptions += 1
    assert request.num_preemptions == preemptions
