"""Traces: a run of an engine, recorded in a file, from which the engine's state after each step is rebuilt.

    with TraceWriter("run.jsonl.gz") as writer:
        LLM("tiny", observer=writer).generate("Once upon a time")
    trace = Trace.read("run.jsonl.gz")
    trace.at(12).blocks

The events are in `minipaged/events/`. Read the modules in this order: `FORMAT.md` and `writer` (the file),
`codec` (an event as JSON and back), `reader`, `state` (what is known at one step), `replayed` and `replay`
(applying events to a state that changes), `freeze` (making a state that does not change), `waste` (what the
slots are used for), `rules` with `block_rules` and `region_rules` (checking a trace), `trace` (`Trace`, which
offers all of these), `timeline` (what each request did), `perfetto` (for ui.perfetto.dev), and `page/` (the
page that replays a trace).
"""

from minipaged.trace.page import show
from minipaged.trace.perfetto import write_perfetto
from minipaged.trace.trace import Trace
from minipaged.trace.writer import TraceWriter

__all__ = ["Trace", "TraceWriter", "show", "write_perfetto"]
