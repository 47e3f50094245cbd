"""The demo, as a user runs it. With any model and any size, it ends and prints a correct report."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from minipaged.cli import demo, demo_show
from minipaged.cli import main as cli
from minipaged.cli.demo_pool import rehearse
from minipaged.view.labels import Labels
from tests.oracle import make_model


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def number(self, name: str) -> int:
        """The first number after a name in the summary."""
        found = re.search(rf"^ {name} +([\d,]+)", self.out, re.MULTILINE)
        assert found is not None, self.out
        return int(found.group(1).replace(",", ""))


def run(*arguments: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(["demo", *arguments])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def plain() -> Result:
    """Of `minipaged demo` alone."""
    return run()


def parsed(*arguments: str) -> argparse.Namespace:
    """The demo's arguments, parsed by argparse."""
    parser = argparse.ArgumentParser(description="demo")
    demo.add_arguments(parser)
    return parser.parse_args(arguments)


def test_tiny_shares_prefixes_and_preempts(plain: Result) -> None:
    result = plain
    assert result.code == 0
    assert result.number("preemptions") >= 1
    assert result.number("prefix hits") >= 1
    assert len(re.findall(r"^step \d+: \w preempted", result.out, re.MULTILINE)) == result.number(
        "preemptions"
    )
    assert len(re.findall(r"^step \d+: \w ended", result.out, re.MULTILINE)) == 8
    assert re.search(r"peak usage +(\d+) of \1 blocks", result.out), "the pool ran dry"
    assert re.fullmatch(r"CPU KV cache size: .* tokens, Maximum concurrency for .*\n", result.err)
    assert "\x1b" not in result.out


def test_every_run_is_the_same(plain: Result) -> None:
    def without_speed(text: str) -> str:
        return re.sub(r"^ speed.*", "", text, flags=re.MULTILINE)

    assert without_speed(run().out) == without_speed(plain.out)


def test_waste_is_that_of_the_run(plain: Result) -> None:
    out = " ".join(plain.out.split())
    paged = re.search(r"waste, paged ([\d.]+)%", out)
    reserved = re.search(r"waste, reserved ([\d.]+)%", out)
    assert paged is not None
    assert reserved is not None
    assert 0 < float(paged.group(1)) < float(reserved.group(1)) < 100


def test_without_prefix_caching_there_are_no_hits() -> None:
    result = run("--no-prefix-caching")
    assert result.code == 0
    assert result.number("prefix hits") == 0
    assert result.number("preemptions") >= 1


def test_sizes_that_are_given_win() -> None:
    result = run("--num-blocks", "500", "--block-size", "4", "--max-model-len", "400")
    assert result.code == 0
    assert result.number("pool") == 499
    assert result.number("preemptions") == 0
    assert "max_model_len=400" in " ".join(result.out.split())


@pytest.mark.parametrize("arguments", [["--num-blocks", "3"], ["--kv-memory", "128KiB"]])
def test_a_small_pool_gets_short_prompts(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 0
    assert len(re.findall(r"^step \d+: \w ended", result.out, re.MULTILINE)) == 8


@pytest.mark.parametrize("longest", [2, 9, 64])
def test_a_model_without_a_tokenizer_and_with_few_positions(tmp_path: Path, longest: int) -> None:
    folder = make_model(tmp_path / "model", vocab_size=50, max_position_embeddings=longest)
    result = run("--model", str(folder))
    assert result.code == 0
    outputs = result.out.split("Outputs")[1].split("Summary")[0]
    assert re.fullmatch(r"[\sA-H→…\d]+", outputs), "token ids alone"
    if longest == 64:
        assert result.number("preemptions") >= 1
        assert result.number("prefix hits") >= 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "no-such-model"],
        ["--num-blocks", "1"],
        ["--num-blocks", "two"],
        ["--num-blocks", "2", "--max-model-len", "500"],
        ["--max-model-len", "1"],
        ["--max-model-len", "100000"],
        ["--delay", "nan"],
        ["--delay", "-1"],
        ["--device", "abacus"],
    ],
)
def test_bad_input_is_one_line(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("minipaged: ")


def test_in_a_terminal_the_pool_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24, color_system="truecolor")
    monkeypatch.setattr(demo, "stdout_console", lambda: console)
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    assert cli.main(["demo", "--delay", "0.001"]) == 0
    text = file.getvalue()
    assert text.count("Pool: ") > 50, "one picture for each step"
    assert "Waiting: " in text
    assert "A³" in re.sub(r"\x1b\[[\d;]*m", "", text), "shared blocks are marked"
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor comes back"
    assert "Summary" in text
    assert waits
    assert max(waits) <= 0.001


def test_the_cursor_comes_back_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24)
    monkeypatch.setattr(demo, "stdout_console", lambda: console)
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    assert cli.main(["demo"]) == cli.EXIT_INTERRUPTED
    assert file.getvalue().count("\x1b[?25h") == 1


def test_a_show_of_nothing_keeps_the_account(capsys: pytest.CaptureFixture[str]) -> None:
    engine, workload = demo.prepare(parsed("--block-size", "8"))
    show = demo_show.Show(Labels())
    outputs = demo.serve(engine, workload, show)
    engine.check_invariants()
    assert [len(output.outputs[0].token_ids) for output in outputs] == [
        r.max_tokens for r in workload.requests
    ]
    assert show.meter.peak_used == engine.stats().num_blocks - 1
    assert show.seconds > 0
    assert capsys.readouterr().out == ""


@pytest.mark.smollm2
def test_smollm2_shares_prefixes_and_preempts(capsys: pytest.CaptureFixture[str], smollm2_path: Path) -> None:
    engine, workload = demo.prepare(parsed("--model", str(smollm2_path)))
    # Running it takes long, so only the rehearsal is checked. Another test compares runs with rehearsals.
    said = rehearse(workload.requests, engine.config, engine.stats().num_blocks)
    assert said.num_preemptions >= 1
    assert said.prefix_cache_hits >= 3 * engine.config.block_size
    assert said.peak_used == engine.stats().num_blocks - 1


@pytest.mark.parametrize("stage", ["1", "2"])
def test_a_stage_without_blocks_is_refused(stage: str) -> None:
    result = run("--stage", stage, "--plain")
    assert result.code == 2
    assert "choose a stage from 3 to 8" in result.err
    assert len(result.err.splitlines()) == 1
