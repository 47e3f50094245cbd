"""A trace for Perfetto (ui.perfetto.dev), as JSON in the Trace Event Format that Perfetto and Chrome read.

The format is described in "Trace Event Format" (Chromium) and in Perfetto's documentation of external
formats. This module uses complete events (`"X"`, with `ts` and `dur` in microseconds), counters (`"C"`),
instants (`"i"`) and metadata (`"M"`: the names of processes and threads, which Perfetto shows as groups and
tracks).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from minipaged.errors import TraceError
from minipaged.events import RequestPreempted, StepExecuted, StepFailed, StepFinished, StepPlanned
from minipaged.trace.replay import Replay
from minipaged.trace.timeline import Timeline, TimelineEntry, timelines
from minipaged.trace.trace import Trace

ENGINE, REQUESTS = 1, 2  # process ids
STEPS, MODEL = 1, 2  # thread ids within the engine's process

Args = Mapping[str, int | str]
TraceEvent = dict[str, str | int | float | Args]


def write_perfetto(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a file that ui.perfetto.dev opens.

    The file has a track for the steps, one for the model, one for each request, and counters.

    Raises:
        TraceError: the file cannot be written.
    """
    document = {"traceEvents": perfetto_events(trace), "displayTimeUnit": "ms"}
    try:
        Path(path).write_text(json.dumps(document, separators=(",", ":")))
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror}") from None


def perfetto_events(trace: Trace) -> list[TraceEvent]:
    """The trace as events of the Trace Event Format."""
    events = [
        _name("process_name", ENGINE, 0, f"engine ({trace.engine.model})"),
        _name("thread_name", ENGINE, STEPS, "steps"),
        _name("thread_name", ENGINE, MODEL, "model"),
        _name("process_name", REQUESTS, 0, "requests"),
    ]
    events += _engine_events(trace)
    for thread, timeline in enumerate(timelines(trace.engine, trace.events), 1):
        events.append(_name("thread_name", REQUESTS, thread, timeline.request_id))
        events += _request_slices(timeline, thread)
    return events


def _engine_events(trace: Trace) -> Iterator[TraceEvent]:
    """The steps, their forward passes, the counters after each step, the preemptions and the failures."""
    replay = Replay(trace.engine)
    planned = executed = 0.0
    for event in trace.events:
        replay.apply(event)
        match event:
            case RequestPreempted():
                yield _instant(f"{event.request_id} preempted", replay.time)
            case StepPlanned():
                planned = event.time
            case StepExecuted():
                executed = event.time
            case StepFinished() if replay.plan is not None:
                plan = replay.plan
                computed = {"sequences": len(plan.seq_ids), "tokens": sum(plan.num_tokens)}
                yield _slice(f"step {event.step}", ENGINE, STEPS, plan.began, event.time, computed)
                yield _slice("forward", ENGINE, MODEL, planned, executed, computed)
                yield from _counters(replay)
            case StepFailed():
                yield _instant(f"step failed: {event.error}", event.time)


def _counters(replay: Replay) -> Iterator[TraceEvent]:
    engine, pool = replay.engine, replay.pool
    if engine.kv_layout == "paged":
        cached = sum(1 for block_id in pool.cached if pool.ref_cnt[block_id] == 0)
        used = engine.num_blocks - 1 - pool.num_free
        blocks = {"used": used, "cached": cached, "free": pool.num_free - cached}
        yield _counter("blocks", replay.time, blocks)
    elif engine.kv_layout == "contiguous":
        reserved = sum(region.num_allocated for region in replay.regions.values())
        slots = {"reserved": reserved, "free": engine.num_blocks * engine.block_size - reserved}
        yield _counter("slots", replay.time, slots)
    waiting = len(replay.waiting) + len(replay.swapped)
    yield _counter("requests", replay.time, {"running": len(replay.running), "waiting": waiting})


def _request_slices(timeline: Timeline, thread: int) -> Iterator[TraceEvent]:
    """One slice for each chunk of a prefill, and one for each unbroken series of steps in another phase."""
    began = timeline.arrived
    for _, group in groupby(timeline.entries, key=_kind):
        entries = list(group)
        first, last = entries[0], entries[-1]
        if first.phase not in ("waiting", "preempted", "swapped"):
            began = max(began, first.began)
        computed = {
            "steps": len(entries),
            "tokens": sum(entry.num_tokens for entry in entries),
            "blocks": last.num_blocks,
        }
        yield _slice(first.phase, REQUESTS, thread, began, last.ended, computed)
        began = last.ended


def _kind(entry: TimelineEntry) -> tuple[str, int]:
    return entry.phase, entry.step if entry.phase == "prefill" else 0


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _slice(name: str, process: int, thread: int, began: float, ended: float, args: Args) -> TraceEvent:
    ts = _microseconds(began)
    dur = max(0.0, _microseconds(ended) - ts)
    return {"name": name, "ph": "X", "pid": process, "tid": thread, "ts": ts, "dur": dur, "args": args}


def _counter(name: str, time: float, values: Args) -> TraceEvent:
    return {"name": name, "ph": "C", "pid": ENGINE, "ts": _microseconds(time), "args": values}


def _instant(name: str, time: float) -> TraceEvent:
    """An event without a duration, on the track of the steps. Its scope, `"s"`, is the thread."""
    return {"name": name, "ph": "i", "pid": ENGINE, "tid": STEPS, "ts": _microseconds(time), "s": "t"}


def _name(kind: str, process: int, thread: int, name: str) -> TraceEvent:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
