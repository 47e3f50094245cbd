"""The journal of a run of tests: what was found so far, and which test is running.

It is written line by line as the tests run, so that it is there when their process is not any more: a run
that goes on in another process goes on with the same journal. Whoever waits for a run reads it meanwhile.
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
    """A test that has begun.

    Attributes:
        result: what becomes of the test if it does not end. Its text is empty until time is up.
        seconds: how long it may take; 0 for any time.
    """

    result: TestResult
    seconds: float


@dataclass(frozen=True)
class Record:
    """What is in a journal.

    Attributes:
        results: of the tests that have ended, or were ended.
        running: the test that has begun and not ended, if there is one.
        status: pytest's exit code, if it came to its end.
    """

    results: tuple[TestResult, ...] = ()
    running: Running | None = None
    status: int | None = None


class Journal:
    """Writes a journal, at its end."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("a", encoding="utf-8")

    def begins(self, result: TestResult, seconds: float) -> None:
        """A test begins; both as in `Running`."""
        self._write("begins", {"result": result.to_json(), "seconds": seconds})

    def stands(self, result: TestResult) -> None:
        """The time of the test that runs is up: what becomes of it if it does not end all the same."""
        self._write("stands", result.to_json())

    def pauses(self) -> None:
        """Somebody looks at the test in a debugger: it may take any time."""
        self._write("pauses", None)

    def found(self, result: TestResult) -> None:
        """A test has ended."""
        self._write("found", result.to_json())

    def ends(self, status: int) -> None:
        """The run has come to its end."""
        self._write("ends", status)
        self.close()

    def close(self) -> None:
        """Nothing more is written here."""
        self._stream.close()

    def _write(self, kind: Kind, content: object) -> None:
        self._stream.write(f"{json.dumps([kind, content])}\n")
        self._stream.flush()


def read_journal(path: Path) -> Record:
    """What is in it by now; nothing, if it was not begun."""
    if not path.is_file():
        return Record()
    results: list[TestResult] = []
    running: Running | None = None
    status: int | None = None
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the rest of it is still to come, or never will
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
    """Where the watchdog of a run writes what was running when it ended the process."""
    return journal.with_suffix(".traces")
