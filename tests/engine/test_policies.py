"""The order in which requests run, and how much a long prompt may delay other requests."""

from __future__ import annotations

import random

import pytest

from minipaged import LLMEngine
from minipaged.loading.loader import LoadedModel
from minipaged.scheduler.policy import AGEING
from minipaged.scheduler.scheduler_output import SchedulerOutput
from tests.engine.driving import drain, greedy, make_engine


def finish_order(engine: LLMEngine) -> list[str]:
    order: list[str] = []
    while engine.has_unfinished_requests():
        order += [output.request_id for output in engine.step() if output.finished]
        engine.check_invariants()
    return order


def one_by_one(model: LoadedModel, policy: str) -> LLMEngine:
    return make_engine(
        model,
        block_size=4,
        num_blocks=140,
        max_num_seqs=1,
        scheduling_policy=policy,  # pyright: ignore[reportArgumentType]
    )


def test_fcfs(nano_model: LoadedModel) -> None:
    engine = one_by_one(nano_model, "fcfs")
    for name, length in [("long", 90), ("short", 2), ("middle", 30)]:
        engine.add_request(name, [1] * length, greedy(2))
    assert finish_order(engine) == ["long", "short", "middle"]


def test_priority_is_stable_within_a_level(nano_model: LoadedModel) -> None:
    engine = one_by_one(nano_model, "priority")
    for name, priority in [("c1", 2), ("a1", -1), ("b1", 0), ("a2", -1), ("c2", 2), ("b2", 0)]:
        engine.add_request(name, [1, 2], greedy(2), priority)
    assert finish_order(engine) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_shortest_prompt_first(nano_model: LoadedModel) -> None:
    engine = one_by_one(nano_model, "shortest")
    for name, length in [("long", 90), ("short", 2), ("middle", 30), ("short too", 2)]:
        engine.add_request(name, [1] * length, greedy(2))
    assert finish_order(engine) == ["short", "short too", "middle", "long"]


def test_under_shortest_nobody_starves(nano_model: LoadedModel) -> None:
    """Short prompts keep arriving. The long one runs before the engine has scheduled the bound's tokens."""
    engine = one_by_one(nano_model, "shortest")
    long = 60
    engine.add_request("0", [1], greedy(1))
    engine.add_request("long", [1] * long, greedy(1))
    number, done = 0, False
    while not done:
        number += 1
        engine.add_request(str(number), [1, 2], greedy(1))
        done = any(output.request_id == "long" and output.finished for output in engine.step())
        # Once this many tokens have been scheduled, each new request ranks behind the long one.
        assert engine.scheduler.counts.scheduled_tokens <= AGEING * long + 2 * long
    for request_id in list(engine._requests):
        engine.abort_request(request_id)


@pytest.mark.parametrize("budget", [8, 16, 40])
def test_a_long_prompt_delays_running_requests_by_no_more_than_the_budget(
    nano_model: LoadedModel, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """A long prompt is computed in chunks, in several steps.

    In each of them, every running request gets its token, and the step stays within its budget.
    """
    engine = make_engine(nano_model, block_size=4, num_blocks=400, max_num_batched_tokens=budget)
    trace: list[dict[str, int]] = []
    schedule = engine.scheduler.schedule

    def traced() -> SchedulerOutput:
        plan = schedule()
        trace.append({item.request.request_id: item.num_tokens for item in plan.scheduled})
        return plan

    monkeypatch.setattr(engine.scheduler, "schedule", traced)
    running = ["a", "b", "c"]
    for name in running:
        engine.add_request(name, [1, 2, 3], greedy(150))
    for _ in range(3):
        engine.step()
    engine.add_request("long", [5] * 300, greedy(2))
    trace.clear()
    while "long" in engine._requests:
        engine.step()
    chunks = [step["long"] for step in trace]
    assert sum(chunks) == 301  # the prompt, and the first of the two output tokens
    assert chunks[0] == budget - len(running)
    for step in trace:
        assert sum(step.values()) <= budget
        assert all(step.get(name) == 1 for name in running)
    drain(engine)


def test_random_arrivals_under_every_policy_finish(nano_model: LoadedModel) -> None:
    for policy in ("fcfs", "priority", "shortest"):
        rng = random.Random(1)
        engine = make_engine(
            nano_model,
            block_size=2,
            num_blocks=25,
            max_model_len=48,
            max_num_batched_tokens=16,
            scheduling_policy=policy,
        )
        finished = 0
        for number in range(60):
            priority = rng.randint(0, 3) if policy == "priority" else 0
            engine.add_request(
                str(number), [number % 32] * rng.randint(1, 30), greedy(rng.randint(1, 12)), priority
            )
            finished += sum(output.finished for output in engine.step())
        assert finished + len(finish_order(engine)) == 60
        assert engine.stats().num_free_blocks == 24
