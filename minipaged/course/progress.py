"""Progress: the state of every exercise, found by the tests, and remembered until a file changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.checks import run_tests
from minipaged.course.results import ExerciseResult, TestResult, by_exercise, read_results, write_results


def progress(
    chapters: Sequence[Chapter] | None = None, before: Callable[[Sequence[Chapter]], None] | None = None
) -> list[tuple[Chapter, list[ExerciseResult]]]:
    """The reader's results in these chapters, or in all.

    Args:
        chapters: which; all, if not given.
        before: called with the chapters whose tests must be run, before that is done.

    Raises:
        CourseError: the tests could not be run.
    """
    chosen = registry.chapters() if chapters is None else tuple(chapters)
    known = {chapter.number: _remembered(chapter) for chapter in chosen}
    changed = [chapter for chapter in chosen if known[chapter.number] is None]
    if changed:
        if before is not None:
            before(changed)
        found = run_tests(changed)
        for chapter in changed:
            results = [result for result in found if result.chapter == chapter.number]
            remember(chapter, results)
            known[chapter.number] = results
    return [(chapter, by_exercise(chapter, known[chapter.number] or [])) for chapter in chosen]


def next_exercise(found: Sequence[tuple[Chapter, list[ExerciseResult]]]) -> Exercise | None:
    """The first exercise that does not pass; stretch exercises only when there is nothing else."""
    open_ones = [
        each.exercise
        for _, results in found
        for each in results
        if each.exercise is not None and each.state != "pass"
    ]
    required = [exercise for exercise in open_ones if not exercise.stretch]
    return (required or open_ones or [None])[0]


def remember(chapter: Chapter, results: Sequence[TestResult]) -> None:
    """Keep the results of all tests of a chapter, with what they depend on."""
    folder = folders.state_folder()
    folder.mkdir(exist_ok=True)
    write_results(folder / f"{chapter.folder}.results.jsonl", results)
    (folder / f"{chapter.folder}.files.json").write_text(json.dumps(_digest(chapter)), encoding="utf-8")


def _remembered(chapter: Chapter) -> list[TestResult] | None:
    folder = folders.state_folder()
    try:
        digest = json.loads((folder / f"{chapter.folder}.files.json").read_text(encoding="utf-8"))
        if digest != _digest(chapter):
            return None
        return read_results(folder / f"{chapter.folder}.results.jsonl")
    except (OSError, ValueError, TypeError, KeyError):
        return None  # never checked, or written by another version


def _digest(chapter: Chapter) -> str:
    """Changes with the reader's file, and with the chapter's tests."""
    files = [folders.exercise_file(chapter), *sorted(folders.chapter_folder(chapter).glob("test_*.py"))]
    content = hashlib.sha256()
    for path in files:
        content.update(path.read_bytes() if path.is_file() else b"")
        content.update(b"\0")
    return content.hexdigest()
