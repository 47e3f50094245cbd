"""TestResult and ExerciseResult: what a run of a chapter's tests found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from minipaged.course.chapter import Chapter, Exercise

State = Literal["todo", "wrong", "pass"]


@dataclass(frozen=True)
class PartRow:
    """One line of the table that says whose code ran.

    Attributes:
        whose: `"mine"`, `"solutions"`, `"engine"` or a folder; `"incomplete"` where the engine's own
            code ran because only some functions of the exercise are written.
        num_calls: `None` where the engine's own code ran, which is not counted.
    """

    part: str
    exercise: str
    whose: str
    num_calls: int | None


@dataclass(frozen=True)
class TestResult:
    """One test.

    Attributes:
        chapter: its number.
        exercise: the exercise's number; empty for the chapter's test in the engine.
        test: the test's name.
        line: where it is in its file, for the order.
        text: for *todo* one line, for *wrong* several; empty for *pass*.
        parts: whose code ran in the engine, if this is that test.
    """

    __test__ = False  # for pytest, which collects by the name

    chapter: int
    exercise: str
    test: str
    line: int
    state: State
    text: str
    parts: tuple[PartRow, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TestResult:
        values = json.loads(text)
        return cls(**(values | {"parts": tuple(PartRow(**row) for row in values["parts"])}))


@dataclass(frozen=True)
class ExerciseResult:
    """One exercise, or a chapter's test in the engine.

    Attributes:
        exercise: `None` for the test in the engine.
        tests: its tests, in the order of their file.
    """

    exercise: Exercise | None
    tests: tuple[TestResult, ...]

    @property
    def state(self) -> State:
        states = {test.state for test in self.tests}
        if not states or "todo" in states:
            return "wrong" if "wrong" in states else "todo"
        return "wrong" if "wrong" in states else "pass"

    @property
    def own_parts(self) -> tuple[int, int]:
        """Of the parts in the engine: how many are the checked code's own, and how many there are."""
        rows = [row for test in self.tests for row in test.parts]
        return sum(row.num_calls is not None for row in rows), len(rows)

    @property
    def is_done(self) -> bool:
        """Whether it passes, and in the engine with all of its parts."""
        own, all_of_them = self.own_parts
        return self.state == "pass" and own == all_of_them

    @property
    def texts(self) -> list[str]:
        """What to show: each line of *todo* once; the first test that is *wrong* in full, the others
        by name."""
        wrong = [test for test in self.tests if test.state == "wrong"]
        if wrong:
            others = ", ".join(dict.fromkeys(test.test for test in wrong[1:]))
            return [wrong[0].text + (f"\n  also wrong {others}" if others else "")]
        return list(dict.fromkeys(test.text for test in self.tests if test.state == "todo"))


def by_exercise(chapter: Chapter, results: Iterable[TestResult]) -> list[ExerciseResult]:
    """The results of a chapter, for each exercise that has any, in order; the engine's last."""
    ours = sorted((r for r in results if r.chapter == chapter.number), key=lambda result: result.line)
    grouped = [
        ExerciseResult(each, tuple(r for r in ours if r.exercise == each.number))
        for each in chapter.exercises
    ]
    grouped.append(ExerciseResult(None, tuple(r for r in ours if not r.exercise)))
    return [each for each in grouped if each.tests]


def read_results(path: Path) -> list[TestResult]:
    """The results in a file that `--chapter-results` has written."""
    return [TestResult.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_results(path: Path, results: Sequence[TestResult]) -> None:
    """Write them, one JSON object in each line."""
    path.write_text("".join(f"{result.to_json()}\n" for result in results), encoding="utf-8")
