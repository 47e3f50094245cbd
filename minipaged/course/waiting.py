"""What a user sees while tests run: which test is running, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from minipaged.course.journal import Running

_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class TestInTime:
    """A test that is running.

    Attributes:
        exercise: the exercise's number, or `chapter 4` for the test of chapter 4 in the engine.
        test: the test's name, without its parameters.
        seconds: how long it has been running.
        limit: seconds after which it is stopped; 0 for never.
    """

    __test__ = False  # pytest would collect it because of its name

    exercise: str
    test: str
    seconds: float
    limit: float

    @classmethod
    def of(cls, running: Running, seconds: float) -> TestInTime:
        result = running.result
        number = result.exercise or f"chapter {result.chapter}"
        return cls(number, result.test.partition("[")[0], seconds, running.seconds)

    def __str__(self) -> str:
        until = f", of at most {self.limit:g}" if self.limit else ""
        return f"{self.exercise} {self.test}: {self.seconds:.0f} s{until}"


Look = Callable[[TestInTime], None]
"""A function that is called many times a second with the running test."""


def every_ten_seconds(stream: TextIO) -> Look:
    """A `Look` that writes a line for every ten seconds of a test, for streams that cannot rewrite a line."""
    shown: list[tuple[str, str, int]] = []

    def look(running: TestInTime) -> None:
        tens = int(running.seconds // _SECONDS_BETWEEN_LINES)
        line = (running.exercise, running.test, tens)
        if tens and line not in shown[-1:]:
            shown.append(line)
            print(f"\nstill running: {running}", file=stream, flush=True)

    return look
