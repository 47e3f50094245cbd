"""Traces: a run of an engine as a file, and the engine's state at each of its steps.

    with TraceWriter("run.jsonl.gz") as writer:
        LLM("tiny", observer=writer).generate(...)
    trace = Trace.read("run.jsonl.gz")
    trace.at(12).blocks

The events are in `minipaged/events/`. Read the modules in this order: `FORMAT.md` and `writer` (the file),
`codec` (an event as JSON and back), `state` (what is known at one step), `replay` (from events to a state),
`rules` (what must hold), `trace` (`Trace`: a file that was read), `timeline`, `perfetto` (for
ui.perfetto.dev).
"""
