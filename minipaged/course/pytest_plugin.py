"""The hooks of `chapters/conftest.py`: whose code is checked, three states, messages, results.

A test belongs to an exercise, `@pytest.mark.exercise("4.2")`, or is the chapter's last one,
`@pytest.mark.in_engine`. It takes the module with the reader's functions as the fixture `code`, or
the parts made of them as `resolved`.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

from minipaged.course import registry
from minipaged.course.blame import needed, to_blame
from minipaged.course.calls import WatchedModule
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.folders import root
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.messages import todo_engine_line, todo_line, wrong_text
from minipaged.course.not_yet import NotYet
from minipaged.course.reporter import PROPERTY, Reporter, result_of
from minipaged.course.results import TestResult
from minipaged.course.seams import ResolvedParts, resolve, seams
from minipaged.course.time_limit import time_limit
from minipaged.errors import CourseError

hypothesis.settings.register_profile(
    "course",  # the same examples each time, and one failure: the smallest
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    report_multiple_bugs=False,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minipaged", "the course")
    group.addoption(
        "--impl",
        default=os.environ.get("MINIPAGED_IMPL") or "mine",
        metavar="mine|solutions|engine|FOLDER",
        help="whose code is checked (default: MINIPAGED_IMPL, or mine)",
    )
    group.addoption("--exercise", metavar="N.M", help="only the tests of this exercise")
    group.addoption(
        "--with-needed",
        action="store_true",
        help="with --exercise: also the tests of earlier ones that its functions call",
    )
    group.addoption("--chapter-report", action="store_true", help="end with a table of the exercises")
    group.addoption("--chapter-results", type=Path, metavar="FILE", help="write the results, as JSON lines")
    group.addoption(
        "--test-seconds",
        type=int,
        default=60,
        metavar="S",
        help="a test that takes longer is wrong (default 60)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "exercise(number, *names): the test belongs to this exercise, and is about these of its functions",
    )
    config.addinivalue_line("markers", "in_engine: the chapter's code in the real engine")
    hypothesis.settings.load_profile("course")
    if not hasattr(config, "workerinput"):  # with pytest-xdist: in the process that reports
        config.pluginmanager.register(Reporter(config), "minipaged-course-reporter")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--exercise")
    ours = [item for item in items if item.path.is_relative_to(root() / "chapters")]
    for item in ours:
        _place_of(item)  # fails early, if a test belongs to nothing
    if wanted is not None:
        kept = {wanted}
        exercise = registry.exercise(wanted)
        if config.getoption("--with-needed"):
            source = implementation(registry.chapter(exercise.chapter), _impl(config))
            for name in needed(exercise, source):
                earlier = source.chapter.exercise_of(name)
                kept |= set() if earlier is None else {earlier.number}
        out = [item for item in ours if _number_of(item) not in kept]
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)


# What a test gets


def _impl(config: pytest.Config) -> str:
    return str(config.getoption("--impl"))


def _implementation(request: pytest.FixtureRequest) -> Implementation:
    return implementation(_chapter_of(request.path), _impl(request.config))


@pytest.fixture(scope="module")
def code(request: pytest.FixtureRequest) -> ModuleType:
    """The module with the functions to check; it notes what it is asked."""
    source = _implementation(request)
    names = [name for exercise in source.chapter.exercises for name in exercise.names]
    return WatchedModule(source.load(), names)


@pytest.fixture
def resolved(request: pytest.FixtureRequest) -> ResolvedParts:
    """The engine's parts, made of the chapter's code where that is written."""
    return resolve([_implementation(request)])


# What becomes of it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    watched = _watched_by(item)
    if watched is not None:
        watched.forget()
    with time_limit(int(item.config.getoption("--test-seconds") or 0)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped or (report.passed and report.when != "call"):
        return report
    chapter, exercise = _place_of(item)
    result = _result(item, chapter, exercise, None if call.excinfo is None else call.excinfo.value, report)
    report.user_properties.append((PROPERTY, result.to_json()))
    if result.state != "pass":
        report.longrepr = result.text
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    result = result_of(report)
    if result is None or result.state == "pass":
        return None
    return (result.state, "t" if result.state == "todo" else "W", result.state.upper())


def _result(
    item: pytest.Item,
    chapter: Chapter,
    exercise: Exercise | None,
    error: BaseException | None,
    report: pytest.TestReport,
) -> TestResult:
    source = implementation(chapter, _impl(item.config))
    watched = _watched_by(item)
    call = None if watched is None else watched.last_call
    found = getattr(item, "funcargs", {}).get("resolved")
    blamed: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    if exercise is not None and error is not None:
        blamed = to_blame(exercise, source, error, call, _about(item))
        needs = needed(exercise, source, () if watched is None else watched.called)
    elif isinstance(found, ResolvedParts):
        needs = tuple(name for number in found.written for name in registry.exercise(number).names)
    if error is None:
        state, text = "pass", ""
    elif isinstance(error, NotYet):
        state = "todo"
        if exercise is None:
            text = todo_engine_line(chapter, [seam.exercise for seam in seams(chapter)])
        else:
            text = todo_line(exercise, source, error, blamed)
    else:
        state = "wrong"
        text = wrong_text(
            exercise, source, item.name, error, blamed=blamed, printed=report.capstdout, call=call
        )
    return TestResult(
        chapter=chapter.number,
        exercise=exercise.number if exercise is not None else "",
        test=item.name,
        line=item.location[1] or 0,
        state=state,
        text=text,
        parts=tuple(found.table()) if isinstance(found, ResolvedParts) else (),
        blamed=blamed,
        needs=needs,
    )


def _watched_by(item: pytest.Item) -> WatchedModule | None:
    code = getattr(item, "funcargs", {}).get("code")
    return code if isinstance(code, WatchedModule) else None


def _chapter_of(path: Path) -> Chapter:
    return registry.chapter(int(path.parent.name))


def _number_of(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("exercise")
    return None if marker is None else marker.args[0]


def _about(item: pytest.Item) -> tuple[str, ...]:
    """The functions that the test's marker names."""
    marker = item.get_closest_marker("exercise")
    return () if marker is None else marker.args[1:]


def _place_of(item: pytest.Item) -> tuple[Chapter, Exercise | None]:
    """The chapter of a test, and its exercise; `None` for the test in the engine.

    Raises:
        UsageError: it has neither marker, or names an exercise or a function that there is not.
    """
    chapter, number = _chapter_of(item.path), _number_of(item)
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


__all__ = [
    "code",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_report_teststatus",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "resolved",
]
