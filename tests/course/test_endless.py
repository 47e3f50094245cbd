"""Code that never ends, or that ends its process, is wrong, and costs its time only once."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minipaged.course import checks, folders, time_limit, watched
from minipaged.course.journal import Journal, Record, read_journal
from minipaged.course.results import TestResult, by_exercise
from minipaged.course.time_limit import StoppedError
from minipaged.course.waiting import TestInTime, every_ten_seconds
from tests.course.changed import CHAPTER, SOLVED, with_bodies, write

RIGHT = "return 2 * num_layers * num_kv_heads * head_dim * dtype_bytes"


@pytest.fixture(autouse=True)
def _two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a test: so long that other tests stay below it even on a busy machine."""
    monkeypatch.setenv(time_limit.SECONDS, "2")


TOO_LONG = "it had not ended after 2 seconds"


def _wrong(results: list[TestResult]) -> dict[str, TestResult]:
    """The only wrong test of each exercise, by the exercise's number; empty for the test in the engine."""
    wrong = [result for result in results if result.state == "wrong"]
    by_number = {result.exercise: result for result in wrong}
    assert len(by_number) == len(wrong), "a test was run after its exercise had been stopped"
    return by_number


def test_whatever_it_catches(tmp_path: Path) -> None:
    endless = {
        # In a test with hypothesis, which catches exceptions itself.
        "average_concurrency": """
            while True:
                try:
                    sum(range(100))
                except Exception:
                    pass
            """,
        "bytes_per_token": """
            while True:
                try:
                    sum(range(100))
                except:
                    continue
            """,
        "num_blocks_that_fit": """
            import time
            while True:
                time.sleep(1000)
            """,
        "account": """
            import threading
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
            """,
        "contiguous_snapshot": "sum(iter(int, 1))",  # in C, and it holds the interpreter
    }
    seen: list[TestInTime] = []
    results = checks.run_tests([CHAPTER], write(tmp_path, with_bodies(endless)), look=seen.append)
    wrong = _wrong(results)
    assert wrong.keys() == {"1.1", "1.2", "1.3", "1.4", "1.5", ""}
    for number, function, line in (
        ("1.1", "bytes_per_token", ""),
        ("1.2", "num_blocks_that_fit", "time.sleep(1000)"),
        ("1.3", "average_concurrency", ""),
        ("1.4", "account", "lock.acquire()"),
        ("1.5", "contiguous_snapshot", "sum(iter(int, 1))"),
    ):
        text = wrong[number].text
        assert text.startswith(f"wrong  {number} {function} ("), text
        assert f"  stopped   {TOO_LONG}\n" in text, text
        assert f"{CHAPTER.stem}.py:" in text.partition("  at  ")[2], text
        assert line in text.partition("  at  ")[2], text
    assert "is not called again" in " ".join(wrong[""].text.split())
    assert {"1.1", "1.5"} <= {each.exercise for each in seen}
    assert max(each.seconds for each in seen) > 1
    assert {each.limit for each in seen if each.exercise == "1.1"} == {2.0}


@pytest.mark.long
def test_a_file_that_never_ends_is_read_once(tmp_path: Path) -> None:
    report = checks.check_numbered("1", write(tmp_path, f"{SOLVED}\nwhile True:\n    pass\n"))
    assert {each.state for each in report.results} == {"wrong"}
    first, *others = [text for each in report.results for text in each.texts]
    assert "nothing in it can be checked" in first
    assert TOO_LONG in first
    assert {text.partition("\n")[0] for text in others} == {first.partition("\n")[0]}


@pytest.mark.long
def test_what_calls_it_is_not_called(tmp_path: Path) -> None:
    bodies = {
        "bytes_per_token": "while True: pass",
        "max_concurrency": "return _through_a_helper()",
        "account": "return {}",
    }
    helper = "\n\ndef _through_a_helper():\n    return bytes_per_token(1, 1, 1, 1)\n"
    results = checks.run_tests([CHAPTER], write(tmp_path, with_bodies(bodies) + helper))
    by_number = {each.exercise.number: each for each in by_exercise(CHAPTER, results) if each.exercise}
    assert [number for number, each in by_number.items() if each.state == "wrong"] == ["1.1", "1.3", "1.4"]
    (text,) = by_number["1.3"].texts
    assert "first     `bytes_per_token` (1.1) does not pass: begin there" in text
    assert "stopped   `bytes_per_token` (1.1) did not finish" in text


@pytest.mark.long
def test_what_was_caught_does_not_count_as_an_end(tmp_path: Path) -> None:
    body = f"try:\n    while True: pass\nexcept BaseException:\n    pass\n{RIGHT}"
    results = checks.run_tests([CHAPTER], write(tmp_path, with_bodies({"bytes_per_token": body})), "1.1")
    text = _wrong(results)["1.1"].text
    assert f"stopped   {TOO_LONG}\n" in text
    assert "\n  got " not in text


def test_code_that_ends_its_process_is_wrong(tmp_path: Path) -> None:
    bodies = {
        "bytes_per_token": "import os\nos.kill(os.getpid(), 9)",
        "account": "import os\nos._exit(0)",
    }
    results = checks.run_tests([CHAPTER], write(tmp_path, with_bodies(bodies)))
    wrong = _wrong(results)
    assert wrong.keys() == {"1.1", "1.4", ""}
    if sys.platform != "win32":
        assert "its process was killed by SIGKILL" in wrong["1.1"].text
    assert "it ended its process, with exit code 0" in wrong["1.4"].text


def test_a_thread_that_stays_does_not_hold_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "_SECONDS_TO_END", 0.3)
    body = f"import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n{RIGHT}"
    results = checks.run_tests([CHAPTER], write(tmp_path, with_bodies({"bytes_per_token": body})), "1.1")
    assert {result.state for result in results} == {"pass"}


# pytest, started by hand


def _pytest(folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "chapters/01", "-p", "no:cacheprovider"),
            *(f"--impl={write(folder, text)}", "--exercise", "1.5", *arguments),
        ],
        cwd=folders.root(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hears_interrupts,
    )


def _hears_interrupts() -> None:
    """Undo what a shell does to a command in the background, which would not hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_pytest_goes_on_with_the_others_in_a_new_process(tmp_path: Path) -> None:
    text = with_bodies({"contiguous_snapshot": "sum(iter(int, 1))"})
    process = _pytest(tmp_path, text, "--test-seconds", "1", "--chapter-report")
    out, err = process.communicate()
    assert process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "did not finish; the other tests go on" in err
    assert "stopped   it had not ended after 1 second\n" in out
    assert "✗  1.5" in out


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
def test_an_interrupt_ends_both_processes_of_pytest(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    text = with_bodies({"contiguous_snapshot": f"import os\nos.mkdir({str(flag)!r})\nwhile True: pass"})
    process = _pytest(tmp_path, text, "--test-seconds", "600")
    while not flag.exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in out


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("option", ["--collect-only", "--test-seconds=0", "-n1"])
def test_pytest_runs_by_itself_where_nothing_is_to_be_watched(option: str) -> None:
    code = (
        "import sys, pytest\n"
        "from minipaged.course import by_hand\n"
        "by_hand.run_watched = lambda *_: sys.exit('watched')\n"
        f"sys.exit(pytest.main(['chapters/01', '--exercise=1.1', '--impl=solutions', {option!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folders.root(), capture_output=True, text=True, check=False
    )
    assert "watched" not in done.stderr
    assert done.returncode == 0, done.stdout[-500:]


# The pieces


def test_a_block_is_interrupted_as_often_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_AGAIN", 0.01)
    caught: list[StoppedError] = []

    def endless() -> None:
        with time_limit.time_limit(0.01):
            while len(caught) < 3:
                try:
                    while True:
                        pass
                except StoppedError as error:
                    caught.append(error)

    with pytest.raises(StoppedError, match=r"0\.01 seconds"):
        endless()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with time_limit.time_limit(0):
        pass


def test_what_was_caught_is_raised_at_the_end_of_the_block() -> None:
    def endless() -> None:
        while True:
            pass

    def catches() -> None:
        with time_limit.time_limit(0.01), contextlib.suppress(StoppedError):
            endless()

    with pytest.raises(StoppedError) as raised:
        catches()
    assert raised.traceback[-1].name == "endless"  # with the line that was running


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert read_journal(path) == Record()
    one, two = (TestResult(1, "1.1", f"test_{i}", i, "pass", "") for i in range(2))
    journal = Journal(path)
    journal.begins(one, 60)
    running = read_journal(path).running
    assert running is not None
    assert (running.result, running.seconds) == (one, 60)
    journal.found(one)
    assert read_journal(path) == Record((one,))
    journal.begins(two, 60)
    journal.pauses()
    assert read_journal(path).running is None
    journal.ends(1)
    content = path.read_bytes()
    assert read_journal(path) == Record((one,), None, 1)
    path.write_bytes(content[:-2])  # ends in the middle of a line
    assert read_journal(path) == Record((one,))


def test_a_line_for_every_ten_seconds_of_a_test() -> None:
    stream = io.StringIO()
    look = every_ten_seconds(stream)
    for test, seconds in (("a", 1), ("a", 9), ("a", 10), ("a", 11), ("a", 21), ("b", 3), ("b", 12)):
        look(TestInTime("1.1", f"test_{test}", seconds, 60))
    assert stream.getvalue().split("\n") == [
        "",
        "still running: 1.1 test_a: 10 s, of at most 60",
        "",
        "still running: 1.1 test_a: 21 s, of at most 60",
        "",
        "still running: 1.1 test_b: 12 s, of at most 60",
        "",
    ]
