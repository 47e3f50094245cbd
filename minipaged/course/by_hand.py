"""Runs the tests in a second process when a user starts `pytest chapters/04` by hand.

The first process watches the second one. So a run always finishes, even if the checked code loops for ever.
See `watched.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from _pytest.capture import CaptureManager

from minipaged.course.results import TestResult
from minipaged.course.time_limit import is_debugged
from minipaged.course.waiting import every_ten_seconds
from minipaged.course.watched import Spawned, run_watched

_WITHOUT_TESTS = (
    "help",
    "version",
    "markers",
    "collectonly",
    "showfixtures",
    "show_fixtures_per_test",
    "cacheshow",
)
"""Options with which pytest only shows something and runs no tests."""


def runs_by_itself(config: pytest.Config) -> bool:
    """Whether this process of pytest runs the tests itself, without a second process.

    It does if another process watches it already, if a debugger is attached, or if it runs no tests at
    all.
    """
    option = config.option
    return bool(
        config.getoption("--chapter-results") is not None
        or not config.getoption("--test-seconds")
        or is_debugged()
        or option.usepdb
        or option.trace
        or config.invocation_params.plugins  # a program called `pytest.main`, and cannot be restarted
        or hasattr(config, "workerinput")
        or getattr(option, "numprocesses", None)  # pytest-xdist watches its workers itself
        or getattr(option, "dist", "no") != "no"
        or any(getattr(option, name, False) for name in (*_WITHOUT_TESTS, "looponfail"))
    )


def run_watched_pytest(config: pytest.Config) -> int:
    """Run pytest again with the same arguments, and watch it.

    Returns:
        Its exit code.
    """
    capture = config.pluginmanager.getplugin("capturemanager")
    if isinstance(capture, CaptureManager):
        capture.suspend_global_capture(in_=True)  # a debugger in the other process reads this process's stdin
    look, impl = every_ten_seconds(sys.stderr), str(config.getoption("--impl"))
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.jsonl"
        command = [sys.executable, "-m", "pytest", *config.invocation_params.args]
        command += ["--chapter-results", str(journal)]
        try:
            return run_watched(
                lambda: Spawned(command, sums_up=True, cwd=config.invocation_params.dir),
                journal,
                impl,
                look,
                _say_what_ended,
            )
        except KeyboardInterrupt:
            return pytest.ExitCode.INTERRUPTED


def _say_what_ended(result: TestResult) -> None:
    number = result.exercise or f"chapter {result.chapter}"
    print(f"\n{number} {result.test} did not finish; the other tests go on", file=sys.stderr)
