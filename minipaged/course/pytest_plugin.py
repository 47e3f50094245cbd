"""The pytest hooks of `chapters/conftest.py`: which code is checked, the three states, messages and results.

A test is marked with its exercise, `@pytest.mark.exercise("4.2")`. The chapter's last test is marked
`@pytest.mark.in_engine`. The fixture `code` is the module with the reader's functions. The fixture `resolved`
has the engine parts that are made from it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from hypothesis import Phase

from minipaged.course import registry
from minipaged.course.blame import needed
from minipaged.course.by_hand import run_watched_pytest, runs_by_itself
from minipaged.course.calls import WatchedModule
from minipaged.course.folders import root
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.outcome import (
    chapter_at,
    impl_of,
    number_of,
    place_of,
    result_of,
    watched_by,
)
from minipaged.course.reporter import PROPERTY, Reporter, result_in
from minipaged.course.results import WHOLE_FILE
from minipaged.course.seams import ResolvedParts, resolve, seams
from minipaged.course.time_limit import SECONDS, StoppedError, default_seconds
from minipaged.course.timekeeper import Timekeeper

hypothesis.settings.register_profile(
    "course",  # the same examples each time, and only the smallest failure
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    report_multiple_bugs=False,
    # Without `explain`, which tries each argument of the smallest case again. That would take most of the
    # time of a failing test.
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink),
)

_TIMEKEEPER = pytest.StashKey[Timekeeper]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minipaged", "the course")
    group.addoption(
        "--impl",
        default=os.environ.get("MINIPAGED_IMPL"),
        metavar="mine|solutions|engine|FOLDER",
        help="whose code is checked (default: MINIPAGED_IMPL, or mine; solutions, where no paths are given)",
    )
    group.addoption("--exercise", metavar="N.M", help="only the tests of this exercise")
    group.addoption(
        "--with-needed",
        action="store_true",
        help="with --exercise: also the tests of earlier exercises that its functions call",
    )
    group.addoption("--chapter-report", action="store_true", help="end with a table of the exercises")
    group.addoption(
        "--chapter-results",
        type=Path,
        metavar="FILE",
        help="write each result to this journal (see minipaged/course/journal.py), and continue its run",
    )
    group.addoption(
        "--test-seconds",
        type=float,
        default=default_seconds(),
        metavar="S",
        help=f"a test that takes longer is stopped and wrong; 0 for no limit (default: {SECONDS}, or 60)",
    )


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """If a user started this run by hand, run the tests in a second process (see `by_hand.py`).

    A run without paths was not started by a reader. It runs all tests of the project, with the solutions.
    """
    is_whole_project = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not config.option.impl:  # set now, because pytest-xdist gives its workers paths
        config.option.impl = "solutions" if is_whole_project else "mine"
    return None if is_whole_project or runs_by_itself(config) else run_watched_pytest(config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "exercise(number, *names): the test belongs to this exercise, and is about these of its functions",
    )
    config.addinivalue_line("markers", "in_engine: the chapter's code in the real engine")
    config.stash[_TIMEKEEPER] = Timekeeper(config)
    if not hasattr(config, "workerinput"):  # with pytest-xdist, only in the process that reports
        config.pluginmanager.register(
            Reporter(config, config.stash[_TIMEKEEPER]), "minipaged-course-reporter"
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Load the course's hypothesis settings while a test file is read.

    A property gets the settings that are loaded when its file is read. The project's other tests have their
    own settings.
    """
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile("course")
    try:
        return (yield)
    finally:
        hypothesis.settings.load_profile(before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--exercise")
    ours = [item for item in items if item.path.is_relative_to(root() / "chapters")]
    for item in ours:
        place_of(item)  # fails early if a test has no marker
    out = [item for item in ours if config.stash[_TIMEKEEPER].has_result(item)]
    if wanted is not None:
        kept = {wanted}
        exercise = registry.exercise(wanted)
        if config.getoption("--with-needed"):
            source = implementation(registry.chapter(exercise.chapter), impl_of(config))
            for name in needed(exercise, source):
                earlier = source.chapter.exercise_of(name)
                kept |= set() if earlier is None else {earlier.number}
        out += [item for item in ours if number_of(item) not in kept]
    if out:
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)


# The fixtures of a test


def _implementation(request: pytest.FixtureRequest) -> Implementation:
    return implementation(chapter_at(request.path), impl_of(request.config))


class _NotLoadedError(Exception):
    """The code could not be loaded. The error's cause says why.

    pytest does not handle it well if a fixture raises something other than an `Exception`.
    """


@contextmanager
def _loading() -> Iterator[None]:
    try:
        yield
    except StoppedError as error:
        raise _NotLoadedError from error


@pytest.fixture(scope="module")
def code(request: pytest.FixtureRequest) -> ModuleType:
    """The module with the functions to check. It records the calls to them."""
    source = _implementation(request)
    stopped = request.config.stash[_TIMEKEEPER].stopped
    names = [name for exercise in source.chapter.exercises for name in exercise.names]
    with _loading():
        stopped.refuse(source, [WHOLE_FILE])
        return WatchedModule(source.load(), names, before=lambda name: stopped.refuse(source, [name]))


@pytest.fixture
def resolved(request: pytest.FixtureRequest) -> ResolvedParts:
    """The engine's parts, in which the chapter's written exercises replace the engine's own code."""
    source = _implementation(request)
    stopped = request.config.stash[_TIMEKEEPER].stopped
    with _loading():
        stopped.refuse(source, [WHOLE_FILE])
        in_engine = source.written() & {seam.exercise for seam in seams(source.chapter)}
        stopped.refuse(source, [name for number in in_engine for name in registry.exercise(number).names])
        return resolve([source])


# The result of a test


@pytest.hookimpl(wrapper=True, trylast=True)  # inside pytest's own hooks, so that they clean up
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    timekeeper = item.config.stash[_TIMEKEEPER]
    _, exercise = place_of(item)
    if timekeeper.stopped.has(exercise):
        pytest.skip(f"another test of {number_of(item)} did not finish")
    with timekeeper.watching(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    watched = watched_by(item)
    if watched is not None:
        watched.forget()
    with item.config.stash[_TIMEKEEPER].watching(item):
        return (yield)


def pytest_enter_pdb(config: pytest.Config) -> None:
    config.stash[_TIMEKEEPER].forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped or (report.passed and report.when != "call"):
        return report
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, _NotLoadedError):
        error = error.__cause__
    result = result_of(item, error, report.capstdout)
    item.config.stash[_TIMEKEEPER].stopped.note(result)
    report.user_properties.append((PROPERTY, result.to_json()))
    if result.state != "pass":
        report.longrepr = result.text
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    result = result_in(report)
    if result is None or result.state == "pass":
        return None
    return (result.state, "t" if result.state == "todo" else "W", result.state.upper())


__all__ = [
    "code",
    "pytest_addoption",
    "pytest_cmdline_main",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_enter_pdb",
    "pytest_make_collect_report",
    "pytest_report_teststatus",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "resolved",
]
