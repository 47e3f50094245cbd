"""The demo's output while it runs: a live picture in a terminal, lines of text elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live

from minipaged.view.events import events
from minipaged.view.labels import Labels
from minipaged.view.pool_meter import PoolMeter
from minipaged.view.pool_snapshot import PoolSnapshot, SequenceKey, take_snapshot
from minipaged.view.terminal import PoolView

if TYPE_CHECKING:
    from minipaged.engine.llm_engine import LLMEngine

NUM_NOTES = 3
"""Lines of events below the live picture."""

FEWEST_ROWS = 2
HEIGHT_BESIDE_POOL = 18
"""Lines of the live picture that are not rows of the pool: queues, counts, notes, headings."""


class Show:
    """Watches the engine step by step. This base class draws nothing; it only collects statistics.

    Attributes:
        labels: the sequences' letters and colours.
        meter: statistics of the pool.
        seconds: time spent in the engine's steps, without the time for showing them.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.meter = PoolMeter(0)
        self.seconds = 0.0
        self._last: PoolSnapshot | None = None

    def begin(self, engine: LLMEngine) -> None:
        """Called once before the first step, when all requests are in the waiting queue."""
        self.meter = PoolMeter(engine.max_model_len)
        self._last = take_snapshot(engine)
        for request in self._last.waiting:
            _ = self.labels[SequenceKey(request.request_id)]  # now, so that letters follow the arrivals

    def step(self, engine: LLMEngine, seconds: float) -> None:
        """Called after each step. The step took `seconds`."""
        self.seconds += seconds
        snapshot = take_snapshot(engine)
        self.meter.add(snapshot)
        assert self._last is not None, "begin comes first"
        lines = events(self._last, snapshot, self.labels)
        self._last = snapshot
        self.draw(snapshot, lines, seconds)

    def draw(self, snapshot: PoolSnapshot, lines: list[str], seconds: float) -> None:
        """Draw the pool after a step, and the events of the step."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class PlainShow(Show):
    """Prints one line for each event."""

    def __init__(self, console: Console, labels: Labels) -> None:
        super().__init__(labels)
        self._console = console

    def draw(self, snapshot: PoolSnapshot, lines: list[str], seconds: float) -> None:
        for line in lines:
            usage = f"{snapshot.num_used}/{snapshot.num_usable} blocks used"
            self._console.print(f"{line} ({usage})", soft_wrap=True)


class LiveShow(Show):
    """Draws the pool again after each step.

    Args:
        console: a terminal.
        labels: the sequences' letters and colours.
        delay: minimum duration of a step in seconds, so that readers can follow.
    """

    def __init__(self, console: Console, labels: Labels, delay: float) -> None:
        super().__init__(labels)
        self._delay = delay
        self._notes: deque[str] = deque([""] * NUM_NOTES, maxlen=NUM_NOTES)
        self._most_rows = max(FEWEST_ROWS, console.height - HEIGHT_BESIDE_POOL)
        self._live = Live(console=console, auto_refresh=False)

    def draw(self, snapshot: PoolSnapshot, lines: list[str], seconds: float) -> None:
        began = time.perf_counter()
        self._notes.extend(lines)
        rate = snapshot.generation_tokens / self.seconds if self.seconds else None
        view = PoolView(
            snapshot,
            self.labels,
            tokens_per_second=rate,
            notes=tuple(self._notes),
            most_rows=self._most_rows,
        )
        self._live.update(view, refresh=True)
        time.sleep(max(0.0, self._delay - seconds - (time.perf_counter() - began)))

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)
