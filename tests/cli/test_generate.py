"""`minipaged generate`: texts, JSON, prompts from stdin, and bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from minipaged import LLM, SamplingParams
from minipaged.cli import main as cli
from minipaged.cli.generate import parse_token_ids
from minipaged.errors import PromptError
from tests.oracle import make_model

POOL = ("--num-blocks", "65")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = cli.main(["generate", *arguments])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def expected(prompt: str, **params: int | float | str) -> str:
    llm = LLM("tiny", num_blocks=65)
    return llm.generate(prompt, SamplingParams(**params), use_tqdm=False)[0].outputs[0].text  # pyright: ignore[reportArgumentType]


def test_one_prompt_prints_its_text_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "Once upon a time", "--max-tokens", "12", *POOL)
    assert code == 0
    assert out == expected("Once upon a time", temperature=0, max_tokens=12) + "\n"
    assert err.startswith("CPU KV cache size: 1,040 tokens")
    assert len(err.splitlines()) == 1


def test_what_changes_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "a", "--max-tokens", "2", "--seed", "3", "--top-p", "0.5", *POOL)
    assert "--top-p, --seed had no effect: add --temperature 1" in err
    _, _, err = run(capsys, "a", "--max-tokens", "2", "--seed", "3", "--temperature", "1", *POOL)
    assert "no effect" not in err


def test_outputs_that_the_longest_request_cuts_off(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--max-model-len", "16", *POOL)
    _, _, err = run(capsys, "Once upon a time", "Once", "--max-tokens", "100", *options)
    assert "2 of 2 outputs ended before --max-tokens" in err
    assert "max_model_len=16" in err
    _, _, err = run(capsys, "Once", "--max-tokens", "4", *options)
    assert "--max-tokens" not in err


def test_json_has_a_line_for_each_output(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys,
        "--json",
        "abc",
        "def",
        "--n",
        "2",
        "--temperature",
        "1",
        "--seed",
        "3",
        "--max-tokens",
        "5",
        *POOL,
    )
    assert code == 0
    records = [json.loads(line) for line in out.splitlines()]
    assert [(r["prompt_index"], r["prompt"], r["index"]) for r in records] == [
        (0, "abc", 0),
        (0, "abc", 1),
        (1, "def", 0),
        (1, "def", 1),
    ]
    for record in records:
        assert len(record["token_ids"]) == 5
        assert record["finish_reason"] == "length"
    llm = LLM("tiny", num_blocks=65)
    params = SamplingParams(n=2, temperature=1, seed=3, max_tokens=5)
    outputs = llm.generate(["abc", "def"], params, use_tqdm=False)
    assert [r["text"] for r in records] == [sample.text for output in outputs for sample in output.outputs]
    lengths = [len(output.prompt_token_ids) for output in outputs for _ in output.outputs]
    assert [r["num_prompt_tokens"] for r in records] == lengths


def test_several_outputs_have_headings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "[bold]a[/bold]\nb", "second", "--max-tokens", "2", *POOL)
    assert code == 0
    assert "--- [bold]a[/bold] b\n" in out
    assert "--- second\n" in out


def test_a_stop_string_ends_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = expected("Once upon a time", temperature=1.0, seed=5, max_tokens=40)
    stop = next(c for c in text[1:] if c.isascii() and c.isprintable())
    options = ("--temperature", "1", "--seed", "5", "--max-tokens", "40", "--json", *POOL)
    _, out, _ = run(capsys, "Once upon a time", "--stop", stop, *options)
    record = json.loads(out)
    assert record["finish_reason"] == "stop"
    assert record["stop_reason"] == stop
    assert record["text"] == text[: text.index(stop)]


def test_prompts_come_from_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("first line\n\n  \nsecond\n"))
    code, out, _ = run(capsys, "--json", "--max-tokens", "1", *POOL)
    assert code == 0
    assert [json.loads(line)["prompt"] for line in out.splitlines()] == ["first line", "second"]


def piped(content: bytes, encoding: str = "utf-8") -> io.TextIOWrapper:
    """Standard input as Python opens it on Linux, where it takes lines as they are."""
    return io.TextIOWrapper(io.BytesIO(content), encoding, errors="surrogateescape", newline="\n")


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"caf\xc3\xa9\r\n\r\nsecond \r\n", "utf-8"),
        (b"\xef\xbb\xbfcaf\xc3\xa9\nsecond ", "UTF8"),
        (b"\xef\xbb\xbfcaf\xc3\xa9\r\nsecond \r\n", "utf-8"),
        (b"caf\xe9\r\nsecond \r\n", "latin-1"),
    ],
)
def test_lines_as_other_systems_write_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes, encoding: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(content, encoding))
    code, out, _ = run(capsys, "--json", "--max-tokens", "1", *POOL)
    assert code == 0
    assert [json.loads(line)["prompt"] for line in out.splitlines()] == ["café", "second "]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdin", "what"),
    [
        (io.StringIO(""), "stdin was empty"),
        (_Terminal(), "no prompt: give one"),
        (piped(b"ab\xff\n"), "stdin is not utf-8 text, from byte 2 on"),
        (piped("ab".encode("utf-16")), "stdin is not utf-8 text, from byte 0 on"),
    ],
)
def test_no_prompt_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stdin: io.TextIOBase, what: str
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert what in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "--temperature", "nan"],
        ["a", "--temperature", "hot"],
        ["a", "--max-tokens", "0"],
        ["a", "--n", "2"],
        ["a", "--top-p", "2"],
        ["a", "--stop", ""],
        ["a", "--model", "no-such-model"],
        ["a", "--num-blocks", "0"],
        ["a", "--num-blocks", "4", "--kv-memory", "1GiB"],
        ["a", "--no-such-option"],
        ["1 x", "--token-ids"],
    ],
)
def test_bad_options_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("minipaged: ")


@pytest.mark.parametrize("arguments", [["", "b"], ["x" * 5000], ["\udcff"], ["9999", "--token-ids"]])
def test_bad_prompts_are_one_line_after_the_log_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code, out, err = run(capsys, *arguments, *POOL)
    assert (code, out) == (2, "")
    log, message = err.splitlines()
    assert log.startswith("CPU KV cache size")
    assert message.startswith("minipaged: ")


def test_the_models_sampling_values_are_said_and_not_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = make_model(tmp_path / "m", num_layers=1, max_position_embeddings=64)
    options = ("1 2 3", "--token-ids", "--model", str(folder), "--max-tokens", "4")
    _, plain, err = run(capsys, *options)
    assert "suggests" not in err
    values = {"temperature": 9.0, "top_p": 0.95, "max_new_tokens": 2}
    (folder / "generation_config.json").write_text(json.dumps(values))
    _, out, err = run(capsys, *options)
    assert out == plain
    assert "generation_config suggests temperature=9, top_p=0.95" in err
    _, _, err = run(capsys, *options, "--temperature", "1")
    assert "suggests" not in err


def test_a_model_without_a_tokenizer_takes_token_ids(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(make_model(tmp_path / "model", vocab_size=50, max_position_embeddings=64))
    code, out, _ = run(capsys, "1, 2 3", "--token-ids", "--model", folder, "--max-tokens", "4")
    assert code == 0
    assert len(out.split()) == 4
    assert all(word.isdigit() for word in out.split())
    code, out, err = run(capsys, "text", "--model", folder)
    assert (code, out) == (2, "")
    assert "token ids only" in err


def test_token_ids() -> None:
    assert parse_token_ids(" 1,2, 3  4 ") == [1, 2, 3, 4]
    with pytest.raises(PromptError, match="integers"):
        parse_token_ids("1.5")
