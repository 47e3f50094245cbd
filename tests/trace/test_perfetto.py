"""The export for Perfetto has the fields of the Trace Event Format, and says what the trace says."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from minipaged.errors import TraceError
from minipaged.events import Event, StepFinished
from minipaged.loading.loader import LoadedModel
from minipaged.trace.perfetto import ENGINE, MODEL, REQUESTS, STEPS, write_perfetto
from minipaged.trace.trace import Trace
from tests.engine.test_histories import live_one_history

REQUIRED = {
    "X": {"name", "ph", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "ph", "pid", "ts", "args"},
    "i": {"name", "ph", "pid", "tid", "ts", "s"},
    "M": {"name", "ph", "pid", "tid", "args"},
}
"""By the phase: the fields of an event of this phase."""


def exported(model: LoadedModel, seed: int, folder: Path) -> tuple[Trace, list[dict]]:
    events: list[Event] = []
    live_one_history(model, seed, events.append, lambda engine: None)
    trace = Trace.of(events)
    write_perfetto(trace, folder / "run.json")
    document = json.loads((folder / "run.json").read_text())
    assert set(document) == {"traceEvents", "displayTimeUnit"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    return trace, document["traceEvents"]


def test_each_event_has_its_fields(nano_model: LoadedModel, tmp_path: Path) -> None:
    phases = set()
    for seed in range(30):
        for event in exported(nano_model, seed, tmp_path)[1]:
            phases.add(event["ph"])
            assert set(event) == REQUIRED[event["ph"]], event
            assert isinstance(event["name"], str)
            for number in ("pid", "tid"):
                assert isinstance(event.get(number, 0), int)
            for time in ("ts", "dur"):
                assert event.get(time, 0) >= 0
            if event["ph"] == "C":
                assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())
            if event["ph"] == "i":
                assert event["s"] in ("g", "p", "t")
            if event["ph"] == "M":
                assert event["name"] in ("process_name", "thread_name")
                assert isinstance(event["args"]["name"], str)
    assert phases == set(REQUIRED)


def test_slices_of_a_track_do_not_overlap(nano_model: LoadedModel, tmp_path: Path) -> None:
    """Perfetto draws slices of one track that overlap in part as if they were nested."""
    for seed in range(30):
        tracks = defaultdict(list)
        for event in exported(nano_model, seed, tmp_path)[1]:
            if event["ph"] == "X":
                tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        for slices in tracks.values():
            ordered = sorted(slices)
            for (_, end), (start, _) in pairwise(ordered):
                assert start >= end - 0.01


def test_it_says_what_the_trace_says(nano_model: LoadedModel, tmp_path: Path) -> None:
    trace, events = exported(nano_model, 4, tmp_path)
    steps = [
        event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (ENGINE, STEPS)
    ]
    assert [event["name"] for event in steps] == [f"step {n}" for n in range(1, trace.num_steps + 1)]
    assert (
        len(
            [
                event
                for event in events
                if event["ph"] == "X" and event.get("tid") == MODEL and event["pid"] == ENGINE
            ]
        )
        == trace.num_steps
    )
    names = [event["args"]["name"] for event in events if event["ph"] == "M" and event["pid"] == REQUESTS]
    assert tuple(names[1:]) == trace.request_ids()
    blocks = [
        event["args"] for event in events if event["ph"] == "C" and event["name"] in ("blocks", "slots")
    ]
    finished = [event for event in trace.events if isinstance(event, StepFinished)]
    if trace.engine.kv_layout == "paged":
        assert [each["cached"] + each["free"] for each in blocks] == [each.num_free for each in finished]


def test_a_folder_that_is_not_there(nano_model: LoadedModel, tmp_path: Path) -> None:
    trace, _ = exported(nano_model, 4, tmp_path)
    with pytest.raises(TraceError, match="cannot write"):
        write_perfetto(trace, tmp_path / "nowhere" / "run.json")
