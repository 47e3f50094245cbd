"""The samples of a request: admitted, preempted and resumed together, and sharing again afterwards."""

from __future__ import annotations

import pytest

from minipaged.request import Request, RequestStatus
from tests.fake_engine import FakeEngine

PROMPT = [1, 2, 3, 4, 5, 6]


def own_token(token_ids: tuple[int, ...], sample: int) -> int:
    """Next tokens that always differ between samples."""
    return 100 * (sample + 1) + len(token_ids)


def first_alone(token_ids: tuple[int, ...], sample: int) -> int:
    """As `own_token`, but samples 1 and up have the same first token."""
    if len(token_ids) == len(PROMPT):
        return 50 if sample == 0 else 51
    return own_token(token_ids, sample)


def blocks_in_use(engine: FakeEngine) -> int:
    return engine.manager.pool.num_blocks - 1 - engine.manager.pool.num_free


def tables(request: Request) -> list[list[int]]:
    return [list(seq.block_table) for seq in request.sequences]


def test_samples_share_the_prompt_and_part_by_copying() -> None:
    engine = FakeEngine(20, next_token=own_token)
    request = engine.add(PROMPT, max_tokens=4, n=3)
    engine.step()
    assert len(request.sequences) == 3
    assert len({tuple(table) for table in tables(request)}) == 1
    output = engine.step()
    assert [len(item.copies) for item in output.scheduled] == [1, 1, 0], "the last one writes in place"
    first, second, third = tables(request)
    assert first[0] == second[0] == third[0]
    assert len({first[1], second[1], third[1]}) == 3
    assert blocks_in_use(engine) == 4
    engine.run()
    assert [seq.token_ids for seq in request.sequences] == engine.expected(request)


def test_preempted_together_and_sharing_again() -> None:
    engine = FakeEngine(20, next_token=own_token)
    request = engine.add(PROMPT, max_tokens=8, n=3)
    for _ in range(3):
        engine.step()
    in_use = blocks_in_use(engine)
    engine.scheduler.preempt(request)
    assert blocks_in_use(engine) == 0
    assert tables(request) == [[], [], []]
    assert [seq.num_computed_tokens for seq in request.sequences] == [0, 0, 0]
    assert request.status is RequestStatus.PREEMPTED
    for _ in range(3):
        engine.step()
    assert all(tables(request))
    assert len({table[0] for table in tables(request)}) == 1, "the prompt's full block is shared again"
    assert blocks_in_use(engine) <= in_use + 3, "they are three tokens further on"
    engine.run()
    assert [seq.token_ids for seq in request.sequences] == engine.expected(request)


@pytest.mark.parametrize("caching", [True, False])
def test_a_sample_is_not_shared_with_before_its_own_copy_is_done(caching: bool) -> None:
    """Sample 1 resumes by copying sample 0's last block. Sample 2 has most tokens in common with sample 1.

    But the target of sample 1's copy is written in this step. If sample 2 also copied that block, it would
    get the block's old contents.
    """
    engine = FakeEngine(20, next_token=first_alone, caching=caching)
    request = engine.add(PROMPT, max_tokens=5, n=3)
    engine.step()
    engine.scheduler.preempt(request)
    for _ in range(4):
        output = engine.step()
        copies = [copy for item in output.scheduled for copy in item.copies]
        assert not {copy.source for copy in copies} & {copy.target for copy in copies}
    engine.run()
    assert [seq.token_ids for seq in request.sequences] == engine.expected(request)


def test_a_sample_waits_for_the_copy_of_the_one_that_it_is_closest_to() -> None:
    """As above, but no other sample has as many tokens in common.

    Without chunks, sample 1 must wait for a step with a larger budget. So it resumes after sample 2, and
    copies from it. Sample 3 has most tokens in common with sample 1.
    """
    nine = FakeEngine(20, block_size=8, budget=7, chunked=False, caching=False, next_token=lambda *_: 9)
    for _ in range(2):
        nine.add(1, max_tokens=3)  # take up budget in the first three steps
    request = nine.add([1, 2], max_tokens=9, n=4)
    nine.step()
    nine.scheduler.preempt(request)
    for seq, output in zip(request.sequences, ([50], [7] * 5, [7], [7, 7]), strict=True):
        seq.token_ids[2:] = output
    scheduled: list[list[int]] = []
    while nine.requests:
        step = nine.step()
        scheduled.append([item.seq.index for item in step.scheduled if item.request is request])
    assert scheduled[:4] == [[0], [0, 2], [0, 1, 2], [0, 1, 2, 3]]


def test_what_a_sample_cannot_compute_yet_it_does_not_share_yet() -> None:
    """Without chunks, a resumed sample that does not fit into the rest of the budget takes no blocks.

    Otherwise it would share the last block of a sibling that is about to write into it.
    """
    engine = FakeEngine(40, block_size=8, budget=9, chunked=False, caching=False, next_token=own_token)
    other = engine.add(1, max_tokens=10)
    request = engine.add(PROMPT[:5], max_tokens=4, n=5)
    while request.sequences[-1].num_tokens < 7:
        engine.step()
    engine.scheduler.preempt(request)
    engine.run()
    for served in (other, request):
        assert [seq.token_ids for seq in served.sequences] == engine.expected(served)


def test_samples_wait_for_what_they_share() -> None:
    """While sample 0 recomputes the prompt in chunks, the other samples are not computed."""
    engine = FakeEngine(40, budget=3, next_token=own_token)
    request = engine.add(9, max_tokens=6, n=2)
    while len(request.sequences) < 2 or request.sequences[1].num_output_tokens < 2:
        engine.step()
    engine.manager.reset_prefix_cache()
    engine.scheduler.preempt(request)
    for _ in range(3):
        output = engine.step()
        assert [item.seq.index for item in output.scheduled] == [0]
    engine.run()
    assert [seq.token_ids for seq in request.sequences] == engine.expected(request)


def test_a_group_needs_room_for_all_its_samples() -> None:
    engine = FakeEngine(40, max_num_seqs=4)
    first, group = engine.add(4), engine.add(4, n=4)
    engine.step()
    assert engine.scheduler.queues.running == [first], "one and four are more than four"
    while first in engine.requests:
        engine.step()
    engine.step()
    assert engine.scheduler.queues.running == [group]


def test_a_group_that_shrank_leaves_room() -> None:
    engine = FakeEngine(40, max_num_seqs=2)
    group, second = engine.add(4, max_tokens=3, n=2), engine.add(4)
    engine.step()
    group.sequences[1].finish_reason = "stop"
    engine.manager.free(group.sequences[1])
    engine.step()
    assert engine.scheduler.queues.running == [group, second]


def test_a_sample_that_has_ended_does_not_come_back() -> None:
    engine = FakeEngine(40, next_token=own_token)
    request = engine.add(PROMPT, max_tokens=6, n=3)
    for _ in range(3):
        engine.step()
    ended = request.sequences[0]
    ended.finish_reason = "stop"
    engine.manager.free(ended)
    tokens = list(ended.token_ids)
    engine.scheduler.preempt(request)
    engine.run()
    assert ended.token_ids == tokens
    assert [seq.token_ids for seq in request.sequences[1:]] == engine.expected(request)[1:]


@pytest.mark.parametrize("num_steps", range(5))
@pytest.mark.parametrize("preempted", [False, True])
def test_aborting_a_group_frees_everything(num_steps: int, preempted: bool) -> None:
    engine = FakeEngine(40, budget=4)
    request = engine.add(PROMPT, max_tokens=8, n=3)
    for _ in range(num_steps):
        engine.step()
    if preempted and engine.scheduler.queues.running:
        engine.scheduler.preempt(request)
    engine.abort(request)
    assert blocks_in_use(engine) == 0
    assert not engine.scheduler.queues.running
    assert len(engine.scheduler.queues.waiting) == 0
    assert request.status is RequestStatus.FINISHED


def test_a_budget_of_one_serves_a_group_sample_by_sample() -> None:
    engine = FakeEngine(40, budget=1)
    request = engine.add(PROMPT, max_tokens=4, n=3)
    engine.run(6 + 3 * 4)
    assert [seq.token_ids for seq in request.sequences] == engine.expected(request)
