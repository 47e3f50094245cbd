"""Ctrl-C between any two lines: the trace goes on after it, and obeys the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from minipaged import LLMEngine, SamplingParams
from minipaged.events import EngineReset, Event, StepFailed
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from minipaged.trace import Trace, TraceWriter
from tests.engine.driving import make_engine
from tests.engine.test_histories import live_one_history
from tests.engine.test_interrupts import PROMPTS, SETTINGS, interrupted
from tests.model_pairs import Pair


def steps(engine: LLMEngine) -> None:
    for _ in range(3):
        engine.step()


@pytest.mark.parametrize("mode", SETTINGS)
def test_steps_interrupted_anywhere(tiny: Pair, mode: str) -> None:
    params = SamplingParams(n=2, seed=1, max_tokens=4, ignore_eos=True)
    num_failed = 0
    for at in range(30, 3000, 61):
        events: list[Event] = []
        options = EngineOptions(block_size=4, num_blocks=12, max_model_len=24)
        engine = make_engine(tiny.model, events.append, **(options | SETTINGS[mode]))
        for number, prompt in enumerate(PROMPTS):
            engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        interrupted(at, lambda engine=engine: steps(engine))
        while engine.has_unfinished_requests():
            engine.step()
        num_failed += sum(isinstance(event, StepFailed | EngineReset) for event in events)
        Trace.of(events).check()
    assert num_failed > 10


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_file_whose_writing_is_interrupted_ends_with_a_whole_line(
    nano_model: LoadedModel, tmp_path: Path, name: str
) -> None:
    events: list[Event] = []
    live_one_history(nano_model, 3, events.append, lambda engine: None)
    lengths: set[int] = set()
    for at in range(1, 1500, 7):
        writer = TraceWriter(tmp_path / name)

        def write_all(writer: TraceWriter = writer) -> None:
            for event in events:
                writer(event)

        interrupted(at, write_all)  # the process ends here, and does not close the file
        if (tmp_path / name).stat().st_size == 0:  # not even the header was written
            continue
        trace = Trace.read(tmp_path / name)
        trace.check()
        assert [trace.engine, *trace.events] == events[: 1 + len(trace.events)]
        lengths.add(len(trace.events))
    assert len(lengths) > 10
