"""What pytest shows at the end of a session: messages about wrong and unwritten exercises, and the tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from minipaged.course import registry
from minipaged.course.results import TestResult, by_exercise, texts_of

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from minipaged.course.timekeeper import Timekeeper

PROPERTY = "minipaged.course"
"""The user property of a report that holds its result."""


class Reporter:
    """Collects the results of a session, and shows them at its end.

    If the session continues the run of an earlier process, it shows that process's results, too.
    """

    def __init__(self, config: pytest.Config, timekeeper: Timekeeper) -> None:
        self._config = config
        self._timekeeper = timekeeper
        self._results: list[TestResult] = list(timekeeper.before.results)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = result_in(report)
        if result is not None:
            self._results.append(result)
            self._timekeeper.found(result)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        passed = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._timekeeper.before.results and session.exitstatus in passed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED  # a test was stopped, or no tests were left
        self._timekeeper.ends(int(session.exitstatus))

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
            for each, text in texts_of(unfinished):
                colour = {"red": True} if each.state == "wrong" else {"yellow": True}
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


def result_in(report: pytest.TestReport) -> TestResult | None:
    """The result that `pytest_plugin.py` has put into a report."""
    for name, value in getattr(report, "user_properties", ()):
        if name == PROPERTY and isinstance(value, str) and json.loads(value):
            return TestResult.from_json(value)
    return None
