"""TestResult and ExerciseResult: the results of a chapter's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from minipaged.course.chapter import Chapter, Exercise

State = Literal["todo", "wrong", "pass"]

WHOLE_FILE = "<module>"
"""Python's name for the code of a file outside its functions."""


@dataclass(frozen=True)
class PartRow:
    """One row of the table that shows whose code ran.

    Attributes:
        whose: `"mine"`, `"solutions"`, `"engine"` or a folder; `"incomplete"` if the engine's own code ran
            because some functions of the exercise are missing.
        num_calls: number of calls; `None` if the engine's own code ran, since its calls are not counted.
        remark: how the part was made from the exercise, if it is not simply the function.
    """

    part: str
    exercise: str
    whose: str
    num_calls: int | None
    remark: str = ""


@dataclass(frozen=True)
class TestResult:
    """The result of one test.

    Attributes:
        chapter: the chapter's number.
        exercise: the exercise's number; empty for the chapter's test in the engine.
        test: the test's name.
        line: its line in the test file, to order the results.
        text: one line for *todo*, several lines for *wrong*, and empty for *pass*.
        parts: for the test in the engine, the rows that show whose code ran.
        blamed: the functions of the exercise that failed.
        needs: functions and classes of earlier exercises that the test called. For the test in the engine,
            those with which the engine ran.
        stopped: the functions that were running when the time was up or the process died. They are not called
            again. `WHOLE_FILE` means that the file was being read.
        whole_file: whether the text is about the whole checked file. If so, no exercise in it can be checked.
    """

    __test__ = False  # pytest would collect it because of its name

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
    """The results of one exercise, or of a chapter's test in the engine.

    Attributes:
        exercise: `None` for the test in the engine.
        tests: the results of its tests, in the order of their file.
        begin_with: a text that names failing functions of an earlier exercise, which this exercise needs. The
            reader should begin with them.
        beside: the numbers of the chapter's wrong exercises. It is empty except for the test in the engine.
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
        """How many parts of the engine came from the checked code, and how many there are."""
        rows = [row for test in self.tests for row in test.parts]
        return sum(row.num_calls is not None for row in rows), len(rows)

    @property
    def is_done(self) -> bool:
        """Whether the exercise passes.

        The test in the engine is done only if, in addition, all parts come from the checked code, and no
        exercise of the chapter is wrong.
        """
        own, all_of_them = self.own_parts
        return self.state == "pass" and own == all_of_them and not self.beside

    @property
    def is_of_the_file(self) -> bool:
        """Whether the exercise is wrong because the whole file cannot be used."""
        return any(test.whole_file for test in self.tests)

    @property
    def texts(self) -> list[str]:
        """What to show: the first *wrong* test and the number of others, or else each *todo* line once."""
        wrong = [test for test in self.tests if test.state == "wrong"]
        if wrong and wrong[0].whole_file:
            return [wrong[0].text]
        if wrong:
            heading, *lines = wrong[0].text.splitlines()
            first = [f"  first     {self.begin_with}"] if self.begin_with else []
            return ["\n".join([heading, *first, *lines, *_also_wrong(wrong)])]
        return list(dict.fromkeys(test.text for test in self.tests if test.state == "todo"))


def texts_of(results: Iterable[ExerciseResult]) -> list[tuple[ExerciseResult, str]]:
    """What to show for some exercises, each text with its exercise.

    A text about the whole file is shown once.
    """
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
    """A line with the number of further wrong tests, and the name of one of them without its parameters."""
    names = [test.test.partition("[")[0] for test in wrong]
    if len(names) < 2:
        return []
    other = next((name for name in names if name != names[0]), names[0])
    return [f"  also wrong {other}" if len(names) == 2 else f"  also wrong {len(names) - 1} more, as {other}"]


def by_exercise(chapter: Chapter, results: Iterable[TestResult]) -> list[ExerciseResult]:
    """The results of a chapter by exercise, in order, with the test in the engine last."""
    ours = sorted((r for r in results if r.chapter == chapter.number), key=lambda result: result.line)
    grouped = [
        ExerciseResult(each, tuple(r for r in ours if r.exercise == each.number))
        for each in chapter.exercises
    ]
    wrong = tuple(each.exercise.number for each in grouped if each.exercise and each.state == "wrong")
    grouped.append(ExerciseResult(None, tuple(r for r in ours if not r.exercise), beside=wrong))
    return [replace(each, begin_with=_begin_with(each, grouped)) for each in grouped if each.tests]


def _begin_with(result: ExerciseResult, grouped: Sequence[ExerciseResult]) -> str:
    """A text that says where to begin: at failing functions of an earlier exercise that this one needs."""
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
    """The functions that some wrong test blames alone. If there are none, all functions that are blamed."""
    blamed = [test.blamed for test in tests if test.state == "wrong"]
    return {names[0] for names in blamed if len(names) == 1} or {name for names in blamed for name in names}


def read_results(path: Path) -> list[TestResult]:
    """The results in a file that `--chapter-results` has written."""
    return [TestResult.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_results(path: Path, results: Sequence[TestResult]) -> None:
    """Write results, one JSON object in each line."""
    path.write_text("".join(f"{result.to_json()}\n" for result in results), encoding="utf-8")
