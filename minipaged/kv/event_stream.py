"""EventStream: hands an engine's events to its observer. The observed managers and schedulers share one.

An engine without an observer has no stream, and its manager, scheduler and processors are the plain classes.
So they pay nothing. With an observer they are subclasses that tell what the plain methods have done.
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
    """A part of an engine that tells what it does.

    Attributes:
        events: set by `observe` before the part is used.
    """

    events: EventStream


class EventStream:
    """Gives sequences their ids, and events their times.

    An observer that raises is left out from then on, with a warning: it must not end a run.

    Args:
        observer: is called with each event.
        clock: the time in seconds; the stream counts from the first event that has a time.

    Attributes:
        token_text: the text of a token; `None` without a tokenizer.
        num_steps: the steps that have finished.
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
        """Let those of the parts tell what they do that can."""
        for part in parts:
            if isinstance(part, Observed):
                part.events = self

    def emit(self, event: Event) -> None:
        """Call the observer."""
        if self._observer is None or self._is_muted:
            return
        try:
            self._observer(event)
        except Exception as error:
            self._observer = None
            logger.warning("the observer failed; the engine goes on without it: %r", error)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Tell nothing meanwhile: for an undoing, whose details would follow changes that were not told."""
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
        """The sequence's id. At its first use this is the next number."""
        seq_id = self._ids.get(seq)
        if seq_id is None:
            seq_id = self._ids[seq] = self._num_ids
            self._num_ids += 1
        return seq_id

    def admitted(self, request: Request) -> None:
        """Tell that a waiting request was admitted."""
        num_cached_tokens = request.unfinished[0].num_computed_tokens
        kind = RequestResumed if request in self._admitted else RequestAdmitted
        self.emit(kind(request.request_id, num_cached_tokens))
        self._admitted.add(request)

    def forked(self, parent: Sequence, child: Sequence) -> None:
        """Tell that a sequence began with the memory of another one."""
        block_ids = tuple(child.block_table)
        num_tokens = child.num_computed_tokens
        self.emit(SequenceForked(self.id_of(parent), self.id_of(child), child.index, num_tokens, block_ids))
