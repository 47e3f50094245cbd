"""`minipaged simulate` and its subcommands, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minipaged.cli.main import main


def simulate(*arguments: str) -> int:
    try:
        return main(["simulate", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


def test_a_run_shows_its_numbers_and_what_they_rest_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--requests", "8", "--kv-memory", "12GiB") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "OPT-13B on 1 × A100-40GB; 983 blocks of 16 tokens. Simulated here." in shown
    assert "1,555 GB/s and 312 TFLOPS" in shown
    assert "requests answered 8" in shown


def test_json_and_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    load = ("--requests", "20", "--lengths", "alpaca", "--samples", "2")
    assert simulate(*load, "--json", "--plot", str(picture)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["lengths"] == "alpaca"
    assert document["result"]["num_requests"] == 20
    assert document["result"]["sharing_saving"] > 0
    assert "<svg" in picture.read_text()


def test_requests_from_a_trace_and_from_conversations(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival": 0, "prompt_tokens": 9, "output_tokens": 2}\n' * 3)
    assert simulate("--arrivals", str(trace), "--json") == 0
    assert json.loads(capsys.readouterr().out)["result"]["prompt_tokens"] == 27
    turns = [
        {"from": "human", "value": "Tell me a story."},
        {"from": "gpt", "value": "There was a cat."},
    ]
    long = [{"from": "human", "value": "a b c d " * 2000}, {"from": "gpt", "value": "no"}]
    conversations = tmp_path / "share.json"
    conversations.write_text(json.dumps([{"conversations": turns}, {"conversations": long}]))
    assert simulate("--sharegpt", str(conversations), "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["result"]["num_requests"] == 1
    assert "1 requests of" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--system", "orca"), "'orca' is not a system: fastertransformer, orca-max"),
        (("--device", "A99"), "'A99' is not a known device"),
        (("--model", "OPT-66B"), "leaves no memory for the KV cache of OPT-66B"),
        (("--rate", "0"), "'0' is not above 0"),
        (("--rate", "nan"), "'nan' is not a number of at least 0"),
        (("--burst", "-1"), "'-1' is not a number of at least 0"),
        (("--efficiency", "2"), "'2' is not a number above 0 and at most 1"),
        (("--kv-memory", "1MiB"), "Give the KV cache more memory"),
        (("--arrivals", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--samples", "300"), "300 samples run together, but max_num_seqs is 256"),
        (("--prefix-tokens", "2047"), "leaves no room for a prompt"),
        (("paper", "fig1"), "'fig1' is not simulated: fig2"),
        (("calibrate", "--model", "no-such-model-here"), "no-such-model-here"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_figure_of_the_paper(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "figure.svg"
    assert simulate("paper", "fig16", "--requests", "20", "--plot", str(picture)) == 0
    assert "<svg" in picture.read_text()
    shown = " ".join(capsys.readouterr().out.split())
    assert "The paper's numbers are quoted, ours are simulated here." in shown
    assert "3.58" in shown
    assert simulate("paper", "fig16", "--requests", "20", "--json") == 0
    (figure,) = json.loads(capsys.readouterr().out)
    assert [row["paper"] for row in figure["rows"]] == [[1.67, 1.67], [3.58, 3.58]]


@pytest.mark.long
def test_a_calibration(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("calibrate", "--requests", "20") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Held out: 20 requests at once" in shown
    assert "preemptions" in shown


def test_a_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--rate", "6", "--requests", "60", "--prefix-tokens", "64", "--prefixes", "4")
    assert simulate("fleet", *load, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_replicas"] >= document["rate"] / document["knee"] > 1
    assert set(document["routed"]) == {"random", "least-loaded", "prefix"}
    assert simulate("fleet", "--rate", "0.1", "--requests", "20") == 0
    assert "0.1 requests/s need 1 replicas, 1 × A100-40GB" in capsys.readouterr().out
    assert simulate("fleet", "--tpot", "0.001", "--requests", "20") == 2
    assert "no number of replicas keeps targets" in capsys.readouterr().err
