"""Run a chapter's tests in a separate process, so that a file that was just saved is read again."""

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
from minipaged.course.journal import read_journal
from minipaged.course.remembered import digest_of, not_remembered, remember, remembered
from minipaged.course.report_view import CheckReport
from minipaged.course.results import TestResult, by_exercise
from minipaged.course.waiting import Look
from minipaged.course.warm import Request, WarmProcessDiedError, begin_warm
from minipaged.course.watched import Process, Spawned, run_watched
from minipaged.errors import CourseError

_RAN = (0, 1)  # pytest's exit codes if all tests passed, and if some failed


def default_impl() -> str:
    """Whose code is checked by default: the value of `MINIPAGED_IMPL`, or the reader's."""
    return os.environ.get("MINIPAGED_IMPL") or "mine"


def run_tests(
    chapters: Sequence[Chapter],
    impl: str = "mine",
    exercise: str | None = None,
    *,
    warm: bool = False,
    look: Look | None = None,
) -> list[TestResult]:
    """Run the tests of some chapters.

    Args:
        chapters: the chapters; at least one.
        impl: whose code is checked, as for `implementation`.
        exercise: the number of one exercise. Only its tests run, and the tests of the earlier exercises that
            its functions call.
        warm: whether to keep a process for later runs (see `warm.py`).
        look: called during the run with the test that is running.

    Raises:
        CourseError: the code does not exist, or the tests could not be run.
    """
    for chapter in chapters:
        implementation(chapter, impl)
    arguments = ["-q", "-p", "no:cacheprovider", "--impl", impl]
    arguments += [] if exercise is None else ["--exercise", exercise, "--with-needed"]
    arguments += [str(folders.chapter_folder(chapter)) for chapter in chapters]
    with tempfile.TemporaryDirectory() as temporary:
        run = _Run(arguments, Path(temporary))
        try:
            code = run_watched(run.begin_warm if warm else run.spawn, run.journal, impl, look)
        except WarmProcessDiedError:
            run = _Run(arguments, Path(temporary, "again"))
            code = run_watched(run.spawn, run.journal, impl, look)
        if code not in _RAN or not run.journal.is_file():
            ended = f"was killed by signal {-code}" if code < 0 else "says"
            said = run.output.read_text(encoding="utf-8", errors="replace").strip()
            raise CourseError(f"the tests could not be run; pytest {ended}: {said[-600:] or 'nothing'}")
        return list(read_journal(run.journal).results)


class _Run:
    """How pytest is called, and where it writes its results."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.journal = folder / "journal.jsonl"
        self.output = folder / "output.txt"
        self._arguments = [*arguments, "--chapter-results", str(self.journal)]
        self._root = str(folders.root())

    def begin_warm(self) -> Process:
        """Run pytest in a process that has imported the slow modules already, if the system allows it."""
        request = Request(self._arguments, self._root, str(self.output), dict(os.environ))
        return begin_warm(request) or self.spawn()

    def spawn(self) -> Process:
        """Run pytest in a new process."""
        with self.output.open("wb") as stream:
            return Spawned(
                [sys.executable, "-m", "pytest", *self._arguments],
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )


def check_numbered(
    number: str, impl: str | None = None, *, warm: bool = False, look: Look | None = None
) -> CheckReport:
    """Check a chapter, such as `"4"`, or an exercise, such as `"4.2"`.

    `warm` and `look` are as in `run_tests`.

    Raises:
        CourseError: there is no chapter or exercise of that number.
    """
    chosen = default_impl() if impl is None else impl
    exercise = registry.exercise(number).number if "." in number else None
    if exercise is None and not number.isdigit():
        raise CourseError(f"{number!r} is neither a chapter, as in 4, nor an exercise, as in 4.2")
    chapter = registry.chapter(int(number) if exercise is None else chapter_of(number))
    digest = digest_of(chapter)
    results = run_tests([chapter], chosen, exercise, warm=warm, look=look)
    remark = ""
    if chosen == "mine":
        own = results if exercise is None else [each for each in results if each.exercise == exercise]
        try:
            _remember(chapter, own, exercise, digest)
        except OSError as error:
            remark = not_remembered(error)
    grouped = by_exercise(chapter, results)
    shown = [each for each in grouped if exercise in (None, each.exercise and each.exercise.number)]
    return CheckReport(chapter, chosen, tuple(shown), remark)


def _remember(chapter: Chapter, results: list[TestResult], exercise: str | None, digest: str) -> None:
    """Save results for `minipaged next` and `minipaged progress`.

    The results of one exercise are saved only if the chapter's other results are saved already, and are still
    valid.
    """
    if exercise is None:
        remember(chapter, results, digest)
        return
    known = remembered(chapter)
    if known is not None:
        others = [result for result in known if result.exercise != exercise]
        remember(chapter, [*others, *results], digest)
