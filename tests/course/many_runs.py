"""Many runs of one chapter's tests in one process: `python -m tests.course.many_runs`.

It reads runs from stdin, one JSON object in each line, and writes their results to stdout in the same form.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from minipaged.course import folders
from minipaged.course.chapter import Chapter
from minipaged.course.journal import read_journal
from minipaged.course.results import TestResult


@dataclass(frozen=True)
class Run:
    """One run: whose code is checked, and with which exercise's tests (or all)."""

    impl: str
    exercise: str | None = None


def run_many(chapter: Chapter, runs: Sequence[Run]) -> list[list[TestResult]]:
    """The results of each run. All runs share one new process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.course.many_runs", str(folders.chapter_folder(chapter))],
        input="\n".join(json.dumps(asdict(run)) for run in runs),
        cwd=folders.root(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == len(runs), done.stdout[-3000:]
    return [[TestResult.from_json(each) for each in json.loads(line)] for line in lines]


def main() -> None:
    """Serve the runs on stdin."""
    chapter_folder = sys.argv[1]
    for line in sys.stdin:
        run = Run(**json.loads(line))
        with tempfile.TemporaryDirectory() as temporary:
            results = Path(temporary) / "results.jsonl"
            arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--impl", run.impl]
            arguments += ["--chapter-results", str(results), "--test-seconds", "60"]
            arguments += [] if run.exercise is None else ["--exercise", run.exercise]
            with contextlib.redirect_stdout(sys.stderr):
                code = pytest.main([*arguments, chapter_folder])
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                raise SystemExit(f"pytest ended with {code!r} for {run}")
            print(json.dumps([result.to_json() for result in read_journal(results).results]), flush=True)


if __name__ == "__main__":
    main()
