"""`--trace FILE`, as a user gives it to each command that has it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from minipaged.cli import main as cli
from minipaged.cli.tracing import name_of_stage
from minipaged.trace.trace import Trace
from tests.oracle import make_model


def run(*arguments: str) -> int:
    try:
        return cli.main(list(arguments))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


def checked(path: Path) -> Trace:
    trace = Trace.read(path)
    trace.check()
    assert trace.note is None
    return trace


def test_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl.gz"
    assert run("demo", "--plain", "--trace", str(path)) == 0
    assert f"The trace is in {path}" in capsys.readouterr().err
    trace = checked(path)
    final = trace.final()
    assert trace.title == "demo"
    assert final.num_preemptions > 0
    assert final.num_hit_tokens > 0
    assert [request.status for request in final.requests] == ["finished"] * 8


def test_generate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    arguments = (
        "--max-tokens",
        "5",
        "--num-blocks",
        "65",
        "--n",
        "2",
        "--temperature",
        "1",
        "--trace",
        str(path),
    )
    assert run("generate", "Once upon a time", *arguments) == 0
    assert len(checked(path).final().requests[0].seq_ids) == 2
    assert run("generate", "Once upon a time", *arguments, "--no-trace-texts") == 0
    assert "Once" not in path.read_text()
    checked(path)


def test_chat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\nHow are you?\n"))
    assert run("chat", "--model", "tiny", "--max-tokens", "4", "--trace", str(path)) == 0
    assert [request.request_id for request in checked(path).final().requests] == ["turn-0", "turn-1"]


def test_ladder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = make_model(tmp_path / "nano", head_dim=16)
    path = tmp_path / "ladder.jsonl.gz"
    assert (
        run("ladder", "--model", str(folder), "--requests", "3", "--stages", "1,2,8", "--trace", str(path))
        == 0
    )
    stages = {checked(each).engine.stage for each in tmp_path.glob("ladder-*.jsonl.gz")}
    assert stages == {1, 2, 8}


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("generate", "Hi", "--trace", str(tmp_path / "nowhere" / "run.jsonl")) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_name_of_a_stage_s_trace() -> None:
    path = Path("runs/run.jsonl.gz")
    assert name_of_stage(path, "like ShareGPT", 3) == Path("runs/run-like-sharegpt-stage3.jsonl.gz")
    assert name_of_stage(Path("run"), "a", 3) == Path("run-a-stage3")
