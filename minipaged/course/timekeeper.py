"""Timekeeper: applies the time limit in a run of tests, writes the journal of results, and records which
functions were stopped at the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minipaged.course.journal import Journal, Record, read_journal, traces_file
from minipaged.course.outcome import if_it_never_ends, place_of, result_of
from minipaged.course.results import TestResult
from minipaged.course.stopped import Stopped
from minipaged.course.time_limit import LastResort, StoppedError, forget_time_limit, is_debugged, time_limit

_IN_ENGINE = 3
"""A test in the engine may take this many times longer, because the first one compiles the engine's loops."""


class Timekeeper:
    """The time limits and the journal of one pytest session.

    Args:
        config: has `--test-seconds`, and `--chapter-results` if the run has a journal.

    Attributes:
        before: what an earlier process of this run wrote to the journal.
        stopped: the functions that are not called again.
        journal: where the results are written. It is `None` if no other process waits for them, and in the
            workers of pytest-xdist.
    """

    def __init__(self, config: pytest.Config) -> None:
        path: Path | None = config.getoption("--chapter-results")
        self.before, self.journal, self._traces = Record(), None, None
        if path is not None and not hasattr(config, "workerinput"):
            self.before = read_journal(path)
            if self.before.status is not None:  # that run has finished, so this is a new one
                self.before = Record()
                path.unlink()
            self.journal = Journal(path)
            self._traces = traces_file(path).open("w", encoding="utf-8")
        self.stopped = Stopped(self.before.results)
        self._seconds = float(config.getoption("--test-seconds") or 0)
        self._known = {(each.chapter, each.exercise, each.test) for each in self.before.results}

    def has_result(self, item: pytest.Item) -> bool:
        """Whether the test ran in an earlier process of this run."""
        chapter, exercise = place_of(item)
        return (chapter.number, "" if exercise is None else exercise.number, item.name) in self._known

    @contextmanager
    def watching(self, item: pytest.Item) -> Iterator[None]:
        """Within the `with` block, a test or its setup runs. It is stopped when its time is up.

        Raises:
            StoppedError: it took too long.
        """
        _, exercise = place_of(item)
        seconds = 0.0 if is_debugged() else self._seconds * (_IN_ENGINE if exercise is None else 1)
        last_resort = None
        if self.journal is not None and self._traces is not None:
            self.journal.begins(if_it_never_ends(item), seconds)
            last_resort = LastResort(self._traces, lambda error: self._note(item, error))
        with time_limit(seconds, last_resort):
            yield

    def forget(self) -> None:
        """Remove the running test's limit, because a user looks at it in a debugger."""
        forget_time_limit()
        if self.journal is not None:
            self.journal.pauses()

    def found(self, result: TestResult) -> None:
        """Record that a test has ended."""
        if self.journal is not None:
            self.journal.found(result)

    def ends(self, status: int) -> None:
        """Record that the session has ended, with pytest's exit code."""
        if self.journal is not None:
            self.journal.ends(status)
        if self._traces is not None:
            self._traces.close()

    def _note(self, item: pytest.Item, error: StoppedError) -> None:
        if self.journal is not None:
            self.journal.stands(result_of(item, error))
