"""The registry, hints, interview questions, the zoo, parts and progress."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minipaged.course import NotYet, checks, folders, notebook, progress, registry, seams, stubs, zoo
from minipaged.course.chapter import Chapter
from minipaged.course.hints import parse_hints
from minipaged.course.implementation import implementation
from minipaged.course.interview import questions
from minipaged.course.report_view import as_text, parts_table, states_table
from minipaged.course.results import ExerciseResult, PartRow, TestResult, by_exercise
from minipaged.course.zoo import Mutant
from minipaged.errors import CourseError

CHAPTER = registry.chapter(1)
SOURCE = folders.solution_file(CHAPTER).read_text(encoding="utf-8")


def _folder(path: Path, *keep: str) -> str:
    """An exercise file in which these exercises are solved."""
    (path / f"{CHAPTER.stem}.py").write_text(stubs.make_stub(SOURCE, keep), encoding="utf-8")
    return str(path)


def test_chapters_are_in_order_and_their_exercises_numbered() -> None:
    numbers = [chapter.number for chapter in registry.chapters()]
    assert numbers == sorted(set(numbers))
    for chapter in registry.chapters():
        assert [e.number for e in chapter.exercises] == [
            f"{chapter.number}.{place}" for place in range(1, len(chapter.exercises) + 1)
        ]


@pytest.mark.parametrize("number", ["1.9", "9.1", "1", "x", "1.0", ""])
def test_exercises_that_there_are_not(number: str) -> None:
    with pytest.raises(CourseError):
        registry.exercise(number)


def test_the_course_is_light_until_it_runs() -> None:
    script = (
        "import sys\n"
        "import minipaged.course, minipaged.course.pytest_plugin, minipaged.course.ch01.seams\n"
        "import minipaged.course.notebook, minipaged.course.progress\n"
        "assert not {'torch', 'transformers', 'matplotlib', 'jupytext'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Hints and questions


def test_hints_are_read_by_exercise_and_level() -> None:
    text = "# 4.1\n## 1\none\n## 2\ntwo\n```\n# 9.9\n```\n## 3\nthree\n# 4.2\n## 1\nx\n"
    assert parse_hints(text) == {"4.1": ("one", "two\n```\n# 9.9\n```", "three"), "4.2": ("x",)}


@pytest.mark.parametrize(
    "text", ["## 1\nx\n", "# 4.1\n## 2\nx\n", "words\n# 4.1\n", "# 4.1\n## 1\nx\n# 4.1\n## 1\nx\n"]
)
def test_hints_out_of_order_are_refused(text: str) -> None:
    with pytest.raises(CourseError):
        parse_hints(text)


def test_questions_are_collected() -> None:
    one = '<details class="interview">\n<summary>Why\nso?</summary>\n\nBecause.\n\n</details>\n'
    found = questions(f"text\n{one}\n<details><summary>No</summary>x</details>\n{one}")
    assert [(each.question, each.answer) for each in found] == [("Why so?", "Because.")] * 2
    with pytest.raises(CourseError):
        questions('<details class="interview">\nno summary</details>')


# The zoo


def test_a_mutant_changes_its_exercise_alone() -> None:
    changed = zoo.mutate(SOURCE, Mutant("1.5", "x", "break", "continue"))
    assert changed == stubs.without_markers(SOURCE).replace(" break\n", " continue\n")


@pytest.mark.parametrize("old", ["no such text", "num_blocks"])
def test_a_mutant_that_is_nowhere_or_everywhere_is_refused(old: str) -> None:
    with pytest.raises(CourseError, match="must occur once"):
        zoo.mutate(SOURCE, Mutant("1.3", "x", old, ""))


def test_a_bug_can_be_loaded() -> None:
    broken = notebook.bug(1, "forgets_the_values")
    assert broken.bytes_per_token(40, 40, 128, 2) == 409_600
    with pytest.raises(CourseError, match="no 'nonsense'"):
        notebook.bug(1, "nonsense")


def test_what_needs_the_solutions_says_that_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINIPAGED_IMPL", _folder(tmp_path, "1.1"))
    monkeypatch.setattr(folders, "solution_file", lambda chapter: tmp_path / "none.py")
    with pytest.raises(CourseError, match=r"no .*none\.py in this copy of the repository"):
        notebook.bug(1, "forgets_the_values")
    mine = notebook.code(1)
    assert mine.bytes_per_token(1, 1, 1, 1) == 2  # pyright: ignore[reportCallIssue]
    with pytest.raises(CourseError, match=r"1\.2, num_blocks_that_fit, is not written yet, and there is no"):
        _ = mine.num_blocks_that_fit
    assert capsys.readouterr().out == ""


# Whose code


def test_written_is_what_no_longer_raises(tmp_path: Path) -> None:
    source = implementation(CHAPTER, _folder(tmp_path, "1.1", "1.4"))
    assert source.written() == {"1.1", "1.4"}
    assert implementation(CHAPTER, "engine").written() == {e.number for e in CHAPTER.exercises}
    with pytest.raises(CourseError, match="--impl takes"):
        implementation(CHAPTER, str(tmp_path / "nowhere"))


def test_a_notebook_goes_on_with_the_solution_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(_folder(tmp_path, "1.1"), f"{CHAPTER.stem}.py")
    path.write_text(path.read_text().replace("return numbers_per_layer *", "return 7 + 0 *"))
    monkeypatch.setenv("MINIPAGED_IMPL", str(tmp_path))
    mine = notebook.code(1)
    assert mine.bytes_per_token(1, 1, 1, 1) == 7  # pyright: ignore[reportCallIssue]
    assert capsys.readouterr().out == ""
    for _ in range(2):
        assert mine.max_model_len_that_fits(5, 16) == 64  # pyright: ignore[reportCallIssue]
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("Exercise 1.2, num_blocks_that_fit, is not written yet") == 1
    with pytest.raises(AttributeError):
        _ = mine.nonsense


def test_parts_are_the_reader_s_where_written_and_the_engine_s_elsewhere(tmp_path: Path) -> None:
    from minipaged.kv.size import KVShape
    from minipaged.parts import Parts

    resolved = seams.resolve([implementation(CHAPTER, _folder(tmp_path, "1.1"))])
    assert resolved.written == ("1.1",)
    assert resolved.parts.num_blocks_that_fit is Parts().num_blocks_that_fit
    assert resolved.parts.bytes_per_token(KVShape(40, 40, 128, 2)) == 819_200
    assert resolved.table() == [
        PartRow("bytes_per_token", "1.1", str(tmp_path), 1),
        PartRow("num_blocks_that_fit", "1.2", "engine", None),
    ]


def test_an_exercise_that_is_half_written_is_said_to_be_incomplete(tmp_path: Path) -> None:
    whole, stub = stubs.without_markers(SOURCE), stubs.make_stub(SOURCE, {"1.1"})
    half = stub.replace(
        stubs.text_of(stub, "num_blocks_that_fit"), stubs.text_of(whole, "num_blocks_that_fit")
    )
    (tmp_path / f"{CHAPTER.stem}.py").write_text(half, encoding="utf-8")
    resolved = seams.resolve([implementation(CHAPTER, str(tmp_path))])
    assert resolved.table()[1] == PartRow("num_blocks_that_fit", "1.2", "incomplete", None)
    assert "1.2 is not complete" in as_text(parts_table(resolved.table()), 80)


def test_the_table_says_how_a_part_was_made_of_another_exercise(tmp_path: Path) -> None:
    chapter = registry.chapter(3)
    stub = stubs.make_stub(folders.solution_text(chapter), {"3.1"})
    (tmp_path / f"{chapter.stem}.py").write_text(stub, encoding="utf-8")
    resolved = seams.resolve([implementation(chapter, str(tmp_path))])
    row = next(row for row in resolved.table() if row.part == "slot_mapping")
    assert row.exercise == "3.1"
    assert "slot_of, once for each position" in as_text(parts_table([row]), 300)


def test_nothing_written_is_no_parts(tmp_path: Path) -> None:
    with pytest.raises(NotYet):
        seams.resolve([implementation(CHAPTER, _folder(tmp_path))])


def test_a_part_that_the_engine_never_calls_proves_nothing() -> None:
    from minipaged.course.expect import Wrong
    from minipaged.course.in_engine import run_in_engine

    module = ModuleType("a_readers")
    module.__dict__["hash_function"] = hash
    resolved = seams.ResolvedParts(
        seams.resolve([implementation(CHAPTER, "solutions")]).parts,
        (("bytes_per_token", "1.1", "mine"),),
        {"bytes_per_token": seams.CountedCalls(hash)},
    )
    with pytest.raises(Wrong) as caught:
        run_in_engine(resolved, prompts=["One"])
    assert "never called it" in caught.value.rule


# Results and progress


def _result(exercise: str, state: str, line: int, text: str = "text") -> TestResult:
    return TestResult(1, exercise, f"test_{line}", line, state, text)  # pyright: ignore[reportArgumentType]


def test_an_exercise_is_wrong_before_it_is_todo_before_it_passes() -> None:
    for states, expected in (
        (("pass", "pass"), "pass"),
        (("pass", "todo"), "todo"),
        (("todo", "wrong", "pass"), "wrong"),
    ):
        tests = tuple(_result("1.1", state, line) for line, state in enumerate(states))
        assert ExerciseResult(CHAPTER.exercises[0], tests).state == expected


@pytest.mark.parametrize(("num_calls", "shown"), [(None, "pass, 1 of 2 parts yours"), (3, "pass")])
def test_the_engine_with_some_parts_is_not_done(num_calls: int | None, shown: str) -> None:
    rows = (PartRow("a", "1.1", "mine", 2), PartRow("b", "1.2", "engine", num_calls))
    result = ExerciseResult(None, (TestResult(1, "", "t", 1, "pass", "", rows),))
    assert result.is_done == (num_calls is not None)
    assert as_text(states_table(CHAPTER, [result]), 80).endswith(shown)


def test_the_engine_beside_a_wrong_exercise_is_not_done() -> None:
    rows = (PartRow("a", "1.1", "mine", 2),)
    in_engine = TestResult(1, "", "t", 9, "pass", "", rows)
    for state in ("pass", "todo", "wrong"):
        results = by_exercise(CHAPTER, [_result("1.1", "pass", 1), _result("1.3", state, 2), in_engine])
        assert results[-1].state == "pass"
        assert results[-1].is_done == (state != "wrong")
        mark, *_, last = as_text(states_table(CHAPTER, results), 80).splitlines()[-1].partition("your code")
        assert ("✓" in mark) == (state != "wrong")
        assert last.endswith("pass, but 1.3 is wrong" if state == "wrong" else "pass")


def test_only_the_first_wrong_test_is_shown_in_full() -> None:
    results = [
        _result("1.1", "wrong", 2, "second"),
        _result("1.1", "wrong", 1, "first"),
        _result("", "pass", 9),
    ]
    grouped = by_exercise(CHAPTER, results)
    assert [each.exercise for each in grouped] == [CHAPTER.exercises[0], None]
    (text,) = grouped[0].texts
    assert text == "first\n  also wrong test_2"
    more = [TestResult(1, "1.1", f"test_other[{i}]", 3, "wrong", "third") for i in range(20)]
    (text,) = by_exercise(CHAPTER, [*results, *more])[0].texts
    assert text == "first\n  also wrong 21 more, as test_2"


@pytest.mark.parametrize(
    ("blamed", "expected"),
    [
        ([("max_model_len_that_fits",)], "`max_model_len_that_fits` (1.2) does not pass: begin there"),
        # Each function fails a test of its own.
        (
            [("max_model_len_that_fits",), ("num_blocks_that_fit",)],
            "`num_blocks_that_fit`, `max_model_len_that_fits` (1.2) do not pass: begin there",
        ),
        # A test of both functions fails, and so does a test of only the second. So the second is to blame.
        ([("num_blocks_that_fit", "max_model_len_that_fits"), ("num_blocks_that_fit",)], None),
        ([], None),
    ],
)
def test_an_exercise_that_stands_on_a_wrong_one_says_so(
    blamed: list[tuple[str, ...]], expected: str | None
) -> None:
    said = expected or "max_model_len_that_fits"
    needs = tuple(name for name in registry.exercise("1.2").names if name in said)
    results = [TestResult(1, "1.2", f"t{i}", i, "wrong", "x", (), names) for i, names in enumerate(blamed)]
    results.append(TestResult(1, "1.3", "t", 9, "wrong", "heading\n  case", (), (), needs))
    (text,) = by_exercise(CHAPTER, results)[-1].texts
    assert text == ("heading\n  case" if expected is None else f"heading\n  first     {expected}\n  case")


@pytest.mark.parametrize(
    ("passing", "expected"),
    [
        ([], "1.1"),
        (["1.1"], "1.2"),
        (["3.1"], "3.2"),  # a reader who started with chapter 3
        (["1.1", "3.1", "3.2", "3.3", "3.4", "3.5"], "4.1"),
        (["1.1", "2.1"], "2.2"),
    ],
)
def test_next_goes_on_where_the_reader_is(passing: list[str], expected: str) -> None:
    found = [(chapter, _states(chapter, passing)) for chapter in registry.chapters()[:4]]
    exercise = progress.next_exercise(found)
    assert exercise is not None
    assert exercise.number == expected


def test_next_comes_back_to_what_was_left_out() -> None:
    chapters = registry.chapters()[:4]
    numbers = [exercise.number for chapter in chapters for exercise in chapter.exercises]
    found = [(chapter, _states(chapter, [n for n in numbers if n != "2.1"])) for chapter in chapters]
    assert progress.next_exercise(found) == registry.exercise("2.1")
    assert progress.next_exercise([(chapter, _states(chapter, numbers)) for chapter in chapters]) is None


def _states(chapter: Chapter, passing: list[str]) -> list[ExerciseResult]:
    """Results in which only these exercises pass."""
    return by_exercise(
        chapter,
        [
            TestResult(chapter.number, e.number, "test", 1, "pass" if e.number in passing else "todo", "")
            for e in chapter.exercises
        ],
    )


def test_results_survive_json() -> None:
    rows = (PartRow("p", "1.1", "mine", 3, "a remark"),)
    result = TestResult(1, "1.1", "t", 3, "wrong", "a\nb", rows, ("f",), ("g", "h"))
    assert TestResult.from_json(result.to_json()) == result
    assert "\n" not in result.to_json()


def test_progress_is_remembered_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exercises = tmp_path / "ch01_kv_size.py"
    exercises.write_text("one")
    monkeypatch.setattr(folders, "state_folder", lambda: tmp_path / "state")
    monkeypatch.setattr(folders, "exercise_file", lambda chapter: exercises)
    runs = []

    def run_tests(chapters: list[object], look: object) -> list[TestResult]:
        runs.append(chapters)
        return [_result(e.number, "pass" if e.number == "1.1" else "todo", 1) for e in CHAPTER.exercises]

    monkeypatch.setattr(progress, "run_tests", run_tests)
    for expected_runs in (1, 1):
        found = progress.progress([CHAPTER])
        assert [each.state for each in found[0][1]] == ["pass", *["todo"] * 4]
        assert progress.next_exercise(found) == registry.exercise("1.2")
        assert len(runs) == expected_runs
    exercises.write_text("two")
    progress.progress([CHAPTER])
    assert len(runs) == 2

    def checked(
        chapters: object, impl: str, exercise: str | None, *, warm: bool, look: object
    ) -> list[TestResult]:
        return [_result(e.number, "pass", 1) for e in CHAPTER.exercises if exercise in (None, e.number)]

    monkeypatch.setattr(checks, "run_tests", checked)
    checks.check_numbered("1.3", "mine")
    assert [each.state for each in progress.progress([CHAPTER])[0][1]][1:4] == ["todo", "pass", "todo"]
    exercises.write_text("three")
    checks.check_numbered("1.1", "mine")  # the other exercises have no results
    progress.progress([CHAPTER])
    assert len(runs) == 3
    exercises.write_text("four")
    checks.check_numbered("1", "mine")
    assert {each.state for each in progress.progress([CHAPTER])[0][1]} == {"pass"}
    assert len(runs) == 3
    (tmp_path / "state" / "01.results.jsonl").write_text("not json")
    progress.progress([CHAPTER])
    assert len(runs) == 4
    assert json.loads((tmp_path / "state" / "01.files.json").read_text())
