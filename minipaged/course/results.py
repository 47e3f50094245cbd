"""TestResult and ExerciseResult: what a run of a chapter's tests found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from minipaged.course.chapter import Chapter, Exercise

State = Literal["todo", "wrong", "pass"]

WHOLE_FILE = "<module>"
"""As Python names the code of a file outside of its functions."""


@dataclass(frozen=True)
class PartRow:
    """One line of the table that says whose code ran.

    Attributes:
        whose: `"mine"`, `"solutions"`, `"engine"` or a folder; `"incomplete"` where the engine's own
            code ran because only some functions of the exercise are written.
        num_calls: `None` where the engine's own code ran, which is not counted.
        remark: how the part was made of the exercise, if it is not that function itself.
    """

    part: str
    exercise: str
    whose: str
    num_calls: int | None
    remark: str = ""


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
        blamed: the functions of the exercise that failed.
        needs: functions and classes of earlier exercises that it called; of the test in the engine, those
            that it ran with.
        stopped: the functions that had not ended when the time was up, or when their process died;
            `WHOLE_FILE` for a file that was being read. They are not called again.
        whole_file: whether the text is about the checked file, of which no exercise can be checked.
    """

    __test__ = False  # for pytest, which collects by the name

    chapter: int
    exercise: str
    test: str
    line: int
    state: State
    text: str
    parts: tuple[PartRow, ...] = ()
    blamed: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    whole_file: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TestResult:
        values = json.loads(text)
        rows = tuple(PartRow(**row) for row in values["parts"])
        names = {key: tuple(values[key]) for key in ("blamed", "needs", "stopped")}
        return cls(**(values | names | {"parts": rows}))


@dataclass(frozen=True)
class ExerciseResult:
    """One exercise, or a chapter's test in the engine.

    Attributes:
        exercise: `None` for the test in the engine.
        tests: its tests, in the order of their file.
        begin_with: what does not pass of an earlier exercise, on which this one stands, in words.
        beside: of the test in the engine: the numbers of the chapter's exercises that are wrong.
    """

    exercise: Exercise | None
    tests: tuple[TestResult, ...]
    begin_with: str = ""
    beside: tuple[str, ...] = ()

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
        """Whether it passes; in the engine, with all of its parts, and beside no exercise that is wrong."""
        own, all_of_them = self.own_parts
        return self.state == "pass" and own == all_of_them and not self.beside

    @property
    def is_of_the_file(self) -> bool:
        """Whether it is wrong because its file cannot be used."""
        return any(test.whole_file for test in self.tests)

    @property
    def texts(self) -> list[str]:
        """What to show: each line of *todo* once; the first test that is *wrong* in full, the others
        as a number."""
        wrong = [test for test in self.tests if test.state == "wrong"]
        if wrong and wrong[0].whole_file:
            return [wrong[0].text]
        if wrong:
            heading, *lines = wrong[0].text.splitlines()
            first = [f"  first     {self.begin_with}"] if self.begin_with else []
            return ["\n".join([heading, *first, *lines, *_also_wrong(wrong)])]
        return list(dict.fromkeys(test.text for test in self.tests if test.state == "todo"))


def texts_of(results: Iterable[ExerciseResult]) -> list[tuple[ExerciseResult, str]]:
    """What to show of some exercises, each text with its exercise. What keeps a whole file from being
    checked is shown once."""
    found: list[tuple[ExerciseResult, str]] = []
    files: set[str] = set()
    for each in results:
        for text in each.texts:
            if each.is_of_the_file:
                heading = text.partition("\n")[0]
                if heading in files:
                    continue
                files.add(heading)
            found.append((each, text))
    return found


def _also_wrong(wrong: Sequence[TestResult]) -> list[str]:
    """How many tests behind the first one are wrong, and the name of one; without its parameters."""
    names = [test.test.partition("[")[0] for test in wrong]
    if len(names) < 2:
        return []
    other = next((name for name in names if name != names[0]), names[0])
    return [f"  also wrong {other}" if len(names) == 2 else f"  also wrong {len(names) - 1} more, as {other}"]


def by_exercise(chapter: Chapter, results: Iterable[TestResult]) -> list[ExerciseResult]:
    """The results of a chapter, for each exercise that has any, in order; the engine's last."""
    ours = sorted((r for r in results if r.chapter == chapter.number), key=lambda result: result.line)
    grouped = [
        ExerciseResult(each, tuple(r for r in ours if r.exercise == each.number))
        for each in chapter.exercises
    ]
    wrong = tuple(each.exercise.number for each in grouped if each.exercise and each.state == "wrong")
    grouped.append(ExerciseResult(None, tuple(r for r in ours if not r.exercise), beside=wrong))
    return [replace(each, begin_with=_begin_with(each, grouped)) for each in grouped if each.tests]


def _begin_with(result: ExerciseResult, grouped: Sequence[ExerciseResult]) -> str:
    """Of the first exercise before a wrong one: the functions that it needs and that do not pass."""
    needs = {name for test in result.tests if test.state == "wrong" for name in test.needs}
    for each in grouped:
        if each.exercise == result.exercise or each.exercise is None:
            break
        names = [name for name in each.exercise.names if name in needs or name.partition(".")[0] in needs]
        broken = [f"`{name}`" for name in names if name in _broken(each.tests)]
        if broken:
            number, do = each.exercise.number, "does" if len(broken) == 1 else "do"
            return f"{', '.join(broken)} ({number}) {do} not pass: begin there"
    return ""


def _broken(tests: Iterable[TestResult]) -> set[str]:
    """The functions that a wrong test is about alone; without such a test, those that any is about."""
    blamed = [test.blamed for test in tests if test.state == "wrong"]
    return {names[0] for names in blamed if len(names) == 1} or {name for names in blamed for name in names}


def read_results(path: Path) -> list[TestResult]:
    """The results in a file that `--chapter-results` has written."""
    return [TestResult.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_results(path: Path, results: Sequence[TestResult]) -> None:
    """Write them, one JSON object in each line."""
    path.write_text("".join(f"{result.to_json()}\n" for result in results), encoding="utf-8")
