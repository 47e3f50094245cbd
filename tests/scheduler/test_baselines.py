"""Static batching, admission of only those requests that surely fit, and copied forks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake_engine import FakeEngine
from tests.scheduler.test_scheduler import arrivals


def batches(engine: FakeEngine) -> list[list[int]]:
    """Run to the end. Returns, for each step, the arrival numbers of the requests that it computed."""
    trace: list[list[int]] = []
    while engine.requests:
        output = engine.step()
        trace.append(sorted({item.request.arrival for item in output.scheduled}))
    return trace


def test_a_static_batch_runs_until_its_longest_member_ends() -> None:
    engine = FakeEngine(40, max_num_seqs=2, batching="static")
    for max_tokens in (1, 4, 2, 3, 1):
        engine.add(3, max_tokens=max_tokens)
    assert batches(engine) == [[0, 1], [1], [1], [1], [2, 3], [2, 3], [3], [4]]
    continuous = FakeEngine(40, max_num_seqs=2)
    for max_tokens in (1, 4, 2, 3, 1):
        continuous.add(3, max_tokens=max_tokens)
    assert batches(continuous) == [[0, 1], [1, 2], [1, 2], [1, 3], [3, 4], [3]]


def test_who_comes_late_waits_for_the_next_batch() -> None:
    engine = FakeEngine(40, batching="static")
    engine.add(3, max_tokens=3)
    engine.step()
    engine.add(3, max_tokens=1)
    assert batches(engine) == [[0], [0], [1]]


def test_a_static_batch_is_as_large_as_memory_allows() -> None:
    """Each request needs four blocks until its end, and the pool has ten: two requests are admitted."""
    engine = FakeEngine(10, batching="static", admits_surely=True)
    for _ in range(3):
        engine.add(8, max_tokens=8)
    assert batches(engine) == [[0, 1]] * 8 + [[2]] * 8


def test_a_static_batch_is_filled_over_several_steps_if_the_budget_is_small() -> None:
    """Memory limits the batch. The budget of a single step does not."""
    engine = FakeEngine(40, budget=8, max_num_seqs=3, batching="static")
    for _ in range(4):
        engine.add(6, max_tokens=2)
    assert batches(engine) == [[0, 1], [0, 1, 2], [1, 2], [2], [3], [3]]


def test_after_an_abort_of_all_a_new_batch_begins() -> None:
    engine = FakeEngine(40, max_num_seqs=1, batching="static")
    first = engine.add(6, max_tokens=9)
    engine.add(6, max_tokens=1)
    engine.step()
    engine.abort(first)
    assert batches(engine) == [[1]]


def test_only_what_surely_fits_is_admitted() -> None:
    """Prompts of 4 tokens whose sequences may get 13 tokens long.

    12 of these tokens are computed, which takes 3 blocks. Of 8 blocks, two requests surely fit. A third
    would fit now, but not until its end.
    """
    engine = FakeEngine(8, admits_surely=True)
    for _ in range(3):
        engine.add(4, max_tokens=9)
    assert arrivals(engine.step().admitted) == [0, 1]
    eager = FakeEngine(8)
    for _ in range(3):
        eager.add(4, max_tokens=9)
    assert arrivals(eager.step().admitted) == [0, 1, 2]
    engine.run()
    eager.run()
    assert (engine.scheduler.counts.preemptions, eager.scheduler.counts.preemptions > 0) == (0, True)


def test_as_much_is_admitted_as_is_sure() -> None:
    engine = FakeEngine(9, admits_surely=True)
    for _ in range(4):
        engine.add(4, max_tokens=9)
    assert arrivals(engine.step().admitted) == [0, 1, 2], "3 x 3 blocks are all there are"


def test_what_samples_share_is_counted_once_and_what_has_ended_not_at_all() -> None:
    """A prompt of 8 tokens is two shared blocks. Each of three samples needs one more: 5 blocks in all."""
    engine = FakeEngine(6, admits_surely=True, max_num_seqs=4)
    group = engine.add(8, max_tokens=5, n=3)
    engine.add(4, max_tokens=1)
    assert arrivals(engine.step().admitted) == [0, 1]
    engine.add(8, max_tokens=1)
    assert engine.step().admitted == [], "one block is free, and it takes two"
    ended = group.sequences[2]
    ended.finish_reason = "stop"
    engine.manager.free(ended)
    assert arrivals(engine.step().admitted) == [2], "its place is free, and its block"


def test_forks_are_copied_once_and_then_share_nothing() -> None:
    engine = FakeEngine(40, copies_forks=True)
    request = engine.add(9, max_tokens=4, n=3)
    engine.step()
    assert [len(item.copies) for item in engine.step().scheduled] == [3, 3, 0]
    assert [len(item.copies) for item in engine.step().scheduled] == [0, 0, 0]
    tables = [set(seq.block_table) for seq in request.sequences]
    assert len(set.union(*tables)) == 9


@settings(max_examples=80, deadline=None)
@given(
    asked=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 1, 2, 3])),
        min_size=1,
        max_size=12,
    ),
    num_extra_blocks=st.integers(0, 30),
    budget=st.sampled_from([2, 9, 64]),
    copies_forks=st.booleans(),
    caching=st.booleans(),
)
def test_what_surely_fits_is_never_preempted_and_the_most_that_is_sure_is_admitted(
    asked: list[tuple[int, int, int]], num_extra_blocks: int, budget: int, copies_forks: bool, caching: bool
) -> None:
    sizes = FakeEngine(1, copies_forks=copies_forks).manager
    needs = [sizes.most_blocks(*each) for each in asked]
    usable = max(needs) + num_extra_blocks
    engine = FakeEngine(
        usable,
        budget=budget,
        max_num_seqs=99,
        admits_surely=True,
        copies_forks=copies_forks,
        caching=caching,
    )
    for num_prompt, max_tokens, n in asked:
        engine.add([0] * num_prompt, max_tokens, n=n)
    while engine.requests:
        output = engine.schedule()
        running = engine.scheduler.queues.running
        assert not output.preempted
        if engine.scheduler.queues.waiting and output.num_tokens < budget:
            wanted = engine.scheduler.queues.waiting.peek()
            held = sum(sizes.most_blocks(len(r.prompt_token_ids), r.max_tokens, r.num_seqs) for r in running)
            assert held + needs[wanted.arrival] > usable, "it would have been sure to fit"
        engine.compute(output)
