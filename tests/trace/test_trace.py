"""`Trace`: the state at each step, timelines and waste of a run, and its size as a file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from minipaged import LLM, LLMEngine, SamplingParams
from minipaged.engine.observed import ObservedOutputProcessor
from minipaged.errors import TraceError
from minipaged.events import EngineStarted, Event, StepExecuted, StepFinished
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.event_stream import EventStream
from minipaged.kv.observed import ObservedBlockManager
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.loading.loader import LoadedModel
from minipaged.request import Request
from minipaged.runner.model_runner import SequenceResult
from minipaged.sampling.sampler import SampledToken
from minipaged.scheduler.observed import ObservedScheduler, tell_finished
from minipaged.stages import NUM_STAGES, stage_options
from minipaged.trace.state import TraceState
from minipaged.trace.trace import Trace
from minipaged.trace.writer import TraceWriter
from tests.engine.driving import make_engine
from tests.engine.test_histories import live_one_history

PROMPT = [7 * i % 30 for i in range(9)]


def params(max_tokens: int, n: int = 1) -> SamplingParams:
    return SamplingParams(temperature=1, seed=3, max_tokens=max_tokens, n=n, ignore_eos=True)


def run(engine: LLMEngine, after_step: Callable[[], None] = lambda: None) -> None:
    while engine.has_unfinished_requests():
        engine.step()
        after_step()


def test_at_a_step_back_and_forth(nano_model: LoadedModel) -> None:
    events: list[Event] = []
    live_one_history(nano_model, 5, events.append, lambda engine: None)
    trace = Trace.of(events)
    forwards = [trace.at(step) for step in range(trace.num_steps + 1)]
    backwards = [trace.at(step) for step in reversed(range(trace.num_steps + 1))]
    assert forwards == backwards[::-1]
    assert [state.step for state in forwards] == list(range(trace.num_steps + 1))
    assert trace.at(0).requests == ()
    assert trace.final().time >= forwards[-1].time
    assert sum(len(trace.events_of(step)) for step in range(1, trace.num_steps + 1)) <= len(trace.events)


@pytest.mark.parametrize("step", [-1, 1000, True, "3"])
def test_a_step_that_there_is_not(nano_model: LoadedModel, step: int) -> None:
    events: list[Event] = []
    live_one_history(nano_model, 5, events.append, lambda engine: None)
    with pytest.raises(TraceError, match="has the steps 0 to"):
        Trace.of(events).at(step)


def test_events_without_their_beginning_are_refused() -> None:
    with pytest.raises(TraceError, match="EngineStarted"):
        Trace.of([StepExecuted(0.5)])


def test_the_states_of_a_small_run_by_hand(nano_model: LoadedModel) -> None:
    """Nine prompt tokens in blocks of four, then three outputs; two samples share the prompt's blocks."""
    events: list[Event] = []
    engine = make_engine(nano_model, events.append, block_size=4, num_blocks=10, max_model_len=16)
    engine.add_request("a", {"prompt_token_ids": PROMPT}, params(3, n=2))
    run(engine)
    trace = Trace.of(events)
    trace.check()
    first, second = trace.at(1), trace.at(2)
    assert [(chunk.start, chunk.num_tokens) for chunk in first.chunks] == [(0, 9)]
    assert first.num_scheduled_tokens == 9
    assert [first.sequences[i].block_ids for i in (0, 1)] == [(1, 2, 3), (1, 2, 3)]
    assert [block.ref_cnt for block in first.blocks[:5]] == [1, 2, 2, 2, 0]
    assert [block.num_filled for block in first.blocks[:5]] == [0, 4, 4, 1, 0]
    assert first.blocks[2].parent_block_hash == first.blocks[1].block_hash
    assert first.blocks[3].block_hash is None
    assert [(holder.seq_id, holder.index) for holder in first.blocks[3].holders] == [(0, 2), (1, 2)]
    assert sorted(second.sequences[i].block_ids[2] for i in (0, 1)) == [3, 4]
    assert second.num_copied_blocks == 1
    last = trace.final()
    assert (last.requests[0].status, last.num_free) == ("finished", 9)
    assert last.blocks[1].token_ids == tuple(PROMPT[:4])  # free, and still cached


@pytest.mark.parametrize("stage", range(1, NUM_STAGES + 1))
def test_a_run_at_each_stage(stage: int) -> None:
    events: list[Event] = []
    states: list[MemoryBreakdown] = []
    options = stage_options(stage) | {"num_blocks": 12, "max_model_len": 64}
    llm = LLM("tiny", observer=events.append, **options)
    for number, prompt in enumerate(["Once upon a time there was a dog", "Once upon a time", "The"]):
        llm.engine.add_request(str(number), prompt, params(6, n=1 if stage == 1 else 2))
    run(llm.engine, lambda: states.append(llm.memory_breakdown()))
    trace = Trace.of(events)
    trace.check()
    assert trace.engine.stage == stage
    assert [each.slots for each in trace.waste()] == states


def test_timeline_of_a_preempted_request(nano_model: LoadedModel) -> None:
    events: list[Event] = []
    engine = make_engine(
        nano_model,
        events.append,
        block_size=4,
        num_blocks=7,
        max_model_len=20,
        max_num_batched_tokens=8,
        enable_prefix_caching=False,
    )
    for name in ("a", "b"):
        engine.add_request(name, {"prompt_token_ids": PROMPT}, params(8))
    run(engine)
    trace = Trace.of(events)
    phases = {name: [entry.phase for entry in trace.timeline(name)] for name in ("a", "b")}
    assert phases["a"][:2] == ["prefill", "prefill"]
    assert set(phases["a"][2:]) == {"decode"}
    assert phases["b"][0] == "waiting"
    assert "preempted" in phases["b"]
    after = phases["b"][len(phases["b"]) - phases["b"][::-1].index("preempted") :]
    assert after[0] == "prefill"  # its tokens are computed again
    assert trace.timeline("b")[-1].num_output_tokens == 8
    assert sum(entry.num_tokens for entry in trace.timeline("a")) == 9 + 7
    with pytest.raises(TraceError, match="no request 'c'"):
        trace.timeline("c")


def test_an_observer_that_fails_does_not_end_the_run(
    nano_model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Event] = []

    def observe(event: Event) -> None:
        calls.append(event)
        if isinstance(event, StepFinished):
            raise OSError("no space left on device")

    engine = make_engine(nano_model, observe, block_size=4, num_blocks=10, max_model_len=16)
    engine.add_request("a", {"prompt_token_ids": PROMPT}, params(3))
    run(engine)
    assert sum(isinstance(event, StepFinished) for event in calls) == 1
    assert "no space left on device" in caplog.text
    engine.check_invariants()


def test_a_thousand_steps_over_a_thousand_blocks(nano_model: LoadedModel, tmp_path: Path) -> None:
    """Over 10,000 steps it would be under 20 MB: 64 requests run, and others take their places."""
    path = tmp_path / "run.jsonl.gz"
    with TraceWriter(path) as writer:
        events = EventStream(writer)
        started = EngineStarted(
            "none", 8, "paged", 16, 1000, 0, 512, 64, 2048, True, True, "fcfs", "recompute", "continuous",
            "share", "max", "first_fit",
        )  # fmt: skip
        events.emit(started)
        events.token_text = lambda token_id: " token"
        manager = ObservedBlockManager(1000, 16, PrefixHasher())
        scheduler = ObservedScheduler(manager, max_num_seqs=64, max_num_batched_tokens=2048)
        events.observe(manager, scheduler)
        rng = random.Random(0)  # tokens without a pattern, which compress badly
        processors: dict[str, ObservedOutputProcessor] = {}
        for step in range(1000):
            while len(processors) < 70:
                name = f"request-{step}-{len(processors)}"
                prompt = [rng.randrange(30_000) for _ in range(120)]
                request = Request(name, prompt, params(200), 150 + step % 80, 0, arrival=step)
                processors[name] = ObservedOutputProcessor(request, manager, nano_model, 0.0)
                events.observe(processors[name])
                scheduler.add(request)
            plan = scheduler.schedule()
            events.emit(StepExecuted(events.now()))
            for item in plan.scheduled:
                item.seq.num_computed_tokens += item.num_tokens
                done = item.seq.num_computed_tokens == item.seq.num_tokens
                sampled = [SampledToken(rng.randrange(30_000))] if done else []
                processors[item.request.request_id].take(SequenceResult(item, sampled, None, []))
            for name in [name for name, each in processors.items() if each.request.is_finished]:
                scheduler.retire(processors.pop(name).request)
            tell_finished(events, scheduler.queues, manager)
    assert path.stat().st_size < 2_000_000
    trace = Trace.read(path)
    assert trace.num_steps == 1000
    trace.check()


def test_a_state_is_a_value(nano_model: LoadedModel) -> None:
    events: list[Event] = []
    live_one_history(nano_model, 5, events.append, lambda engine: None)
    trace = Trace.of(events)
    before = trace.at(1)
    copy = TraceState(**{name: getattr(before, name) for name in before.__dataclass_fields__})
    trace.final()
    assert before == copy == trace.at(1)
