"""The journal of a test run: the results so far, and the test that is running.

It is written line by line while the tests run, so that it survives the process that runs them. When a run
goes on in another process, that process continues the same journal. The process that waits for the run reads
the journal meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minipaged.course.results import TestResult

Kind = Literal["begins", "stands", "pauses", "found", "ends"]


@dataclass(frozen=True)
class Running:
    """A test that has started.

    Attributes:
        result: the test's result if it does not end. Its text is empty until the time is up.
        seconds: how long the test may take; 0 for no limit.
    """

    result: TestResult
    seconds: float


@dataclass(frozen=True)
class Record:
    """The contents of a journal.

    Attributes:
        results: the results of the tests that have ended or were stopped.
        running: the test that has started and not ended, if there is one.
        status: pytest's exit code; `None` if pytest has not finished.
    """

    results: tuple[TestResult, ...] = ()
    running: Running | None = None
    status: int | None = None


class Journal:
    """Appends to a journal."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("a", encoding="utf-8")

    def begins(self, result: TestResult, seconds: float) -> None:
        """Record that a test begins. The arguments are as in `Running`."""
        self._write("begins", {"result": result.to_json(), "seconds": seconds})

    def stands(self, result: TestResult) -> None:
        """Record that the running test's time is up. The test gets this result if it still does not end."""
        self._write("stands", result.to_json())

    def pauses(self) -> None:
        """Record that a user looks at the test in a debugger, so that it has no limit."""
        self._write("pauses", None)

    def found(self, result: TestResult) -> None:
        """Record that a test has ended."""
        self._write("found", result.to_json())

    def ends(self, status: int) -> None:
        """Record that the run has finished, with pytest's exit code."""
        self._write("ends", status)
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _write(self, kind: Kind, content: object) -> None:
        self._stream.write(f"{json.dumps([kind, content])}\n")
        self._stream.flush()


def read_journal(path: Path) -> Record:
    """The contents of a journal so far; an empty record if the file does not exist."""
    if not path.is_file():
        return Record()
    results: list[TestResult] = []
    running: Running | None = None
    status: int | None = None
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the rest of the line is not written yet, or never will be
        kind, content = json.loads(line)
        if kind == "begins":
            running = Running(TestResult.from_json(content["result"]), content["seconds"])
            status = None
        elif kind == "stands" and running is not None:
            running = Running(TestResult.from_json(content), running.seconds)
        elif kind == "pauses":
            running = None
        elif kind == "found":
            results.append(TestResult.from_json(content))
            running = None
        elif kind == "ends":
            status = content
    return Record(tuple(results), running, status)


def traces_file(journal: Path) -> Path:
    """The file to which a run's watchdog writes the threads' stacks before it ends the process."""
    return journal.with_suffix(".traces")
