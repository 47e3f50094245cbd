"""The rules for every chapter: its stubs, tests, bug zoo, hints and text."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from minipaged.course import folders, registry, stubs, zoo
from minipaged.course.chapter import Chapter
from minipaged.course.generate import out_of_step
from minipaged.course.hints import NUM_LEVELS, read_hints
from minipaged.course.interview import questions
from minipaged.course.seams import seams
from minipaged.parts import Parts
from tests.course.many_runs import Run, run_many

MOST_LINES = 40
"""Most lines of a message, so that it fits on a screen."""

each_chapter = pytest.mark.parametrize("chapter", registry.chapters(), ids=lambda chapter: chapter.stem)


def _solution(chapter: Chapter) -> str:
    return folders.solution_file(chapter).read_text(encoding="utf-8")


def _write(folder: Path, chapter: Chapter, text: str) -> str:
    folder.mkdir()
    (folder / f"{chapter.stem}.py").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.long(keep=1)
@each_chapter
def test_solving_the_first_exercises_passes_their_tests_and_no_others(
    chapter: Chapter, tmp_path: Path
) -> None:
    """Untouched stubs are all todo. The solutions and the engine's code pass."""
    numbers = [exercise.number for exercise in chapter.exercises]
    solved = [numbers[:count] for count in range(len(numbers) + 1)]
    source = _solution(chapter)
    runs = [Run(_write(tmp_path / str(len(keep)), chapter, stubs.make_stub(source, keep))) for keep in solved]
    runs.append(Run("engine"))
    solved.append(numbers)
    can_run = {seam.exercise for seam in seams(chapter)}
    for keep, results in zip(solved, run_many(chapter, runs), strict=True):
        assert {result.exercise for result in results} == {*numbers, ""}
        for result in results:
            passes = result.exercise in keep if result.exercise else bool(can_run.intersection(keep))
            assert result.state == ("pass" if passes else "todo"), (keep, result)


@pytest.mark.long(keep=1)
@each_chapter
def test_every_bug_is_caught_by_its_exercise(chapter: Chapter, tmp_path: Path) -> None:
    mutants = zoo.mutants(chapter)
    runs = []
    for number, mutant in enumerate(mutants):
        folder = tmp_path / str(number)
        folder.mkdir()
        zoo.write_mutant(chapter, mutant, folder)
        runs.append(Run(str(folder), mutant.exercise, until_wrong=True))
    survived = [
        f"{mutant.exercise} {mutant.name}"
        for mutant, results in zip(mutants, run_many(chapter, runs), strict=True)
        if not any(result.state == "wrong" for result in results)
    ]
    assert survived == []


@pytest.mark.long(keep=1)
@each_chapter
def test_a_function_that_raises_is_shown_with_its_case(chapter: Chapter, tmp_path: Path) -> None:
    """If an exercise's first function raises, the message has the call, the right answer and the line."""
    raises = 'raise IndexError("the list is too short")'
    lines = _solution(chapter).splitlines()
    first = {exercise.names[0] for exercise in chapter.exercises}
    marked = [region for region in stubs.regions(_solution(chapter)) if region.name in first]
    runs = []
    for number, region in enumerate(marked):
        text = [*lines[: region.begin + 1], f"{region.indent}{raises}", *lines[region.begin + 1 :]]
        folder = _write(tmp_path / str(number), chapter, stubs.without_markers("\n".join(text) + "\n"))
        runs.append(Run(folder, region.exercise))
    for region, results in zip(marked, run_many(chapter, runs), strict=True):
        wrong = [result.text for result in results if result.state == "wrong"]
        assert wrong, region.name
        called = region.name.partition(".")[0]
        assert any(_field(text, "case").startswith((f"{called}(", "len() of ")) for text in wrong), wrong
        for text in wrong:
            assert _field(text, "case"), text
            assert _field(text, "expected"), text
            assert _field(text, "raised") == "IndexError: the list is too short", text
            assert _field(text, "at").endswith(f": {raises}"), text
            assert f"{chapter.stem}.py:" in _field(text, "at"), text
            assert max(map(len, text.splitlines())) < 200, text
            assert len(text.splitlines()) <= MOST_LINES, text


def _field(text: str, label: str) -> str:
    """The first line of a message's field; empty if the message lacks it."""
    begin = f"  {label:<10}"
    return next((line.removeprefix(begin) for line in text.splitlines() if line.startswith(begin)), "")


@each_chapter
def test_the_tests_of_an_exercise_are_in_one_file_and_say_what_is_expected(chapter: Chapter) -> None:
    homes: dict[str, set[str]] = {}
    for path in folders.chapter_folder(chapter).glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for number in re.findall(r'mark\.exercise\("([^"]+)"', text):
            homes.setdefault(number, set()).add(path.name)
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        for call in calls:
            words = {keyword.arg for keyword in call.keywords}
            assert "got" not in words or "expected" in words, (path.name, call.lineno)
    assert homes.keys() == {exercise.number for exercise in chapter.exercises}
    for number, names in homes.items():
        (name,) = names
        assert name.startswith(f"test_{number.replace('.', '_')}_")


@each_chapter
def test_the_zoo_has_four_bugs_of_each_exercise(chapter: Chapter) -> None:
    mutants = zoo.mutants(chapter)
    counts = Counter(mutant.exercise for mutant in mutants)
    assert {e.number for e in chapter.exercises if counts[e.number] < 4} == set()
    assert len({mutant.name for mutant in mutants}) == len(mutants)


@each_chapter
def test_the_registry_names_what_the_solution_marks(chapter: Chapter) -> None:
    marked: dict[str, list[str]] = {}
    for region in stubs.regions(_solution(chapter)):
        if region.exercise is not None:
            marked.setdefault(region.exercise, []).append(region.name)
    assert marked == {exercise.number: list(exercise.names) for exercise in chapter.exercises}


@each_chapter
def test_three_hints_for_each_exercise(chapter: Chapter) -> None:
    hints = read_hints(chapter)
    assert set(hints) == {exercise.number for exercise in chapter.exercises}
    for number, levels in hints.items():
        assert len(levels) == NUM_LEVELS, number
        assert all(levels), number


@each_chapter
def test_the_chapter_has_the_sections_that_messages_name(chapter: Chapter) -> None:
    lines = folders.chapter_source(chapter).read_text(encoding="utf-8").splitlines()
    headings = {line.lstrip("#").strip() for line in lines if line.startswith("#")}
    assert {exercise.section for exercise in chapter.exercises} <= headings
    assert lines[0] == f"# {chapter.number}. {chapter.title}"


@each_chapter
def test_every_seam_is_a_part_and_an_exercise(chapter: Chapter) -> None:
    fields = set(Parts.__dataclass_fields__)
    numbers = {exercise.number for exercise in chapter.exercises}
    assert seams(chapter)
    for seam in seams(chapter):
        assert seam.part in fields
        assert seam.exercise in numbers


@each_chapter
def test_the_chapter_asks_interview_questions(chapter: Chapter) -> None:
    found = questions(folders.chapter_source(chapter).read_text(encoding="utf-8"))
    assert len(found) >= 5
    assert all(len(each.answer) > 80 for each in found)


@each_chapter
@pytest.mark.parametrize("kind", ["stubs", "interview", "notebooks"])
def test_generated_files_are_in_step_with_their_sources(chapter: Chapter, kind: str) -> None:
    assert out_of_step(chapter, [kind]) == []
