"""Incidents in which a request waits too long."""

from __future__ import annotations

import random
from collections import Counter

from minipaged.config import EngineConfig
from minipaged.course.incidents.incident import Finding
from minipaged.course.incidents.workload import Arrival, exactly, play, story
from minipaged.engine.llm_engine import LLMEngine
from minipaged.events import Observer, RequestAdded
from minipaged.trace.trace import Trace


def whole_prompts(observer: Observer) -> None:
    """Without chunked prefill, a long prompt waits for a nearly empty step, and others wait behind it."""
    draw = random.Random(61)
    config = EngineConfig(
        num_blocks=257, max_model_len=512, max_num_batched_tokens=512, enable_chunked_prefill=False
    )
    arrivals = [
        Arrival(2 * number, f"r{number}", story(draw, 1), exactly(draw.randint(20, 60)))
        for number in range(30)
    ]
    long = story(draw, 34)
    arrivals.append(Arrival(31, "r30", long, exactly(8)))
    play(LLMEngine(config, observer=observer), arrivals)


def starvation(observer: Observer) -> None:
    """Urgent requests arrive as fast as they are served, so a request that is not urgent waits for long."""
    draw = random.Random(67)
    config = EngineConfig(num_blocks=129, max_model_len=256, max_num_seqs=4, scheduling_policy="priority")
    arrivals = [
        Arrival(4 * number, f"r{number}", story(draw, 1), exactly(20), priority=0 if number != 6 else 5)
        for number in range(40)
    ]
    play(LLMEngine(config, observer=observer), arrivals)


def find_whole_prompts(trace: Trace) -> Finding:
    """The request that is at the queue's head in most of the steps that leave half their budget unused."""
    heads: Counter[str] = Counter()
    steps: dict[str, list[int]] = {}
    for step in range(1, trace.num_steps + 1):
        state = trace.at(step)
        if state.waiting and state.num_scheduled_tokens < state.token_budget / 2:
            heads[state.waiting[0]] += 1
            steps.setdefault(state.waiting[0], []).append(step)
    head, count = heads.most_common(1)[0]
    added = next(e for e in trace.events if isinstance(e, RequestAdded) and e.request_id == head)
    length, budget = len(added.prompt_token_ids), trace.engine.max_num_batched_tokens
    return Finding(
        head,
        f"From step {steps[head][0]} to step {steps[head][-1]}, {head} is at the head of the queue, and most "
        f"of the budget of {budget} tokens is unused in {count} of these steps. Its prompt has {length} "
        "tokens. Without chunked prefill it needs a step with that much budget left, and each running "
        "request takes a token of every step. The requests behind it wait for it to start. Chunked prefill "
        "computes the prompt in parts, beside the others.",
    )


def find_starvation(trace: Trace) -> Finding:
    """The longest time, in steps, that a request waits before it is admitted."""
    waits = {
        request_id: sum(entry.phase == "waiting" for entry in trace.timeline(request_id))
        for request_id in trace.request_ids()
    }
    slowest = max(waits, key=lambda request_id: waits[request_id])
    added = {event.request_id: event for event in trace.events if isinstance(event, RequestAdded)}
    urgent = sum(event.priority < added[slowest].priority for event in added.values())
    others = sorted(wait for request_id, wait in waits.items() if request_id != slowest)
    return Finding(
        waits[slowest],
        f"{slowest} waits for {waits[slowest]} steps, and half of the others for at most "
        f"{others[len(others) // 2]}. Its priority is {added[slowest].priority}, and that of {urgent} others "
        "is more urgent: they arrive as fast as they are served, and each of them goes in front of it. Let "
        "priorities age, or leave a part of the batch to those that are not urgent.",
        tolerance=1,
    )
