"""Functions that did not finish in a run of tests.

They are not called again, so each of them costs the time limit only once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from minipaged.course import stubs
from minipaged.course.chapter import Exercise
from minipaged.course.implementation import Implementation
from minipaged.course.results import WHOLE_FILE, TestResult
from minipaged.course.time_limit import StoppedError


class Stopped:
    """The exercises and functions that were stopped.

    Args:
        results: the results of an earlier process of the same run, if there was one.
    """

    def __init__(self, results: Iterable[TestResult] = ()) -> None:
        self._exercises: set[str] = set()
        self._functions: dict[int, set[str]] = {}  # by chapter
        self._behind: dict[tuple[int, str], frozenset[str]] = {}
        for result in results:
            self.note(result)

    def note(self, result: TestResult) -> None:
        """Record the functions that were stopped in a test that has ended, if any."""
        if result.stopped:
            self._exercises.add(result.exercise)
            self._functions.setdefault(result.chapter, set()).update(result.stopped)

    def has(self, exercise: Exercise | None) -> bool:
        """Whether a test of this exercise was stopped. If so, its other tests are not run."""
        return exercise is not None and exercise.number in self._exercises

    def refuse(self, code: Implementation, names: Collection[str]) -> None:
        """Raise an error if one of these functions was stopped.

        Call this before the functions are called, or with `WHOLE_FILE` before the file is read.

        Raises:
            StoppedError: one of the functions, or a function that they call, was stopped.
        """
        found = self._functions.get(code.chapter.number)
        if not found:
            return
        if WHOLE_FILE in found:
            raise StoppedError("reading the file did not finish, so it is not read again", whole_file=True)
        called = {other for name in names for other in self._behind_one(code, name)}
        for name in sorted(found):
            if name in names or name.partition(".")[0] in called:
                exercise = code.chapter.exercise_of(name)
                number = "" if exercise is None else f" ({exercise.number})"
                raise StoppedError(f"`{name}`{number} did not finish, so it is not called again")

    def _behind_one(self, code: Implementation, name: str) -> frozenset[str]:
        key = (code.chapter.number, name)
        if key not in self._behind:
            self._behind[key] = stubs.names_behind(code.source(), [name])
        return self._behind[key]
