"""Test runs that always finish: one process runs the tests, and another one watches it.

The process that runs the tests writes its results to a journal, and ends itself if a test takes too long
(`time_limit.py`).
The watching process reads in the journal which test that was, adds the test's result, and starts a new
process for the remaining tests.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from minipaged.course import registry
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.journal import Journal, Record, Running, read_journal, traces_file
from minipaged.course.messages import wrong_text
from minipaged.course.results import WHOLE_FILE, TestResult
from minipaged.course.time_limit import StoppedError, took_too_long
from minipaged.course.waiting import Look, TestInTime

_POLL = 0.1
_SECONDS_TO_END = 10.0
"""How long a process may take to end after its last test. Threads of the checked code may keep it alive."""

_SECONDS_TO_SUM_UP = 5.0
_PYTESTS_CODES = range(6)
_FRAME = re.compile(r'  File "(.+)", line ([0-9]+) in (.+)')
"""Matches a line of a stack that the watchdog has written."""


class Process(Protocol):
    """A process that runs tests."""

    def wait(self, seconds: float) -> int | None:
        """The exit code, or minus the signal that killed it; `None` if it still runs after that time."""
        ...

    def end(self) -> None:
        """Let the process show its results if it can, otherwise kill it. Wait for its end."""
        ...


class Spawned:
    """A process that was started with a command.

    Args:
        command: program and arguments.
        sums_up: whether the process shows its results and ends by itself after Ctrl-C. A Ctrl-C in the
            terminal reaches this process, too.
        options: options of `subprocess.Popen`.
    """

    def __init__(self, command: Sequence[str], *, sums_up: bool = False, **options: object) -> None:
        self._process = subprocess.Popen(command, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]
        self._sums_up = sums_up

    def wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        try:
            self.wait(_SECONDS_TO_SUM_UP if self._sums_up else 0)
        finally:
            self._process.kill()
            self._process.wait()


def run_watched(
    start: Callable[[], Process],
    journal: Path,
    impl: str,
    look: Look | None = None,
    goes_on: Callable[[TestResult], None] | None = None,
) -> int:
    """Run tests until all have a result.

    Args:
        start: starts a process that runs pytest with `--chapter-results` and this journal. If the process
            ends too early, `start` is called again for the remaining tests.
        journal: the journal's file.
        impl: whose code is checked.
        look: called many times a second with the test that is running.
        goes_on: called before each further process, with the result of the test that ended the last process.

    Returns:
        pytest's exit code, or minus the signal that killed it while no test was running.
    """
    while True:
        process = start()
        try:
            code = _wait(process, journal, look)
        except BaseException:
            process.end()
            raise
        record = read_journal(journal)
        if record.status is not None:
            return code if code in _PYTESTS_CODES else record.status
        if record.running is None:
            return code
        result = _ended_with(record.running, code, traces_file(journal), impl)
        writer = Journal(journal)
        writer.found(result)
        writer.close()
        if goes_on is not None:
            goes_on(result)


def _wait(process: Process, journal: Path, look: Look | None) -> int:
    size, record, waited, before = -1, Record(), 0.0, time.monotonic()
    while (code := process.wait(_POLL)) is None:
        now = time.monotonic()
        waited += min(now - before, 1.0)  # ignore the time in which this process was suspended
        before = now
        if journal.is_file() and journal.stat().st_size != size:
            size, last = journal.stat().st_size, record
            record = read_journal(journal)
            if _test_of(record) != _test_of(last) or record.status != last.status:
                waited = 0.0
        if record.status is not None and waited > _SECONDS_TO_END:
            process.end()
            return record.status
        if look is not None and record.running is not None:
            look(TestInTime.of(record.running, waited))
    return code


def _test_of(record: Record) -> tuple[int, str, str] | None:
    if record.running is None:
        return None
    result = record.running.result
    return result.chapter, result.exercise, result.test


# The result of a test that ended its process


def _ended_with(running: Running, code: int, traces: Path, impl: str) -> TestResult:
    """The result of a test that took too long, or that ended its process."""
    result = running.result
    traced = traces.read_text(encoding="utf-8") if traces.is_file() else ""
    if traced and result.text:
        return result
    source = implementation(registry.chapter(result.chapter), impl)
    exercise = registry.exercise(result.exercise) if result.exercise else None
    place, name = _innermost(traced, source)
    if exercise is not None and name:
        names = tuple(each for each in exercise.names if each.rpartition(".")[2] == name)
        result = replace(result, blamed=names or result.blamed, stopped=names or (name,))
    why = str(took_too_long(running.seconds)) if traced else _how_it_ended(code)
    error = StoppedError(why, whole_file=name == WHOLE_FILE)
    text = wrong_text(exercise, source, result.test, error, blamed=result.blamed, place=place)
    return replace(result, text=text, whole_file=error.whole_file)


def _innermost(traced: str, source: Implementation) -> tuple[tuple[str, int] | None, str]:
    """The line of the checked file that was running, and its function, from what the watchdog wrote."""
    for filename, line, name in _FRAME.findall(traced):
        if filename == str(source.path):
            return (filename, int(line)), name
    return None, ""


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it ended its process, with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", as happens when a machine runs out of memory" if name == "SIGKILL" else ""
    return f"its process was killed by {name}{why}"
