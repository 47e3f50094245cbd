"""Many runs of chapters' tests in one process, which imports what is slow once.

`python -m tests.course.many_runs` reads the arguments of a run from each line of stdin, as a JSON list. For
each run it writes a line to stdout: pytest's exit code and its output, as a JSON list.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from minipaged.course import folders
from minipaged.course.chapter import Chapter
from minipaged.course.journal import read_journal
from minipaged.course.results import TestResult


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        impl: whose code is checked.
        exercise: whose tests are run; `None` for all tests of the chapter.
        until_wrong: whether the run ends with the first test that does not pass.
    """

    impl: str
    exercise: str | None = None
    until_wrong: bool = False


def run_many(chapter: Chapter, runs: Sequence[Run]) -> list[list[TestResult]]:
    """The results of each run."""
    return [_results(chapter, run) for run in runs]


def _results(chapter: Chapter, run: Run) -> list[TestResult]:
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) / "results.jsonl"
        arguments = [f"--impl={run.impl}", f"--chapter-results={results}", "--test-seconds=60"]
        arguments += [] if run.exercise is None else [f"--exercise={run.exercise}"]
        arguments += ["--exitfirst"] if run.until_wrong else []
        code, said = run_pytest(chapter, *arguments)
        assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), (run, said[-3000:])
        return list(read_journal(results).results)


def run_pytest(chapter: Chapter, *arguments: str) -> tuple[int, str]:
    """Run the tests of a chapter. Returns pytest's exit code, and what it has printed."""
    process = _process()
    if process.poll() is not None:  # a test has killed it
        _process.cache_clear()
        process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(folders.chapter_folder(chapter)), *arguments]) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, f"the process ended in a run with {arguments}"
    code, said = json.loads(line)
    return code, said


@functools.cache
def _process() -> subprocess.Popen[str]:
    """The process that serves this one, and ends with it."""
    command = [sys.executable, "-m", "tests.course.many_runs"]
    process = subprocess.Popen(
        command, cwd=folders.root(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def main() -> None:
    """Serve the runs on stdin."""
    for line in sys.stdin:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            # With a plugin of ours, because a run from the command line would start another process.
            code = pytest.main(
                ["-p", "no:cacheprovider", "-p", "no:xdist", *json.loads(line)],
                plugins=[sys.modules[__name__]],
            )
        print(json.dumps([code, said.getvalue()]), flush=True)
        gc.freeze()  # each run collects garbage at its end: not in all that is imported by now


if __name__ == "__main__":
    main()
