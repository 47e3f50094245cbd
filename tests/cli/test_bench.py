"""`minipaged bench throughput` and `scheduler`, as a user runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from minipaged.bench.throughput.bounds import MachineRates
from minipaged.bench.throughput.contestants import OURS
from minipaged.cli import bench_throughput
from minipaged.cli import main as cli
from tests.bench.throughput.fake_peers import fake_peer


def run(*arguments: str) -> int:
    try:
        return cli.main(["bench", *arguments])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


@pytest.mark.long
def test_throughput_with_a_peer_and_an_absent_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = fake_peer(tmp_path, OURS)
    absent = fake_peer(tmp_path, "vllm", on_load="import no_such_engine")
    monkeypatch.setattr(bench_throughput, "our_engine", lambda threads: ours)
    monkeypatch.setattr(bench_throughput, "peer", lambda name, threads: absent)
    out = tmp_path / "out.json"
    arguments = ("--model", "tiny", "--workload", "W1", "W3", "--against", "vllm", "--repeats", "1")
    assert run("throughput", *arguments, "--threads", "1", "--out", str(out)) == 0
    captured = capsys.readouterr()
    assert "256.0" in captured.out  # 128 tokens in half a second
    assert "W3: 32 requests with one shared prefix" in captured.out
    assert "vllm: absent" in captured.out
    assert "W1, run 1, minipaged" in captured.err
    document = json.loads(out.read_text())
    assert [each["name"] for each in document["workloads"]] == ["W1", "W3"]
    assert all(each["bound"] > 0 for each in document["workloads"])
    assert document["rates"]["read_bytes_per_second"] > 0


def test_it_fails_when_our_own_engine_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = fake_peer(tmp_path, OURS, on_load="sys.exit('no')")
    rates = MachineRates(1e9, (1, 32), (1.0, 2.0), (1.0, 2.0))
    monkeypatch.setattr(bench_throughput, "our_engine", lambda threads: ours)
    monkeypatch.setattr("minipaged.bench.throughput.run.measure_in_process", lambda request: rates)
    assert run("throughput", "--model", "tiny", "--workload", "W1", "--repeats", "1") == 1
    assert "while loading, it ended with exit status 1: no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--against", "hf,torch"), "there are hf, hf-cb, vllm"),
        (("--against", ","), "there are hf, hf-cb, vllm"),
        (("--python", "vllm"), "is not NAME=PYTHON"),
        (("--python", "torch=python"), "one of hf, llama.cpp, vllm"),
        (("--python", "vllm=/no/such/python"), "is not a program that can be run"),
        (("--threads", "100000"), "ask for fewer"),
        (("--workload", "W4"), "invalid choice"),
        (("--stage", "9"), "invalid choice"),
    ],
)
def test_bad_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    assert run("throughput", *arguments) == 2
    assert complaint in capsys.readouterr().err


def test_an_interpreter_of_a_virtual_environment_stays_its_link(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert bench_throughput.interpreter(f"vllm={link}") == ("vllm", str(link))


def test_scheduler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ("--requests", "6", "--num-blocks", "200", "--block-size", "16", "--contexts", "16", "256")
    assert run("scheduler", *arguments, "--steps", "3", "--out", str(out)) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows if len(row) == 6 and row[0].isdecimal()] == ["16", "256"]
    assert [row[:2] for row in rows if row[-1:] and row[-1].endswith("%")] == [["tiny", "32"]]
    document = json.loads(out.read_text())
    assert [each["num_requests"] for each in document["steps"]] == [6, 6]
    assert 0 < document["shares"][0]["share"] < 1


def test_scheduler_refuses_a_pool_that_is_too_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scheduler", "--requests", "4", "--num-blocks", "10", "--contexts", "1000") == 2
    assert "but the pool has 10" in capsys.readouterr().err
