"""Checks that share a warm process: edits take effect, and code that crashes or never ends does no harm."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minipaged.course import folders, registry, stubs, warm
from minipaged.course.checks import run_tests
from minipaged.course.results import TestResult
from minipaged.course.time_limit import SECONDS

CHAPTER = registry.chapter(1)
SOURCE = folders.solution_file(CHAPTER).read_text(encoding="utf-8")
LINE = "return numbers_per_layer *"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such process")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[warm.WarmProcess]]:
    """The list that will hold this test's warm process, which imports little."""
    shared: list[warm.WarmProcess] = []
    monkeypatch.setattr(warm, "SLOW_IMPORTS", ("pytest",))
    monkeypatch.setattr(warm, "_shared", lambda: shared)
    yield shared
    for each in shared:
        each.close()


def _check(folder: Path, text: str) -> list[TestResult]:
    (folder / f"{CHAPTER.stem}.py").write_text(text, encoding="utf-8")
    return run_tests([CHAPTER], str(folder), "1.1", warm=True)


def _states(results: list[TestResult]) -> set[str]:
    return {result.state for result in results}


def test_an_edit_is_seen_and_the_process_stays(tmp_path: Path, process: list[warm.WarmProcess]) -> None:
    solved = stubs.without_markers(SOURCE)
    for text, state in (
        (stubs.make_stub(SOURCE), "todo"),
        (solved, "pass"),
        (solved.replace(LINE, f"{LINE} 3.5 *"), "wrong"),
        (solved, "pass"),
    ):
        before = list(process)
        assert state in _states(_check(tmp_path, text))
        assert before in ([], process)


def _dying_once(folder: Path, dies: str) -> str:
    """A solution whose process dies when it is called for the first time."""
    flag = folder / "flag"
    flag.touch()
    guard = f"""import os
    from pathlib import Path
    if Path({str(flag)!r}).exists():
        os.unlink({str(flag)!r})
        {dies}"""
    return stubs.without_markers(SOURCE).replace(LINE, f"{guard}\n    {LINE}")


def test_after_a_crash_the_next_check_runs(tmp_path: Path, process: list[warm.WarmProcess]) -> None:
    text = _dying_once(tmp_path, "os.kill(os.getpid(), 9)")
    (result,) = _check(tmp_path, text)
    assert "its process was killed by SIGKILL" in result.text
    (first,) = process
    assert _states(_check(tmp_path, text)) == {"pass"}
    assert process == [first]


@pytest.mark.long
def test_code_that_never_ends_is_wrong_and_the_process_stays(
    tmp_path: Path, process: list[warm.WarmProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = stubs.without_markers(SOURCE)
    monkeypatch.setenv(SECONDS, "1")
    for endless in ("while True: pass", "sum(iter(int, 1))"):  # the second cannot be interrupted
        (result,) = _check(tmp_path, solved.replace(LINE, f"{endless}\n    {LINE}"))
        assert "stopped   it had not ended after 1 second\n" in result.text
    (first,) = process
    monkeypatch.delenv(SECONDS)
    assert _states(_check(tmp_path, solved)) == {"pass"}
    assert process == [first]


@pytest.mark.long
def test_if_the_process_dies_there_is_another(tmp_path: Path, process: list[warm.WarmProcess]) -> None:
    text = _dying_once(tmp_path, "os.kill(os.getppid(), 9)")
    assert _states(_check(tmp_path, text)) == {"pass"}  # this check runs in its own process
    (first,) = process
    assert _states(_check(tmp_path, text)) == {"pass"}
    assert process != [first]


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Python's own handler: a shell starts a command in the background with SIGINT ignored."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.long
@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_ends_the_run_and_the_process_stays(
    tmp_path: Path, process: list[warm.WarmProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = stubs.without_markers(SOURCE)
    assert _states(_check(tmp_path, solved)) == {"pass"}
    first, child = process[0], tmp_path / "child"
    endless = f"""import os
    from pathlib import Path
    Path({str(child)!r}).write_text(str(os.getpid()))
    os.kill({os.getpid()}, {int(signal.SIGINT)})  # as Jupyter's button does
    while True:
        pass"""
    with pytest.raises(KeyboardInterrupt):
        _check(tmp_path, solved.replace(LINE, f"{endless}\n    {LINE}"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)
    assert _states(_check(tmp_path, solved)) == {"pass"}
    assert process == [first]


def test_without_such_a_process_it_runs_all_the_same(
    tmp_path: Path, process: list[warm.WarmProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm.sys, "platform", "darwin")
    assert _states(_check(tmp_path, stubs.without_markers(SOURCE))) == {"pass"}
    assert process == []
