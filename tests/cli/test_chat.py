"""`minipaged chat` through a pipe: turns, commands, the prefix cache, Ctrl-C, and long conversations."""

from __future__ import annotations

import io
import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from minipaged.cli import main as cli
from minipaged.engine.llm_engine import LLMEngine, RequestProcessor
from minipaged.engine.outputs import RequestOutput
from tests.oracle import add_byte_tokenizer, make_model

LONG = "This is a message of more than sixteen tokens, so of several blocks."


@dataclass(frozen=True)
class Turn:
    """The numbers in the line after a turn."""

    num_tokens: int
    num_prompt: int
    num_cached: int


@dataclass(frozen=True)
class Session:
    code: int
    out: str
    err: str

    @property
    def turns(self) -> list[Turn]:
        found = re.findall(
            r"^\[(\d+) tokens, [\d.]+ tokens/s \| prompt (\d+) tokens, (\d+) of them from the prefix cache\]",
            self.err,
            re.MULTILINE,
        )
        return [Turn(*map(int, numbers)) for numbers in found]


class Chat:
    """Runs the command with some lines as its input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, lines: Sequence[str], *arguments: str, model: str = "tiny") -> Session:
        self._monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        self._capsys.readouterr()  # what the test itself has printed
        try:
            code = cli.main(["chat", "--model", model, *arguments])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        captured = self._capsys.readouterr()
        return Session(code, captured.out, captured.err)


@pytest.fixture
def chat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Chat:
    return Chat(capsys, monkeypatch)


def test_the_second_turn_finds_the_first_in_the_cache(chat: Chat) -> None:
    session = chat([LONG, "And more?"], "--max-tokens", "5")
    assert session.code == 0
    first, second = session.turns
    assert first.num_cached == 0
    assert second.num_cached >= first.num_prompt // 16 * 16 > 0
    assert second.num_prompt > first.num_prompt


def test_reset_forgets_the_conversation(chat: Chat) -> None:
    session = chat([LONG, "And more?", "/reset", LONG], "--max-tokens", "5")
    first, _, third = session.turns
    assert third.num_prompt == first.num_prompt
    assert third.num_cached == (first.num_prompt - 1) // 16 * 16
    assert "the conversation is forgotten" in session.err


def test_greedy_answers_do_not_depend_on_the_cache(chat: Chat) -> None:
    options = ("--temperature", "0", "--max-tokens", "20")
    with_cache = chat([LONG, "And more?"], *options)
    without = chat([LONG, "And more?"], *options, "--no-prefix-caching")
    assert with_cache.out == without.out
    assert [turn.num_cached for turn in without.turns] == [0, 0]


def test_exit_leaves_at_once(chat: Chat) -> None:
    session = chat(["/exit", LONG])
    assert (session.code, session.out, session.turns) == (0, "", [])


def test_what_is_said_at_the_start(chat: Chat) -> None:
    session = chat(["", "hi", "hi"], "--max-tokens", "1")
    lines = session.err.splitlines()
    assert lines[0].startswith("CPU KV cache size: ")
    assert "/reset" in lines[1]
    assert lines[2] == "sampling: temperature=0.2, top_p=0.9"
    assert session.err.count("tiny has no chat template") == 1
    assert len(session.turns) == 2  # a blank line is no turn


def test_lines_as_other_systems_write_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO(b"\xef\xbb\xbf/reset\r\n\r\n/exit\r\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content, "utf-8", newline="\n"))
    assert cli.main(["chat", "--model", "tiny"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the conversation is forgotten" in captured.err


def test_answers_are_sampled_as_the_model_says(chat: Chat, tmp_path: Path) -> None:
    folder = add_byte_tokenizer(make_model(tmp_path / "m", num_layers=1, max_position_embeddings=64))
    values = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 2}
    (folder / "generation_config.json").write_text(json.dumps(values))

    def sampling(*arguments: str) -> str:
        session = chat(["hi"], *arguments, "--max-tokens", "3", model=str(folder))
        assert session.turns[0].num_tokens == 3, "how long an answer may be is the command's to say"
        return next(line for line in session.err.splitlines() if line.startswith("sampling"))

    assert sampling() == "sampling: temperature=0.6, top_k=20, top_p=0.9"
    assert sampling("--temperature", "0.3", "--top-k", "0") == "sampling: temperature=0.3, top_p=0.9"
    (folder / "generation_config.json").write_text(json.dumps({"temperature": -1}))
    session = chat(["hi"], model=str(folder))
    assert session.code == 2
    assert "the model's own sampling values cannot be used" in session.err.splitlines()[-1]


def test_an_unknown_command_is_no_message(chat: Chat) -> None:
    session = chat(["/quit now"])
    assert "there is no command '/quit'" in session.err
    assert session.turns == []


def test_the_oldest_turns_are_dropped_when_the_room_is_used_up(chat: Chat) -> None:
    session = chat([LONG, LONG, LONG], "--max-model-len", "160", "--max-tokens", "40")
    assert session.code == 0
    assert "the conversation outgrew max_model_len=160: dropped the oldest turn" in session.err
    assert len(session.turns) == 3
    assert all(turn.num_prompt <= 120 for turn in session.turns)


def test_a_message_that_is_too_long_is_refused_and_the_chat_goes_on(chat: Chat) -> None:
    too_long = "The old dog ran up the hill. " * 40
    session = chat(["short", too_long, "short"], "--max-model-len", "100", "--max-tokens", "4")
    assert session.code == 0
    assert len(session.turns) == 2
    (num_tokens,) = re.findall(r"this message is (\d+) tokens long", session.err)
    assert int(num_tokens) >= 40 * 7


def test_why_an_answer_was_cut_off_is_said(chat: Chat) -> None:
    assert "[cut off at --max-tokens 3]" in chat(["hi"], "--max-tokens", "3").err
    full = chat(["hi"], "--max-tokens", "1000", "--max-model-len", "20")
    assert "[cut off at max_model_len=20]" in full.err


def test_ctrl_c_ends_the_answer_and_not_the_chat(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    real = LLMEngine.advance

    def advance(engine: LLMEngine) -> list[RequestProcessor]:
        nonlocal steps
        steps += 1
        if steps == 5:
            signal.raise_signal(signal.SIGINT)
        return real(engine)

    monkeypatch.setattr(LLMEngine, "advance", advance)
    handler = signal.getsignal(signal.SIGINT)
    session = chat([LONG, "And more?"], "--max-tokens", "20")
    assert session.code == 0
    first, second = session.turns
    assert first.num_tokens == 5
    assert session.err.count("[stopped by Ctrl-C]") == 1
    assert second.num_tokens == 20
    assert second.num_prompt > first.num_prompt, "what had been said stays in the conversation"
    assert signal.getsignal(signal.SIGINT) is handler


def test_without_an_input_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main(["chat", "--model", "tiny"]) == 0


def test_ctrl_c_at_the_prompt_leaves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    assert cli.main(["chat", "--model", "tiny"]) == cli.EXIT_INTERRUPTED


def test_text_is_streamed_as_it_comes_and_is_safe(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is written at the end of its step. Markup is printed as text, and escapes are replaced."""
    texts = ["[bold]", "[bold]a\x1b[31m", "[bold]a\x1b[31m\nb\u202e"]
    real = LLMEngine.step

    def step(engine: LLMEngine) -> list[RequestOutput]:
        outputs = real(engine)
        for output in outputs:
            sample = output.outputs[0]
            object.__setattr__(sample, "text", texts[len(sample.token_ids) - 1])
        return outputs

    monkeypatch.setattr(LLMEngine, "step", step)
    session = chat(["hi"], "--max-tokens", "3")
    assert session.out == "[bold]a\ufffd[31m\nb\ufffd\n"


def test_bytes_that_are_no_text_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    assert cli.main(["chat", "--model", "tiny"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "minipaged: stdin is not utf-8 text, from byte 0 on"


@pytest.mark.parametrize(
    "arguments", [["--temperature", "-1"], ["--max-tokens", "0"], ["--max-model-len", "0"], ["--n", "2"]]
)
def test_bad_options_are_one_line(chat: Chat, arguments: list[str]) -> None:
    session = chat(["hi"], *arguments)
    assert (session.code, session.out) == (2, "")
    assert len(session.err.splitlines()) == 1


def test_a_model_without_a_tokenizer_cannot_chat(chat: Chat, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", vocab_size=50, max_position_embeddings=64)
    session = chat(["hi"], model=str(folder))
    assert session.code == 2
    assert "came without a tokenizer" in session.err
    assert len(session.err.splitlines()) == 1


@pytest.mark.smollm2
def test_smollm2_chats_with_its_own_template(chat: Chat, smollm2_path: Path) -> None:
    session = chat(
        ["What is the capital of France?", "And of Italy?"],
        "--temperature",
        "0",
        "--max-tokens",
        "8",
        model=str(smollm2_path),
    )
    assert session.code == 0
    assert "no chat template" not in session.err
    first, second = session.turns
    assert second.num_cached >= first.num_prompt // 16 * 16 > 0
    assert "Paris" in session.out
