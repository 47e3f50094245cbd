"""EventStream: hands an engine's events to its observer. All observed parts of the engine share one stream.

An engine without an observer has no stream, and uses the plain classes for its manager, scheduler and
processors. So events cost it nothing. An engine with an observer uses subclasses, which emit an event after
the plain method has done its work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakSet

from minipaged.events import Event, Observer, RequestAdmitted, RequestResumed, SequenceForked
from minipaged.request import Request, Sequence

logger = logging.getLogger(__name__)


class Observed:
    """A part of an engine that emits events for what it does.

    Attributes:
        events: the stream that takes the events. `observe` sets it before the part is used.
    """

    events: EventStream


class EventStream:
    """Gives sequences their ids, and events their times.

    If the observer raises an error, the stream logs a warning and never calls it again. So an observer cannot
    end a run.

    Args:
        observer: is called with each event.
        clock: returns the time in seconds. Event times are counted from the first event that has a time.

    Attributes:
        token_text: returns the text of a token; `None` without a tokenizer.
        num_steps: how many steps have finished.
    """

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self.token_text: Callable[[int], str] | None = None
        self.num_steps = 0
        self._observer: Observer | None = observer
        self._clock = clock
        self._start: float | None = None
        self._ids: WeakKeyDictionary[Sequence, int] = WeakKeyDictionary()
        self._num_ids = 0
        self._admitted: WeakSet[Request] = WeakSet()
        self._is_muted = False

    def observe(self, *parts: object) -> None:
        """Connect this stream to those parts that are `Observed`."""
        for part in parts:
            if isinstance(part, Observed):
                part.events = self

    def emit(self, event: Event) -> None:
        """Call the observer with an event."""
        if self._observer is None or self._is_muted:
            return
        try:
            self._observer(event)
        except Exception as error:
            self._observer = None
            logger.warning("the observer failed; the engine goes on without it: %r", error)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Emit nothing while a failed step is undone, since some of its changes may have had no event."""
        self._is_muted = True
        try:
            yield
        finally:
            self._is_muted = False

    def now(self) -> float:
        """Seconds since the first call, in whole microseconds."""
        time = self._clock()
        if self._start is None:
            self._start = time
        return round(time - self._start, 6)

    def id_of(self, seq: Sequence) -> int:
        """The sequence's id. A sequence without an id gets the next number."""
        seq_id = self._ids.get(seq)
        if seq_id is None:
            seq_id = self._ids[seq] = self._num_ids
            self._num_ids += 1
        return seq_id

    def admitted(self, request: Request) -> None:
        """Emit the event that a waiting request was admitted, or resumed if it had been admitted before."""
        num_cached_tokens = request.unfinished[0].num_computed_tokens
        kind = RequestResumed if request in self._admitted else RequestAdmitted
        self.emit(kind(request.request_id, num_cached_tokens))
        self._admitted.add(request)

    def forked(self, parent: Sequence, child: Sequence) -> None:
        """Emit the event that a sequence began with the memory of another sequence."""
        block_ids = tuple(child.block_table)
        num_tokens = child.num_computed_tokens
        self.emit(SequenceForked(self.id_of(parent), self.id_of(child), child.index, num_tokens, block_ids))
