"""Swapping: blocks go to CPU memory and come back bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from minipaged import LLMEngine, SamplingParams
from minipaged.errors import ConfigError
from minipaged.kv.cache import BlockCopy
from minipaged.request import RequestStatus
from minipaged.scheduler.scheduler_output import SchedulerOutput
from tests.engine.driving import (
    assert_all_free,
    assert_greedy,
    check_and_poison,
    drain,
    greedy,
    make_engine,
    poison,
)
from tests.model_pairs import Pair

PROMPTS = [[(7 * i + n) % 250 for i in range(18)] for n in range(3)]


def swapping(tiny: Pair, num_blocks: int = 60, num_cpu_blocks: int | None = None) -> LLMEngine:
    return make_engine(
        tiny.model,
        block_size=4,
        num_blocks=num_blocks,
        max_model_len=64,
        preemption_mode="swap",
        num_cpu_blocks=num_cpu_blocks,
    )


def contents(engine: LLMEngine) -> list[torch.Tensor]:
    """The keys and values of each sequence of the first running request: only the computed slots."""
    size = engine.config.block_size
    result = []
    for seq in engine.scheduler.queues.running[0].sequences:
        count = seq.num_computed_tokens
        slots = [b * size + o for b in seq.block_table for o in range(size)][:count]
        result.append(engine.kv_cache.data.flatten(2, 3)[:, :, slots].clone())
    return result


@pytest.mark.parametrize("n", [1, 3])
def test_contents_come_back_bit_for_bit(tiny: Pair, n: int) -> None:
    engine = swapping(tiny)
    engine.add_request("a", PROMPTS[0], SamplingParams(n=n, seed=1, max_tokens=20, ignore_eos=True))
    for _ in range(6):
        engine.step()
    [request] = engine.scheduler.queues.running
    before = contents(engine)
    lengths = [seq.num_computed_tokens for seq in request.sequences]
    engine.scheduler.preempt(request)
    assert request.status is RequestStatus.SWAPPED
    assert engine.stats().num_free_blocks == 59
    check_and_poison(engine)
    engine.step()
    after = contents(engine)
    for old, new, length in zip(before, after, lengths, strict=True):
        assert torch.equal(old, new[:, :, :length])
    drain(engine, after_step=check_and_poison)
    assert_all_free(engine)


def test_nobody_is_admitted_while_somebody_is_swapped_out(tiny: Pair) -> None:
    engine = swapping(tiny, num_blocks=17)
    params = greedy(30)
    engine.add_request("a", PROMPTS[0], params)
    engine.add_request("b", PROMPTS[1], params)
    while not engine.scheduler.queues.swapped:
        engine.step()
    engine.add_request("late", [1], greedy(1))
    finished: list[str] = []
    while engine.has_unfinished_requests():
        was_swapped = len(engine.scheduler.queues.swapped) > 0
        output_ids = [output.request_id for output in engine.step() if output.finished]
        if was_swapped and engine.scheduler.queues.swapped:
            assert all(request.request_id != "late" for request in engine.scheduler.queues.running)
        finished += output_ids
        check_and_poison(engine)
    assert finished.index("late") > finished.index("a")
    assert_all_free(engine)


@pytest.mark.parametrize(("num_cpu_blocks", "status"), [(0, "preempted"), (2, "preempted"), (40, "swapped")])
def test_a_full_cpu_pool_means_recomputation(tiny: Pair, num_cpu_blocks: int, status: str) -> None:
    engine = swapping(tiny, num_cpu_blocks=num_cpu_blocks)
    engine.add_request("a", PROMPTS[0], greedy(9))
    engine.step()
    [request] = engine.scheduler.queues.running
    engine.scheduler.preempt(request)
    assert request.status.value == status
    output = drain(engine, after_step=check_and_poison)["a"]
    assert_greedy(tiny.oracle, output, 9)
    assert (engine.stats().num_swapped_blocks > 0) == (status == "swapped")


def test_aborting_a_swapped_request_frees_both_pools(tiny: Pair) -> None:
    engine = swapping(tiny, num_cpu_blocks=10)
    for round_number in range(5):  # a leak of CPU blocks would make the later rounds recompute
        engine.add_request("a", PROMPTS[0], SamplingParams(n=2, max_tokens=20, ignore_eos=True))
        for _ in range(3):
            engine.step()
        [request] = engine.scheduler.queues.running
        engine.scheduler.preempt(request)
        assert request.status is RequestStatus.SWAPPED, round_number
        output = engine.abort_request("a")
        assert output is not None
        assert output.finished
        assert_all_free(engine)


def test_what_is_shared_is_saved_once(tiny: Pair) -> None:
    engine = swapping(tiny)
    engine.add_request("a", PROMPTS[0], SamplingParams(n=4, seed=3, max_tokens=9, ignore_eos=True))
    for _ in range(3):
        engine.step()
    used = 59 - engine.stats().num_free_blocks
    engine.scheduler.preempt(engine.scheduler.queues.running[0])
    assert engine.stats().num_swapped_blocks == used
    assert used == 4 + 4  # four full blocks of the prompt, and one that each sample has copied


def test_a_failed_step_recomputes_what_it_was_to_swap(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = swapping(tiny)
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), prompt, greedy(12))
    for _ in range(3):
        engine.step()
    for request in list(engine.scheduler.queues.running)[1:]:
        engine.scheduler.preempt(request)

    def fail(output: SchedulerOutput) -> None:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "execute", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            engine.step()
    check_and_poison(engine)
    for output in drain(engine, after_step=check_and_poison).values():
        assert_greedy(tiny.oracle, output, 12)
    assert_all_free(engine)


def test_cpu_blocks_without_swapping_are_refused(tiny: Pair) -> None:
    with pytest.raises(ConfigError, match="preemption_mode='swap'"):
        make_engine(tiny.model, num_blocks=80, num_cpu_blocks=4)


def test_a_copy_that_was_planned_but_not_done_is_saved_from_its_source(
    tiny: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two samples are about to write into a block that they share, so a copy of it is planned.

    In the same step an urgent request needs a block, and none is free.
    """
    params = SamplingParams(n=2, seed=4, max_tokens=3, ignore_eos=True)
    prompt = PROMPTS[0][:6]
    alone = swapping(tiny)
    alone.add_request("samples", prompt, params)
    expected = drain(alone)["samples"]

    engine = make_engine(
        tiny.model,
        block_size=4,
        num_blocks=5,
        max_model_len=16,
        scheduling_policy="priority",
        preemption_mode="swap",
    )
    done: list[BlockCopy] = []
    copy_blocks = engine.kv_cache.copy_blocks

    def counted(copies: Sequence[BlockCopy]) -> None:
        done.extend(copies)
        copy_blocks(copies)

    monkeypatch.setattr(engine.kv_cache, "copy_blocks", counted)
    engine.add_request("samples", prompt, params, priority=5)
    engine.add_request("urgent", PROMPTS[1][:4], greedy(3), priority=5)
    engine.step()
    poison(engine)
    engine._requests["urgent"].priority = 0
    engine.step()
    assert [request.request_id for request in engine.scheduler.queues.swapped] == ["samples"]
    assert engine.stats().num_copied_blocks == len(done) == 0
    finished = drain(engine, after_step=check_and_poison)
    assert [s.token_ids for s in finished["samples"].outputs] == [s.token_ids for s in expected.outputs]
    assert finished["samples"].num_preemptions == 1
    assert_greedy(tiny.oracle, finished["urgent"], 3)
    assert engine.stats().num_copied_blocks == len(done)
    assert_all_free(engine)
