"""A contestant's process: it answers, is stopped between runs, and may fail in many ways."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import psutil
import pytest

from minipaged.bench.throughput.child import AbsentError, Child, ContestantError, Message
from minipaged.bench.throughput.contestants import Contestant
from tests.bench.throughput.fake_peers import JOB, fake_peer

PATIENCE = 120
RUN: Message = {"prompts": [[1, 2, 3], [4]], "max_tokens": [2, 1]}

OWN_SESSION = (
    "self.helper = subprocess.Popen([sys.executable, '-c', 'input()'], "
    "stdin=subprocess.PIPE, start_new_session=True); self.settings = {'helper': self.helper.pid}"
)


def test_it_answers_through_the_noise(tmp_path: Path) -> None:
    with Child(fake_peer(tmp_path, "good"), JOB, PATIENCE) as child:
        assert child.loaded["settings"] == {"kind": "fake"}
        assert "python" in cast(dict, child.loaded["versions"])
        for _ in range(2):
            answer = child.ask(RUN, PATIENCE)
            assert answer["outputs"] == [[3, 3], [1]]
            assert answer["seconds"] == 0.5
            assert cast(float, answer["peak_rss_mib"]) > 1


def test_it_is_stopped_between_runs_with_all_that_it_started_and_ends_with_it(tmp_path: Path) -> None:
    with Child(fake_peer(tmp_path, "family", on_load=OWN_SESSION), JOB, PATIENCE) as child:
        helper = psutil.Process(cast("dict[str, int]", child.loaded["settings"])["helper"])
        parent = helper.parent()
        assert parent is not None
        for _ in range(2):
            assert _becomes_stopped(parent)
            assert _becomes_stopped(helper)
            child.ask(RUN, PATIENCE)
    assert not parent.is_running()
    assert not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE


def _becomes_stopped(process: psutil.Process) -> bool:
    """Whether all threads of the process get stopped. The signal may take a moment to arrive."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.status() == psutil.STATUS_STOPPED:
            return True
    return False


def test_memory_of_what_it_started_counts(tmp_path: Path) -> None:
    with Child(fake_peer(tmp_path, "alone"), JOB, PATIENCE) as child:
        alone = cast(float, child.ask(RUN, PATIENCE)["peak_rss_mib"])
    with Child(fake_peer(tmp_path, "family", on_load=OWN_SESSION), JOB, PATIENCE) as child:
        assert cast(float, child.ask(RUN, PATIENCE)["peak_rss_mib"]) > alone + 1


@pytest.mark.parametrize("when", ["on_load", "on_run"])
def test_a_crash_is_told_with_its_last_words(tmp_path: Path, when: str) -> None:
    bad = fake_peer(tmp_path, "bad", **{when: "raise RuntimeError('out of luck')"})
    with (
        pytest.raises(ContestantError, match="exit status 1: RuntimeError: out of luck") as caught,
        Child(bad, JOB, PATIENCE) as child,
    ):
        child.ask(RUN, PATIENCE)
    assert "Traceback" in caught.value.log


def test_a_killed_one_is_told_by_its_signal(tmp_path: Path) -> None:
    bad = fake_peer(tmp_path, "bad", on_run="os.kill(os.getpid(), 9)")
    with Child(bad, JOB, PATIENCE) as child, pytest.raises(ContestantError, match="signal 9"):
        child.ask(RUN, PATIENCE)


def test_one_that_hangs_is_given_up(tmp_path: Path) -> None:
    bad = fake_peer(tmp_path, "bad", on_run="time.sleep(1000)")
    with Child(bad, JOB, PATIENCE) as child, pytest.raises(ContestantError, match=r"within 0\.2 seconds"):
        child.ask(RUN, 0.2)


def test_what_is_not_installed_is_absent(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="no_such_engine"):
        Child(fake_peer(tmp_path, "absent", on_load="import no_such_engine"), JOB, PATIENCE)


def test_an_interpreter_that_is_not_there_is_absent(tmp_path: Path) -> None:
    missing = Contestant("missing", tmp_path / "script.py", str(tmp_path / "python"))
    with pytest.raises(AbsentError, match="cannot be run"):
        Child(missing, JOB, PATIENCE)


def test_an_answer_that_is_none(tmp_path: Path) -> None:
    script = tmp_path / "strange.py"
    script.write_text("input(); print('@bench [1]', flush=True); input()")
    with pytest.raises(ContestantError, match="not a JSON object"):
        Child(Contestant("strange", script, fake_peer(tmp_path, "x").python), JOB, PATIENCE)
