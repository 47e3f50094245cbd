"""Turns pytest's items and errors into TestResults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from minipaged.course import registry
from minipaged.course.blame import innermost, is_of_the_file, needed, to_blame
from minipaged.course.calls import WatchedModule
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.messages import todo_engine_line, todo_line, wrong_text
from minipaged.course.not_yet import NotYet
from minipaged.course.results import WHOLE_FILE, TestResult
from minipaged.course.seams import ResolvedParts, seams
from minipaged.course.time_limit import StoppedError
from minipaged.errors import CourseError


def chapter_at(path: Path) -> Chapter:
    """The chapter of a test file."""
    return registry.chapter(int(path.parent.name))


def number_of(item: pytest.Item) -> str | None:
    """The exercise that a test is marked with; `None` for the test in the engine."""
    marker = item.get_closest_marker("exercise")
    return None if marker is None else marker.args[0]


def place_of(item: pytest.Item) -> tuple[Chapter, Exercise | None]:
    """The chapter and the exercise of a test. For the test in the engine, the exercise is `None`.

    Raises:
        UsageError: the test has neither marker, or names an exercise or a function that does not exist.
    """
    chapter, number = chapter_at(item.path), number_of(item)
    if number is None and item.get_closest_marker("in_engine") is None:
        raise pytest.UsageError(f"{item.nodeid}: mark it with its exercise, or as in_engine")
    try:
        exercise = None if number is None else registry.exercise(number)
    except CourseError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from None
    others = set(_about(item)) - set(exercise.names if exercise else ())
    if others:
        raise pytest.UsageError(f"{item.nodeid}: {number} has no {', '.join(sorted(others))}")
    return chapter, exercise


def impl_of(config: pytest.Config) -> str:
    """Whose code is checked: the value of `--impl`."""
    return str(config.getoption("--impl"))


def watched_by(item: pytest.Item) -> WatchedModule | None:
    """The module that the test checks; `None` if it was not loaded."""
    code = getattr(item, "funcargs", {}).get("code")
    return code if isinstance(code, WatchedModule) else None


def if_it_never_ends(item: pytest.Item) -> TestResult:
    """The result that a test gets if it never ends. Its text is still empty."""
    chapter, exercise = place_of(item)
    names = () if exercise is None else exercise.names
    return TestResult(
        chapter=chapter.number,
        exercise="" if exercise is None else exercise.number,
        test=item.name,
        line=item.location[1] or 0,
        state="wrong",
        text="",
        blamed=names,
        stopped=names,
    )


def result_of(item: pytest.Item, error: BaseException | None, printed: str = "") -> TestResult:
    """The result of a test.

    Args:
        item: the test.
        error: why the test failed; `None` if it passed.
        printed: what the checked code printed.
    """
    error = _inside_a_kernel(error)
    chapter, exercise = place_of(item)
    source = implementation(chapter, impl_of(item.config))
    watched = watched_by(item)
    call = None if watched is None else watched.last_call
    found = getattr(item, "funcargs", {}).get("resolved")
    blamed: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    if exercise is not None and error is not None:
        blamed = to_blame(exercise, source, error, call, _about(item))
        needs = needed(exercise, source, () if watched is None else watched.called)
    elif isinstance(found, ResolvedParts):
        needs = tuple(name for number in found.written for name in registry.exercise(number).names)
    result = replace(
        if_it_never_ends(item),
        state="pass" if error is None else "wrong",
        parts=tuple(found.table()) if isinstance(found, ResolvedParts) else (),
        blamed=blamed,
        needs=needs,
        stopped=_stopped(source, error, blamed),
        whole_file=error is not None and is_of_the_file(source, error),
    )
    if error is None:
        return result
    if isinstance(error, NotYet):
        return replace(result, state="todo", text=_todo(chapter, exercise, source, error, blamed))
    text = wrong_text(exercise, source, item.name, error, blamed=blamed, printed=printed, call=call)
    return replace(result, text=text)


def _inside_a_kernel(error: BaseException | None) -> BaseException | None:
    """Unwrap an error that a kernel raised and that Triton's interpreter has wrapped in its own error."""
    while type(error).__name__ == "InterpreterError" and error is not None and error.__cause__ is not None:
        error = error.__cause__
    return error


def _todo(
    chapter: Chapter,
    exercise: Exercise | None,
    source: Implementation,
    error: NotYet,
    blamed: tuple[str, ...],
) -> str:
    if exercise is None:
        return todo_engine_line(chapter, [seam.exercise for seam in seams(chapter)])
    return todo_line(exercise, source, error, blamed)


def _stopped(source: Implementation, error: BaseException | None, blamed: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(error, StoppedError):
        return ()
    if is_of_the_file(source, error):
        return (WHOLE_FILE,)
    name = innermost(source, error)
    return (name,) if name else blamed


def _about(item: pytest.Item) -> tuple[str, ...]:
    """The functions that the test's marker names."""
    marker = item.get_closest_marker("exercise")
    return () if marker is None else marker.args[1:]
