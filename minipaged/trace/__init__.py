"""Traces: a run of an engine as a file, and the engine's state at each of its steps.

    with TraceWriter("run.jsonl.gz") as writer:
        LLM("tiny", observer=writer).generate("Once upon a time")
    trace = Trace.read("run.jsonl.gz")
    trace.at(12).blocks

The events are in `minipaged/events/`. Read the modules in this order: `FORMAT.md` and `writer` (the file),
`codec` (an event as JSON and back), `reader`, `state` (what is known at one step), `replayed` and `replay`
(from events to a state that changes), `freeze` (to one that does not), `waste`, `rules` with `block_rules`
and `region_rules` (what must hold), `trace` (`Trace`: all of it together), `timeline`, and `perfetto` (for
ui.perfetto.dev).
"""

from minipaged.trace.perfetto import write_perfetto
from minipaged.trace.trace import Trace
from minipaged.trace.writer import TraceWriter

__all__ = ["Trace", "TraceWriter", "write_perfetto"]
