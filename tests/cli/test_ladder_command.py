"""The ladder, as a user runs it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from minipaged.bench import ladder as ladder_module
from minipaged.cli import ladder
from minipaged.cli import main as cli
from tests.oracle import make_model


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Result:
    try:
        code = cli.main(["ladder", *arguments])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    captured = capsys.readouterr()
    return Result(code, captured.out, captured.err)


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = make_model(
        tmp_path_factory.mktemp("models") / "nano",
        num_layers=1,
        hidden_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=16,
        vocab_size=32,
        max_position_embeddings=128,
    )
    return str(folder)


def test_all_stages_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path, nano: str) -> None:
    out, plot = tmp_path / "ladder.json", tmp_path / "ladder.png"
    result = run(
        capsys,
        "--model",
        nano,
        "--requests",
        "6",
        "--block-size",
        "4",
        "--out",
        str(out),
        "--plot",
        str(plot),
    )
    assert result.code == 0, result.err
    document = json.loads(out.read_text())
    first, shared = document["workloads"]
    assert [entry["stage"] for entry in first["stages"]] == list(range(1, 9))
    assert [entry["stage"] for entry in shared["stages"]] == [2, 7, 8]
    assert first["difference"] is shared["difference"] is None
    assert first["num_slots"] == shared["num_slots"] == 3 * 128
    assert shared["num_prefix_tokens"] == 341 * 128 // 2048
    assert shared["stages"][2]["prefix_cache_hits"] > 0
    assert document["max_model_len"] == 128
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert f"All 8 stages gave the same {first['num_output_tokens']:,} tokens." in result.out
    speeds = result.out.split("Speed")[1].split("KV memory")[0]
    assert re.findall(r"^ +([1-8]) ", speeds, re.MULTILINE) == list("12345678")
    assert "Stage 4 (copy-on-write) did the same work as stage 3" in " ".join(result.out.split())
    assert "96 blocks of 4 tokens" in result.err
    assert "\x1b" not in result.out + result.err


def test_the_same_seed_is_the_same_workload(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, nano: str
) -> None:
    def workload(seed: str) -> tuple[int, int]:
        path = tmp_path / "out.json"
        arguments = ["--model", nano, "--requests", "3", "--stages", "6", "--seed", seed, "--out", str(path)]
        assert run(capsys, *arguments).code == 0
        [entry] = json.loads(path.read_text())["workloads"]
        return entry["num_prompt_tokens"], entry["num_output_tokens"]

    assert workload("5") == workload("5")
    assert workload("5") != workload("6")


@pytest.mark.parametrize(
    ("arguments", "num_slots", "max_model_len"),
    [
        (["--num-blocks", "9"], 8 * 16, 128),
        (["--num-blocks", "4"], 3 * 16, 48),
        (["--kv-memory", "20KiB"], 9 * 16, 128),  # 2 KiB a block, one of them the null block
        (["--max-model-len", "40"], 3 * 48, 40),
        (["--block-size", "8"], 3 * 128, 128),
    ],
)
def test_sizes(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    nano: str,
    arguments: list[str],
    num_slots: int,
    max_model_len: int,
) -> None:
    path = tmp_path / "out.json"
    result = run(
        capsys, "--model", nano, "--requests", "2", "--stages", "2,8", *arguments, "--out", str(path)
    )
    assert result.code == 0, result.err
    document = json.loads(path.read_text())
    assert document["workloads"][0]["num_slots"] == num_slots
    assert document["max_model_len"] == max_model_len


def test_without_stage_8_there_is_no_shared_prefix(capsys: pytest.CaptureFixture[str], nano: str) -> None:
    result = run(capsys, "--model", nano, "--requests", "2", "--stages", "3,6-7")
    assert result.code == 0
    assert "shared prefix" not in result.out
    assert "stage 3 = 1.0" in result.out


def test_different_tokens_are_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nano: str
) -> None:
    run_stage = ladder_module.run_stage

    def wrong(stage: int, *rest: object) -> object:
        result, outputs = run_stage(stage, *rest)  # pyright: ignore[reportArgumentType]
        if stage == 4:
            outputs = ((*outputs[0][:-1], outputs[0][-1] + 1), *outputs[1:])
        return result, outputs

    monkeypatch.setattr(ladder_module, "run_stage", wrong)
    result = run(capsys, "--model", nano, "--requests", "2", "--stages", "2-5")
    assert result.code == 1
    assert "DIFFERENT TOKENS: stages 2 and 4" in result.out
    assert "stages 2 and 4 differ from output token" in result.err
    assert "rounding" not in result.err, "this is float32"


def test_in_a_terminal_each_stage_has_its_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nano: str
) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    monkeypatch.setattr(ladder, "stderr_console", lambda: console)
    assert run(capsys, "--model", nano, "--requests", "2", "--stages", "6,8").code == 0
    assert "6 continuous batching" in file.getvalue()
    assert "8 prefix caching" in file.getvalue()
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 2, (
        "one for each workload"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stages", "9"], "'9' is not in range: the stages are 1 to 8"),
        (["--stages", "0-3"], "the stages are 1 to 8"),
        (["--stages", "5-2"], "the stages are 1 to 8"),
        (["--stages", "all"], "not a list of stages such as 1-8"),
        (["--stages", ""], "not a list of stages"),
        (["--requests", "0"], "not an integer of at least 1"),
        (["--requests", "1000000000000"], "at most 100,000 requests"),
        (["--seed", "-1"], "not an integer of at least 0"),
        (["--num-blocks", "2"], "the ladder needs at least 3"),
        (["--kv-memory", "1KiB"], "the ladder needs at least 3"),
        (["--kv-memory", "much"], "much"),
        (["--num-blocks", "5", "--max-model-len", "100"], "max_model_len=100"),
        (["--num-blocks", "5", "--kv-memory", "1MiB"], "not allowed with"),
        (["--max-model-len", "129"], "max_model_len=129"),
        (["--max-model-len", "1"], "at least 2"),
        (["--out", "no/such/folder/x.json"], "there is no folder 'no/such/folder'"),
        (["--out", "."], "is a folder"),
        (["--plot", "x.doc"], "must end in .png, .svg or .pdf"),
        (["--device", "abacus"], "abacus"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], nano: str, arguments: list[str], words: str
) -> None:
    result = run(capsys, *(["--model", nano] if "--model" not in arguments else []), *arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("minipaged: ")
    assert words in result.err
