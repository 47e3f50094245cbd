"""Running a chapter's tests in a process of their own, so that a file that was just saved is read anew."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter, chapter_of
from minipaged.course.implementation import implementation
from minipaged.course.remembered import digest_of, remember, remembered
from minipaged.course.report_view import CheckReport
from minipaged.course.results import TestResult, by_exercise, read_results
from minipaged.course.warm import Request, run_warm
from minipaged.errors import CourseError

_RAN = (0, 1)  # pytest's exit codes: all passed, some failed


def default_impl() -> str:
    """Whose code is checked unless it is said: `MINIPAGED_IMPL`, or the reader's."""
    return os.environ.get("MINIPAGED_IMPL") or "mine"


def run_tests(
    chapters: Sequence[Chapter], impl: str = "mine", exercise: str | None = None, *, warm: bool = False
) -> list[TestResult]:
    """Run the tests of some chapters.

    Args:
        chapters: at least one.
        impl: as for `implementation`.
        exercise: only the tests of this one, and of those before it that its functions call.
        warm: whether more runs will come, so that a process is kept for them: see `warm.py`.

    Raises:
        CourseError: there is no such code to check, or the tests could not be run.
    """
    for chapter in chapters:
        implementation(chapter, impl)
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) / "results.jsonl"
        arguments = ["-q", "-p", "no:cacheprovider", "--impl", impl, "--chapter-results", str(results)]
        arguments += [] if exercise is None else ["--exercise", exercise, "--with-needed"]
        arguments += [str(folders.chapter_folder(chapter)) for chapter in chapters]
        code, said = _pytest(arguments, Path(temporary) / "output.txt", warm=warm)
        if code not in _RAN or not results.is_file():
            ended = f"was killed by signal {-code}" if code < 0 else "says"
            raise CourseError(f"the tests could not be run; pytest {ended}: {said[-600:] or 'nothing'}")
        return read_results(results)


def _pytest(arguments: Sequence[str], output: Path, *, warm: bool) -> tuple[int, str]:
    """Its exit code, and what it said."""
    root = str(folders.root())
    code = run_warm(Request(arguments, root, str(output), dict(os.environ))) if warm else None
    if code is None:
        with output.open("wb") as stream:
            code = subprocess.run(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
    return code, output.read_text(encoding="utf-8", errors="replace").strip()


def check_numbered(number: str, impl: str | None = None, *, warm: bool = False) -> CheckReport:
    """Check a chapter, `"4"`, or an exercise, `"4.2"`. `warm` is as for `run_tests`.

    Raises:
        CourseError: there is none of that number.
    """
    chosen = default_impl() if impl is None else impl
    exercise = registry.exercise(number).number if "." in number else None
    if exercise is None and not number.isdigit():
        raise CourseError(f"{number!r} is neither a chapter, as in 4, nor an exercise, as in 4.2")
    chapter = registry.chapter(int(number) if exercise is None else chapter_of(number))
    digest = digest_of(chapter)
    results = run_tests([chapter], chosen, exercise, warm=warm)
    if chosen == "mine":
        own = results if exercise is None else [each for each in results if each.exercise == exercise]
        _remember(chapter, own, exercise, digest)
    grouped = by_exercise(chapter, results)
    shown = [each for each in grouped if exercise in (None, each.exercise and each.exercise.number)]
    return CheckReport(chapter, chosen, tuple(shown))


def _remember(chapter: Chapter, results: list[TestResult], exercise: str | None, digest: str) -> None:
    """For `minipaged next` and `progress`: all of a chapter, or one exercise of a chapter that is known."""
    if exercise is None:
        remember(chapter, results, digest)
        return
    known = remembered(chapter)
    if known is not None:
        others = [result for result in known if result.exercise != exercise]
        remember(chapter, [*others, *results], digest)
