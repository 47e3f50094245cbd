"""The hooks of `chapters/conftest.py`: whose code is checked, three states, messages, results.

A test belongs to an exercise, `@pytest.mark.exercise("4.2")`, or is the chapter's last one,
`@pytest.mark.in_engine`. It takes the module with the reader's functions as the fixture `code`, or
the parts made of them as `resolved`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

import hypothesis
import pytest

from minipaged.course import registry
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.folders import root
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.messages import TookTooLongError, todo_engine_line, todo_line, wrong_text
from minipaged.course.not_yet import NotYet
from minipaged.course.results import TestResult, by_exercise, write_results
from minipaged.course.seams import ResolvedParts, resolve, seams
from minipaged.errors import CourseError

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_PROPERTY = "minipaged.course"

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
    config.addinivalue_line("markers", "exercise(number): the test belongs to this exercise")
    config.addinivalue_line("markers", "in_engine: the chapter's code in the real engine")
    hypothesis.settings.load_profile("course")
    if not hasattr(config, "workerinput"):  # with pytest-xdist: in the process that reports
        config.pluginmanager.register(_Reporter(config), "minipaged-course-reporter")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--exercise")
    ours = [item for item in items if item.path.is_relative_to(root() / "chapters")]
    for item in ours:
        _place_of(item)  # fails early, if a test belongs to nothing
    if wanted is not None:
        registry.exercise(wanted)
        out = [item for item in ours if _number_of(item) != wanted]
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)


# What a test gets


def _impl(config: pytest.Config) -> str:
    return str(config.getoption("--impl"))


def _implementation(request: pytest.FixtureRequest) -> Implementation:
    return implementation(_chapter_of(request.path), _impl(request.config))


@pytest.fixture(scope="module")
def code(request: pytest.FixtureRequest) -> ModuleType:
    """The module with the functions to check."""
    return _implementation(request).load()


@pytest.fixture
def resolved(request: pytest.FixtureRequest) -> ResolvedParts:
    """The engine's parts, made of the chapter's code where that is written."""
    return resolve([_implementation(request)])


# What becomes of it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _time_limit(int(item.config.getoption("--test-seconds") or 0)):
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
    report.user_properties.append((_PROPERTY, result.to_json()))
    if result.state != "pass":
        report.longrepr = result.text
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    result = _result_of(report)
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
    if error is None:
        state, text = "pass", ""
    elif isinstance(error, NotYet):
        state = "todo"
        if exercise is None:
            text = todo_engine_line(chapter, [seam.exercise for seam in seams(chapter)])
        else:
            text = todo_line(exercise, source, error)
    else:
        state, text = "wrong", wrong_text(exercise, source, item.name, error, report.capstdout)
    found = getattr(item, "funcargs", {}).get("resolved")
    return TestResult(
        chapter=chapter.number,
        exercise=exercise.number if exercise is not None else "",
        test=item.name,
        line=item.location[1] or 0,
        state=state,
        text=text,
        parts=tuple(found.table()) if isinstance(found, ResolvedParts) else (),
    )


class _Reporter:
    """Collects the results of a session, and shows them at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: list[TestResult] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = _result_of(report)
        if result is not None:
            self._results.append(result)

    def pytest_sessionfinish(self) -> None:
        path = self._config.getoption("--chapter-results")
        if path is not None:
            write_results(path, self._results)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        from minipaged.course.report_view import as_text, parts_table, states_table

        for chapter in registry.chapters():
            grouped = by_exercise(chapter, self._results)
            if not grouped:
                continue
            unfinished = [each for each in grouped if each.state != "pass"]
            reports = self._config.getoption("--chapter-report")
            if unfinished or reports:
                terminalreporter.section(f"chapter {chapter.number}: {chapter.title}")
            for each in unfinished:
                colour = {"red": True} if each.state == "wrong" else {"yellow": True}
                for text in each.texts:
                    heading, _, rest = text.partition("\n")
                    terminalreporter.write_line(heading, **colour)
                    if rest:
                        terminalreporter.write_line(f"{rest}\n")
            width = terminalreporter._tw.fullwidth
            if reports:
                terminalreporter.write_line(as_text(states_table(chapter, grouped), width))
            rows = [row for each in grouped for test in each.tests for row in test.parts]
            if rows and (reports or unfinished):
                terminalreporter.write_line(as_text(parts_table(rows), width))


def _result_of(report: pytest.TestReport) -> TestResult | None:
    for name, value in getattr(report, "user_properties", ()):
        if name == _PROPERTY and isinstance(value, str) and json.loads(value):
            return TestResult.from_json(value)
    return None


def _chapter_of(path: Path) -> Chapter:
    return registry.chapter(int(path.parent.name))


def _number_of(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("exercise")
    return None if marker is None else marker.args[0]


def _place_of(item: pytest.Item) -> tuple[Chapter, Exercise | None]:
    """The chapter of a test, and its exercise; `None` for the test in the engine.

    Raises:
        UsageError: it has neither marker, or names an exercise that there is not.
    """
    chapter, number = _chapter_of(item.path), _number_of(item)
    if number is None and item.get_closest_marker("in_engine") is None:
        raise pytest.UsageError(f"{item.nodeid}: mark it with its exercise, or as in_engine")
    try:
        return chapter, None if number is None else registry.exercise(number)
    except CourseError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from None


class _time_limit:  # noqa: N801 (reads as the statement that it is)
    """Raise `TookTooLongError` in the main thread after some seconds of computing, so that other work on
    the machine does not matter; nothing where there are no signals."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._works = hasattr(signal, "SIGPROF") and threading.current_thread() is threading.main_thread()
        self._old: object = None

    def __enter__(self) -> None:
        if self._works:
            self._old = signal.signal(signal.SIGPROF, self._stop)
            signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def __exit__(self, *_: object) -> None:
        if self._works:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, self._old)  # pyright: ignore[reportArgumentType]

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"it had not ended after {self._seconds} seconds of computing")


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
