"""Trace: a run that was recorded, from a file or from a list of events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from minipaged.errors import TraceError
from minipaged.events import EngineStarted, Event, StepFinished
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.trace import rules
from minipaged.trace.freeze import freeze
from minipaged.trace.reader import read_lines
from minipaged.trace.replay import Replay
from minipaged.trace.state import TraceState
from minipaged.trace.timeline import TimelineEntry, timelines
from minipaged.trace.waste import count_slots


@dataclass(frozen=True)
class SlotsOfStep:
    """What each slot of the KV memory was used for after a step."""

    step: int
    time: float
    slots: MemoryBreakdown


class Trace:
    """The events of one engine.

    Args:
        engine: the settings.
        events: all events after `EngineStarted`.
        title: a name for the run.
        note: what is missing at the end; `None` if the trace was closed.
        damage: what is wrong with the file although it can be read.

    Attributes:
        engine, events, title, note: as given.
        num_steps: the steps that finished.
    """

    def __init__(
        self,
        engine: EngineStarted,
        events: Iterable[Event],
        *,
        title: str = "",
        note: str | None = None,
        damage: str | None = None,
    ) -> None:
        self.engine = engine
        self.events = tuple(events)
        self.title = title
        self.note = note
        self._damage = damage
        # For each step, the number of events up to its end.
        self._ends = [0, *(i for i, each in enumerate(self.events, 1) if isinstance(each, StepFinished))]
        self._replay, self._num_applied = Replay(engine), 0

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a file that `TraceWriter` wrote, up to its last whole line.

        Raises:
            TraceError: there is no such file, it is not a trace, it has another version, or a line cannot be
                read.
        """
        lines = read_lines(path)
        return cls(
            lines.header.engine,
            chain(*lines.batches),
            title=lines.header.title,
            note=lines.note,
            damage=lines.damage,
        )

    @classmethod
    def of(cls, events: Sequence[Event], *, title: str = "") -> Trace:
        """Make a trace from events that an observer such as `events.append` has collected.

        Raises:
            TraceError: the first event is not `EngineStarted`.
        """
        if not events or not isinstance(events[0], EngineStarted):
            raise TraceError("the first event of an engine is EngineStarted; observe it from its beginning")
        return cls(events[0], events[1:], title=title)

    @property
    def num_steps(self) -> int:
        return len(self._ends) - 1

    def at(self, step: int) -> TraceState:
        """The state after a step; 0 is the state before the first event.

        Going forward step by step is fast; going back replays the trace from its beginning.

        Raises:
            TraceError: there is no such step, or the events before it make no sense.
        """
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= self.num_steps:
            raise TraceError(f"the trace has the steps 0 to {self.num_steps}, not {step!r:.80}")
        return freeze(self._replay_to(self._ends[step]))

    def final(self) -> TraceState:
        """The state after the last event."""
        return freeze(self._replay_to(len(self.events)))

    def events_of(self, step: int) -> tuple[Event, ...]:
        """The events after step `step - 1` up to the end of `step`.

        Raises:
            TraceError: there is no such step.
        """
        if not 1 <= step <= self.num_steps:
            raise TraceError(f"the trace has the steps 1 to {self.num_steps}, not {step}")
        return self.events[self._ends[step - 1] : self._ends[step]]

    def request_ids(self) -> tuple[str, ...]:
        """The ids of all requests, in the order of their arrival."""
        return tuple(request.request_id for request in self._replay_to(len(self.events)).requests)

    def timeline(self, request_id: str) -> tuple[TimelineEntry, ...]:
        """What a request did in each step from its arrival to its end.

        If several requests had the id, one after another, this is the last of them.

        Raises:
            TraceError: the trace has no request of that id.
        """
        found = timelines(self.engine, self.events, request_id)
        if not found:
            raise TraceError(f"the trace has no request {request_id!r}")
        return found[-1].entries

    def waste(self) -> tuple[SlotsOfStep, ...]:
        """What the slots were used for after each step: token states, and the kinds of waste."""
        return tuple(SlotsOfStep(replay.step, replay.time, count_slots(replay)) for replay in self._replays())

    def check(self) -> None:
        """Replay all events against the rules of the engine's bookkeeping; see `rules.py`.

        A trace without an end (see `note`) is checked as far as it goes.

        Raises:
            TraceError: the first rule that is broken, with the step and the event; or the file was changed
                after it was written.
        """
        if self._damage is not None:
            raise TraceError(self._damage)
        rules.check(self.engine, self.events, is_whole=self.note is None)

    def _replay_to(self, num_events: int) -> Replay:
        if num_events < self._num_applied:
            self._replay, self._num_applied = Replay(self.engine), 0
        while self._num_applied < num_events:
            self._replay.apply(self.events[self._num_applied])
            self._num_applied += 1
        return self._replay

    def _replays(self) -> Iterator[Replay]:
        """Yield the replay after each step. It is the same object each time, and changes."""
        replay = Replay(self.engine)
        for event in self.events:
            replay.apply(event)
            if isinstance(event, StepFinished):
                yield replay
